/* SPDX-License-Identifier: Apache-2.0 */
/* parse_steps.c - normalizer, pre_tokenizer, post_processor and decoder of tokenizer.json.
 *
 * Role     parse.c calls one function per key.
 * Method   Each kind is either built exactly or refused by its name: an approximated tokenizer gives
 *          vectors that are wrong without anybody noticing. Sequences are flattened.
 * Memory   Patterns of Replace and Prepend are copied and owned by the tokenizer.
 * Proof    tests/unit/test_tokenizer.c (refusals by name, damaged values). */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/parse.h"

enum { PATTERN_MAX = 256, EXPANSION_MAX = 4096, LOWERCASE_EXPANSION = 2 };

static int missing(fl_json_reader *reader, const char *key) {
    if (reader->status == 0) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: \"%s\" is missing", reader->source, key);
    }
    return reader->status;
}

/* Whether the key is there; says so if not. */
static bool needed(fl_json_reader *reader, const char *key) {
    if (!fl_json_has(reader, key)) {
        missing(reader, key);
        return false;
    }
    return true;
}

bool fl_need_bool(fl_json_reader *reader, const char *key) {
    return needed(reader, key) && fl_json_bool(reader, key, false);
}

int64_t fl_need_int(fl_json_reader *reader, const char *key, int64_t max) {
    return needed(reader, key) ? fl_json_int(reader, key, 0, 0, max) : 0;
}

const char *fl_need_string(fl_json_reader *reader, const char *key) {
    return needed(reader, key) ? fl_json_string(reader, key, "") : "";
}

static fl_json_reader inside(const fl_json_reader *reader, fl_json *object) {
    fl_json_reader inner = {object, reader->source, reader->error, reader->status};
    return inner;
}

static int refuse(fl_json_reader *reader, const char *part, const char *kind, const char *known) {
    reader->status =
        fl_fail(reader->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                "%s: %s \"%s\" is not supported; supported: %s", reader->source, part, kind, known);
    return reader->status;
}

/* ---- Normalizer ------------------------------------------------------------------------------- */

static const char normalizers_known[] =
    "BertNormalizer, Lowercase, NFD, StripAccents, Strip, Replace with a string, Prepend, Sequence";

/* UTF-8 into an owned array of code points. */
static int copy_runes(fl_json_reader *reader, const char *text, uint32_t **out, size_t *count) {
    size_t size = strlen(text);
    *count      = 0;
    *out        = fl_alloc_array(size + 1, sizeof **out);
    if (*out == NULL) {
        reader->status = fl_fail_nomem(reader->error, size * sizeof **out, "a normalizer");
        return reader->status;
    }
    for (size_t i = 0; i < size;) {
        unsigned length;
        (*out)[(*count)++] = fl_utf8_decode(text + i, &length);
        i += length;
    }
    return 0;
}

static int parse_replace(fl_normal_step *step, fl_json_reader *reader, uint64_t *expansion) {
    fl_json_reader pattern = inside(reader, fl_json_object(reader, "pattern"));
    if (reader->status == 0 && pattern.object == NULL) {
        return missing(reader, "pattern");
    }
    if (fl_json_has(&pattern, "Regex")) {
        return refuse(reader, "normalizer", "Replace with a Regex pattern", normalizers_known);
    }
    const char *text    = fl_need_string(&pattern, "String");
    const char *content = pattern.status == 0 ? fl_need_string(reader, "content") : "";
    reader->status      = pattern.status < 0 ? pattern.status : reader->status;
    if (reader->status < 0) {
        return reader->status;
    }
    size_t size = strlen(text);
    if (size == 0 || size > PATTERN_MAX) {
        reader->status = fl_fail(
            reader->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s: normalizer \"Replace\" with a pattern of %zu bytes is not supported (1 to %d)",
            reader->source, size, PATTERN_MAX);
        return reader->status;
    }
    *expansion *= strlen(content) / size + 1;
    return copy_runes(reader, text, &step->pattern, &step->pattern_count) < 0 ||
                   copy_runes(reader, content, &step->content, &step->content_count) < 0
               ? reader->status
               : 0;
}

