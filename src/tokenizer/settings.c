/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - the files beside tokenizer.json and the tokens that they add: see settings.h. */
#include "tokenizer/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "tokenizer/token_class.h"
#include "tokenizer/vocab.h"

enum { CONFIG_MAX = 64 << 20, NAMED = FL_NAMED };

/* In the order in which both references add them. */
static const char *const named[NAMED] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};

/* ---- Files ------------------------------------------------------------------------------------ */

static int read_file(fl_json **out, char *path, size_t capacity, const char *folder,
                     const char *name, fletch_error *error) {
    int there = fl_file_find(path, capacity, folder, name, error);
    if (there <= 0) {
        return there;
    }
    int status = fl_json_read(out, path, CONFIG_MAX, error);
    if (status == 0 && *out != NULL && !fl_json_is(*out, FL_JSON_OBJECT)) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: not an object", path);
    }
    return status;
}

/* What a key says: special_tokens_map.json has the last word where tokenizer_config.json has no
 * added_tokens_decoder, as in both references. */
static fl_json *value_of(const fl_token_settings *settings, const char *key) {
    fl_json *value = NULL;
    if (fl_json_get(settings->config, "added_tokens_decoder") == NULL &&
        fl_json_find(settings->map, key, &value)) {
        return value;
    }
    return fl_json_get(settings->config, key);
}

/* The content of a token given as a string or as an object; NULL for anything else. */
static const char *content_of(fl_json *value) {
    return fl_json_is(value, FL_JSON_OBJECT) ? fl_json_text(fl_json_get(value, "content"))
                                             : fl_json_text(value);
}

const char *fl_token_settings_token(const fl_token_settings *settings, unsigned which) {
    fl_json *value = NULL;
    if (fl_json_find(settings->config, named[which], &value) ||
        fl_json_find(settings->map, named[which], &value)) {
        return content_of(value_of(settings, named[which])); /* null: none */
    }
    return settings->class != NULL ? settings->class->defaults[which] : NULL;
}

const char *fl_token_settings_named(const fl_token_settings *settings, fl_named_token which) {
    static const unsigned keys[FL_TOKEN_NAMED] = {[FL_TOKEN_MASK] = FL_MASK,
                                                  [FL_TOKEN_EOS]  = FL_EOS,
                                                  [FL_TOKEN_UNK]  = FL_UNK,
                                                  [FL_TOKEN_CLS]  = FL_CLS,
                                                  [FL_TOKEN_PAD]  = FL_PAD};
    return fl_token_settings_token(settings, keys[which]);
}

/* ---- Added tokens ----------------------------------------------------------------------------- */

/* Texts found by hash. Borrowed until the index is made, in the order of coming. */
typedef struct texts {
    const char **at;
    size_t       count;
} texts;

static void put(texts *list, const char *text) {
    if (text != NULL) {
        list->at[list->count++] = text;
    }
}

/* Item i of a list, or the value of member i of an object. */
static fl_json *element(fl_json *values, size_t i) {
    fl_json *value = fl_json_item(values, i);
    if (fl_json_is(values, FL_JSON_OBJECT)) {
        (void)fl_json_member(values, i, &value);
    }
    return value;
}

/* What each of them holds. */
static void put_all(texts *list, fl_json *values) {
    for (size_t i = 0; i < fl_json_count(values); i++) {
        put(list, content_of(element(values, i)));
    }
}

/* Place in the list by text, the first where one comes again; the list is let go. With room for `more`
 * texts of `more_bytes`. */
