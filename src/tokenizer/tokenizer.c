/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c - the door of the tokenizer room: open, encode, look up.
 *
 * Role     The functions of tokenizer.h. Parsing is parse*.c's work, encoding that of token_stream.c (fast, ids)
 *          and exact.c (all pipelines, offsets); here the two are chosen and the template is put around.
 * Memory   See tokenizer.h: the tokenizer is one set of read-only tables, the scratch one thread's buffers.
 * Threads  Any number may encode, each with its own scratch.
 * Proof    tests/unit/test_tokenizer.c, tests/golden/test_tokens.py. */
#include "tokenizer/tokenizer.h"

#include <assert.h>
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/parse.h"
#include "tokenizer/unicode.h"

enum {
    JSON_MAX       = 256 * 1024 * 1024,
    CACHE_DEFAULT  = 2 * 1024 * 1024 /* one huge page */,
    CACHE_BITS_MAX = 20
};

/* ---- Opening ---------------------------------------------------------------------------------- */

/* The id of a character as a word. */
static int32_t id_alone(const fl_tokenizer *tokenizer, uint32_t cp) {
    assert(tokenizer->model);
    char     text[4];
    int32_t  ids[4];
    unsigned size  = fl_utf8_encode(cp, text);
    bool     known = tokenizer->wordpiece->max_chars > 0 &&
                 fl_wordpiece_encode(tokenizer->wordpiece, text, size, ids) > 0;
    return known ? ids[0] : tokenizer->wordpiece->unk;
}

/* Which characters are words whatever surrounds them, and their ids. One that is decomposed, lowered,
 * dropped or sorted among marks is none of them, nor is one beyond the first 65536. */
static void fill_alone(fl_tokenizer *tokenizer) {
    const unsigned touched =
        FL_UC_DROP | FL_UC_MARK_BERT | FL_UC_LOWER | FL_UC_DECOMPOSES | FL_UC_CCC;
    const bool     chinese = tokenizer->normal_count > 0 && tokenizer->normal[0].chinese_chars;
    const bool     isolate = tokenizer->split[0].ops == &fl_split_bert;
    const unsigned words =
        (chinese ? (unsigned)FL_UC_CJK : 0) | (isolate ? (unsigned)FL_UC_PUNCT : 0);
    uint16_t used              = FL_ALONE_SPACE + 1; /* all that are unknown share the first id */
    tokenizer->alone_ids[used] = tokenizer->wordpiece->unk;
    for (uint32_t cp = 0x80; cp < FL_ALONE_COUNT; cp++) {
        unsigned flags = fl_unicode_flags(cp);
        if ((flags & touched) == 0 && (flags & FL_UC_SPACE) != 0) {
            tokenizer->alone[cp] = FL_ALONE_SPACE;
        } else if ((flags & touched) == 0 && (flags & words) != 0) {
            int32_t id = id_alone(tokenizer, cp);
            if (id == tokenizer->wordpiece->unk) {
                tokenizer->alone[cp] = FL_ALONE_SPACE + 1;
            } else {
                tokenizer->alone[cp]       = ++used;
                tokenizer->alone_ids[used] = id;
            }
        }
    }
}

/* What each byte is for the fast path; only ASCII can be decided without looking further. */
static void fill_scan_table(fl_tokenizer *tokenizer) {
    const fl_step *bert  = tokenizer->normal_count > 0 ? &tokenizer->normal[0] : NULL;
    bool           clean = bert != NULL && bert->clean_text;
    fl_scan_table *table = &tokenizer->scan_table;
    table->lowercase     = bert != NULL && bert->lowercase;
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned flags = byte < 0x80 ? fl_unicode_flags(byte) : 0;
        if (byte >= 0x80 || (clean && (flags & FL_UC_DROP) != 0))
            table->kind[byte] = FL_BYTE_EXACT;
        else if ((flags & FL_UC_SPACE) != 0)
            table->kind[byte] = FL_BYTE_SPACE;
        else if ((flags & FL_UC_PUNCT) != 0 && tokenizer->split[0].ops == &fl_split_bert)
            table->kind[byte] = FL_BYTE_PUNCT;
        else
            table->kind[byte] = FL_BYTE_WORD;
    }
    fl_scan_table_finish(table);
    fill_alone(tokenizer);
}

