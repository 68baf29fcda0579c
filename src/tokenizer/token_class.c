/* SPDX-License-Identifier: Apache-2.0 */
/* token_class.c - see token_class.h; what is checked against a plan.
 *
 * Where the references disagree is seldom seen in the files alone, so every rule here is one that was measured
 * (tests/golden/make_odd_folders.py). */
#include "tokenizer/token_class.h"

#include <string.h>

#include "base/error.h"
#include "tokenizer/token_plan.h"

enum { CHARS_PER_WORD = 100 };

#define BERT_TOKENS                                                                                \
    { NULL, NULL, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]" }
#define ROBERTA_TOKENS                                                                             \
    { "<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>" }
#define MPNET_TOKENS                                                                               \
    { "<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>" }
#define CLIP_TOKENS                                                                                \
    { "<|startoftext|>", "<|endoftext|>", "<|endoftext|>", NULL, "<|endoftext|>" }
#define NEOX_TOKENS                                                                                \
    { "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", NULL, "<|padding|>" }
#define T5_TOKENS                                                                                  \
    { NULL, "</s>", "<unk>", NULL, "<pad>" }
#define ALBERT_TOKENS                                                                              \
    { "[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]" }
#define DEBERTA_TOKENS                                                                             \
    { "[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]" }
#define GEMMA_TOKENS                                                                               \
    { "<bos>", "<eos>", "<unk>", NULL, "<pad>" }
#define NO_TOKENS                                                                                  \
    { 0 }
static const fl_token_class classes[] = {
    {"PreTrainedTokenizerFast", NULL, FL_AS_IN_FILE, false, NO_TOKENS, 0, false},
    {"TokenizersBackend", NULL, FL_AS_IN_FILE, false, NO_TOKENS, 0, false},
    {"BloomTokenizer", NULL, FL_AS_IN_FILE, false, NO_TOKENS, 0, false},
    {"BertTokenizer", "WordPiece", FL_BERT, true, BERT_TOKENS, 0, false},
    {"DistilBertTokenizer", "WordPiece", FL_BERT, true, BERT_TOKENS, 0, false},
    {"ElectraTokenizer", "WordPiece", FL_BERT, true, BERT_TOKENS, 0, false},
    {"MPNetTokenizer", "WordPiece", FL_BERT, false, MPNET_TOKENS, 0, false},
    {"RobertaTokenizer", "BPE", FL_BYTE_LEVEL, false, ROBERTA_TOKENS, 0, false},
    {"GPT2Tokenizer", "BPE", FL_BYTE_LEVEL, false, NO_TOKENS, 0, false},
    {"GPTNeoXTokenizer", "BPE", FL_NEOX, false, NEOX_TOKENS, 0, false},
    {"Qwen2Tokenizer", "BPE", FL_QWEN, false, NO_TOKENS, 0, false},
    {"CLIPTokenizer", "BPE", FL_CLIP, false, CLIP_TOKENS, 0, false},
    {"XLMRobertaTokenizer", "Unigram", FL_PIECES, false, ROBERTA_TOKENS, 3, false},
    {"CamembertTokenizer", "Unigram", FL_PIECES, false, ROBERTA_TOKENS, 0, false},
    {"T5Tokenizer", "Unigram", FL_PIECES, false, T5_TOKENS, 2, false},
    {"AlbertTokenizer", "Unigram", FL_ALBERT, false, ALBERT_TOKENS, 1, true},
    {"DebertaV2Tokenizer", "Unigram", FL_DEBERTA, false, DEBERTA_TOKENS, 0, false},
    {"DebertaTokenizer", "BPE", FL_BYTE_LEVEL, false, DEBERTA_TOKENS, 0, true},
    {"LlamaTokenizer", "BPE", FL_LLAMA, false, {"<s>", "</s>", "<unk>"}, 0, false},
    {"GemmaTokenizer", "BPE", FL_GEMMA, false, GEMMA_TOKENS, 0, false},
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
        if (*family == '-' || *family == '_')
            continue;
        if (name == end || (*name | 0x20) != (*family | 0x20))
            return false;
        name++;
    }
    return name == end;
}

static const fl_token_class *named_class(const char *name) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (is_class(&classes[i], name))
            return &classes[i];
    return NULL;
}

static const fl_token_class *class_of_family(const char *family) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (family != NULL && is_family(&classes[i], family))
            return &classes[i];
    return &classes[0];
}

