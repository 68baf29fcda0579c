/* SPDX-License-Identifier: Apache-2.0 */
/* token_plan.c - the files beside tokenizer.json and the tokens that they add: see token_plan.h. */
#include "tokenizer/token_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "tokenizer/vocab.h"

enum { CONFIG_MAX = 64 << 20 };

/* In the order in which both references add them. */
static const char *const named[FL_TOKEN_NAMED] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/* ---- Files ------------------------------------------------------------------------------------ */

static int read_file(fl_json **out, char *path, size_t capacity, const char *folder,
                     const char *name, fletch_error *error) {
    int there = fl_file_find(path, capacity, folder, name, error);
    if (there <= 0)
        return there;
    int status = fl_json_read(out, path, CONFIG_MAX, error);
    if (status == 0 && *out != NULL && !fl_json_is(*out, FL_JSON_OBJECT))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: not an object", path);
    return status;
}

/* What a key says: special_tokens_map.json has the last word where tokenizer_config.json has no
 * added_tokens_decoder, as in both references. */
static fl_json *value_of(const fl_token_plan *plan, const char *key) {
    fl_json *value = NULL;
    return plan->decoder == NULL && fl_json_find(plan->map, key, &value)
               ? value
               : fl_json_get(plan->config, key);
}

/* The content of a token given as a string or as an object; NULL for anything else. */
static const char *content_of(fl_json *value) {
    return fl_json_is(value, FL_JSON_OBJECT) ? fl_json_text(fl_json_get(value, "content"))
                                             : fl_json_text(value);
}

/* The token that the files, or the class that they name, have for a role; NULL: none. */
static const char *token_named(const fl_token_plan *plan, unsigned which) {
    fl_json *value = NULL;
    return fl_json_find(plan->config, named[which], &value) ||
                   fl_json_find(plan->map, named[which], &value)
               ? content_of(value_of(plan, named[which])) /* null: none */
               : plan->class->defaults[which];
}

/* ---- Added tokens ----------------------------------------------------------------------------- */

/* Texts found by hash. Borrowed until the index is made, in the order of coming. */
typedef struct texts {
    const char **at;
    size_t       count;
} texts;

static void put(texts *list, const char *text) {
    if (text != NULL)
        list->at[list->count++] = text;
}

/* Item i of a list, or the value of member i of an object. */
static fl_json *element(fl_json *values, size_t i) {
    fl_json *value = fl_json_item(values, i);
    if (fl_json_is(values, FL_JSON_OBJECT))
        (void)fl_json_member(values, i, &value);
    return value;
}

/* What each of them holds. */
static void put_all(texts *list, fl_json *values) {
    for (size_t i = 0; i < fl_json_count(values); i++)
        put(list, content_of(element(values, i)));
}

/* Place in the list by text, the first where one comes again; the list is let go. With room for `more`
 * texts of `more_bytes`. */
static int index_texts(texts *list, size_t more, size_t more_bytes, fl_vocab *out,
                       fletch_error *error) {
    size_t bytes = more_bytes, room = list->count + more + 1;
    for (size_t i = 0; i < list->count; i++)
        bytes += strlen(list->at[i]);
    bool made = room <= INT32_MAX && fl_vocab_open(out, (uint32_t)room, (uint32_t)room, bytes);
    for (size_t i = 0; made && i < list->count; i++)
        (void)fl_vocab_add(out, list->at[i], strlen(list->at[i]), (uint32_t)i);
    fl_free(list->at);
    list->at = NULL;
    return made ? 0 : fl_fail_nomem(error, bytes, "added tokens");
}

static int texts_open(texts *list, size_t room, fletch_error *error) {
    *list = (texts){.at = fl_alloc_array(room + 1, sizeof *list->at)};
    return list->at != NULL ? 0 : fl_fail_nomem(error, room * sizeof *list->at, "added tokens");
}

static bool has(const fl_vocab *index, const char *text) {
    return fl_vocab_find(index, text, strlen(text)) >= 0;
}

static fl_added_token token_of(const char *content, fl_json *flags, bool special) {
    fl_added_token token = {.content = (char *)(uintptr_t)content, .length = strlen(content)};
    token.special        = fl_json_flag(flags, "special", special);
    token.single_word    = fl_json_flag(flags, "single_word", false);
    token.lstrip         = fl_json_flag(flags, "lstrip", false);
    token.rstrip         = fl_json_flag(flags, "rstrip", false);
    token.normalized     = fl_json_flag(flags, "normalized", !token.special);
    return token;
}