static bool can_stream(const fl_tokenizer *tokenizer) {
    bool normal = tokenizer->normal_count == 0 ||
                  (tokenizer->normal_count == 1 && tokenizer->normal[0].ops == &fl_normal_bert);
    bool split =
        tokenizer->split_count == 1 && (tokenizer->split[0].ops == &fl_split_bert ||
                                        tokenizer->split[0].ops == &fl_split_whitespace_split);
    return tokenizer->model == &fl_wordpiece_model && normal && split &&
           tokenizer->added.normalized.count == 0;
}

static bool is_kind(const fl_step *step, const char *type, const uint32_t *pattern,
                    uint32_t content) {
    return strcmp(step->ops->type, type) == 0 && step->content_count == 1 &&
           step->content[0] == content &&
           (pattern == NULL || (step->pattern_count == 1 && step->pattern[0] == *pattern));
}

/* Whether a space comes before a text in SentencePiece's BPE, or NONE: it is another pipeline, or one whose words
 * cannot be told apart. */
static fl_spaces find_spaces(const fl_tokenizer *tokenizer) {
    static const uint32_t space = ' ';
    enum { MARK = 0x2581 };
    const fl_bpe  *bpe    = tokenizer->model_state;
    const fl_step *normal = tokenizer->normal, *split = tokenizer->split;
    if (tokenizer->model != &fl_bpe_model || !bpe->cuts_before_space ||
        tokenizer->split_count > 1 || tokenizer->added.normalized.count > 0)
        return FL_SPACES_NONE;
    bool one = tokenizer->split_count == 1;
    if (tokenizer->normal_count == 0) {
        bool metaspace =
            one && split->ops == &fl_split_metaspace && !split->flag && split->content[0] == MARK;
        return !metaspace           ? FL_SPACES_NONE
               : split->option == 0 ? FL_SPACES_UNLESS
               : split->option == 1 ? FL_SPACES_FIRST
                                    : FL_SPACES_NEVER;
    }
    if (tokenizer->normal_count == 1 && normal->ops == &fl_normal_sentencepiece)
        return fl_sentencepiece_spaces(normal);
    const fl_step *last  = &normal[tokenizer->normal_count - 1];
    bool           never = one && split->ops == &fl_split_pattern && split->pattern_count == 1 &&
                 split->pattern[0] == ' '; /* there are none left to split at */
    if (!is_kind(last, "Replace", &space, MARK) || (one && !never))
        return FL_SPACES_NONE;
    if (tokenizer->normal_count == 1)
        return FL_SPACES_NEVER;
    return tokenizer->normal_count == 2 && is_kind(normal, "Prepend", NULL, MARK) ? FL_SPACES_ALWAYS
                                                                                  : FL_SPACES_NONE;
}

/* Whether white space parts the text into words that know nothing of each other. */
static bool is_local(const fl_tokenizer *tokenizer) {
    bool local = tokenizer->split_count > 0 && tokenizer->split[0].ops->local &&
                 tokenizer->added.normalized.count == 0;
    for (unsigned i = 0; i < tokenizer->normal_count; i++) {
        const fl_step *step = &tokenizer->normal[i];
        local               = local && step->ops->local &&
                (step->ops->inert == NULL || step->ops != &fl_normal_precompiled ||
                 step->ops->inert(step, ' '));
    }
    return local;
}

/* False: no memory. */
static bool finish(fl_tokenizer *tokenizer, size_t cache_bytes) {
    if (tokenizer->model->prepare != NULL && !tokenizer->model->prepare(tokenizer->model_state))
        return false;
    tokenizer->cache_bits = 1;
    while (tokenizer->cache_bits < CACHE_BITS_MAX &&
           2 * sizeof(fl_cache_line) << tokenizer->cache_bits <= cache_bytes)
        tokenizer->cache_bits++;
    tokenizer->scan = &fl_scan_ref;
#if defined(__x86_64__)
    fl_cpu cpu;
    fl_cpu_detect(&cpu);
    if (cpu.avx2)
        tokenizer->scan = &fl_scan_avx2;
#endif
    tokenizer->small_ids = tokenizer->id_limit <= UINT16_MAX + 1;
    tokenizer->local     = is_local(tokenizer);
    tokenizer->stream    = can_stream(tokenizer);
    tokenizer->spaces    = find_spaces(tokenizer);
    if (tokenizer->spaces != FL_SPACES_NONE)
        tokenizer->cutters = (fl_cutters){{fl_pieces_spaces}, 1};
    if (tokenizer->stream) {
        tokenizer->wordpiece = tokenizer->model_state;
        fill_scan_table(tokenizer);
    } else {
        tokenizer->stream = tokenizer->words = fl_words_prepare(tokenizer);
    }
    bool raw = tokenizer->spaces == FL_SPACES_NONE;
    if (raw && !fl_bytes_prepare(tokenizer))
        return false;
    if (tokenizer->cutters.count > 0) {
        tokenizer->bpe    = tokenizer->model_state;
        tokenizer->stream = true;
        return fl_bpe_prepare(tokenizer->model_state, raw);
    }
    return true;
}

