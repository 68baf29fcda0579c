/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - what an input is, by its first bytes, and its text as UTF-8.
 *
 * Role    source.c reads through here.
 * Method  The first bytes decide, not the name: a table of what files begin with. gzip and zstd are expanded
 *         and what comes out is judged in its turn; UTF-16 and UTF-32 with a byte order mark become
 *         UTF-8; formats that hold no plain text are refused with the way to convert them, since bytes
 *         of a Parquet file embedded as lines would be a result that nobody can tell from a right one.
 *         Names that could begin a text as well ("PAR1", "PK") count only where control characters
 *         follow. A lone surrogate becomes the three bytes that are not valid UTF-8, so that its line is
 *         refused, or repaired, like any other. Plain UTF-8 goes from the file to the caller's buffer.
 * Memory  A block of packed bytes, and one of expanded ones where they must be decoded.
 * Proof   tests/cli/test_cli_packed.py. */
#include "cli/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"

typedef enum fl_sign_kind {
    SIGN_GZIP,
    SIGN_ZSTD,
    SIGN_CHARSET,
    SIGN_BINARY,
    SIGN_WORD
} fl_sign_kind;

/* What files begin with. `bytes` at `offset`; SIGN_WORD: only where the rest is not text. `advice` follows
 * "NAME is WHAT; ". */
typedef struct fl_sign {
    fl_sign_kind kind;
    unsigned     offset, size;
    const char  *bytes, *what, *advice;
    fl_charset   charset;
} fl_sign;

#define PANDAS(read)                                                                               \
    "convert it to JSON lines first, for instance with Python: pandas." read                       \
    "(FILE).to_json(\"out.jsonl\", orient=\"records\", lines=True)"
#define EXPAND(command) "decompress it first: " command " FILE | fletch embed"

static const fl_sign signs[] = {
    {SIGN_GZIP, 0, 3, "\x1f\x8b\x08", "gzip", NULL, 0},
    {SIGN_ZSTD, 0, 4, "\x28\xb5\x2f\xfd", "zstd", NULL, 0},
    {SIGN_ZSTD, 1, 3, "\x2a\x4d\x18", "zstd", NULL, 0}, /* a skippable frame, as pzstd writes */
    {SIGN_CHARSET, 0, 3, "\xef\xbb\xbf", "UTF-8", NULL, FL_CHARSET_UTF8},
    {SIGN_CHARSET, 0, 4, "\xff\xfe\0\0", "UTF-32", NULL, FL_CHARSET_UTF32LE},
    {SIGN_CHARSET, 0, 4, "\0\0\xfe\xff", "UTF-32", NULL, FL_CHARSET_UTF32BE},
    {SIGN_CHARSET, 0, 2, "\xff\xfe", "UTF-16", NULL, FL_CHARSET_UTF16LE},
    {SIGN_CHARSET, 0, 2, "\xfe\xff", "UTF-16", NULL, FL_CHARSET_UTF16BE},
    {SIGN_BINARY, 0, 6,
     "\xfd"
     "7zXZ\0",
     "an xz file", EXPAND("xz -dc"), 0},
    {SIGN_BINARY, 4, 6, "1AY&SY", "a bzip2 file", EXPAND("bzip2 -dc"), 0},
    {SIGN_BINARY, 0, 4, "\x04\x22\x4d\x18", "an lz4 file", EXPAND("lz4 -dc"), 0},
    {SIGN_BINARY, 0, 6, "7z\xbc\xaf\x27\x1c", "a 7z archive", "extract it first: 7z x FILE", 0},
    {SIGN_WORD, 0, 4, "PK\x03\x04", "a zip archive (or a workbook)",
     "extract it first: unzip FILE; save a workbook as CSV", 0},
    {SIGN_WORD, 257, 5, "ustar", "a tar archive", "extract it first: tar -xf FILE", 0},
    {SIGN_WORD, 0, 4, "PAR1", "a Parquet file", PANDAS("read_parquet"), 0},
    {SIGN_BINARY, 0, 8, "ARROW1\0\0", "an Arrow (Feather) file", PANDAS("read_feather"), 0},
    {SIGN_BINARY, 0, 4, "\xff\xff\xff\xff", "an Arrow stream",
     "convert it to JSON lines first, for instance with Python: "
     "pyarrow.ipc.open_stream(FILE).read_pandas().to_json(\"out.jsonl\", orient=\"records\", "
     "lines=True)",
     0},
    {SIGN_WORD, 0, 3, "ORC", "an ORC file", PANDAS("read_orc"), 0},
    {SIGN_BINARY, 0, 4, "Obj\x01", "an Avro file", "convert it to JSON lines first", 0},
    {SIGN_BINARY, 0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file", PANDAS("read_hdf"), 0},
    {SIGN_BINARY, 0, 6, "\x93NUMPY", "a NumPy array", "fletch embeds texts", 0},
    {SIGN_BINARY, 0, 16, "SQLite format 3\0", "an SQLite database",
     "export the texts first: sqlite3 -csv -header FILE \"select ...\" | fletch embed "
     "--input-format csv",
     0},
    {SIGN_WORD, 0, 5, "%PDF-", "a PDF", "extract its text first: pdftotext FILE - | fletch embed",
     0},
};

/* Control characters that no text holds, or bytes that are not UTF-8 (the last character may be cut). */
static bool is_binary(const char *data, size_t size) {
    const size_t valid = fl_utf8_valid_prefix(data, size);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)data[i];
        if (c < 0x08 || (c >= 0x0e && c < 0x20 && c != 0x1b))
            return true;
    }
    return size - valid > 3;
}

