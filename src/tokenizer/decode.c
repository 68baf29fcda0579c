/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c - ids become text again, as the reference's decode does.
 *
 * Role     fl_tokenizer_decode, and the decoder of tokenizer.json.
 * Method   The tokens' strings are a list; each step of the decoder makes another list of it, and at the end
 *          all strings stand one after the other (without a decoder, with spaces between). An added token
 *          that is matched in normalised form decodes to that form.
 * Memory   Two lists, taken and freed by the call. Threads: any.
 * Proof    tests/golden/test_tokens.py, tests/golden/test_tokens_bpe.py. */
#include "tokenizer/decode.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/parse.h"

/* ---- Lists of strings --------------------------------------------------------------------------- */

typedef struct strings {
    fl_buf text; /* one after the other */
    fl_buf ends; /* size_t: where each ends */
} strings;

typedef struct decoding {
    strings       now, next;
    fl_regex_work regex;
    bool          failed; /* no memory */
    bool          too_long;
} decoding;

static size_t count_of(const strings *s) {
    return s->ends.size / sizeof(size_t);
}

static const char *string_at(const strings *s, size_t i, size_t *size) {
    assert(i < count_of(s));
    const size_t *ends  = (const size_t *)(const void *)s->ends.data;
    size_t        begin = i > 0 ? ends[i - 1] : 0;
    *size               = ends[i] - begin;
    return s->text.data + begin;
}

/* The string that was being written to `next` is complete. */
static void end_string(decoding *d) {
    fl_buf_append(&d->next.ends, &d->next.text.size, sizeof(size_t));
}

struct fl_decoder_ops {
    const char *type; /* as tokenizer.json names it */
    int (*parse)(fl_decoder_step *step, fl_json_reader *reader);
    /* Append what string i of `now` becomes to next.text; end_string is the caller's. */
    void (*each)(const fl_decoder_step *step, decoding *d, size_t i, const char *text, size_t size);
    /* Instead: all of `now` becomes `next`. */
    void (*all)(const fl_decoder_step *step, decoding *d);
};

static int copy_text(fl_json_reader *reader, const char *text, char **to) {
    if (reader->status == 0 && (*to = fl_strdup(text)) == NULL)
        reader->status = fl_fail_nomem(reader->error, strlen(text), "the decoder");
    return reader->status;
}

/* Append text[size] with every `from` replaced. */
static void replace_all(fl_buf *out, const char *text, size_t size, const char *from,
                        const char *to) {
    size_t length = strlen(from), done = 0;
    for (size_t at = 0; length > 0 && at + length <= size;) {
        if (memcmp(text + at, from, length) != 0) {
            at++;
            continue;
        }
        fl_buf_append(out, text + done, at - done);
        fl_buf_puts(out, to);
        done = at += length;
    }
    fl_buf_append(out, text + done, size - done);
}

/* ---- WordPiece ---------------------------------------------------------------------------------- */

static const struct {
    const char *from, *to;
} cleanups[] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

/* Replace in data[from ..), in place: no replacement is longer than what it replaces. */
static void clean(fl_buf *out, size_t from) {
    for (size_t c = 0; c < sizeof cleanups / sizeof *cleanups; c++) {
        size_t from_size = strlen(cleanups[c].from), to_size = strlen(cleanups[c].to);
        size_t to = from, in = from;
        while (in < out->size) {
            if (out->size - in >= from_size &&
                memcmp(out->data + in, cleanups[c].from, from_size) == 0) {
                memcpy(out->data + to, cleanups[c].to, to_size);
                to += to_size;
                in += from_size;
            } else {
                out->data[to++] = out->data[in++];
            }
        }
        out->size = to;
    }
}

/* The first token stands as it is, a later one loses its "##" or gets a space in front. With cleanup, eleven
 * plain replacements run over each token on its own, one after the other (so " do not" inside a token becomes
 * " don't" also in "do notable"). */
static void wordpiece(const fl_decoder_step *step, decoding *d, size_t i, const char *text,
                      size_t size) {
    size_t prefix = strlen(step->text), from = d->next.text.size;
    if (i > 0 && size >= prefix && memcmp(text, step->text, prefix) == 0) {
        text += prefix;
        size -= prefix;
    } else if (i > 0) {
        fl_buf_putc(&d->next.text, ' ');
    }
    fl_buf_append(&d->next.text, text, size);
    if (step->flag && !d->next.text.failed)
        clean(&d->next.text, from);
}