const fl_token_class *fl_token_class_find(const char *name, const fl_tokenizer_options *options) {
    const fl_token_class *own   = options->class_name != NULL ? named_class(options->class_name)
                                                              : class_of_family(options->family);
    const fl_token_class *class = name != NULL ? named_class(name) : own;
    if (class == NULL || class == own)
        return class;
    if (options->class_forced)
        return class->steps == FL_AS_IN_FILE ? own : NULL;
    return !options->as_saved || class->steps == FL_AS_IN_FILE || class->steps == FL_BERT ? class
                                                                                          : NULL;
}

int fl_token_class_differ(const fl_token_plan *plan, fl_json_reader *root, const char *what) {
    root->status =
        fl_fail(root->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                "%s: %s is not what %s makes; transformers 4 and 5 give different tokens here, so "
                "neither is right. %s",
                root->source, what, plan->class->name,
                plan->options->class_forced
                    ? "For this model_type transformers 5 takes that class, whatever "
                      "tokenizer_class says: only a tokenizer of that class works"
                    : "Save the tokenizer again, or set tokenizer_class to "
                      "PreTrainedTokenizerFast to take tokenizer.json as it is");
    return root->status;
}

static bool is_kind(fl_json *step, const char *kind) {
    const char *type = fl_json_text(fl_json_get(step, "type"));
    return type != NULL && strcmp(type, kind) == 0;
}

static bool has_text(fl_json *object, const char *key, const char *text) {
    const char *value = fl_json_text(fl_json_get(object, key));
    return value != NULL && strcmp(value, text) == 0;
}

/* BertNormalizer by do_lower_case, strip_accents and tokenize_chinese_chars. */
static int patch_normalizer(const fl_token_plan *plan, fl_tokenizer *tokenizer,
                            fl_json_reader *root) {
    fl_step *step = NULL;
    for (unsigned i = 0; i < tokenizer->normal_count; i++) {
        /* do_lower_case of sentence-transformers may stand in front */
        step = tokenizer->normal[i].ops == &fl_normal_bert ? &tokenizer->normal[i] : step;
    }
    if (step == NULL || !is_kind(fl_json_get(root->object, "normalizer"), "BertNormalizer") ||
        !step->clean_text ||
        ((plan->as_saved || !plan->class->chinese) && step->chinese_chars != plan->chinese_chars) ||
        (plan->as_saved && (plan->extra_count > 0 || step->lowercase != plan->lowercase ||
                            step->strip_accents != plan->strip_accents)))
        return fl_token_class_differ(plan, root, "normalizer");
    step->lowercase     = plan->lowercase;
    step->strip_accents = plan->strip_accents;
    step->chinese_chars = plan->chinese_chars;
    return 0;
}

/* Step `index` of a Sequence of `count`, or the step itself where count is 1; NULL: there are others. */
static fl_json *step_of(fl_json *steps, const char *list, size_t count, size_t index) {
    if (!is_kind(steps, "Sequence"))
        return count == 1 ? steps : NULL;
    fl_json *items = fl_json_get(steps, list);
    return fl_json_count(items) == count ? fl_json_item(items, index) : NULL;
}

/* Metaspace that puts its space where `scheme` says; older files say add_prefix_space. */
static bool is_metaspace(fl_json *step, bool split, const char *scheme) {
    bool before = fl_json_flag(step, "add_prefix_space", true);
    return is_kind(step, "Metaspace") && fl_json_flag(step, "split", true) == split &&
           (fl_json_get(step, "prepend_scheme") != NULL
                ? has_text(step, "prepend_scheme", scheme)
                : strcmp(before ? "always" : "never", scheme) == 0);
}

/* Runs of spaces made one. */
static bool is_spaces(fl_json *step) {
    return is_kind(step, "Replace") && has_text(step, "content", " ") &&
           has_text(fl_json_get(step, "pattern"), "Regex", " {2,}");
}

/* A Precompiled map, and runs of spaces made one, which WhitespaceSplit does anyway. */
static bool is_precompiled(fl_json *normalizer) {
    fl_json *items = fl_json_get(normalizer, "normalizers");
    bool     good  = fl_json_count(items) > 0 || is_kind(normalizer, "Precompiled");
    for (size_t i = 0; i < fl_json_count(items); i++) {
        fl_json *item = fl_json_item(items, i);
        good          = good && (i == 0 ? is_kind(item, "Precompiled") : is_spaces(item));
    }
    return good;
}