/* The options with what holds where nothing is said. */
static fl_tokenizer_options resolve(const fl_tokenizer_options *given, const char *source) {
    fl_tokenizer_options options = given != NULL ? *given : (fl_tokenizer_options){0};
    options.source               = options.source != NULL ? options.source : source;
    options.cache_bytes          = options.cache_bytes > 0 ? options.cache_bytes : CACHE_DEFAULT;
    return options;
}

/* sentence-transformers puts a Lowercase normalizer in front of the file's own for do_lower_case, so that
 * added tokens of the raw text keep their case. */
static int begin(fl_tokenizer **out, const fl_tokenizer_options *options, fletch_error *error) {
    *out = fl_alloc_zero(1, sizeof **out);
    if (*out == NULL)
        return fl_fail_nomem(error, sizeof **out, options->source);
    (*out)->pieces = options->pieces;
    if (options->lowercase)
        (*out)->normal[(*out)->normal_count++].ops = &fl_normal_lowercase;
    return 0;
}

/* The last steps of a tokenizer that was read with `status`; one that failed is closed. */
static int end(fl_tokenizer **out, int status, const fl_tokenizer_options *options,
               fletch_error *error) {
    if (status == 0 && !finish(*out, options->cache_bytes))
        status = fl_fail_nomem(error, (*out)->vocab.text_size, options->source);
    if (status < 0) {
        fl_tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

int fl_tokenizer_open(fl_tokenizer **out, fl_buf *json, const fl_tokenizer_options *given,
                      fletch_error *error) {
    const fl_tokenizer_options options = resolve(given, "tokenizer.json");
    fl_json                   *root    = NULL;
    int                        status  = begin(out, &options, error);
    if (status < 0) {
        fl_buf_free(json);
        return status;
    }
    status = fl_json_take(&root, json, JSON_MAX, FL_JSON_UNIQUE_KEYS | FL_JSON_TABLES_LATER,
                          options.source, error);
    if (status == 0)
        status = fl_parse_root(*out, root, &options, error);
    fl_json_free(root);
    return end(out, status, &options, error);
}

/* The vocabulary of vocab.txt: line n is the token with id n. A token listed again moves to the later
 * line, so lines go in backwards and what is there already stays. */
static int read_lines(fl_tokenizer *tokenizer, const char *text, size_t size, const char *source,
                      fletch_error *error) {
    uint32_t lines = 0;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    lines += size > 0 && text[size - 1] != '\n';
    if (size > INT32_MAX || lines == 0) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: a vocabulary of %zu bytes; expected one token per line", source, size);
    }
    size_t valid = fl_utf8_valid_prefix(text, size);
    if (valid != size || memchr(text, '\0', size) != NULL)
        return fl_fail(error, FLETCH_EMODEL, valid, "%s: not a text in UTF-8", source);
    if (!fl_vocab_open(&tokenizer->vocab, lines, lines, size))
        return fl_fail_nomem(error, size, "the vocabulary");
    size_t end = size - (text[size - 1] == '\n');
    for (uint32_t id = lines; id-- > 0;) {
        size_t begin = end;
        while (begin > 0 && text[begin - 1] != '\n')
            begin--;
        size_t length = end - begin;
        length -= length > 0 && text[end - 1] == '\r';
        fl_vocab_add(&tokenizer->vocab, text + begin, length, id);
        end = begin > 0 ? begin - 1 : 0;
    }
    tokenizer->id_limit = lines;
    return 0;
}

static const char *const bert_tokens[FL_TOKEN_NAMED] = {NULL,    NULL,    "[UNK]", "[SEP]",
                                                        "[PAD]", "[CLS]", "[MASK]"};

/* The special tokens of BERT: [UNK], [CLS] and [SEP] must be there, the others may. */
static int add_bert_specials(fl_tokenizer *tokenizer, const char *source, fletch_error *error) {
    fl_added_builder builder;
    int              status =
        fl_added_begin(&builder, tokenizer, FL_TOKEN_NAMED, FL_TOKEN_NAMED * 6, source, error);
    for (unsigned i = FL_TOKEN_UNK; i < FL_TOKEN_NAMED && status == 0; i++) {
        char           content[8] = {0};
        fl_added_token token      = {.content = content, .special = true};
        token.length              = strlen(bert_tokens[i]);
        memcpy(content, bert_tokens[i], token.length);
        token.id = fl_vocab_find(&tokenizer->vocab, content, token.length);
        if (token.id >= 0) {
            status = fl_added_put(&builder, &token, source, error);
        } else if (i != FL_TOKEN_PAD && i != FL_TOKEN_MASK) {
            status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                             "%s: \"%s\" is not in the vocabulary; is this a BERT vocab.txt?",
                             source, content);
        }
    }
    if (status == 0)
        status = fl_added_finish(&builder, source, error);
    fl_added_end(&builder);
    return status;
}