static int parse_wordpiece(fl_decoder_step *step, fl_json_reader *reader) {
    const char *prefix = fl_need_string(reader, "prefix");
    step->flag         = fl_need_bool(reader, "cleanup");
    return copy_text(reader, prefix, &step->text);
}

/* ---- Byte-level ---------------------------------------------------------------------------------- */

/* All tokens are one string of bytes; one with a character outside the alphabet stands as it is. */
static void byte_level(const fl_decoder_step *step, decoding *d) {
    fl_buf bytes = {0};
    (void)step;
    for (size_t i = 0; i < count_of(&d->now); i++) {
        size_t      size, from = bytes.size;
        const char *text = string_at(&d->now, i, &size);
        unsigned    length;
        for (size_t at = 0; at < size; at += length) {
            int byte = fl_bpe_byte_of_char(fl_utf8_decode(text + at, &length));
            if (byte < 0) {
                bytes.size = from;
                fl_buf_append(&bytes, text, size);
                break;
            }
            fl_buf_putc(&bytes, (char)byte);
        }
    }
    fl_utf8_replace_invalid(&d->next.text, bytes.data, bytes.size);
    end_string(d);
    d->failed = d->failed || bytes.failed;
    fl_buf_free(&bytes);
}

/* ---- BPEDecoder, Metaspace, Replace, Strip, Fuse, ByteFallback ------------------------------------ */

static void bpe(const fl_decoder_step *step, decoding *d, size_t i, const char *text, size_t size) {
    replace_all(&d->next.text, text, size, step->text, i + 1 == count_of(&d->now) ? "" : " ");
}

static int parse_bpe(fl_decoder_step *step, fl_json_reader *reader) {
    return copy_text(reader, fl_json_string(reader, "suffix", "</w>"), &step->text);
}

/* flag: the first token's replacement characters vanish. */
static void metaspace(const fl_decoder_step *step, decoding *d, size_t i, const char *text,
                      size_t size) {
    replace_all(&d->next.text, text, size, step->text, i == 0 && step->flag ? "" : " ");
}

static int parse_metaspace(fl_decoder_step *step, fl_json_reader *reader) {
    const char *scheme = fl_json_string(reader, "prepend_scheme", NULL);
    bool        old    = fl_json_bool(reader, "add_prefix_space", true);
    step->flag         = scheme != NULL ? strcmp(scheme, "never") != 0 : old;
    return copy_text(reader, fl_json_string(reader, "replacement", "\xE2\x96\x81"), &step->text);
}

static void replace(const fl_decoder_step *step, decoding *d, size_t i, const char *text,
                    size_t size) {
    fl_regex_walk walk = {0};
    size_t        begin, end, done = 0;
    (void)i;
    if (step->regex == NULL) {
        replace_all(&d->next.text, text, size, step->pattern, step->text);
        return;
    }
    fl_regex_result result;
    while ((result = fl_regex_next(step->regex, &d->regex, text, size, &walk, &begin, &end)) ==
           FL_REGEX_MATCH) {
        fl_buf_append(&d->next.text, text + done, begin - done);
        fl_buf_puts(&d->next.text, step->text);
        done = end;
    }
    fl_buf_append(&d->next.text, text + done, size - done);
    d->too_long = d->too_long || result == FL_REGEX_LIMIT;
    d->failed   = d->failed || result == FL_REGEX_NOMEM;
}

static int parse_replace(fl_decoder_step *step, fl_json_reader *reader) {
    fl_json_reader inner  = fl_json_below(reader, "pattern");
    const char    *regex  = fl_json_string(&inner, "Regex", NULL);
    const char    *string = fl_json_string(&inner, "String", NULL);
    const char    *to     = fl_need_string(reader, "content");
    reader->status        = inner.status < 0 ? inner.status : reader->status;
    if (reader->status == 0 && regex == NULL && string == NULL)
        return fl_missing(reader, "decoder.pattern");
    if (reader->status == 0 && regex != NULL)
        reader->status = fl_regex_open(&step->regex, regex, reader->source, reader->error);
    else if (reader->status == 0)
        copy_text(reader, string, &step->pattern);
    return copy_text(reader, to, &step->text);
}