static int parse_bert(fl_normal_step *step, fl_json_reader *reader) {
    step->clean_text    = fl_need_bool(reader, "clean_text");
    step->chinese_chars = fl_need_bool(reader, "handle_chinese_chars");
    step->lowercase     = fl_need_bool(reader, "lowercase");
    step->strip_accents = fl_json_bool(reader, "strip_accents", step->lowercase);
    return reader->status;
}

/* One normalizer that is not a Sequence; `expansion` is the growth in bytes that it may cause. */
static int parse_normal_step(fl_normal_step *step, fl_json_reader *reader, const char *kind,
                             uint64_t *expansion) {
    if (strcmp(kind, "BertNormalizer") == 0) {
        step->kind = FL_NORMAL_BERT;
        *expansion *= 3;
        return parse_bert(step, reader);
    }
    if (strcmp(kind, "Lowercase") == 0) {
        step->kind = FL_NORMAL_LOWERCASE;
        *expansion *= LOWERCASE_EXPANSION;
        return 0;
    }
    if (strcmp(kind, "NFD") == 0) {
        step->kind = FL_NORMAL_NFD;
        *expansion *= 3;
        return 0;
    }
    if (strcmp(kind, "StripAccents") == 0) {
        step->kind = FL_NORMAL_STRIP_ACCENTS;
        return 0;
    }
    if (strcmp(kind, "Strip") == 0) {
        step->kind        = FL_NORMAL_STRIP;
        step->strip_left  = fl_need_bool(reader, "strip_left");
        step->strip_right = fl_need_bool(reader, "strip_right");
        return reader->status;
    }
    if (strcmp(kind, "Replace") == 0) {
        step->kind = FL_NORMAL_REPLACE;
        return parse_replace(step, reader, expansion);
    }
    if (strcmp(kind, "Prepend") == 0) {
        step->kind       = FL_NORMAL_PREPEND;
        const char *text = fl_need_string(reader, "prepend");
        *expansion += strlen(text);
        return reader->status < 0 ? reader->status
                                  : copy_runes(reader, text, &step->content, &step->content_count);
    }
    return refuse(reader, "normalizer", kind, normalizers_known);
}

static int parse_normalizers(fl_tokenizer *tokenizer, fl_json_reader *reader, uint64_t *expansion) {
    const char *kind = fl_need_string(reader, "type");
    if (reader->status < 0) {
        return reader->status;
    }
    if (strcmp(kind, "Sequence") != 0) {
        if (tokenizer->normal_count == FL_STEPS_MAX) {
            return refuse(reader, "normalizer", "Sequence of more than 16 steps", "16 steps");
        }
        int status = parse_normal_step(&tokenizer->normal[tokenizer->normal_count++], reader, kind,
                                       expansion);
        if (status == 0 && *expansion > EXPANSION_MAX) {
            return refuse(reader, "normalizer", "a chain that makes text that much longer",
                          normalizers_known);
        }
        return status;
    }
    fl_json *list = fl_json_array(reader, "normalizers");
    if (list == NULL) {
        return missing(reader, "normalizers");
    }
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        fl_json_reader inner = inside(reader, json_object_array_get_idx(list, i));
        reader->status       = parse_normalizers(tokenizer, &inner, expansion);
        if (reader->status < 0) {
            return reader->status;
        }
    }
    return 0;
}

int fl_parse_normalizer(fl_tokenizer *tokenizer, fl_json_reader *root) {
    fl_json_reader reader    = inside(root, fl_json_object(root, "normalizer"));
    uint64_t       expansion = tokenizer->normal_count > 0 ? LOWERCASE_EXPANSION : 1;
    tokenizer->expansion     = 1;
    if (root->status < 0 || reader.object == NULL) {
        return root->status;
    }
    root->status = parse_normalizers(tokenizer, &reader, &expansion);
    /* A normaliser that begins with the text's own bytes makes at most one character per byte, if it
     * is BERT's or Lowercase; what follows others is bounded step by step. */
    bool plain = tokenizer->normal_count == 1 && (tokenizer->normal[0].kind == FL_NORMAL_BERT ||
                                                  tokenizer->normal[0].kind == FL_NORMAL_LOWERCASE);
    tokenizer->expansion = plain ? 1 : (uint32_t)expansion;
    return root->status;
}