static int build_bert(fl_tokenizer *tokenizer, const char *vocab, size_t size, const fl_step *step,
                      const char *source, fletch_error *error) {
    FL_TRY(read_lines(tokenizer, vocab, size, source, error));
    FL_TRY(add_bert_specials(tokenizer, source, error));
    tokenizer->normal[tokenizer->normal_count++] = *step;
    tokenizer->split[0].ops                      = &fl_split_bert;
    tokenizer->split_count                       = 1;
    tokenizer->expansion                         = tokenizer->normal_count;
    fl_template_bert(tokenizer, fl_vocab_find(&tokenizer->vocab, "[CLS]", 5),
                     fl_vocab_find(&tokenizer->vocab, "[SEP]", 5));
    FL_TRY(fl_decoder_wordpiece(&tokenizer->decoder, error));
    int32_t unk            = fl_vocab_find(&tokenizer->vocab, "[UNK]", 5);
    tokenizer->model       = &fl_wordpiece_model;
    tokenizer->model_state = fl_alloc_zero(1, sizeof(fl_wordpiece));
    return tokenizer->model_state != NULL &&
                   fl_wordpiece_open(tokenizer->model_state, &tokenizer->vocab, "##", 100, unk)
               ? 0
               : fl_fail_nomem(error, sizeof(fl_wordpiece), source);
}

int fl_tokenizer_open_vocab(fl_tokenizer **out, const char *vocab, size_t size, bool lowercase,
                            bool strip_accents, bool chinese_chars,
                            const fl_tokenizer_options *given, fletch_error *error) {
    const fl_tokenizer_options options = resolve(given, "vocab.txt");
    fl_step                    step    = {.ops           = &fl_normal_bert,
                                          .clean_text    = true,
                                          .chinese_chars = chinese_chars,
                                          .strip_accents = strip_accents,
                                          .lowercase     = lowercase};
    FL_TRY(begin(out, &options, error));
    int status = build_bert(*out, vocab, size, &step, options.source, error);
    if (status == 0)
        fl_token_names(*out, bert_tokens);
    return end(out, status, &options, error);
}

void fl_tokenizer_close(fl_tokenizer *tokenizer) {
    if (tokenizer == NULL)
        return;
    for (unsigned i = 0; i < tokenizer->normal_count; i++)
        fl_step_close(&tokenizer->normal[i]);
    for (unsigned i = 0; i < tokenizer->split_count; i++)
        fl_step_close(&tokenizer->split[i]);
    fl_decoder_close(&tokenizer->decoder);
    fl_added_close(&tokenizer->added);
    fl_free(tokenizer->changes);
    if (tokenizer->model != NULL)
        tokenizer->model->close(tokenizer->model_state);
    fl_vocab_close(&tokenizer->vocab);
    fl_free(tokenizer);
}

/* ---- Scratch ---------------------------------------------------------------------------------- */

fl_token_scratch *fl_token_scratch_new(const fl_tokenizer *tokenizer) {
    assert(tokenizer->model);
    fl_token_scratch *scratch = fl_alloc_zero(1, sizeof *scratch);
    if (scratch == NULL || !tokenizer->stream)
        return scratch;
    bool   bpe           = tokenizer->bpe != NULL;
    size_t bytes         = bpe                ? 3 * FL_SCAN_WINDOW + 8
                           : tokenizer->words ? 0
                                              : 4 * (size_t)tokenizer->wordpiece->max_chars;
    scratch->cache_shift = 64 - tokenizer->cache_bits;
    scratch->cache_bytes = sizeof(fl_cache_line) << tokenizer->cache_bits;
    scratch->cache       = fl_big_alloc(scratch->cache_bytes);
    scratch->word        = fl_alloc_zero(1, bytes + 32);
    scratch->word_ids    = fl_alloc_array(bytes + 4, sizeof *scratch->word_ids);
    scratch->pending     = fl_alloc_array(bytes / 2 + 2, sizeof *scratch->pending);
    if (scratch->cache == NULL || scratch->word == NULL || scratch->word_ids == NULL ||
        scratch->pending == NULL) {
        fl_token_scratch_free(scratch);
        return NULL;
    }
    return scratch;
}