/* The sign that fits; *open when more bytes could still make one fit. */
static const fl_sign *find_sign(const char *data, size_t size, bool *open) {
    *open = size == 0;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        const fl_sign *sign  = &signs[i];
        const size_t   whole = sign->offset + sign->size, seen = size < whole ? size : whole;
        if (sign->offset >= seen)
            continue; /* the few that begin late: only where the first read holds them */
        if (memcmp(data + sign->offset, sign->bytes, seen - sign->offset) != 0)
            continue;
        if (seen < whole) {
            *open = *open || sign->offset == 0;
        } else if (sign->kind != SIGN_ZSTD || sign->offset == 0 || (data[0] & 0xf0) == 0x50) {
            if (sign->kind != SIGN_WORD || is_binary(data, size))
                return sign;
        }
    }
    return NULL;
}

/* UTF-16 without a byte order mark: every second byte of a Latin text is zero, which is valid UTF-8. */
static const char *unmarked_wide(const char *data, size_t size) {
    size_t zeros[2] = {0, 0}, seen = size < 512 ? size & ~(size_t)1 : 512;
    for (size_t i = 0; i < seen; i++)
        zeros[i & 1] += data[i] == '\0';
    if (seen < 8 || (zeros[0] > 0 && zeros[1] > 0))
        return NULL;
    return zeros[1] * 4 >= seen ? "UTF-16LE" : zeros[0] * 4 >= seen ? "UTF-16BE" : NULL;
}

static int refuse(const fl_byte_stream *stream, const fl_sign *sign, fletch_error *error) {
    const char *packing = stream->expand.packing == FL_PACKING_GZIP   ? " in gzip"
                          : stream->expand.packing == FL_PACKING_ZSTD ? " in zstd"
                                                                      : "";
    return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s is %s%s, not text; %s", stream->name,
                   sign->what, packing, sign->advice);
}

int fl_stream_open(fl_byte_stream *stream, const char *path, fletch_error *error) {
    memset(stream, 0, sizeof *stream);
    stream->fd   = STDIN_FILENO;
    stream->name = "standard input";
    if (path != NULL && strcmp(path, "-") != 0) {
        stream->name = path;
        stream->fd   = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (stream->fd < 0)
            return fl_fail_errno(error, errno, "cannot open", path);
        stream->owned = true;
    }
    struct stat status;
    if (fstat(stream->fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        fl_stream_close(stream);
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s is a folder; give the name of a file",
                       path != NULL ? path : "standard input");
    }
    stream->packed = (fl_packed){.fd = stream->fd, .name = stream->name};
    return 0;
}

