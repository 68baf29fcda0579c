/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - see settings.h.
 *
 * Where the references disagree is seldom seen in the files alone, so every rule here is one that was measured
 * (tests/golden/make_odd_folders.py). Classes whose pipeline transformers 5 rebuilds are rows of a table. */
#include "tokenizer/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "tokenizer/vocab.h"

enum { CONFIG_MAX = 64 << 20, NAMED = 7, CHARS_PER_WORD = 100 };

/* In the order in which both references add them. */
static const char *const named[NAMED] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
enum { EOS = 1, UNK = 2, SEP = 3, CLS = 5, MASK = 6 };

/* What a class makes of the text before its model sees it, whatever tokenizer.json says. */
typedef enum pipeline {
    AS_IN_FILE,
    BERT,       /* BertNormalizer by arguments, BertPreTokenizer, "##", cls A sep */
    BYTE_LEVEL, /* no normaliser, ByteLevel; add_prefix_space by argument, else false */
    QWEN,       /* NFC, Split by Qwen's pattern, ByteLevel */
    PIECES,     /* Precompiled, WhitespaceSplit, Metaspace always; cls A sep */
    LLAMA,      /* no normaliser, Metaspace of the whole text */
    GEMMA       /* " " becomes U+2581, Split at " " */
} pipeline;

struct fl_token_class {
    const char *name;  /* without "Fast" */
    const char *model; /* the kind of model it makes */
    pipeline    pipeline;
    bool        chinese; /* transformers 4 patches the switch for Chinese characters too */
    const char *defaults[NAMED];
};

#define BERT_TOKENS                                                                                \
    { NULL, NULL, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]" }
#define ROBERTA_TOKENS                                                                             \
    { "<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>" }
static const fl_token_class classes[] = {
    {"BertTokenizer", "WordPiece", BERT, true, BERT_TOKENS},
    {"DistilBertTokenizer", "WordPiece", BERT, true, BERT_TOKENS},
    {"ElectraTokenizer", "WordPiece", BERT, true, BERT_TOKENS},
    {"MPNetTokenizer",
     "WordPiece",
     BERT,
     false,
     {"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"}},
    {"RobertaTokenizer", "BPE", BYTE_LEVEL, false, ROBERTA_TOKENS},
    {"GPT2Tokenizer", "BPE", BYTE_LEVEL, false, {0}},
    {"Qwen2Tokenizer", "BPE", QWEN, false, {0}},
    {"XLMRobertaTokenizer", "Unigram", PIECES, false, ROBERTA_TOKENS},
    {"CamembertTokenizer", "Unigram", PIECES, false, ROBERTA_TOKENS},
    {"LlamaTokenizer", "BPE", LLAMA, false, {0}},
    {"GemmaTokenizer", "BPE", GEMMA, false, {0}},
};

/* "BertTokenizerFast" is "BertTokenizer". */
static bool is_class(const fl_token_class *class, const char *name) {
    size_t length = strlen(class->name);
    return strncmp(class->name, name, length) == 0 &&
           (name[length] == '\0' || strcmp(name + length, "Fast") == 0);
}

/* "xlm-roberta" is the family of "XLMRobertaTokenizer": what transformers takes where no class is named. */
static bool is_family(const fl_token_class *class, const char *family) {
    const char *name = class->name, *end = name + strlen(name) - strlen("Tokenizer");
    for (; *family != '\0'; family++) {
        if (*family == '-' || *family == '_') {
            continue;
        }
        if (name == end || (*name | 0x20) != (*family | 0x20)) {
            return false;
        }
        name++;
    }
    return name == end;
}

static const fl_token_class *find_class(const char *name, const char *family) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (name != NULL ? is_class(&classes[i], name)
                         : family != NULL && is_family(&classes[i], family)) {
            return &classes[i];
        }
    }
    return NULL;
}

static int differ(fl_json_reader *root, const fl_token_class *class, const char *what) {
    root->status =
        fl_fail(root->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                "%s: %s is not what %s makes; transformers 4 and 5 give other tokens here, so "
                "there is no right answer. Save the tokenizer again, or set tokenizer_class to "
                "PreTrainedTokenizerFast to take tokenizer.json as it is",
                root->source, what, class->name);
    return root->status;
}

/* ---- Files ------------------------------------------------------------------------------------ */

