/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c - the root of tokenizer.json: model vocabulary and added tokens.
 *
 * Role     tokenizer.c calls fl_parse_root; the steps are parse_steps.c's.
 * Method   The file comes from strangers: every number is checked before it sizes anything, and what
 *          contradicts itself is refused (two tokens with one id, an added token whose id is not the
 *          one that the reference would give it). The blocks "truncation" and "padding" are not read:
 *          the caller says how long, and nothing is ever padded.
 *          Order: normalizer before added tokens (their contents are normalised), those before the
 *          template (its ids must exist).
 * Memory   Everything is owned by the tokenizer, which the caller closes on failure.
 * Proof    tests/unit/test_tokenizer.c. */
#include "tokenizer/parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/token_plan.h"
#include "tokenizer/unicode.h"

enum { ID_MAX = INT32_MAX - 1, HOLES_FREE = 65536 };

/* ---- Model ------------------------------------------------------------------------------------ */

size_t fl_count_byte(const fl_json_in *in, char byte) {
    size_t count = 0;
    for (size_t i = 0; i < in->size; i++)
        count += in->text[i] == byte;
    return count;
}

/* The id of token, which the reader stands before; -1 after an error. */
static int64_t read_id(fl_json_in *in, fl_span token, const char *source, fletch_error *error) {
    fl_span number = {"", 0};
    bool    good   = fl_json_in_peek(in) == FL_JSON_NUMBER && fl_json_in_number(in, &number);
    int     shown  = token.size < 40 ? (int)token.size : 40;
    if (!good || !fl_span_is_int(number)) {
        fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                "%s: model.vocab \"%.*s\" has an id that is not an integer", source, shown,
                token.data);
        return -1;
    }
    int64_t id = fl_span_int64(number);
    if (id < 0 || id > ID_MAX) {
        fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                "%s: model.vocab \"%.*s\" has id %lld; ids are 0 to %d", source, shown, token.data,
                (long long)id, ID_MAX);
        return -1;
    }
    return id;
}

/* Holes are legal, but a lone huge id would size tables. */
static uint32_t ids_end(size_t tokens) {
    return tokens > ID_MAX / 8 ? ID_MAX : (uint32_t)(4 * tokens + HOLES_FREE + 1);
}

static int add_entry(fl_vocab *vocab, fl_vocab_entry one, const char *source, fletch_error *error) {
    if (one.id >= vocab->size ||
        fl_vocab_add(vocab, one.text.data, one.text.size, (uint32_t)one.id) == FL_VOCAB_ADDED)
        return 0;
    const char *other = fl_vocab_text(vocab, (int32_t)one.id, NULL);
    int         shown = one.text.size < 40 ? (int)one.text.size : 40;
    if (other == NULL) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: model.vocab has \"%.*s\" twice",
                       source, shown, one.text.data);
    }
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s: model.vocab gives id %lld to \"%.40s\" and to \"%.*s\"", source,
                   (long long)one.id, other, shown, one.text.data);
}

/* All members of the object that `in` has entered. *highest is the highest id, also of one out of bounds. */
static int read_vocab(fl_tokenizer *tokenizer, fl_json_in *in, int64_t *highest, size_t *tokens,
                      const char *source, fletch_error *error) {
    fl_vocab      *vocab = &tokenizer->vocab;
    bool           nuls  = tokenizer->model == &fl_bpe_model; /* a trie ends its keys with them */
    fl_vocab_queue soon  = {0};
    fl_vocab_entry due;
    fl_span        token;
    for (; fl_json_in_key(in, &token); ++*tokens) {
        int64_t id = read_id(in, token, source, error);
        if (id < 0)
            return FLETCH_EMODEL;
        if (!nuls && memchr(token.data, '\0', token.size) != NULL) {
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s: the token of model.vocab with id %lld has a NUL", source,
                           (long long)id);
        }
        *highest = id > *highest ? id : *highest;
        if (fl_vocab_wait(&soon, vocab, (fl_vocab_entry){token, id}, &due))
            FL_TRY(add_entry(vocab, due, source, error));
    }
    while (fl_vocab_left(&soon, &due))
        FL_TRY(add_entry(vocab, due, source, error));
    return 0;
}