/* Up to `start` times the character at the beginning goes, up to `stop` times at the end. */
static void strip(const fl_decoder_step *step, decoding *d, size_t i, const char *text,
                  size_t size) {
    size_t length = strlen(step->text);
    (void)i;
    for (uint32_t n = 0; n < step->start && size >= length && memcmp(text, step->text, length) == 0;
         n++) {
        text += length;
        size -= length;
    }
    for (uint32_t n = 0;
         n < step->stop && size >= length && memcmp(text + size - length, step->text, length) == 0;
         n++)
        size -= length;
    fl_buf_append(&d->next.text, text, size);
}

static int parse_strip(fl_decoder_step *step, fl_json_reader *reader) {
    const char *content = fl_need_string(reader, "content");
    unsigned    length  = 0;
    step->start         = (uint32_t)fl_need_int(reader, "start", INT32_MAX);
    step->stop          = (uint32_t)fl_need_int(reader, "stop", INT32_MAX);
    if (reader->status == 0 && content[0] != '\0')
        fl_utf8_decode(content, &length);
    if (reader->status == 0 && (length == 0 || content[length] != '\0')) {
        reader->status =
            fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                    "%s: decoder Strip: \"content\" must be one character", reader->source);
    }
    return copy_text(reader, content, &step->text);
}

static void fuse(const fl_decoder_step *step, decoding *d) {
    (void)step;
    fl_buf_append(&d->next.text, d->now.text.data, d->now.text.size);
    end_string(d);
}