/* ---- Pre-tokenizer ---------------------------------------------------------------------------- */

static const char pre_tokenizers_known[] =
    "BertPreTokenizer, Whitespace, WhitespaceSplit, Sequence of these";

static int parse_splits(fl_tokenizer *tokenizer, fl_json_reader *reader) {
    static const struct {
        const char   *name;
        fl_split_kind kind;
    } kinds[]        = {{"BertPreTokenizer", FL_SPLIT_BERT},
                        {"Whitespace", FL_SPLIT_WHITESPACE},
                        {"WhitespaceSplit", FL_SPLIT_WHITESPACE_SPLIT}};
    const char *kind = fl_need_string(reader, "type");
    if (reader->status < 0) {
        return reader->status;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kind, kinds[i].name) == 0 && tokenizer->split_count < FL_STEPS_MAX) {
            tokenizer->split[tokenizer->split_count++] = kinds[i].kind;
            return 0;
        }
    }
    if (strcmp(kind, "Sequence") != 0) {
        return refuse(reader, "pre_tokenizer", kind, pre_tokenizers_known);
    }
    fl_json *list = fl_json_array(reader, "pretokenizers");
    if (list == NULL) {
        return missing(reader, "pretokenizers");
    }
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        fl_json_reader inner = inside(reader, json_object_array_get_idx(list, i));
        reader->status       = parse_splits(tokenizer, &inner);
        if (reader->status < 0) {
            return reader->status;
        }
    }
    return 0;
}

int fl_parse_pre_tokenizer(fl_tokenizer *tokenizer, fl_json_reader *root) {
    fl_json_reader reader = inside(root, fl_json_object(root, "pre_tokenizer"));
    if (root->status < 0 || reader.object == NULL) {
        return root->status;
    }
    root->status = parse_splits(tokenizer, &reader);
    return root->status;
}

/* ---- Post-processor --------------------------------------------------------------------------- */

/* Put one id before or after the text. */
static int put_special(fl_tokenizer *tokenizer, fl_json_reader *reader, bool after, int64_t id) {
    uint32_t *count = after ? &tokenizer->after_count : &tokenizer->before_count;
    int32_t  *ids   = after ? tokenizer->after : tokenizer->before;
    if (id < 0 || id >= tokenizer->id_limit) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: post_processor uses id %lld; the vocabulary ends at %u",
                                 reader->source, (long long)id, tokenizer->id_limit - 1);
        return reader->status;
    }
    if (*count == FL_SPECIALS_MAX) {
        return refuse(reader, "post_processor", "template with more than 64 special tokens", "64");
    }
    ids[(*count)++] = (int32_t)id;
    return 0;
}

/* ["[SEP]", 102] under `key`. */
static int parse_pair(fl_tokenizer *tokenizer, fl_json_reader *reader, const char *key,
                      bool after) {
    fl_json *pair = fl_json_array(reader, key);
    if (pair == NULL) {
        return missing(reader, key);
    }
    fl_json *id = json_object_array_get_idx(pair, 1);
    if (json_object_array_length(pair) != 2 || !json_object_is_type(id, json_type_int)) {
        reader->status =
            fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                    "%s: post_processor \"%s\" must be [token, id]", reader->source, key);
        return reader->status;
    }
    return put_special(tokenizer, reader, after, json_object_get_int64(id));
}

/* The ids of one special token of a template. */
static int put_template_token(fl_tokenizer *tokenizer, fl_json_reader *reader,
                              fl_json_reader *specials, const char *name, bool after) {
    fl_json_reader token = inside(reader, fl_json_object(specials, name));
    fl_json       *ids   = token.object != NULL ? fl_json_array(&token, "ids") : NULL;
    if (ids == NULL) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: post_processor special_tokens has no ids for \"%s\"",
                                 reader->source, name);
        return reader->status;
    }
    for (size_t i = 0; i < json_object_array_length(ids); i++) {
        fl_json *id = json_object_array_get_idx(ids, i);
        if (!json_object_is_type(id, json_type_int)) {
            reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                     "%s: post_processor special_tokens \"%s\" has an id that is "
                                     "not an integer",
                                     reader->source, name);
            return reader->status;
        }
        if (put_special(tokenizer, reader, after, json_object_get_int64(id)) < 0) {
            return reader->status;
        }
    }
    return 0;
}