int fl_parse_vocab(fl_tokenizer *tokenizer, fl_json_reader *model, const fl_log *log) {
    const char   *source = model->source;
    fletch_error *error  = model->error;
    fl_vocab     *vocab  = &tokenizer->vocab;
    fl_json      *object = fl_json_object(model, "vocab");
    fl_json_in    in;
    if (object == NULL || !fl_json_later(object, &in)) {
        return model->status < 0 ? model->status
                                 : fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                           "%s: \"model.vocab\" is missing", source);
    }
    size_t  most = fl_count_byte(&in, ':'), tokens = 0;
    int64_t highest = -1;
    if (!fl_vocab_open(vocab, ids_end(most), (uint32_t)most, in.size))
        return fl_fail_nomem(error, in.size, "the vocabulary");
    (void)fl_json_in_enter(&in, FL_JSON_OBJECT);
    FL_TRY(read_vocab(tokenizer, &in, &highest, &tokens, source, error));
    if (tokens == 0)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: model.vocab is empty", source);
    if (highest >= (int64_t)ids_end(tokens)) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: model.vocab has id %lld but only %zu tokens; the file is damaged",
                       source, (long long)highest, tokens);
    }
    fl_vocab_fit(vocab, (uint32_t)highest + 1);
    if (tokens < vocab->size) {
        fl_log_write(log, FL_LOG_WARNING, "%s: model.vocab has %zu ids without a token", source,
                     vocab->size - tokens);
    }
    tokenizer->id_limit = vocab->size;
    return 0;
}

static int parse_model(fl_tokenizer *tokenizer, fl_json_reader *root, const fl_log *log) {
    fl_json_reader model = fl_json_below(root, "model");
    if (model.object == NULL && root->status == 0) {
        return fl_fail(root->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: \"model\" is missing; this is not a tokenizer.json", root->source);
    }
    tokenizer->model = fl_token_model_of(&model);
    return tokenizer->model == NULL
               ? model.status
               : tokenizer->model->open(tokenizer, &tokenizer->model_state, &model, log);
}

/* ---- Added tokens ----------------------------------------------------------------------------- */

int fl_added_begin(fl_added_builder *builder, fl_tokenizer *tokenizer, size_t count,
                   size_t text_bytes, const char *source, fletch_error *error) {
    memset(builder, 0, sizeof *builder);
    builder->tokenizer      = tokenizer;
    builder->next_id        = tokenizer->vocab.count;
    tokenizer->added.tokens = fl_alloc_zero(count, sizeof *tokenizer->added.tokens);
    if (count > ID_MAX || tokenizer->added.tokens == NULL ||
        !fl_vocab_open(&builder->names, (uint32_t)count + 1, (uint32_t)count, text_bytes)) {
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "%s: no memory for %zu added tokens",
                       source, count);
    }
    return 0;
}

void fl_added_end(fl_added_builder *builder) {
    fl_vocab_close(&builder->names);
    fl_runes_free(&builder->runes);
}

/* Normalised content into token->pattern, when it differs. SentencePiece's pieces are what a normalised text has. */
static bool make_pattern(fl_added_builder *builder, fl_added_token *token) {
    const fl_tokenizer *tokenizer = builder->tokenizer;
    fl_runes           *runes     = &builder->runes;
    fl_buf              text      = {0};
    fl_free(token->pattern);
    token->pattern = NULL;
    if (!token->normalized || tokenizer->normal_count == 0 || tokenizer->pieces)
        return true;
    if (!fl_runes_load(runes, token->content, 0, token->length) ||
        !fl_normalize(tokenizer->normal, tokenizer->normal_count, runes) ||
        !fl_runes_write(runes, 0, runes->count, &text))
        return false;
    if (text.size == token->length && memcmp(text.data, token->content, text.size) == 0) {
        fl_buf_free(&text);
        return true;
    }
    token->pattern_length = text.size;
    token->pattern        = fl_buf_take(&text);
    return true;
}

/* The id that the reference would give: the model's if it knows the content, else the next free one. */
static int check_id(fl_added_builder *builder, const fl_added_token *token, const char *source,
                    fletch_error *error) {
    fl_vocab *vocab = &builder->tokenizer->vocab;
    int32_t   id    = fl_vocab_find(vocab, token->content, token->length);
    bool      fresh = id < 0;
    if (fresh)
        id = (int32_t)builder->next_id++;
    if (id != token->id) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: added_tokens gives \"%.40s\" id %d; by the vocabulary it is %d", source,
                       token->content, token->id, id);
    }
    if (fresh && fl_vocab_text(vocab, id, NULL) != NULL) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: added token \"%.40s\" has id %d, which model.vocab gives to \"%.40s\"",
                       source, token->content, id, fl_vocab_text(vocab, id, NULL));
    }
    return 0;
}