void fl_token_scratch_trim(fl_token_scratch *scratch) {
    fl_runes_free(&scratch->runes);
    fl_buf_free(&scratch->text);
    fl_buf_free(&scratch->lowered);
    fl_free(scratch->tokens);
    fl_free(scratch->work);
    fl_free(scratch->pieces);
    scratch->tokens         = NULL;
    scratch->work           = NULL;
    scratch->pieces         = NULL;
    scratch->token_capacity = scratch->work_capacity = scratch->piece_capacity = 0;
}

void fl_token_scratch_free(fl_token_scratch *scratch) {
    if (scratch == NULL)
        return;
    fl_big_free(scratch->cache, scratch->cache_bytes);
    fl_free(scratch->ring);
    fl_free(scratch->word);
    fl_free(scratch->word_ids);
    fl_free(scratch->pending);
    fl_token_scratch_trim(scratch);
    fl_free(scratch);
}

void fl_token_scratch_stop(fl_token_scratch *scratch, fl_stop *stop) {
    scratch->runes.stop = stop;
}

/* ---- Encoding --------------------------------------------------------------------------------- */

/* What one call has to do, worked out from its options. */
typedef struct plan {
    const int32_t *before, *after;
    size_t         before_count, after_count;
    size_t         limit; /* tokens of the text itself */
    const char    *text;
    size_t         size;
} plan;

static int make_plan(plan *p, const fl_tokenizer *tokenizer, const char *text, size_t size,
                     const fl_encode_options *options, bool tracked, size_t capacity,
                     fletch_error *error) {
    bool     special = !options->no_special;
    uint32_t before, after;
    p->before       = fl_tokenizer_before(tokenizer, &before);
    p->after        = fl_tokenizer_after(tokenizer, &after);
    p->before_count = special ? before : 0;
    p->after_count  = special ? after : 0;
    size_t specials = p->before_count + p->after_count;
    p->limit        = SIZE_MAX;
    if (options->max_length > 0)
        p->limit = options->max_length > specials ? options->max_length - specials : 0;
    p->text = text;
    p->size = size;
    if (specials > capacity) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the buffer for token ids holds %zu; the special tokens alone are %zu",
                       capacity, specials);
    }
    if (size >= UINT32_MAX / 2 && (tracked || !tokenizer->stream || tokenizer->bpe != NULL)) {
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "a text of %zu bytes is too long; at most 2 GiB", size);
    }
    return 0;
}

/* Run the exact path; its pieces are checked against the room that is left. */
static int encode_pieces(const plan *p, const fl_tokenizer *tokenizer, fl_token_scratch *scratch,
                         fl_truncation truncation, size_t capacity, bool *truncated,
                         fletch_error *error) {
    int    status = fl_exact_encode(tokenizer, scratch, p->text, p->size, p->limit, truncation,
                                    truncated, error);
    size_t room   = capacity - p->before_count - p->after_count;
    if (status == 0 && scratch->piece_count > room) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the buffer for token ids holds %zu; the text has %zu", room,
                       scratch->piece_count);
    }
    return status;
}

int fl_tokenizer_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                        size_t size, const fl_encode_options *options, int32_t *ids,
                        size_t capacity, size_t *count, bool *truncated, fletch_error *error) {
    plan   p;
    size_t own = 0;
    FL_TRY(make_plan(&p, tokenizer, text, size, options, false, capacity, error));
    int32_t *body = ids + p.before_count;
    if (tokenizer->stream) {
        FL_TRY(fl_stream_encode(tokenizer, scratch, p.text, p.size, p.limit, options->truncation,
                                body, capacity - p.before_count - p.after_count, &own, truncated,
                                error));
    } else {
        FL_TRY(
            encode_pieces(&p, tokenizer, scratch, options->truncation, capacity, truncated, error));
        for (; own < scratch->piece_count; own++)
            body[own] = scratch->pieces[own].id;
    }
    memcpy(ids, p.before, p.before_count * sizeof *ids);
    memcpy(body + own, p.after, p.after_count * sizeof *ids);
    *count = p.before_count + own + p.after_count;
    return 0;
}