static int index_texts(texts *list, size_t more, size_t more_bytes, fl_vocab *out,
                       fletch_error *error) {
    size_t bytes = more_bytes, room = list->count + more + 1;
    for (size_t i = 0; i < list->count; i++) {
        bytes += strlen(list->at[i]);
    }
    bool made = room <= INT32_MAX && fl_vocab_open(out, (uint32_t)room, (uint32_t)room, bytes);
    for (size_t i = 0; made && i < list->count; i++) {
        (void)fl_vocab_add(out, list->at[i], strlen(list->at[i]), (uint32_t)i);
    }
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

/* What is added: to the file's `added` tokens, found by text in `known`, then to those of settings->extra. */
typedef struct additions {
    fl_token_settings *settings;
    fl_json           *added;
    fl_vocab           known; /* places among the file's tokens, then those of extra */
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
    fl_token_settings *settings = to->settings;
    size_t             files    = fl_json_count(to->added);
    int32_t            place    = fl_vocab_find(&to->known, token.content, token.length);
    bool               changed  = again && place >= 0 && (size_t)place < files &&
                   !is_same(fl_json_item(to->added, (size_t)place), &token);
    if (token.length > 0 && (place < 0 || changed)) {
        (void)fl_vocab_add_later(&to->known, token.content, token.length,
                                 (uint32_t)(files + settings->extra_count));
        settings->extra[settings->extra_count++] = token;
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
    if (content != NULL) {
        all->at[all->count++] = token_of(content, flags, true);
    }
}

/* A list of special tokens, or an object whose values are. */
static void add_specials(candidates *all, fl_json *list) {
    for (size_t i = 0; i < fl_json_count(list); i++) {
        fl_json *value = element(list, i);
        add_special(all, content_of(value), value);
    }
}

static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};

/* Every text that a key or a list names as special. */
static int index_listed(const fl_token_settings *settings, fl_vocab *out, fletch_error *error) {
    texts    list;
    fl_json *both[] = {settings->config, settings->map};
    size_t   room   = NAMED;
    for (size_t i = 0; i < 4; i++) {
        room += fl_json_count(fl_json_get(both[i / 2], lists[i % 2]));
    }
    FL_TRY(texts_open(&list, room, error));
    for (unsigned i = 0; i < NAMED; i++) {
        put(&list, fl_token_settings_token(settings, i));
    }
    for (size_t i = 0; i < 4; i++) {
        fl_json *specials = fl_json_get(both[i / 2], lists[i % 2]);
        if (fl_json_is(specials, FL_JSON_ARRAY)) {
            put_all(&list, specials);
        }
    }
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
static int add_by_id(const fl_token_settings *settings, candidates *all, fletch_error *error) {
    fl_json *decoder = fl_json_get(settings->config, "added_tokens_decoder");
    fl_json *more    = decoder == NULL ? settings->more : NULL;
    FL_JSON_EACH(decoder, key, token) {
        if (content_of(token) != NULL) {
            all->at[all->count]      = token_of(content_of(token), token, false);
            all->at[all->count++].id = (int32_t)strtol(key, NULL, 10);
        }
    }
    if (more != NULL) {
        fl_vocab listed;
        FL_TRY(index_listed(settings, &listed, error));
        FL_JSON_EACH(more, text, id) {
            all->at[all->count]      = token_of(text, NULL, has(&listed, text));
            all->at[all->count++].id = (int32_t)fl_json_int64(id);
        }
        fl_vocab_close(&listed);
    }
    qsort(all->at, all->count, sizeof *all->at, by_id);
    return 0;
}

/* What the named keys and the lists hold. */
static void add_named(const fl_token_settings *settings, candidates *all) {
    for (unsigned i = 0; i < NAMED; i++) {
        add_special(all, fl_token_settings_token(settings, i), value_of(settings, named[i]));
    }
    for (size_t i = 0; i < 2; i++) {
        add_specials(all, fl_json_get(settings->config, lists[i]));
        if (fl_json_get(settings->config, "added_tokens_decoder") == NULL) {
            add_specials(all, fl_json_get(settings->map, lists[i]));
        }
    }
}

/* Those of `all` that the file lacks, to settings->extra; the first `again` with their flags. */
static int add_missing(fl_token_settings *settings, fl_json *added, const candidates *all,
                       size_t again, fletch_error *error) {
    additions to    = {.settings = settings, .added = added};
    size_t    bytes = 0;
    for (size_t i = 0; i < all->count; i++) {
        bytes += all->at[i].length;
    }
    settings->extra = fl_alloc_zero(all->count + 1, sizeof *settings->extra);
    if (settings->extra == NULL) {
        return fl_fail_nomem(error, all->count * sizeof *settings->extra, "added tokens");
    }
    int status = index_file(&to, all->count, bytes, error);
    for (size_t i = 0; status == 0 && i < all->count; i++) {
        add(&to, all->at[i], i < again);
    }
    fl_vocab_close(&to.known);
    return status;
}

static int list_extra(fl_token_settings *settings, fl_json *added, fletch_error *error) {
    fl_json *decoder = fl_json_get(settings->config, "added_tokens_decoder");
    size_t   room    = fl_json_count(decoder) + fl_json_count(settings->more) + NAMED;
    for (size_t i = 0; i < 2; i++) {
        room += fl_json_count(fl_json_get(settings->config, lists[i])) +
                fl_json_count(fl_json_get(settings->map, lists[i]));
    }
    candidates all = {.at = fl_alloc_zero(room, sizeof *all.at)};
    if (all.at == NULL) {
        return fl_fail_nomem(error, room * sizeof *all.at, "added tokens");
    }
    int    status = add_by_id(settings, &all, error);
    size_t again  = decoder != NULL ? all.count : 0;
    if (status == 0) {
        add_named(settings, &all);
        status = add_missing(settings, added, &all, again, error);
    }
    fl_free(all.at);
    return status;
}

/* transformers 5 rebuilds these classes with the tokens of added_tokens_decoder alone. */
static int check_lost(const fl_token_settings *settings, fl_json *added, fl_json_reader *root) {
    fl_json *decoder = fl_json_get(settings->config, "added_tokens_decoder");
    fl_vocab kept    = {0};
    texts    list;
    if (decoder == NULL) {
        return 0;
    }
    FL_TRY(texts_open(&list, fl_json_count(decoder) + NAMED, root->error));
    put_all(&list, decoder);
    for (unsigned i = 0; i < NAMED; i++) {
        put(&list, fl_token_settings_token(settings, i));
    }
    int status = index_texts(&list, 0, 0, &kept, root->error);
    for (size_t i = 0; i < fl_json_count(added) && status == 0; i++) {
        const char *content = fl_json_text(fl_json_get(fl_json_item(added, i), "content"));
        if (content != NULL && !has(&kept, content)) {
            status = fl_token_settings_differ(settings, root,
                                              "an added token that added_tokens_decoder lacks");
        }
    }
    fl_vocab_close(&kept);
    return status;
}

/* T5's tokens for gaps are those of tokenizer_config.json; what another file lists beside them transformers 4 adds,
 * and transformers 5 takes in their place. */
static int check_gaps(const fl_token_settings *settings, fl_json_reader *root) {
    static const char gap[] = "<extra_id_";
    fl_json          *list  = fl_json_get(settings->map, lists[0]);
    for (size_t i = 0; i < fl_json_count(list); i++) {
        const char *text = content_of(element(list, i));
        if (text == NULL || strncmp(text, gap, sizeof gap - 1) != 0) {
            return fl_token_settings_differ(settings, root,
                                            "additional_special_tokens of "
                                            "special_tokens_map.json");
        }
    }
    return 0;
}

/* ---- The class -------------------------------------------------------------------------------- */

static int refuse_class(const fl_token_settings *settings, const char *name,
                        const fl_tokenizer_options *options, fletch_error *error) {
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: tokenizer_class \"%s\" is not supported with model_type \"%s\": "
                   "transformers may give other tokens than tokenizer.json says. Set it to %s",
                   settings->path[0], name, options->family != NULL ? options->family : "",
                   settings->forced ? options->class_name
                                    : "PreTrainedTokenizerFast to take tokenizer.json as it is");
}

int fl_token_settings_read(fl_token_settings *settings, const fl_tokenizer_options *options,
                           fl_json_reader *root) {
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    fl_json                **files[] = {&settings->config, &settings->map, &settings->more};
    const char              *folder  = options != NULL ? options->folder : NULL;
    memset(settings, 0, sizeof *settings);
    settings->config_borrowed = options != NULL && options->config_read;
    if (settings->config_borrowed) {
        settings->config = options->config;
    }
    for (size_t i = 0; folder != NULL && i < 3 && root->status == 0; i++) {
        if (i == 0 && settings->config_borrowed) {
            root->status = fl_path_join(settings->path[0], sizeof settings->path[0], folder,
                                        names[0], root->error);
            continue;
        }
        root->status = read_file(files[i], settings->path[i], sizeof settings->path[i], folder,
                                 names[i], root->error);
    }
    if (root->status < 0 || folder == NULL) {
        return root->status;
    }
    fl_json_reader config   = {settings->config, settings->path[0], root->error, 0};
    fl_json_reader cut      = fl_json_below(root, "truncation");
    const char    *side     = fl_json_string(&config, "truncation_side", NULL);
    const char    *baked    = fl_json_string(&cut, "direction", "Right");
    const char    *name     = fl_json_string(&config, "tokenizer_class", options->config_class);
    settings->split_special = fl_json_bool(&config, "split_special_tokens", false);
    settings->left   = strcmp(side != NULL ? side : baked, side != NULL ? "left" : "Left") == 0;
    settings->forced = options->class_forced;
    settings->class  = fl_token_class_find(name, options);
    settings->ends   = options->ends;
    settings->as_saved =
        options->as_saved || options->pieces ||
        (options->llama_saved && settings->class != NULL && settings->class->steps == FL_LLAMA);
    root->status = config.status != 0 ? config.status : cut.status;
    if (root->status == 0 && settings->class == NULL) {
        root->status = refuse_class(settings, name, options, root->error);
    }
    fl_json *added = root->status == 0 ? fl_json_array(root, "added_tokens") : NULL;
    if (root->status == 0) {
        root->status = list_extra(settings, added, root->error);
    }
    if (root->status == 0 && settings->class->steps == FL_BERT) {
        root->status = check_lost(settings, added, root);
    }
    if (root->status == 0 && fl_token_class_has_gaps(settings->class)) {
        root->status = check_gaps(settings, root);
    }
    return root->status;
}

void fl_token_settings_free(fl_token_settings *settings) {
    if (!settings->config_borrowed) {
        fl_json_free(settings->config);
    }
    fl_json_free(settings->map);
    fl_json_free(settings->more);
    fl_free(settings->extra);
    memset(settings, 0, sizeof *settings);
}