int fl_stream_skip(fl_byte_stream *stream, uint64_t offset, fletch_error *error) {
    if (lseek(stream->fd, (off_t)offset, SEEK_SET) < 0)
        return fl_fail_errno(error, errno, "cannot read", stream->name);
    stream->packed.taken = offset;
    stream->judged       = true;
    return 0;
}

bool fl_stream_is_plain(const char *head, size_t size) {
    bool           open;
    const fl_sign *sign = find_sign(head, size, &open);
    if (sign != NULL)
        return sign->kind == SIGN_CHARSET && sign->charset == FL_CHARSET_UTF8;
    return unmarked_wide(head, size) == NULL;
}

void fl_stream_close(fl_byte_stream *stream) {
    if (stream->owned)
        (void)close(stream->fd);
    stream->owned = false;
    fl_expand_close(&stream->expand);
    fl_free(stream->packed.data);
    fl_free(stream->plain);
    stream->packed.data = stream->plain = NULL;
}

bool fl_stream_holds_more(const fl_byte_stream *stream) {
    return stream->plain_begin < stream->plain_end || stream->packed.begin < stream->packed.end ||
           stream->expand.full;
}

uint64_t fl_stream_taken(const fl_byte_stream *stream) {
    const size_t plain =
        fl_stream_is_verbatim(stream) ? stream->plain_end - stream->plain_begin : 0;
    return stream->packed.taken - plain - (stream->packed.end - stream->packed.begin);
}

/* Bytes as they are in the file once expanded: what is held, else straight into `out`. */
static int64_t read_plain(fl_byte_stream *stream, char *out, size_t room, fletch_error *error) {
    fl_packed *packed = &stream->packed;
    if (stream->expand.packing != FL_PACKING_NONE)
        return fl_expand_read(&stream->expand, packed, out, room, error);
    if (packed->begin < packed->end) {
        const size_t left = packed->end - packed->begin, count = left < room ? left : room;
        memcpy(out, packed->data + packed->begin, count);
        packed->begin += count;
        return (int64_t)count;
    }
    if (packed->ended)
        return 0;
    const ssize_t count = fl_signals_read(stream->fd, out, room);
    if (count < 0)
        return fl_fail_errno(error, errno, "cannot read", stream->name);
    packed->taken += (uint64_t)count;
    packed->ended = count == 0;
    return count;
}

/* One more block of plain bytes after those that are held: 1, 0 at the end, negative on failure. */
static int fill_plain(fl_byte_stream *stream, fletch_error *error) {
    if (stream->plain == NULL && (stream->plain = fl_alloc(FL_BLOCK)) == NULL)
        return fl_fail_nomem(error, FL_BLOCK, "the input buffer");
    const size_t left = stream->plain_end - stream->plain_begin;
    memmove(stream->plain, stream->plain + stream->plain_begin, left);
    stream->plain_begin = 0;
    stream->plain_end   = left;
    if (left == FL_BLOCK)
        return 1;
    const int64_t count = read_plain(stream, stream->plain + left, FL_BLOCK - left, error);
    stream->plain_end += count > 0 ? (size_t)count : 0;
    stream->plain_ended = count == 0;
    return count < 0 ? (int)count : count > 0;
}

/* Judge the first bytes of the file, then of what they expand to. */
static int judge(fl_byte_stream *stream, fletch_error *error) {
    const fl_sign *sign = NULL;
    bool           open = true;
    int            more = 1;
    while (more > 0 && open) {
        more = fill_plain(stream, error);
        sign = find_sign(stream->plain + stream->plain_begin, stream->plain_end, &open);
        open = open && sign == NULL;
    }
    if (more < 0)
        return more;
    if (sign != NULL && (sign->kind == SIGN_GZIP || sign->kind == SIGN_ZSTD)) {
        if (stream->expand.packing != FL_PACKING_NONE)
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                           "%s is compressed twice (%s inside); decompress it once first",
                           stream->name, sign->what);
        /* the bytes that are here go back to where packed ones wait */
        stream->packed.data  = stream->plain;
        stream->packed.begin = 0;
        stream->packed.end   = stream->plain_end;
        stream->plain        = NULL;
        stream->plain_begin = stream->plain_end = 0;
        stream->plain_ended                     = false;
        const bool gzip                         = sign->kind == SIGN_GZIP;
        const int  status =
            fl_expand_open(&stream->expand, gzip ? FL_PACKING_GZIP : FL_PACKING_ZSTD, error);
        return status < 0 ? status : judge(stream, error);
    }
    if (sign != NULL && sign->kind != SIGN_CHARSET)
        return refuse(stream, sign, error);
    const char *wide = sign == NULL ? unmarked_wide(stream->plain, stream->plain_end) : NULL;
    if (wide != NULL)
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "%s looks like %s without a byte order mark; convert it first: iconv -f %s "
                       "-t UTF-8 FILE | fletch embed",
                       stream->name, wide, wide);
    if (sign != NULL) {
        stream->charset     = sign->charset;
        stream->plain_begin = sign->size;
    }
    stream->judged = true;
    return 0;
}