/* What is added: to the file's `added` tokens, found by text in `known`, then to those of plan->extra. */
typedef struct additions {
    fl_token_plan *plan;
    fl_json       *added;
    fl_vocab       known; /* places among the file's tokens, then those of extra */
} additions;

static bool is_same(fl_json *old, const fl_added_token *token) {
    return fl_json_flag(old, "special", false) == token->special &&
           fl_json_flag(old, "single_word", false) == token->single_word &&
           fl_json_flag(old, "lstrip", false) == token->lstrip &&
           fl_json_flag(old, "rstrip", false) == token->rstrip &&
           fl_json_flag(old, "normalized", false) == token->normalized;
}

/* After the file's tokens; room was made for all that the files list. A token that is there stays as it is;
 * with `again` only if it has the same flags. */
static void add(additions *to, fl_added_token token, bool again) {
    fl_token_plan *plan    = to->plan;
    size_t         files   = fl_json_count(to->added);
    int32_t        place   = fl_vocab_find(&to->known, token.content, token.length);
    bool           changed = again && place >= 0 && (size_t)place < files &&
                   !is_same(fl_json_item(to->added, (size_t)place), &token);
    if (token.length > 0 && (place < 0 || changed)) {
        (void)fl_vocab_add_later(&to->known, token.content, token.length,
                                 (uint32_t)(files + plan->extra_count));
        plan->extra[plan->extra_count++] = token;
    }
}

