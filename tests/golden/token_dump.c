/* SPDX-License-Identifier: Apache-2.0 */
/* token_dump.c - drive the tokenizer room from a script: frames of texts in, frames of tokens out.
 *
 * Role     tests/golden/test_tokens.py compares what this prints with the reference.
 * Usage    token_dump (--json FILE | --vocab FILE [--cased] [--keep-accents] [--no-chinese])
 *              [--lower] [--max-length N] [--left] [--no-special] [--pair [--only-first | --only-second]]
 *              [--decode [--skip-special]] [--time [--cold]] [--patience] [--way]
 *          With --pair two texts come at a time, and u32 segment goes before the ids.
 * In/Out   In: u32 size, bytes; again and again. Out, per text: u32 count, u32 truncated, i32 ids[count],
 *          u32 offsets[count][2], u8 special[count]. With --decode, in: u32 count, i32 ids; out: u32 size,
 *          bytes. With --time: reads all texts, encodes them again and again, three
 *          rounds at least and half a second, prints MB/s of the best round by processor time, which others
 *          cannot steal, and of the first after a text "0", whose words nobody has seen; and how long opening
 *          took. With --cold no
 *          word is found in the cache. With --patience: a line for each
 *          text, "ALL LONGEST ASKED" with offsets and the same for ids alone: milliseconds of the processor, the
 *          most of them during which nobody was asked whether the text is still wanted, and how often
 *          somebody was. With --way: "fast" where ids alone come word by word from the cache, else "exact".
 *          All numbers in the machine's order. Each text is encoded on both paths (ids only, and with
 *          offsets); when they disagree the program says so and exits 3. 2: the tokenizer was refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "tokenizer/pipeline.h"

typedef struct options {
    const char *json, *vocab;
    bool cased, keep_accents, no_chinese, lower, decode, skip_special, time, cold, patience, way,
        pair, only_first, only_second;
    fl_encode_options encode;
} options;

static void parse(options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *a    = argv[i];
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        o->json          = strcmp(a, "--json") == 0 ? next : o->json;
        o->vocab         = strcmp(a, "--vocab") == 0 ? next : o->vocab;
        o->cased |= strcmp(a, "--cased") == 0;
        o->keep_accents |= strcmp(a, "--keep-accents") == 0;
        o->no_chinese |= strcmp(a, "--no-chinese") == 0;
        o->lower |= strcmp(a, "--lower") == 0;
        o->decode |= strcmp(a, "--decode") == 0;
        o->skip_special |= strcmp(a, "--skip-special") == 0;
        o->time |= strcmp(a, "--time") == 0;
        o->cold |= strcmp(a, "--cold") == 0;
        o->patience |= strcmp(a, "--patience") == 0;
        o->way |= strcmp(a, "--way") == 0;
        o->pair |= strcmp(a, "--pair") == 0;
        o->only_first |= strcmp(a, "--only-first") == 0;
        o->only_second |= strcmp(a, "--only-second") == 0;
        o->encode.no_special |= strcmp(a, "--no-special") == 0;
        if (strcmp(a, "--max-length") == 0)
            o->encode.max_length = (uint32_t)strtoul(next, NULL, 10);
        if (strcmp(a, "--left") == 0)
            o->encode.truncation = FL_TRUNCATE_LEFT;
    }
}

static fl_tokenizer *open_tokenizer(const options *o) {
    fl_tokenizer_options opening = {.lowercase = o->lower};
    const char          *path    = o->json != NULL ? o->json : o->vocab;
    fl_tokenizer        *t       = NULL;
    fletch_error         error   = {0};
    fl_buf               text    = {0};
    opening.source               = path;
    opening.cache_bytes          = o->cold ? 1 : 0; /* two lines, which hold no word for long */
    int status = path == NULL ? FLETCH_EINVAL : fl_file_read(path, SIZE_MAX / 2, &text, &error);
    if (status == 0 && o->json != NULL) {
        status = fl_tokenizer_open(&t, &text, &opening, &error);
    } else if (status == 0) {
        status = fl_tokenizer_open_vocab(&t, text.data, text.size, !o->cased, !o->keep_accents,
                                         !o->no_chinese, &opening, &error);
    }
    fl_buf_free(&text);
    if (status < 0) {
        fprintf(stderr, "%d: %s\n", status, error.message);
        exit(2);
    }
    return t;
}

/* The next frame of `unit`-byte elements; false at the end of input. */
static bool read_frame(fl_buf *frame, size_t unit) {
    uint32_t count;
    fl_buf_clear(frame);
    if (fread(&count, 4, 1, stdin) != 1 || !fl_buf_reserve(frame, count * unit + 1))
        return false;
    frame->size = count * unit;
    return fread(frame->data, 1, frame->size, stdin) == frame->size;
}

static void write_u32(size_t value) {
    uint32_t u = (uint32_t)value;
    fwrite(&u, 4, 1, stdout);
}

static void die(const char *what, const fletch_error *error, size_t index) {
    fprintf(stderr, "text %zu: %s: %s\n", index, what, error->message);
    exit(3);
}