static uint32_t word(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return a << 24 | b << 16 | c << 8 | d;
}

/* One code unit of the charset at `at`. */
static uint32_t unit(fl_charset charset, const unsigned char *at) {
    switch (charset) {
    case FL_CHARSET_UTF16LE: return (uint32_t)(at[0] | at[1] << 8);
    case FL_CHARSET_UTF16BE: return (uint32_t)(at[1] | at[0] << 8);
    case FL_CHARSET_UTF32LE: return word(at[3], at[2], at[1], at[0]);
    default: return word(at[0], at[1], at[2], at[3]);
    }
}

/* UTF-8 of a code point, also of a lone surrogate and of what is none (three bytes that are not valid). */
static size_t put(char *out, uint32_t point) {
    if (point > 0x10FFFF)
        point = 0xD800;
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    const size_t size = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3F));
    out[0] = (char)((size == 2 ? 0xC0u : size == 3 ? 0xE0u : 0xF0u) | point);
    return size;
}

/* What one unit of UTF-16 adds, with the one before it where they are a pair. */
static size_t put_pair(fl_byte_stream *stream, uint32_t value, char *out) {
    const uint32_t high = stream->high;
    stream->high        = 0;
    if (high != 0 && value >= 0xDC00 && value < 0xE000)
        return put(out, 0x10000 + ((high - 0xD800) << 10) + (value - 0xDC00));
    size_t size = high != 0 ? put(out, high) : 0; /* alone after all */
    if (value >= 0xD800 && value < 0xDC00)
        stream->high = value;
    else
        size += put(out + size, value);
    return size;
}

/* Decode what is held: bytes written, never more than `room`. */
static size_t decode(fl_byte_stream *stream, char *out, size_t room) {
    const size_t width = stream->charset <= FL_CHARSET_UTF16BE ? 2 : 4;
    size_t       size  = 0;
    while (stream->plain_end - stream->plain_begin >= width && room - size >= 8) {
        const unsigned char *at    = (const unsigned char *)stream->plain + stream->plain_begin;
        const uint32_t       value = unit(stream->charset, at);
        stream->plain_begin += width;
        size += width == 2 ? put_pair(stream, value, out + size) : put(out + size, value);
    }
    return size;
}

int64_t fl_stream_read(fl_byte_stream *stream, char *out, size_t room, fletch_error *error) {
    if (!stream->judged)
        FL_TRY(judge(stream, error));
    if (stream->charset == FL_CHARSET_UTF8) {
        const size_t left  = stream->plain_end - stream->plain_begin,
                     count = left < room ? left : room;
        if (left == 0)
            return stream->plain_ended ? 0 : read_plain(stream, out, room, error);
        memcpy(out, stream->plain + stream->plain_begin, count);
        stream->plain_begin += count;
        return (int64_t)count;
    }
    for (;;) {
        const size_t size = decode(stream, out, room);
        if (size > 0)
            return (int64_t)size;
        const int more = stream->plain_ended ? 0 : fill_plain(stream, error);
        if (more < 0)
            return more;
        if (more == 0 && stream->plain_begin < stream->plain_end)
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                           "%s ends inside a character; is the file truncated?", stream->name);
        if (more == 0 && stream->high != 0) {
            const uint32_t high = stream->high;
            stream->high        = 0;
            return (int64_t)put(out, high);
        }
        if (more == 0)
            return 0;
    }
}