int fl_added_put(fl_added_builder *builder, const fl_added_token *token, const char *source,
                 fletch_error *error) {
    fl_added *added = &builder->tokenizer->added;
    int32_t   index = fl_vocab_find(&builder->names, token->content, token->length);
    if (index >= 0) { /* listed twice: the later flags hold, but special stays special */
        fl_added_token *old = &added->tokens[index];
        if (token->id != old->id) {
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s: added_tokens gives \"%.40s\" ids %d and %d", source, token->content,
                           old->id, token->id);
        }
        old->single_word = token->single_word;
        old->lstrip      = token->lstrip;
        old->rstrip      = token->rstrip;
        old->normalized  = token->normalized;
        old->special     = old->special || token->special;
        return make_pattern(builder, old) ? 0 : fl_fail_nomem(error, token->length, source);
    }
    FL_TRY(check_id(builder, token, source, error));
    fl_added_token *mine = &added->tokens[added->count];
    *mine                = *token;
    mine->pattern        = NULL;
    mine->content        = fl_strndup(token->content, token->length);
    if (mine->content == NULL)
        return fl_fail_nomem(error, token->length, source);
    added->count++;
    fl_vocab_add(&builder->names, token->content, token->length, (uint32_t)added->count - 1);
    if ((uint32_t)mine->id >= builder->tokenizer->id_limit)
        builder->tokenizer->id_limit = (uint32_t)mine->id + 1;
    return make_pattern(builder, mine) ? 0 : fl_fail_nomem(error, token->length, source);
}

static int by_id(const void *a, const void *b) {
    const fl_added_token *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* White space alone with lstrip could match inside what another token has swallowed already; the
 * reference fails on such texts. */
static bool is_blank(const char *text, size_t length) {
    size_t   at = 0;
    unsigned step;
    while (at < length && fl_unicode_is_space(fl_utf8_decode(text + at, &step)))
        at += step;
    return at == length;
}

int fl_added_finish(fl_added_builder *builder, const char *source, fletch_error *error) {
    fl_added *added   = &builder->tokenizer->added;
    size_t    culprit = 0;
    /* The reference skips what is special by the string that it decodes to, not by the token. */
    for (size_t i = 0; i < added->count; i++) {
        fl_added_token *token = &added->tokens[i];
        const char     *text  = token->pattern != NULL ? token->pattern : token->content;
        int32_t         other = fl_vocab_find(&builder->names, text, strlen(text));
        token->skipped        = other >= 0 && added->tokens[other].special;
        if (token->lstrip && is_blank(text, strlen(text))) {
            return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s: added token %d is white space with lstrip, which is not supported",
                           source, token->id);
        }
    }
    qsort(added->tokens, added->count, sizeof *added->tokens, by_id);
    switch (fl_added_compile(added, &culprit)) {
    case FL_ADDED_OK: return 0;
    case FL_ADDED_NOMEM:
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "%s: no memory for %zu added tokens",
                       source, added->count);
    case FL_ADDED_EMPTY:
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: added token %d is empty after normalisation", source,
                       added->tokens[culprit].id);
    case FL_ADDED_TWICE: break;
    }
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s: added token \"%.40s\" is the same as another one after normalisation",
                   source, added->tokens[culprit].content);
}

static int parse_added_token(fl_added_builder *builder, fl_json *item, const char *source,
                             fletch_error *error) {
    fl_json_reader reader = {item, source, error, 0};
    fl_added_token token  = {0};
    const char    *text   = fl_need_string(&reader, "content");
    token.id              = (int32_t)fl_need_int(&reader, "id", ID_MAX);
    token.single_word     = fl_need_bool(&reader, "single_word");
    token.lstrip          = fl_need_bool(&reader, "lstrip");
    token.rstrip          = fl_need_bool(&reader, "rstrip");
    token.normalized      = fl_need_bool(&reader, "normalized");
    token.special         = fl_need_bool(&reader, "special");
    if (reader.status < 0) {
        fl_error_prefix(error, "added_tokens");
        return reader.status;
    }
    token.length = strlen(text);
    if (token.length == 0) /* the reference passes over it */
        return 0;
    token.content = fl_strndup(text, token.length);
    int status    = token.content == NULL ? fl_fail_nomem(error, token.length, source)
                                          : fl_added_put(builder, &token, source, error);
    fl_free(token.content);
    return status;
}

/* A token that the files beside tokenizer.json add: known to the model, or with the next free id. */
static int put_extra(fl_added_builder *builder, fl_added_token token, const char *source,
                     fletch_error *error) {
    int32_t index = fl_vocab_find(&builder->names, token.content, token.length);
    int32_t id    = fl_vocab_find(&builder->tokenizer->vocab, token.content, token.length);
    token.id      = index >= 0 ? builder->tokenizer->added.tokens[index].id
                    : id >= 0  ? id
                               : (int32_t)builder->next_id;
    return fl_added_put(builder, &token, source, error);
}