static int parse_template(fl_tokenizer *tokenizer, fl_json_reader *reader) {
    fl_json       *single   = fl_json_array(reader, "single");
    fl_json_reader specials = inside(reader, fl_json_object(reader, "special_tokens"));
    unsigned       texts    = 0;
    if (single == NULL || specials.object == NULL) {
        return missing(reader, single == NULL ? "single" : "special_tokens");
    }
    for (size_t i = 0; i < json_object_array_length(single); i++) {
        fl_json_reader part     = inside(reader, json_object_array_get_idx(single, i));
        fl_json_reader special  = inside(reader, fl_json_object(&part, "SpecialToken"));
        fl_json_reader sequence = inside(reader, fl_json_object(&part, "Sequence"));
        const char    *id = fl_need_string(special.object != NULL ? &special : &sequence, "id");
        if (special.object != NULL && special.status == 0) {
            put_template_token(tokenizer, reader, &specials, id, texts > 0);
        } else if (sequence.object != NULL && sequence.status == 0 && strcmp(id, "A") == 0) {
            texts++;
        } else if (part.status == 0) {
            reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                     "%s: post_processor \"single\" has a part that is neither "
                                     "SpecialToken nor Sequence A",
                                     reader->source);
        } else {
            reader->status = part.status;
        }
        if (reader->status < 0) {
            return reader->status;
        }
    }
    return texts == 1 ? 0
                      : refuse(reader, "post_processor",
                               "TemplateProcessing without exactly one Sequence A", "one");
}

int fl_parse_post_processor(fl_tokenizer *tokenizer, fl_json_reader *root) {
    fl_json_reader reader = inside(root, fl_json_object(root, "post_processor"));
    if (root->status < 0 || reader.object == NULL) {
        return root->status;
    }
    const char *kind    = fl_need_string(&reader, "type");
    bool        roberta = strcmp(kind, "RobertaProcessing") == 0;
    if (reader.status < 0) {
        root->status = reader.status;
    } else if (strcmp(kind, "TemplateProcessing") == 0) {
        root->status = parse_template(tokenizer, &reader);
    } else if (roberta || strcmp(kind, "BertProcessing") == 0) {
        if (parse_pair(tokenizer, &reader, "cls", false) == 0 &&
            parse_pair(tokenizer, &reader, "sep", true) == 0 && roberta) {
            tokenizer->trim_offsets     = fl_need_bool(&reader, "trim_offsets");
            tokenizer->add_prefix_space = fl_need_bool(&reader, "add_prefix_space");
        }
        root->status = reader.status;
    } else {
        root->status = refuse(&reader, "post_processor", kind,
                              "TemplateProcessing, BertProcessing, RobertaProcessing");
    }
    return root->status;
}

/* ---- Decoder ---------------------------------------------------------------------------------- */

int fl_parse_decoder(fl_tokenizer *tokenizer, fl_json_reader *root) {
    fl_json_reader reader = inside(root, fl_json_object(root, "decoder"));
    if (root->status < 0 || reader.object == NULL) {
        return root->status;
    }
    const char *kind = fl_need_string(&reader, "type");
    if (reader.status == 0 && strcmp(kind, "WordPiece") != 0) {
        root->status = refuse(&reader, "decoder", kind, "WordPiece");
        return root->status;
    }
    const char *prefix          = fl_need_string(&reader, "prefix");
    tokenizer->decode_cleanup   = fl_need_bool(&reader, "cleanup");
    tokenizer->decode_wordpiece = true;
    root->status                = reader.status;
    if (root->status == 0 && (tokenizer->decode_prefix = fl_strdup(prefix)) == NULL) {
        root->status = fl_fail_nomem(root->error, strlen(prefix), "the decoder");
    }
    return root->status;
}