static void put_special(int32_t *ids, uint32_t *offsets, uint8_t *special, size_t at, int32_t id) {
    ids[at]         = id;
    offsets[2 * at] = offsets[2 * at + 1] = 0;
    special[at]                           = 1;
}

int fl_tokenizer_encode_offsets(const fl_tokenizer *tokenizer, fl_token_scratch *scratch,
                                const char *text, size_t size, const fl_encode_options *options,
                                int32_t *ids, uint32_t *offsets, uint8_t *special, size_t capacity,
                                size_t *count, bool *truncated, fletch_error *error) {
    plan   p;
    size_t at = 0;
    FL_TRY(make_plan(&p, tokenizer, text, size, options, true, capacity, error));
    FL_TRY(encode_pieces(&p, tokenizer, scratch, options->truncation, capacity, truncated, error));
    for (size_t i = 0; i < p.before_count; i++)
        put_special(ids, offsets, special, at++, p.before[i]);
    for (size_t i = 0; i < scratch->piece_count; i++, at++) {
        if (!fl_runes_go_on(&scratch->runes, i))
            return fl_exact_failed(scratch, size, error);
        const fl_piece *piece = &scratch->pieces[i];
        ids[at]               = piece->id;
        offsets[2 * at]       = piece->start;
        offsets[2 * at + 1]   = piece->end;
        special[at]           = 0;
    }
    for (size_t i = 0; i < p.after_count; i++)
        put_special(ids, offsets, special, at++, p.after[i]);
    *count = at;
    return 0;
}

/* ---- Look-ups --------------------------------------------------------------------------------- */

fl_truncation fl_tokenizer_truncation(const fl_tokenizer *tokenizer) {
    return tokenizer->truncation;
}

bool fl_tokenizer_is_special(const fl_tokenizer *tokenizer, int32_t id) {
    const fl_added_token *token = fl_added_find(&tokenizer->added, id);
    return token != NULL && token->special;
}

bool fl_tokenizer_is_added(const fl_tokenizer *tokenizer, int32_t id) {
    return fl_added_find(&tokenizer->added, id) != NULL;
}

uint32_t fl_tokenizer_special_count(const fl_tokenizer *tokenizer) {
    return tokenizer->single.count;
}

const int32_t *fl_tokenizer_before(const fl_tokenizer *tokenizer, uint32_t *count) {
    *count = tokenizer->single.place[0];
    return tokenizer->single.ids;
}

const int32_t *fl_tokenizer_after(const fl_tokenizer *tokenizer, uint32_t *count) {
    *count = tokenizer->single.count - tokenizer->single.place[0];
    return tokenizer->single.ids + tokenizer->single.place[0];
}

size_t fl_tokenizer_ids_max(const fl_tokenizer *tokenizer, size_t size) {
    size_t ids;
    if (fl_mul_overflow(size, tokenizer->expansion, &ids) ||
        fl_add_overflow(ids, fl_tokenizer_special_count(tokenizer) + 1u, &ids))
        return SIZE_MAX;
    return ids;
}

uint32_t fl_tokenizer_vocab_size(const fl_tokenizer *tokenizer) {
    return tokenizer->id_limit;
}

const char *fl_tokenizer_token(const fl_tokenizer *tokenizer, int32_t id, size_t *length) {
    const fl_added_token *added = fl_added_find(&tokenizer->added, id);
    if (added == NULL)
        return fl_vocab_text(&tokenizer->vocab, id, length);
    if (length != NULL)
        *length = added->length;
    return added->content;
}

int32_t fl_tokenizer_named(const fl_tokenizer *tokenizer, fl_named_token which) {
    assert((unsigned)which < FL_TOKEN_NAMED);
    return tokenizer->named[which];
}

int32_t fl_tokenizer_id(const fl_tokenizer *tokenizer, const char *token) {
    size_t length = strlen(token);
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const fl_added_token *added = &tokenizer->added.tokens[i];
        if (added->length == length && memcmp(added->content, token, length) == 0)
            return added->id;
    }
    return fl_vocab_find(&tokenizer->vocab, token, length);
}

const char *fl_tokenizer_kind(const fl_tokenizer *tokenizer) {
    return tokenizer->model->type;
}