/* A marker, or its first word, whichever the tokenizer has, becomes a special token of the raw text. */
static int put_marker(fl_added_builder *builder, const char *text, const char *source,
                      fletch_error *error) {
    const size_t lengths[2] = {strlen(text), strcspn(text, " \t\n")};
    for (size_t i = 0; i < 2; i++) {
        bool known = fl_vocab_find(&builder->names, text, lengths[i]) >= 0 ||
                     fl_vocab_find(&builder->tokenizer->vocab, text, lengths[i]) >= 0;
        if (lengths[i] == 0 || !known)
            continue;
        fl_added_token token = {.length = lengths[i], .special = true};
        token.content        = fl_strndup(text, lengths[i]);
        int status           = token.content == NULL ? fl_fail_nomem(error, lengths[i], source)
                                                     : put_extra(builder, token, source, error);
        fl_free(token.content);
        return status;
    }
    return 0;
}

static int parse_added(fl_tokenizer *tokenizer, const fl_token_plan *plan, fl_json_reader *root) {
    const char *const *marker = plan->options->marker;
    fl_json           *list   = fl_json_array(root, "added_tokens");
    size_t             count  = fl_json_count(list);
    size_t             bytes  = 0;
    if (root->status < 0)
        return root->status;
    for (size_t i = 0; i < count; i++)
        bytes += fl_json_text_size(fl_json_get(fl_json_item(list, i), "content"));
    for (size_t i = 0; i < plan->extra_count; i++)
        bytes += plan->extra[i].length;
    for (size_t i = 0; i < 2; i++)
        bytes += marker[i] != NULL ? strlen(marker[i]) : 0;
    fl_added_builder builder;
    int status = fl_added_begin(&builder, tokenizer, count + plan->extra_count + 2, bytes,
                                root->source, root->error);
    for (size_t i = 0; i < count && status == 0; i++)
        status = parse_added_token(&builder, fl_json_item(list, i), root->source, root->error);
    for (size_t i = 0; i < plan->extra_count && status == 0; i++)
        status = put_extra(&builder, plan->extra[i], root->source, root->error);
    for (size_t i = 0; i < 2 && status == 0; i++)
        if (marker[i] != NULL)
            status = put_marker(&builder, marker[i], root->source, root->error);
    tokenizer->added.split_special = plan->split_special;
    if (status == 0)
        status = fl_added_finish(&builder, root->source, root->error);
    fl_added_end(&builder);
    return status;
}

/* ---- Root ------------------------------------------------------------------------------------- */

void fl_token_names(fl_tokenizer *tokenizer, const char *const token[FL_TOKEN_NAMED]) {
    for (unsigned i = 0; i < FL_TOKEN_NAMED; i++)
        tokenizer->named[i] = token[i] != NULL ? fl_tokenizer_id(tokenizer, token[i]) : -1;
}

/* The model is there: what the plan makes of the rest. */
static int parse_parts(fl_tokenizer *tokenizer, const fl_token_plan *plan, fl_json_reader *reader) {
    FL_TRY(fl_parse_steps(tokenizer, reader));
    FL_TRY(fl_token_class_steps(plan, tokenizer, reader));
    FL_TRY(parse_added(tokenizer, plan, reader));
    fl_token_names(tokenizer, plan->token);
    tokenizer->truncation = plan->left ? FL_TRUNCATE_LEFT : FL_TRUNCATE_RIGHT;
    FL_TRY(fl_parse_post_processor(tokenizer, reader));
    return fl_token_class_template(plan, tokenizer, reader);
}

int fl_parse_root(fl_tokenizer *tokenizer, fl_json *root, const fl_tokenizer_options *options,
                  fletch_error *error) {
    fl_json_reader reader  = {root, options->source, error, 0};
    const char    *version = fl_json_string(&reader, "version", "1.0");
    if (reader.status == 0 && strcmp(version, "1.0") != 0) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: version \"%s\" of the format is not supported; supported: 1.0",
                       options->source, version);
    }
    FL_TRY(reader.status);
    FL_TRY(parse_model(tokenizer, &reader, options->log));
    fl_token_plan plan;
    int           status = fl_token_plan_make(&plan, options, &reader);
    if (status == 0)
        status = parse_parts(tokenizer, &plan, &reader);
    fl_token_plan_free(&plan);
    return status == 0 ? fl_decoder_open(&tokenizer->decoder, &reader) : status;
}