static void run_encode(const fl_tokenizer *t, const options *o) {
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    fl_buf            frame   = {0};
    fletch_error      error   = {0};
    for (size_t index = 0; read_frame(&frame, 1); index++) {
        size_t    room    = fl_tokenizer_ids_max(t, frame.size);
        int32_t  *ids     = malloc(room * sizeof *ids + 1);
        int32_t  *fast    = malloc(room * sizeof *fast + 1);
        uint32_t *offsets = malloc(room * 2 * sizeof *offsets + 1);
        uint8_t  *special = malloc(room + 1);
        size_t    count = 0, fast_count = 0;
        bool      cut = false, fast_cut = false;
        if (o->encode.max_length > 0) { /* what the contract promises to suffice */
            size_t enough = o->encode.max_length > fl_tokenizer_special_count(t)
                                ? o->encode.max_length
                                : fl_tokenizer_special_count(t);
            room          = enough < room ? enough : room;
        }
        if (fl_tokenizer_encode(t, scratch, frame.data, frame.size, &o->encode, fast, room,
                                &fast_count, &fast_cut, &error) < 0 ||
            fl_tokenizer_encode_offsets(t, scratch, frame.data, frame.size, &o->encode, ids,
                                        offsets, special, room, &count, &cut, &error) < 0)
            die("refused", &error, index);
        if (count != fast_count || cut != fast_cut || memcmp(ids, fast, count * sizeof *ids) != 0)
            die("the two paths disagree", &error, index);
        write_u32(count);
        write_u32(cut);
        fwrite(ids, sizeof *ids, count, stdout);
        fwrite(offsets, 2 * sizeof *offsets, count, stdout);
        fwrite(special, 1, count, stdout);
        free(ids);
        free(fast);
        free(offsets);
        free(special);
    }
    fl_buf_free(&frame);
    fl_token_scratch_free(scratch);
}

/* One side of a pair, without the template and uncut. */
static fl_pair_side encode_side(const fl_tokenizer *t, fl_token_scratch *scratch,
                                const fl_buf *text, size_t index) {
    size_t            room    = fl_tokenizer_ids_max(t, text->size);
    int32_t          *ids     = malloc(room * sizeof *ids + 1);
    uint32_t         *offsets = malloc(room * 2 * sizeof *offsets + 1);
    uint8_t          *special = malloc(room + 1);
    fl_encode_options o       = {.no_special = true};
    fl_pair_side      side    = {ids, offsets, 0};
    bool              cut;
    fletch_error      error = {0};
    if (fl_tokenizer_encode_offsets(t, scratch, text->data, text->size, &o, ids, offsets, special,
                                    room, &side.count, &cut, &error) < 0)
        die("refused", &error, index);
    free(special);
    return side;
}

static void run_pairs(const fl_tokenizer *t, const options *o) {
    fl_token_scratch  *scratch = fl_token_scratch_new(t);
    fl_buf             first = {0}, second = {0};
    fletch_error       error = {0};
    fl_pair_truncation how   = o->only_first    ? FL_PAIR_ONLY_FIRST
                               : o->only_second ? FL_PAIR_ONLY_SECOND
                                                : FL_PAIR_LONGEST_FIRST;
    for (size_t index = 0; read_frame(&first, 1) && read_frame(&second, 1); index++) {
        fl_pair_side a       = encode_side(t, scratch, &first, index);
        fl_pair_side b       = encode_side(t, scratch, &second, index);
        size_t       room    = a.count + b.count + fl_tokenizer_pair_special_count(t);
        int32_t     *ids     = malloc(room * sizeof *ids + 1);
        uint32_t    *offsets = malloc(room * 2 * sizeof *offsets + 1);
        uint8_t     *special = malloc(room + 1);
        fl_pair      pair;
        if (fl_tokenizer_pair(t, &a, &b, &o->encode, how, ids, offsets, special, room, &pair,
                              &error) < 0)
            die("refused", &error, index);
        write_u32(pair.count);
        write_u32(pair.truncated);
        write_u32(pair.segment);
        fwrite(ids, sizeof *ids, pair.count, stdout);
        fwrite(offsets, 2 * sizeof *offsets, pair.count, stdout);
        fwrite(special, 1, pair.count, stdout);
        free((void *)(uintptr_t)a.ids);
        free((void *)(uintptr_t)a.offsets);
        free((void *)(uintptr_t)b.ids);
        free((void *)(uintptr_t)b.offsets);
        free(ids);
        free(offsets);
        free(special);
    }
    fl_buf_free(&first);
    fl_buf_free(&second);
    fl_token_scratch_free(scratch);
}

static void run_decode(const fl_tokenizer *t, const options *o) {
    fl_buf       frame = {0}, text = {0};
    fletch_error error = {0};
    for (size_t index = 0; read_frame(&frame, sizeof(int32_t)); index++) {
        fl_buf_clear(&text);
        if (fl_tokenizer_decode(t, (const int32_t *)(const void *)frame.data,
                                frame.size / sizeof(int32_t), o->skip_special, &text, &error) < 0)
            die("decode", &error, index);
        write_u32(text.size);
        if (text.size > 0)
            fwrite(text.data, 1, text.size, stdout);
    }
    fl_buf_free(&frame);
    fl_buf_free(&text);
}