static bool is_strip(fl_json *step, bool left) {
    return is_kind(step, "Strip") && fl_json_flag(step, "strip_left", !left) == left &&
           fl_json_flag(step, "strip_right", false);
}

static bool is_quote(fl_json *step, const char *two) {
    return is_kind(step, "Replace") && has_text(step, "content", "\"") &&
           has_text(fl_json_get(step, "pattern"), "String", two);
}

/* ALBERT's steps: two quotes, accents unless kept, case unless kept, a map; runs of spaces may follow. */
static bool is_albert(const fl_token_plan *plan, fl_json *normalizer) {
    static const char *const steps[] = {"NFKD", "StripAccents", "Lowercase", "Precompiled",
                                        "Replace"};
    const bool wanted[] = {!plan->keep_accents, !plan->keep_accents, plan->lowercase, true};
    fl_json   *items    = fl_json_get(normalizer, "normalizers");
    size_t     at = 2, count = fl_json_count(items);
    if (count < 2 || !is_quote(fl_json_item(items, 0), "``") ||
        !is_quote(fl_json_item(items, 1), "''"))
        return false;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (wanted[i] && (at == count || !is_kind(fl_json_item(items, at++), steps[i])))
            return false;
    fl_json *last = at < count ? fl_json_item(items, at++) : NULL;
    return at == count && (last == NULL || is_spaces(last));
}

/* Case by argument, then either what transformers 4 makes of SentencePiece's model: outer spaces off, its map, runs of
 * spaces one; or what transformers 5 makes for itself: NFC for the map. Of the first form, in which every model was
 * published, transformers 5 gives other tokens where the map changes more than NFC does. The file counts all the
 * same: with it the models were trained, and transformers 4, tokenizers and TEI agree. */
static bool is_deberta(const fl_token_plan *plan, fl_json *normalizer) {
    fl_json *items = fl_json_get(normalizer, "normalizers");
    bool     lower = plan->lowercase;
    size_t   at = lower ? 1 : 0, count = fl_json_count(items);
    if (count < at + 2 || count > at + 3 ||
        (lower && !is_kind(fl_json_item(items, 0), "Lowercase")))
        return false;
    fl_json *first = fl_json_item(items, at), *last = fl_json_item(items, count - 1);
    fl_json *middle = count == at + 3 ? fl_json_item(items, at + 1) : NULL;
    if (is_kind(first, "Strip")) {
        return is_strip(first, true) && is_spaces(last) &&
               (middle == NULL || is_kind(middle, "Precompiled"));
    }
    return is_kind(first, "Replace") && has_text(first, "content", " ") &&
           has_text(fl_json_get(first, "pattern"), "Regex", "\\s{2,}|[\\n\\r\\t]") &&
           is_kind(middle, "NFC") && is_strip(last, false);
}

/* Metaspace, behind Punctuation where asked for. */
static bool is_deberta_split(const fl_token_plan *plan, fl_json *split) {
    const bool punctuation = plan->split_by_punct;
    fl_json   *first       = step_of(split, "pretokenizers", punctuation ? 2 : 1, 0);
    fl_json   *last        = punctuation ? step_of(split, "pretokenizers", 2, 1) : first;
    return is_metaspace(last, true, "always") &&
           (!punctuation ||
            (is_kind(first, "Punctuation") && has_text(first, "behavior", "Isolated")));
}