static int by_id(const void *a, const void *b) {
    const fl_added_token *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Tokens that may have to be added, in order. */
typedef struct candidates {
    fl_added_token *at;
    size_t          count;
} candidates;

static void add_special(candidates *all, const char *content, fl_json *value) {
    fl_json *flags = fl_json_is(value, FL_JSON_OBJECT) ? value : NULL;
    if (content != NULL)
        all->at[all->count++] = token_of(content, flags, true);
}

/* A list of special tokens, or an object whose values are. */
static void add_specials(candidates *all, fl_json *list) {
    for (size_t i = 0; i < fl_json_count(list); i++) {
        fl_json *value = element(list, i);
        add_special(all, content_of(value), value);
    }
}

/* The lists of special tokens, by the same rule. */
enum { LISTS = 4 };
static fl_json *list_of(const fl_token_plan *plan, unsigned i) {
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    return fl_json_get(i % 2 == 0              ? plan->config
                       : plan->decoder == NULL ? plan->map
                                               : NULL,
                       lists[i / 2]);
}

/* Every text that a key or a list names as special. */
static int index_listed(const fl_token_plan *plan, fl_vocab *out, fletch_error *error) {
    texts  list;
    size_t room = FL_TOKEN_NAMED;
    for (unsigned i = 0; i < LISTS; i++)
        room += fl_json_count(list_of(plan, i));
    FL_TRY(texts_open(&list, room, error));
    for (unsigned i = 0; i < FL_TOKEN_NAMED; i++)
        put(&list, plan->token[i]);
    for (unsigned i = 0; i < LISTS; i++)
        if (fl_json_is(list_of(plan, i), FL_JSON_ARRAY))
            put_all(&list, list_of(plan, i));
    return index_texts(&list, 0, 0, out, error);
}

/* The file's tokens by text, with room for `more`, which are not longer than the files that name them. */
static int index_file(additions *to, size_t more, size_t more_bytes, fletch_error *error) {
    texts list;
    FL_TRY(texts_open(&list, fl_json_count(to->added), error));
    for (size_t i = 0; i < fl_json_count(to->added); i++) {
        const char *text      = fl_json_text(fl_json_get(fl_json_item(to->added, i), "content"));
        list.at[list.count++] = text != NULL ? text : "";
    }
    return index_texts(&list, more, more_bytes, &to->known, error);
}

/* added_tokens_decoder, or added_tokens.json where there is none, lowest id first. */
static int add_by_id(const fl_token_plan *plan, candidates *all, fletch_error *error) {
    FL_JSON_EACH(plan->decoder, key, token) {
        if (content_of(token) != NULL) {
            all->at[all->count]      = token_of(content_of(token), token, false);
            all->at[all->count++].id = (int32_t)strtol(key, NULL, 10);
        }
    }
    if (plan->decoder == NULL && plan->more != NULL) {
        fl_vocab listed;
        FL_TRY(index_listed(plan, &listed, error));
        FL_JSON_EACH(plan->more, text, id) {
            all->at[all->count]      = token_of(text, NULL, has(&listed, text));
            all->at[all->count++].id = (int32_t)fl_json_int64(id);
        }
        fl_vocab_close(&listed);
    }
    qsort(all->at, all->count, sizeof *all->at, by_id);
    return 0;
}

/* What the named keys and the lists hold. */
static void add_named(const fl_token_plan *plan, candidates *all) {
    for (unsigned i = 0; i < FL_TOKEN_NAMED; i++)
        add_special(all, plan->token[i], value_of(plan, named[i]));
    for (unsigned i = 0; i < LISTS; i++)
        add_specials(all, list_of(plan, i));
}

/* Those of `all` that the file lacks, to plan->extra; the first `again` with their flags. */
static int add_missing(fl_token_plan *plan, fl_json *added, const candidates *all, size_t again,
                       fletch_error *error) {
    additions to    = {.plan = plan, .added = added};
    size_t    bytes = 0;
    for (size_t i = 0; i < all->count; i++)
        bytes += all->at[i].length;
    plan->extra = fl_alloc_zero(all->count + 1, sizeof *plan->extra);
    if (plan->extra == NULL)
        return fl_fail_nomem(error, all->count * sizeof *plan->extra, "added tokens");
    int status = index_file(&to, all->count, bytes, error);
    for (size_t i = 0; status == 0 && i < all->count; i++)
        add(&to, all->at[i], i < again);
    fl_vocab_close(&to.known);
    return status;
}

static int list_extra(fl_token_plan *plan, fl_json *added, fletch_error *error) {
    size_t room = fl_json_count(plan->decoder) + fl_json_count(plan->more) + FL_TOKEN_NAMED;
    for (unsigned i = 0; i < LISTS; i++)
        room += fl_json_count(list_of(plan, i));
    candidates all = {.at = fl_alloc_zero(room, sizeof *all.at)};
    if (all.at == NULL)
        return fl_fail_nomem(error, room * sizeof *all.at, "added tokens");
    int    status = add_by_id(plan, &all, error);
    size_t again  = plan->decoder != NULL ? all.count : 0;
    if (status == 0) {
        add_named(plan, &all);
        status = add_missing(plan, added, &all, again, error);
    }
    fl_free(all.at);
    return status;
}

/* transformers 5 rebuilds these classes with the tokens of added_tokens_decoder alone. */
static int check_lost(const fl_token_plan *plan, fl_json *added, fl_json_reader *root) {
    fl_vocab kept = {0};
    texts    list;
    if (plan->decoder == NULL)
        return 0;
    FL_TRY(texts_open(&list, fl_json_count(plan->decoder) + FL_TOKEN_NAMED, root->error));
    put_all(&list, plan->decoder);
    for (unsigned i = 0; i < FL_TOKEN_NAMED; i++)
        put(&list, plan->token[i]);
    int status = index_texts(&list, 0, 0, &kept, root->error);
    for (size_t i = 0; i < fl_json_count(added) && status == 0; i++) {
        const char *content = fl_json_text(fl_json_get(fl_json_item(added, i), "content"));
        if (content != NULL && !has(&kept, content)) {
            status =
                fl_token_class_differ(plan, root, "an added token that added_tokens_decoder lacks");
        }
    }
    fl_vocab_close(&kept);
    return status;
}

/* T5's tokens for gaps are those of tokenizer_config.json; what another file lists beside them transformers 4 adds,
 * and transformers 5 takes in their place. */
static int check_gaps(const fl_token_plan *plan, fl_json_reader *root) {
    static const char gap[] = "<extra_id_";
    fl_json          *list  = fl_json_get(plan->map, "additional_special_tokens");
    for (size_t i = 0; i < fl_json_count(list); i++) {
        const char *text = content_of(element(list, i));
        if (text == NULL || strncmp(text, gap, sizeof gap - 1) != 0) {
            return fl_token_class_differ(plan, root,
                                         "additional_special_tokens of "
                                         "special_tokens_map.json");
        }
    }
    return 0;
}

/* ---- The class -------------------------------------------------------------------------------- */

static int refuse_class(const fl_token_plan *plan, const char *name, fletch_error *error) {
    const fl_tokenizer_options *options = plan->options;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: tokenizer_class \"%s\" is not supported with model_type \"%s\": "
                   "transformers may give other tokens than tokenizer.json says. Set it to %s",
                   plan->path, name, options->family != NULL ? options->family : "",
                   options->class_forced
                       ? options->class_name
                       : "PreTrainedTokenizerFast to take tokenizer.json as it is");
}