static uint64_t processor_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void run_time(const fl_tokenizer *t, const options *o, uint64_t opening) {
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    fl_buf            frame = {0}, all = {0}, ends = {0};
    fletch_error      error = {0};
    while (read_frame(&frame, 1)) {
        fl_buf_append(&all, frame.data, frame.size);
        fl_buf_append(&ends, &all.size, sizeof all.size);
    }
    size_t        texts = ends.size / sizeof(size_t), tokens = 0;
    const size_t *end  = (const size_t *)(const void *)ends.data;
    size_t        room = fl_tokenizer_ids_max(t, all.size);
    int32_t      *ids  = malloc(room * sizeof *ids + 1);
    uint64_t      best = UINT64_MAX, first = 0;
    uint64_t      until = fl_clock_ns() + 500000000;
    size_t        count;
    bool          cut;
    (void)fl_tokenizer_encode(t, scratch, "0", 1, &o->encode, ids, room, &count, &cut, &error);
    for (unsigned round = 0; round < 3 || fl_clock_ns() < until; round++) {
        uint64_t begin = processor_ns();
        tokens         = 0;
        for (size_t i = 0, at = 0; i < texts; at = end[i], i++) {
            if (fl_tokenizer_encode(t, scratch, all.data + at, end[i] - at, &o->encode, ids, room,
                                    &count, &cut, &error) < 0)
                die("refused", &error, i);
            tokens += count;
        }
        uint64_t spent = processor_ns() - begin;
        best           = spent < best ? spent : best;
        first          = round == 0 ? spent : first;
    }
    printf("%zu texts, %.2f MB, %zu tokens: %.1f MB/s, %.2f M tokens/s; first %.1f MB/s, open %.1f "
           "ms\n",
           texts, (double)all.size / 1e6, tokens, (double)all.size * 1e3 / (double)best,
           (double)tokens * 1e3 / (double)best, (double)all.size * 1e3 / (double)first,
           (double)opening * 1e-6);
    free(ids);
    fl_buf_free(&frame);
    fl_buf_free(&all);
    fl_buf_free(&ends);
    fl_token_scratch_free(scratch);
}

/* How long nobody asked. */
typedef struct patience {
    uint64_t begin, last, longest, asked;
} patience;

static int ask(void *user) {
    patience *p   = user;
    uint64_t  now = processor_ns();
    p->longest    = now - p->last > p->longest ? now - p->last : p->longest;
    p->last       = now;
    p->asked++;
    return 0;
}

static void tell(patience *p, char after) {
    ask(p);
    printf("%.1f %.1f %llu%c", (double)(p->last - p->begin) / 1e6, (double)p->longest / 1e6,
           (unsigned long long)p->asked - 1, after);
}

static void run_patience(const fl_tokenizer *t, const options *o) {
    fl_token_scratch *scratch = fl_token_scratch_new(t);
    fl_buf            frame   = {0};
    fletch_error      error   = {0};
    for (size_t index = 0; read_frame(&frame, 1); index++) {
        size_t    room    = fl_tokenizer_ids_max(t, frame.size), count;
        int32_t  *ids     = malloc(room * sizeof *ids + 1);
        uint32_t *offsets = malloc(room * 2 * sizeof *offsets + 1);
        uint8_t  *special = malloc(room + 1);
        bool      cut;
        for (int tracked = 1; tracked >= 0; tracked--) {
            uint64_t now  = processor_ns();
            patience p    = {now, now, 0, 0};
            fl_stop  stop = {.asked = ask, .user = &p};
            fl_token_scratch_stop(scratch, &stop);
            int status = tracked ? fl_tokenizer_encode_offsets(t, scratch, frame.data, frame.size,
                                                               &o->encode, ids, offsets, special,
                                                               room, &count, &cut, &error)
                                 : fl_tokenizer_encode(t, scratch, frame.data, frame.size,
                                                       &o->encode, ids, room, &count, &cut, &error);
            if (status < 0 && status != FLETCH_EINVAL) /* a pattern may take too long on it */
                die("refused", &error, index);
            tell(&p, tracked ? ' ' : '\n');
        }
        free(ids);
        free(offsets);
        free(special);
    }
    fl_buf_free(&frame);
    fl_token_scratch_free(scratch);
}

int main(int argc, char **argv) {
    options o = {0};
    parse(&o, argc, argv);
    uint64_t      begin   = processor_ns();
    fl_tokenizer *t       = open_tokenizer(&o);
    uint64_t      opening = processor_ns() - begin;
    if (o.way)
        puts(t->stream ? "fast" : "exact");
    else if (o.decode)
        run_decode(t, &o);
    else if (o.pair)
        run_pairs(t, &o);
    else if (o.time)
        run_time(t, &o, opening);
    else if (o.patience)
        run_patience(t, &o);
    else
        run_encode(t, &o);
    fl_tokenizer_close(t);
    return 0;
}