static const char qwen_pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{"
                                   "N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                                   "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static bool is_qwen_split(fl_json *first, fl_json *second) {
    return is_kind(first, "Split") &&
           has_text(fl_json_get(first, "pattern"), "Regex", qwen_pattern) &&
           has_text(first, "behavior", "Isolated") && !fl_json_flag(first, "invert", false) &&
           is_kind(second, "ByteLevel") && !fl_json_flag(second, "use_regex", true) &&
           !fl_json_flag(second, "add_prefix_space", true);
}

/* In front stand special tokens in the pattern of transformers 5: they are cut out of a text before it. */
static const char clip_pattern[] = "<\\|startoftext\\|>|<\\|endoftext\\|>|"
                                   "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+";

static bool is_clip_normalizer(fl_json *normalizer) {
    fl_json *spaces = step_of(normalizer, "normalizers", 3, 1);
    return is_kind(step_of(normalizer, "normalizers", 3, 0), "NFC") && is_kind(spaces, "Replace") &&
           has_text(fl_json_get(spaces, "pattern"), "Regex", "\\s+") &&
           has_text(spaces, "content", " ") &&
           is_kind(step_of(normalizer, "normalizers", 3, 2), "Lowercase");
}

/* Words, digits and punctuation, what is between them dropped. */
static bool is_clip_split(fl_json *first, fl_json *second) {
    fl_json *pattern = fl_json_get(first, "pattern");
    return is_kind(first, "Split") && has_text(first, "behavior", "Removed") &&
           fl_json_flag(first, "invert", false) &&
           (has_text(pattern, "Regex", clip_pattern) ||
            has_text(pattern, "Regex", strstr(clip_pattern, "'s"))) &&
           is_kind(second, "ByteLevel") && !fl_json_flag(second, "add_prefix_space", true);
}

static const char qwen_code[] = "tokenization_qwen.Qwen2TokenizerFast";

/* Whether tokenizer.json has the steps that the class makes. */
static int check_steps(const fl_token_plan *plan, fl_json_reader *root) {
    const fl_token_class *class = plan->class;
    fl_json *normal             = fl_json_get(root->object, "normalizer");
    fl_json *split              = fl_json_get(root->object, "pre_tokenizer");
    fl_json *first              = step_of(split, "pretokenizers", 2, 0);
    fl_json *second             = step_of(split, "pretokenizers", 2, 1);
    bool     prefix = plan->prefix_space, good_normal = true, good_split = true;
    switch (class->steps) {
    case FL_BERT: break;
    case FL_AS_IN_FILE:
        good_split =
            !is_kind(split, "ByteLevel") || fl_json_flag(split, "add_prefix_space", true) == prefix;
        break;
    case FL_NEOX:
    case FL_BYTE_LEVEL:
        good_normal = class->steps == FL_NEOX ? is_kind(normal, "NFC") : normal == NULL;
        good_split  = is_kind(split, "ByteLevel") && fl_json_flag(split, "use_regex", true) &&
                     fl_json_flag(split, "add_prefix_space", true) == prefix;
        break;
    case FL_QWEN:
        good_normal = is_kind(normal, "NFC");
        good_split  = is_qwen_split(first, second) && !prefix;
        break;
    case FL_CLIP:
        good_normal = is_clip_normalizer(normal);
        good_split  = is_clip_split(first, second);
        break;
    case FL_PIECES:
    case FL_ALBERT:
        good_normal = class->steps == FL_ALBERT ? is_albert(plan, normal) : is_precompiled(normal);
        good_split =
            is_kind(first, "WhitespaceSplit") && is_metaspace(second, true, "always") && prefix;
        break;
    case FL_DEBERTA:
        good_normal = is_deberta(plan, normal);
        good_split  = is_deberta_split(plan, split) && prefix;
        break;
    case FL_LLAMA:
        good_normal = normal == NULL;
        good_split  = is_metaspace(split, false,
                                  !prefix        ? "never"
                                   : plan->legacy ? "always"
                                                  : "first");
        break;
    case FL_GEMMA:
        good_normal = is_kind(normal, "Replace") && has_text(normal, "content", "\xE2\x96\x81") &&
                      has_text(fl_json_get(normal, "pattern"), "String", " ");
        good_split = is_kind(split, "Split") && has_text(split, "behavior", "MergedWithPrevious") &&
                     has_text(fl_json_get(split, "pattern"), "String", " ") &&
                     !fl_json_flag(split, "invert", false);
        break;
    }
    if (!good_normal)
        return fl_token_class_differ(plan, root, "normalizer");
    if (!good_split && class->steps == FL_AS_IN_FILE) {
        root->status = fl_fail(
            root->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s: add_prefix_space of the pre_tokenizer is not what tokenizer_config.json says "
            "(%s); transformers 4 follows one and transformers 5 the other. Make them equal",
            root->source, prefix ? "true" : "false, or nothing");
        return root->status;
    }
    return good_split ? 0 : fl_token_class_differ(plan, root, "pre_tokenizer");
}

static bool is_text(fl_json *object, const char *key) {
    const char *text = fl_json_text(fl_json_get(object, key));
    return text != NULL && *text != '\0';
}

/* Which option of the model is not what the class gives it (transformers 5 takes the vocabulary and the merges alone);
 * NULL: none. */
static const char *other_option(const fl_token_class *class, const fl_tokenizer *tokenizer,
                                fl_json *model, const char *unk) {
    bool    bytes  = fl_json_flag(model, "byte_fallback", false);
    int64_t unk_id = fl_json_int64(fl_json_get(model, "unk_id"));
    if (strcmp(tokenizer->model->type, class->model) != 0)
        return "the model";
    if (class->steps == FL_BERT) {
        int64_t most = fl_json_int64(fl_json_get(model, "max_input_chars_per_word"));
        return unk == NULL || !has_text(model, "unk_token", unk)     ? "unk_token"
               : !has_text(model, "continuing_subword_prefix", "##") ? "continuing_subword_prefix"
               : most != CHARS_PER_WORD                              ? "max_input_chars_per_word"
                                                                     : NULL;
    }
    if (class->steps == FL_PIECES || class->steps == FL_ALBERT || class->steps == FL_DEBERTA) {
        int64_t want = class->unk_id > 0 ? class->unk_id
                       : unk != NULL     ? fl_tokenizer_id(tokenizer, unk)
                                         : -1;
        return bytes ? "byte_fallback" : unk_id != want ? "unk_id" : NULL;
    }
    if (class->steps == FL_CLIP && (unk == NULL || !has_text(model, "unk_token", unk)))
        return "unk_token";
    if (class->steps == FL_CLIP ? !has_text(model, "end_of_word_suffix", "</w>")
                                : is_text(model, "end_of_word_suffix"))
        return "end_of_word_suffix";
    if (is_text(model, "continuing_subword_prefix"))
        return "continuing_subword_prefix";
    if (fl_json_flag(model, "ignore_merges", false))
        return "ignore_merges";
    return !bytes && (class->steps == FL_LLAMA || class->steps == FL_GEMMA) ? "byte_fallback"
                                                                            : NULL;
}

/* transformers 5 gives Gemma a "<mask>" where the files name none. */
static int check_mask(const fl_token_plan *plan, fl_json_reader *root) {
    fl_json *added = fl_json_get(root->object, "added_tokens");
    bool     found = plan->token[FL_TOKEN_MASK] != NULL;
    for (size_t i = 0; i < fl_json_count(added) && !found; i++)
        found = has_text(fl_json_item(added, i), "content", "<mask>");
    return found ? 0 : fl_token_class_differ(plan, root, "added_tokens without <mask>");
}

int fl_token_class_steps(const fl_token_plan *plan, fl_tokenizer *tokenizer, fl_json_reader *root) {
    const fl_token_class *class = plan->class;
    if (plan->as_saved && class->steps != FL_BERT)
        return 0;
    const char *what = class->steps == FL_AS_IN_FILE
                           ? NULL
                           : other_option(class, tokenizer, fl_json_get(root->object, "model"),
                                          plan->token[FL_TOKEN_UNK]);
    if (what != NULL)
        return fl_token_class_differ(plan, root, what);
    if (class->steps != FL_BERT) {
        return check_steps(plan, root) != 0 || class->steps != FL_GEMMA ? root->status
                                                                        : check_mask(plan, root);
    }
    if (tokenizer->split_count != 1 || tokenizer->split[0].ops != &fl_split_bert)
        return fl_token_class_differ(plan, root, "pre_tokenizer");
    return patch_normalizer(plan, tokenizer, root);
}

/* Whether the file's pair is that of the class, whose single text is the file's: BERT's [CLS] A [SEP] B [SEP] with
 * types, <s> A </s> </s> B </s>, and twice what a single text has (Llama, Gemma). */
static bool is_pair_of_class(const fl_token_plan *plan, const fl_tokenizer *tokenizer) {
    const fl_token_class *class = plan->class;
    const fl_template *pair = &tokenizer->pair, *single = &tokenizer->single;
    const bool         bert = class->steps == FL_DEBERTA ||
                      (class->steps == FL_BERT && class->defaults[FL_TOKEN_BOS] == NULL);
    const bool  twice = class->steps == FL_LLAMA || class->steps == FL_GEMMA || !plan->begins;
    fl_template want  = {.count = 0};
    for (unsigned text = 0; text < 2; text++) {
        if (text == 0 || twice ? plan->begins : !bert)
            want.ids[want.count++] = single->ids[text == 0 || twice ? 0 : single->count - 1];
        want.place[text] = want.count;
        if (plan->ends) {
            want.types[want.count] = (uint8_t)text;
            want.ids[want.count++] = single->ids[single->count - 1];
        }
    }
    return pair->count == want.count && memcmp(pair->place, want.place, sizeof want.place) == 0 &&
           memcmp(pair->ids, want.ids, want.count * sizeof *want.ids) == 0 &&
           (!bert || (memcmp(pair->types, want.types, want.count) == 0 && pair->text_type[0] == 0 &&
                      pair->text_type[1] == 1));
}

/* The end token's id; -1: there is none. */
static int32_t end_id(const fl_token_plan *plan, const fl_tokenizer *tokenizer) {
    const char *end = plan->token[FL_TOKEN_EOS];
    return end != NULL ? fl_tokenizer_id(tokenizer, end) : -1;
}

/* A single text ends in that token, if it does not yet. False: there is no such token, or no room. */
static bool end_single(fl_template *single, int32_t id) {
    const bool there = single->count > single->place[0] && single->ids[single->count - 1] == id;
    if (id < 0 || (!there && single->count == FL_SPECIALS_MAX))
        return false;
    if (!there) {
        single->types[single->count] = 0;
        single->ids[single->count++] = id;
        single->texts                = 1;
    }
    return true;
}

/* gte-Qwen2's tokenizer is code that makes the template by add_eos_token, whatever tokenizer.json has. */
static int end_by_code(const fl_token_plan *plan, fl_tokenizer *tokenizer, fl_json_reader *root) {
    fl_json      *codes = fl_json_get(fl_json_get(plan->config, "auto_map"), "AutoTokenizer");
    const char   *code  = fl_json_text(fl_json_item(codes, 1));
    const char   *bare  = code != NULL ? strstr(code, "--") : NULL;
    const int32_t id    = end_id(plan, tokenizer);
    fl_template  *file  = &tokenizer->single;
    if (code == NULL || strcmp(bare != NULL ? bare + 2 : code, qwen_code) != 0)
        return 0;
    if (plan->begins || (plan->ends ? !end_single(file, id) || file->count > 1 : file->count > 0))
        return fl_token_class_differ(plan, root, "post_processor");
    if (plan->ends) {
        tokenizer->pair = (fl_template){.ids       = {id, id},
                                        .types     = {0, 1},
                                        .count     = 2,
                                        .place     = {0, 1},
                                        .text_type = {0, 1},
                                        .texts     = 2};
    }
    return 0;
}

/* The tokens before and after a text: transformers 4 makes Llama's and Gemma's anew, transformers 5 XLM-R's and
 * BERT's; the others are the file's in both. */
static int check_template(const fl_token_plan *plan, fl_tokenizer *tokenizer,
                          fl_json_reader *root) {
    const fl_template *single   = &tokenizer->single;
    const fl_token_class *class = plan->class;
    const bool has[2]           = {plan->begins, plan->ends};
    unsigned   around[2] = {FL_TOKEN_CLS, FL_TOKEN_SEP}, count = 0;
    /* Where any is asked for, transformers 5 puts none there. */
    bool good = class->steps != FL_NEOX || !(plan->begins || plan->ends);
    if (class->steps == FL_QWEN)
        return end_by_code(plan, tokenizer, root);
    if (class->defaults[FL_TOKEN_UNK] == NULL)
        return 0;
    if (class->steps != FL_BERT && class->steps != FL_BYTE_LEVEL && class->steps != FL_ALBERT &&
        class->steps != FL_DEBERTA) {
        around[0] = FL_TOKEN_BOS;
        around[1] = FL_TOKEN_EOS;
    }
    for (unsigned i = 0; i < 2; i++) {
        const char *token = plan->token[around[i]];
        if (has[i]) {
            good = good && count < single->count && token != NULL &&
                   fl_tokenizer_id(tokenizer, token) == single->ids[count];
            count++;
        }
    }
    good = good && single->count == count && single->place[0] == (has[0] ? 1U : 0U);
    if (good && !class->pair_of_file && !is_pair_of_class(plan, tokenizer))
        tokenizer->pair_class = class->name;
    return good ? 0 : fl_token_class_differ(plan, root, "post_processor");
}

int fl_token_class_template(const fl_token_plan *plan, fl_tokenizer *tokenizer,
                            fl_json_reader *root) {
    FL_TRY(check_template(plan, tokenizer, root));
    if (plan->options->ends && !end_single(&tokenizer->single, end_id(plan, tokenizer))) {
        return fl_token_class_differ(plan, root,
                                     "the end token"); /* which code puts there by hand */
    }
    return 0;
}