static int read_file(fl_json **out, char *path, size_t capacity, const char *folder,
                     const char *name, fletch_error *error) {
    int status = fl_path_join(path, capacity, folder, name, error);
    int there  = status != 0 ? status : fl_file_find(path, error);
    if (there <= 0) {
        return there;
    }
    status = fl_json_read(out, path, CONFIG_MAX, error);
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

static const char *named_token(const fl_token_settings *settings, unsigned which) {
    fl_json *value = NULL;
    if (fl_json_find(settings->config, named[which], &value) ||
        fl_json_find(settings->map, named[which], &value)) {
        value = value_of(settings, named[which]);
        return content_of(value); /* null: none */
    }
    return settings->class != NULL ? settings->class->defaults[which] : NULL;
}

const char *fl_token_settings_named(const fl_token_settings *settings, fl_named_token which) {
    return named_token(settings, which == FL_TOKEN_MASK ? MASK : which == FL_TOKEN_EOS ? EOS : UNK);
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

/* What each item of a list, or value of an object, holds. */
static void put_all(texts *list, fl_json *values) {
    for (size_t i = 0; i < fl_json_count(values); i++) {
        fl_json *value = NULL;
        if (fl_json_is(values, FL_JSON_ARRAY)) {
            value = fl_json_item(values, i);
        } else {
            (void)fl_json_member(values, i, &value);
        }
        put(list, content_of(value));
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

static bool flag(fl_json *object, const char *key, bool fallback) {
    fl_json *value = fl_json_get(object, key);
    return value != NULL ? fl_json_true(value) : fallback;
}

static fl_added_token token_of(const char *content, fl_json *flags, bool special) {
    fl_added_token token = {.content = (char *)(uintptr_t)content, .length = strlen(content)};
    token.special        = flag(flags, "special", special);
    token.single_word    = flag(flags, "single_word", false);
    token.lstrip         = flag(flags, "lstrip", false);
    token.rstrip         = flag(flags, "rstrip", false);
    token.normalized     = flag(flags, "normalized", !token.special);
    return token;
}

/* What is added: to the file's `added` tokens, found by text in `known`, then to those of settings->extra. */
typedef struct additions {
    fl_token_settings *settings;
    fl_json           *added;
    fl_vocab           known; /* places among the file's tokens, then those of extra */
} additions;

static bool is_same(fl_json *old, const fl_added_token *token) {
    return flag(old, "special", false) == token->special &&
           flag(old, "single_word", false) == token->single_word &&
           flag(old, "lstrip", false) == token->lstrip &&
           flag(old, "rstrip", false) == token->rstrip &&
           flag(old, "normalized", false) == token->normalized;
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
        fl_json *value = NULL;
        if (fl_json_is(list, FL_JSON_ARRAY)) {
            value = fl_json_item(list, i);
        } else {
            (void)fl_json_member(list, i, &value);
        }
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
    int status = texts_open(&list, room, error);
    if (status != 0) {
        return status;
    }
    for (unsigned i = 0; i < NAMED; i++) {
        put(&list, named_token(settings, i));
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
    int   status = texts_open(&list, fl_json_count(to->added), error);
    for (size_t i = 0; status == 0 && i < fl_json_count(to->added); i++) {
        const char *text      = fl_json_text(fl_json_get(fl_json_item(to->added, i), "content"));
        list.at[list.count++] = text != NULL ? text : "";
    }
    return status != 0 ? status : index_texts(&list, more, more_bytes, &to->known, error);
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
        int      status = index_listed(settings, &listed, error);
        if (status != 0) {
            return status;
        }
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
        add_special(all, named_token(settings, i), value_of(settings, named[i]));
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
    fl_vocab kept;
    texts    list;
    if (decoder == NULL) {
        return 0;
    }
    int status = texts_open(&list, fl_json_count(decoder) + NAMED, root->error);
    if (status == 0) {
        put_all(&list, decoder);
        for (unsigned i = 0; i < NAMED; i++) {
            put(&list, named_token(settings, i));
        }
        status = index_texts(&list, 0, 0, &kept, root->error);
    }
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; i < fl_json_count(added) && status == 0; i++) {
        const char *content = fl_json_text(fl_json_get(fl_json_item(added, i), "content"));
        if (content != NULL && !has(&kept, content)) {
            status =
                differ(root, settings->class, "an added token that added_tokens_decoder lacks");
        }
    }
    fl_vocab_close(&kept);
    return status;
}

/* ---- The class -------------------------------------------------------------------------------- */

int fl_token_settings_read(fl_token_settings *settings, const char *folder, const char *family,
                           fl_json_reader *root) {
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    fl_json                **files[] = {&settings->config, &settings->map, &settings->more};
    memset(settings, 0, sizeof *settings);
    for (size_t i = 0; folder != NULL && i < 3 && root->status == 0; i++) {
        root->status = read_file(files[i], settings->path[i], sizeof settings->path[i], folder,
                                 names[i], root->error);
    }
    if (root->status < 0 || folder == NULL) {
        return root->status;
    }
    fl_json_reader config   = {settings->config, settings->path[0], root->error, 0};
    fl_json_reader cut      = fl_json_inside(root, fl_json_object(root, "truncation"));
    const char    *side     = fl_json_string(&config, "truncation_side", NULL);
    const char    *baked    = fl_json_string(&cut, "direction", "Right");
    const char    *name     = fl_json_string(&config, "tokenizer_class", NULL);
    settings->split_special = fl_json_bool(&config, "split_special_tokens", false);
    settings->left  = strcmp(side != NULL ? side : baked, side != NULL ? "left" : "Left") == 0;
    settings->class = find_class(name, family);
    root->status    = config.status != 0 ? config.status : cut.status;
    fl_json *added  = root->status == 0 ? fl_json_array(root, "added_tokens") : NULL;
    if (root->status == 0) {
        root->status = list_extra(settings, added, root->error);
    }
    if (root->status == 0 && settings->class != NULL && settings->class->pipeline == BERT) {
        root->status = check_lost(settings, added, root);
    }
    return root->status;
}

void fl_token_settings_free(fl_token_settings *settings) {
    fl_json_free(settings->config);
    fl_json_free(settings->map);
    fl_json_free(settings->more);
    fl_free(settings->extra);
    memset(settings, 0, sizeof *settings);
}

/* BertNormalizer by do_lower_case, strip_accents and tokenize_chinese_chars. */
static int patch_normalizer(const fl_token_settings *settings, fl_tokenizer *tokenizer,
                            fl_json_reader *root) {
    fl_json_reader config  = {settings->config, settings->path[0], root->error, 0};
    bool           lower   = fl_json_bool(&config, "do_lower_case", true);
    bool           accents = fl_json_bool(&config, "strip_accents", lower);
    bool           chinese = fl_json_bool(&config, "tokenize_chinese_chars", true);
    fl_step       *step    = NULL;
    for (unsigned i = 0; i < tokenizer->normal_count;
         i++) { /* do_lower_case of sentence-transformers
                                                                may stand in front */
        step = tokenizer->normal[i].ops == &fl_normal_bert ? &tokenizer->normal[i] : step;
    }
    fl_json *file = fl_json_get(root->object, "normalizer");
    if (config.status < 0) {
        root->status = config.status;
        return root->status;
    }
    const char *kind = fl_json_text(fl_json_get(file, "type"));
    if (step == NULL || kind == NULL || strcmp(kind, "BertNormalizer") != 0 || !step->clean_text ||
        (!settings->class->chinese && step->chinese_chars != chinese)) {
        return differ(root, settings->class, "normalizer");
    }
    step->lowercase     = lower;
    step->strip_accents = accents;
    step->chinese_chars = chinese;
    return 0;
}

static bool is_kind(fl_json *step, const char *kind) {
    const char *type = fl_json_text(fl_json_get(step, "type"));
    return type != NULL && strcmp(type, kind) == 0;
}

static bool has_text(fl_json *object, const char *key, const char *text) {
    const char *value = fl_json_text(fl_json_get(object, key));
    return value != NULL && strcmp(value, text) == 0;
}

/* Step `index` of a Sequence of `count`, or the step itself where count is 1; NULL: there are others. */
static fl_json *step_of(fl_json *steps, const char *list, size_t count, size_t index) {
    if (!is_kind(steps, "Sequence")) {
        return count == 1 ? steps : NULL;
    }
    fl_json *items = fl_json_get(steps, list);
    return fl_json_count(items) == count ? fl_json_item(items, index) : NULL;
}

/* Metaspace with its space in front of every word; older files say add_prefix_space. */
static bool is_metaspace(fl_json *step, bool whole) {
    fl_json *scheme = fl_json_get(step, "prepend_scheme");
    return is_kind(step, "Metaspace") && flag(step, "split", true) == !whole &&
           (whole || (scheme != NULL ? has_text(step, "prepend_scheme", "always")
                                     : flag(step, "add_prefix_space", true)));
}

/* A Precompiled map, and runs of spaces made one, which WhitespaceSplit does anyway. */
static bool is_precompiled(fl_json *normalizer) {
    fl_json *items = fl_json_get(normalizer, "normalizers");
    bool     good  = fl_json_count(items) > 0 || is_kind(normalizer, "Precompiled");
    for (size_t i = 0; i < fl_json_count(items); i++) {
        fl_json *item = fl_json_item(items, i);
        good          = good && (i == 0 ? is_kind(item, "Precompiled")
                                        : is_kind(item, "Replace") &&
                                     has_text(fl_json_get(item, "pattern"), "Regex", " {2,}") &&
                                     has_text(item, "content", " "));
    }
    return good;
}

static const char qwen_pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{"
                                   "N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                                   "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Whether tokenizer.json has the steps that the class makes. */
static int check_pipeline(const fl_token_settings *settings, fl_json_reader *root) {
    const fl_token_class *class = settings->class;
    fl_json *normal             = fl_json_get(root->object, "normalizer");
    fl_json *split              = fl_json_get(root->object, "pre_tokenizer");
    fl_json *first              = step_of(split, "pretokenizers", 2, 0);
    fl_json *second             = step_of(split, "pretokenizers", 2, 1);
    bool     prefix      = flag(settings->config, "add_prefix_space", class->pipeline == PIECES);
    bool     good_normal = true, good_split = true;
    switch (class->pipeline) {
    case AS_IN_FILE:
    case BERT: break;
    case BYTE_LEVEL:
        good_normal = normal == NULL;
        good_split  = is_kind(split, "ByteLevel") && flag(split, "use_regex", true) &&
                     flag(split, "add_prefix_space", true) == prefix;
        break;
    case QWEN:
        good_normal = is_kind(normal, "NFC");
        good_split  = is_kind(first, "Split") &&
                     has_text(fl_json_get(first, "pattern"), "Regex", qwen_pattern) &&
                     has_text(first, "behavior", "Isolated") && !flag(first, "invert", false) &&
                     is_kind(second, "ByteLevel") && !flag(second, "use_regex", true) &&
                     !flag(second, "add_prefix_space", true) && !prefix;
        break;
    case PIECES:
        good_normal = is_precompiled(normal);
        good_split  = is_kind(first, "WhitespaceSplit") && is_metaspace(second, false) && prefix;
        break;
    case LLAMA:
        good_normal = normal == NULL;
        good_split  = is_metaspace(split, true);
        break;
    case GEMMA:
        good_normal = is_kind(normal, "Replace") && has_text(normal, "content", "\xE2\x96\x81") &&
                      has_text(fl_json_get(normal, "pattern"), "String", " ");
        good_split = is_kind(split, "Split") && has_text(split, "behavior", "MergedWithPrevious") &&
                     has_text(fl_json_get(split, "pattern"), "String", " ") &&
                     !flag(split, "invert", false);
        break;
    }
    if (!good_normal || !good_split) {
        return differ(root, class, good_normal ? "pre_tokenizer" : "normalizer");
    }
    return 0;
}

int fl_token_settings_steps(const fl_token_settings *settings, fl_tokenizer *tokenizer,
                            fl_json_reader *root) {
    const fl_token_class *class = settings->class;
    fl_json *model              = fl_json_get(root->object, "model");
    if (class == NULL) {
        return 0;
    }
    if (strcmp(tokenizer->model->type, class->model) != 0) {
        return differ(root, class, "the model");
    }
    if (class->pipeline != BERT) {
        return check_pipeline(settings, root);
    }
    const char *unk    = fl_json_text(fl_json_get(model, "unk_token"));
    const char *prefix = fl_json_text(fl_json_get(model, "continuing_subword_prefix"));
    const char *known  = named_token(settings, UNK);
    if (unk == NULL || known == NULL || strcmp(unk, known) != 0) {
        return differ(root, class, "unk_token");
    }
    if (prefix == NULL || strcmp(prefix, "##") != 0) {
        return differ(root, class, "continuing_subword_prefix");
    }
    if (fl_json_int64(fl_json_get(model, "max_input_chars_per_word")) != CHARS_PER_WORD) {
        return differ(root, class, "max_input_chars_per_word");
    }
    if (tokenizer->split_count != 1 || tokenizer->split[0].ops != &fl_split_bert) {
        return differ(root, class, "pre_tokenizer");
    }
    return patch_normalizer(settings, tokenizer, root);
}

int fl_token_settings_template(const fl_token_settings *settings, const fl_tokenizer *tokenizer,
                               fl_json_reader *root) {
    const fl_template *single   = &tokenizer->single;
    const fl_token_class *class = settings->class;
    if (class == NULL || class->defaults[CLS] == NULL) { /* the others keep the file's template */
        return 0;
    }
    const char *cls = named_token(settings, CLS), *sep = named_token(settings, SEP);
    if (single->count != 2 || single->place[0] != 1 || cls == NULL || sep == NULL ||
        fl_tokenizer_id(tokenizer, cls) != single->ids[0] ||
        fl_tokenizer_id(tokenizer, sep) != single->ids[1]) {
        return differ(root, settings->class, "post_processor");
    }
    return 0;
}