/* "<0xHH>": the byte; else -1. */
static int byte_of(const char *text, size_t size) {
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = text[3] == '+' ? 0 : fl_hex_digit(text[3]),
        low  = fl_hex_digit(text[4]); /* as the reference reads */
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* A run of bytes is a string if it is valid UTF-8, else a U+FFFD for each. */
static void flush_bytes(decoding *d, fl_buf *bytes) {
    if (bytes->size > 0 && fl_utf8_valid_prefix(bytes->data, bytes->size) == bytes->size) {
        fl_buf_append(&d->next.text, bytes->data, bytes->size);
        end_string(d);
        bytes->size = 0;
    }
    for (; bytes->size > 0; bytes->size--) {
        fl_buf_puts(&d->next.text, "\xEF\xBF\xBD");
        end_string(d);
    }
}

static void byte_fallback(const fl_decoder_step *step, decoding *d) {
    fl_buf bytes = {0};
    (void)step;
    for (size_t i = 0; i < count_of(&d->now); i++) {
        size_t      size;
        const char *text = string_at(&d->now, i, &size);
        int         byte = byte_of(text, size);
        if (byte >= 0) {
            fl_buf_putc(&bytes, (char)byte);
            continue;
        }
        flush_bytes(d, &bytes);
        fl_buf_append(&d->next.text, text, size);
        end_string(d);
    }
    flush_bytes(d, &bytes);
    d->failed = d->failed || bytes.failed;
    fl_buf_free(&bytes);
}

/* ---- The chain ---------------------------------------------------------------------------------- */

static const fl_decoder_ops decoders[] = {
    {"WordPiece", parse_wordpiece, wordpiece, NULL},
    {"ByteLevel", NULL, NULL, byte_level},
    {"BPEDecoder", parse_bpe, bpe, NULL},
    {"Metaspace", parse_metaspace, metaspace, NULL},
    {"Replace", parse_replace, replace, NULL},
    {"Strip", parse_strip, strip, NULL},
    {"Fuse", NULL, NULL, fuse},
    {"ByteFallback", NULL, NULL, byte_fallback},
};

enum { DECODERS = sizeof decoders / sizeof *decoders };

static int parse_decoder(fl_decoder *decoder, fl_json_reader *reader, unsigned depth) {
    const char *kind = fl_need_string(reader, "type");
    if (reader->status < 0)
        return reader->status;
    if (strcmp(kind, "Sequence") == 0 && depth < FL_DECODERS_MAX) {
        fl_json *list = fl_json_array(reader, "decoders");
        for (size_t i = 0; i < fl_json_count(list) && reader->status == 0; i++) {
            fl_json_reader inner = fl_json_inside(reader, fl_json_item(list, i));
            reader->status       = parse_decoder(decoder, &inner, depth + 1);
        }
        return list != NULL ? reader->status : fl_missing(reader, "decoders");
    }
    size_t row = 0;
    while (row < DECODERS && strcmp(decoders[row].type, kind) != 0)
        row++;
    if (row == DECODERS || decoder->count == FL_DECODERS_MAX) {
        return fl_refuse(reader, "decoder",
                         row == DECODERS ? kind : "Sequence of more than 16 steps",
                         "WordPiece, ByteLevel, BPEDecoder, Metaspace, Replace, Strip, Fuse, "
                         "ByteFallback, Sequence of these");
    }
    fl_decoder_step *step = &decoder->steps[decoder->count++];
    step->ops             = &decoders[row];
    return step->ops->parse != NULL ? step->ops->parse(step, reader) : 0;
}

int fl_decoder_open(fl_decoder *decoder, fl_json_reader *root) {
    fl_json_reader reader = fl_json_below(root, "decoder");
    if (root->status == 0 && reader.object != NULL)
        root->status = parse_decoder(decoder, &reader, 0);
    return root->status;
}

int fl_decoder_wordpiece(fl_decoder *decoder, fletch_error *error) {
    decoder->count         = 1;
    decoder->steps[0].ops  = &decoders[0];
    decoder->steps[0].flag = true;
    decoder->steps[0].text = fl_strdup("##");
    return decoder->steps[0].text != NULL ? 0 : fl_fail_nomem(error, 3, "the decoder");
}

void fl_decoder_close(fl_decoder *decoder) {
    for (unsigned i = 0; i < decoder->count; i++) {
        fl_free(decoder->steps[i].text);
        fl_free(decoder->steps[i].pattern);
        fl_regex_close(decoder->steps[i].regex);
    }
    memset(decoder, 0, sizeof *decoder);
}

static void run_step(const fl_decoder_step *step, decoding *d) {
    assert(step->ops);
    fl_buf_clear(&d->next.text);
    fl_buf_clear(&d->next.ends);
    if (step->ops->all != NULL)
        step->ops->all(step, d);
    for (size_t i = 0; i < count_of(&d->now) && step->ops->each != NULL; i++) {
        size_t      size;
        const char *text = string_at(&d->now, i, &size);
        step->ops->each(step, d, i, text, size);
        end_string(d);
    }
    strings done = d->now;
    d->failed    = d->failed || d->next.text.failed || d->next.ends.failed;
    d->now       = d->next;
    d->next      = done;
}

/* The strings of the ids into d->next, which becomes d->now. */
static int take_ids(const fl_tokenizer *tokenizer, decoding *d, const int32_t *ids, size_t count,
                    bool skip_special, fletch_error *error) {
    for (size_t i = 0; i < count; i++) {
        const fl_added_token *added  = fl_added_find(&tokenizer->added, ids[i]);
        size_t                length = 0;
        const char           *text   = fl_tokenizer_token(tokenizer, ids[i], &length);
        if (text == NULL) {
            return fl_fail(error, FLETCH_EINVAL, i,
                           "token id %d is not in the vocabulary (0 to %u)", ids[i],
                           tokenizer->id_limit - 1);
        }
        if (added != NULL && added->skipped && skip_special)
            continue;
        if (added != NULL && added->pattern != NULL) {
            text   = added->pattern;
            length = added->pattern_length;
        }
        if (tokenizer->decoder.count == 0 && d->next.ends.size > 0)
            fl_buf_putc(&d->next.text, ' ');
        fl_buf_append(&d->next.text, text, length);
        end_string(d);
    }
    d->failed = d->next.text.failed || d->next.ends.failed;
    d->now    = d->next;
    d->next   = (strings){{0}, {0}};
    return 0;
}

int fl_tokenizer_decode(const fl_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        bool skip_special, fl_buf *out, fletch_error *error) {
    decoding d      = {0};
    int      status = take_ids(tokenizer, &d, ids, count, skip_special, error);
    for (unsigned i = 0; i < tokenizer->decoder.count && status == 0 && !d.failed; i++)
        run_step(&tokenizer->decoder.steps[i], &d);
    if (status == 0)
        fl_buf_append(out, d.now.text.data, d.now.text.size);
    if (status == 0 && d.too_long) {
        status = fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                         "a regular expression of the decoder takes too long on %zu tokens", count);
    } else if (status == 0 && (d.failed || out->failed)) {
        status = fl_fail_nomem(error, out->size, "decoded text");
    }
    fl_buf_free(&d.now.text);
    fl_buf_free(&d.now.ends);
    fl_buf_free(&d.next.text);
    fl_buf_free(&d.next.ends);
    fl_regex_work_free(&d.regex);
    return status;
}