/* The arguments of the class, whose defaults they have. Only BERT's are refused for their type. */
static void read_arguments(fl_token_plan *plan, fl_json_reader *config) {
    const fl_class_steps steps = plan->class->steps;
    const bool           own   = steps == FL_LLAMA || steps == FL_GEMMA;
    const bool           says  = own || steps == FL_QWEN || steps == FL_NEOX;
    if (steps == FL_BERT) {
        plan->lowercase     = fl_json_bool(config, "do_lower_case", true);
        plan->strip_accents = fl_json_bool(config, "strip_accents", plan->lowercase);
        plan->chinese_chars = fl_json_bool(config, "tokenize_chinese_chars", true);
    } else {
        plan->lowercase = fl_json_flag(plan->config, "do_lower_case", steps == FL_ALBERT);
    }
    plan->keep_accents   = fl_json_flag(plan->config, "keep_accents", false);
    plan->split_by_punct = fl_json_flag(plan->config, "split_by_punct", false);
    plan->legacy         = fl_json_flag(plan->config, "legacy", false);
    plan->prefix_space   = fl_json_flag(plan->config, "add_prefix_space", /* with Metaspace */
                                        steps == FL_PIECES || steps == FL_ALBERT ||
                                            steps == FL_DEBERTA || steps == FL_LLAMA);
    plan->begins         = says ? fl_json_flag(plan->config, "add_bos_token", own)
                                : !fl_token_class_has_gaps(plan->class);
    plan->ends           = !says || fl_json_flag(plan->config, "add_eos_token", false);
}

/* The three files, where they are. */
static int read_files(fl_token_plan *plan, fletch_error *error) {
    const fl_tokenizer_options *options = plan->options;
    char                        path[sizeof plan->path];
    if (options->config_read) {
        plan->config = options->config;
        FL_TRY(fl_path_join(plan->path, sizeof plan->path, options->folder, "tokenizer_config.json",
                            error));
    } else {
        FL_TRY(read_file(&plan->config, plan->path, sizeof plan->path, options->folder,
                         "tokenizer_config.json", error));
    }
    FL_TRY(read_file(&plan->map, path, sizeof path, options->folder, "special_tokens_map.json",
                     error));
    return read_file(&plan->more, path, sizeof path, options->folder, "added_tokens.json", error);
}

/* The class, its arguments and its tokens. */
static int read_class(fl_token_plan *plan, fl_json_reader *root) {
    fl_json_reader config = {plan->config, plan->path, root->error, 0};
    fl_json_reader cut    = fl_json_below(root, "truncation");
    const char    *side   = fl_json_string(&config, "truncation_side", NULL);
    const char    *baked  = fl_json_string(&cut, "direction", "Right");
    const char    *name   = fl_json_string(&config, "tokenizer_class", plan->options->config_class);
    plan->split_special   = fl_json_bool(&config, "split_special_tokens", false);
    plan->left = strcmp(side != NULL ? side : baked, side != NULL ? "left" : "Left") == 0;
    FL_TRY(config.status);
    FL_TRY(cut.status);
    plan->class = fl_token_class_find(name, plan->options);
    if (plan->class == NULL)
        return refuse_class(plan, name, root->error);
    plan->as_saved = plan->options->as_saved || plan->options->pieces ||
                     (plan->options->llama_saved && plan->class->steps == FL_LLAMA);
    read_arguments(plan, &config);
    for (unsigned i = 0; i < FL_TOKEN_NAMED; i++)
        plan->token[i] = token_named(plan, i);
    return config.status;
}

static int make(fl_token_plan *plan, fl_json_reader *root) {
    FL_TRY(read_files(plan, root->error));
    plan->decoder = fl_json_get(plan->config, "added_tokens_decoder");
    FL_TRY(read_class(plan, root));
    fl_json *added = fl_json_array(root, "added_tokens");
    FL_TRY(root->status);
    FL_TRY(list_extra(plan, added, root->error));
    if (plan->class->steps == FL_BERT)
        FL_TRY(check_lost(plan, added, root));
    return fl_token_class_has_gaps(plan->class) ? check_gaps(plan, root) : 0;
}

int fl_token_plan_make(fl_token_plan *plan, const fl_tokenizer_options *options,
                       fl_json_reader *root) {
    static const fl_tokenizer_options none;
    *plan          = (fl_token_plan){.options = options, .class = fl_token_class_find(NULL, &none)};
    plan->as_saved = true;
    if (options->folder != NULL)
        root->status = make(plan, root);
    return root->status;
}

void fl_token_plan_free(fl_token_plan *plan) {
    if (!plan->options->config_read)
        fl_json_free(plan->config);
    fl_json_free(plan->map);
    fl_json_free(plan->more);
    fl_free(plan->extra);
    plan->config = plan->map = plan->more = NULL;
    plan->extra                           = NULL;
}
