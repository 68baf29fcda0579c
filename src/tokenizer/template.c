/* SPDX-License-Identifier: Apache-2.0 */
/* template.c - the post-processor of tokenizer.json: special tokens around one text or two.
 *
 *     [CLS] A [SEP]            [CLS] A [SEP] B [SEP]             <s> A </s> </s> B </s>
 *                               0    0   0   1   1  types         0  0  0    0   0  0
 *
 * Role     parse.c reads it; tokenizer.c puts a template around the ids of a text; fl_tokenizer_pair puts two
 *          texts together and cuts them to a length.
 * Method   BertProcessing and RobertaProcessing are templates that are not written out. Types are 0 and then
 *          1, so that one number says where the second segment starts; any other order of types is
 *          refused when a pair is asked for, not before: most models never see one.
 * Proof    tests/golden/test_pairs.py. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/parse.h"

static const char processors_known[] =
    "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence of these";

/* ---- From tokenizer.json ---------------------------------------------------------------------- */

static int put_special(fl_template *t, fl_json_reader *reader, uint32_t id_limit, int64_t id,
                       int64_t type) {
    if (id < 0 || id >= id_limit) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: post_processor uses id %lld; the vocabulary ends at %u",
                                 reader->source, (long long)id, id_limit - 1);
        return reader->status;
    }
    if (t->count == FL_SPECIALS_MAX) {
        return fl_refuse(reader, "post_processor", "template with more than 64 special tokens",
                         "64");
    }
    t->types[t->count] = (uint8_t)(type == 0 || type == 1 ? type : FL_TYPE_OTHER);
    t->ids[t->count++] = (int32_t)id;
    return 0;
}

static void put_text(fl_template *t, int64_t type) {
    assert(t->texts < 2);
    t->text_type[t->texts] = (uint8_t)(type == 0 || type == 1 ? type : FL_TYPE_OTHER);
    t->place[t->texts++]   = t->count;
}

/* ["[SEP]", 102] under `key`. */
static int64_t parse_pair(fl_json_reader *reader, const char *key) {
    fl_json *pair = fl_json_array(reader, key);
    if (pair == NULL) {
        fl_missing(reader, key);
        return 0;
    }
    fl_json *id = fl_json_item(pair, 1);
    if (fl_json_count(pair) != 2 || !fl_json_is_int(id)) {
        reader->status =
            fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                    "%s: post_processor \"%s\" must be [token, id]", reader->source, key);
        return 0;
    }
    return fl_json_int64(id);
}

/* CLS A SEP, and CLS A, `between` times SEP, B SEP with type `second`. */
static void cls_sep(fl_tokenizer *tokenizer, int32_t cls, int32_t sep, unsigned between,
                    uint8_t second) {
    tokenizer->single = (fl_template){.ids = {cls, sep}, .count = 2, .place = {1}, .texts = 1};
    tokenizer->pair   = (fl_template){.ids       = {cls, sep, sep, sep},
                                      .count     = between + 2,
                                      .place     = {1, between + 1},
                                      .text_type = {0, second},
                                      .texts     = 2};
    tokenizer->pair.types[between + 1] = second;
}

void fl_template_bert(fl_tokenizer *tokenizer, int32_t cls, int32_t sep) {
    cls_sep(tokenizer, cls, sep, 1, 1);
}

static int parse_cls_sep(fl_tokenizer *tokenizer, fl_json_reader *reader, unsigned between,
                         uint8_t second) {
    fl_template checked = {0};
    int64_t     cls     = parse_pair(reader, "cls");
    int64_t     sep     = reader->status == 0 ? parse_pair(reader, "sep") : 0;
    if (reader->status == 0 && put_special(&checked, reader, tokenizer->id_limit, cls, 0) == 0 &&
        put_special(&checked, reader, tokenizer->id_limit, sep, 0) == 0)
        cls_sep(tokenizer, (int32_t)cls, (int32_t)sep, between, second);
    return reader->status;
}

/* The ids of one special token of a template. */
static int put_template_token(fl_template *t, fl_json_reader *reader, uint32_t id_limit,
                              fl_json_reader *specials, const char *name, int64_t type) {
    fl_json_reader token = fl_json_inside(reader, fl_json_object(specials, name));
    fl_json       *ids   = token.object != NULL ? fl_json_array(&token, "ids") : NULL;
    if (ids == NULL) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: post_processor special_tokens has no ids for \"%s\"",
                                 reader->source, name);
        return reader->status;
    }
    for (size_t i = 0; i < fl_json_count(ids); i++) {
        fl_json *id = fl_json_item(ids, i);
        if (!fl_json_is_int(id)) {
            reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                     "%s: post_processor special_tokens \"%s\" has an id that is "
                                     "not an integer",
                                     reader->source, name);
            return reader->status;
        }
        if (put_special(t, reader, id_limit, fl_json_int64(id), type) < 0)
            return reader->status;
    }
    return 0;
}

/* The list under `key`, in which A comes first and then, in a pair, B. */
static int parse_list(fl_template *t, fl_json_reader *reader, uint32_t id_limit, const char *key,
                      unsigned texts) {
    static const char *const names[]  = {"A", "B", ""};
    fl_json                 *list     = fl_json_array(reader, key);
    fl_json_reader           specials = fl_json_below(reader, "special_tokens");
    memset(t, 0, sizeof *t);
    if (list == NULL || specials.object == NULL)
        return fl_missing(reader, list == NULL ? key : "special_tokens");
    for (size_t i = 0; i < fl_json_count(list); i++) {
        fl_json_reader  part     = fl_json_inside(reader, fl_json_item(list, i));
        fl_json_reader  special  = fl_json_inside(reader, fl_json_object(&part, "SpecialToken"));
        fl_json_reader  sequence = fl_json_inside(reader, fl_json_object(&part, "Sequence"));
        fl_json_reader *one      = special.object != NULL ? &special : &sequence;
        const char     *id       = fl_need_string(one, "id");
        int64_t         type     = fl_json_int(one, "type_id", 0, 0, INT32_MAX);
        if (part.status < 0 || one->status < 0) {
            reader->status = part.status < 0 ? part.status : one->status;
        } else if (special.object != NULL) {
            put_template_token(t, reader, id_limit, &specials, id, type);
        } else if (sequence.object != NULL && t->texts < texts &&
                   strcmp(id, names[t->texts]) == 0) {
            put_text(t, type);
        } else {
            reader->status =
                fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                        "%s: post_processor \"%s\" has a part that is neither SpecialToken nor the "
                        "next Sequence",
                        reader->source, key);
        }
        if (reader->status < 0)
            return reader->status;
    }
    return t->texts == texts
               ? 0
               : fl_refuse(reader, "post_processor",
                           "TemplateProcessing without exactly one Sequence A", "one");
}

static int parse_processor(fl_tokenizer *tokenizer, fl_json_reader *reader) {
    const char *kind    = fl_need_string(reader, "type");
    bool        roberta = strcmp(kind, "RobertaProcessing") == 0;
    if (reader->status < 0)
        return reader->status;
    if (strcmp(kind, "Sequence") == 0) {
        fl_json *list = fl_json_array(reader, "processors");
        for (size_t i = 0; list != NULL && i < fl_json_count(list); i++) {
            fl_json_reader inner = fl_json_inside(reader, fl_json_item(list, i));
            reader->status       = parse_processor(tokenizer, &inner);
            if (reader->status < 0)
                return reader->status;
        }
        return list != NULL ? 0 : fl_missing(reader, "processors");
    }
    if (strcmp(kind, "TemplateProcessing") == 0) {
        uint32_t limit = tokenizer->id_limit;
        return parse_list(&tokenizer->single, reader, limit, "single", 1) < 0
                   ? reader->status
                   : parse_list(&tokenizer->pair, reader, limit, "pair", 2);
    }
    if (strcmp(kind, "BertProcessing") == 0)
        return parse_cls_sep(tokenizer, reader, 1, 1);
    if (!roberta && strcmp(kind, "ByteLevel") != 0)
        return fl_refuse(reader, "post_processor", kind, processors_known);
    tokenizer->trim_offsets     = fl_json_bool(reader, "trim_offsets", true);
    tokenizer->add_prefix_space = fl_json_bool(reader, "add_prefix_space", true);
    return roberta && reader->status == 0 ? parse_cls_sep(tokenizer, reader, 2, 0) : reader->status;
}

int fl_parse_post_processor(fl_tokenizer *tokenizer, fl_json_reader *root) {
    fl_json_reader reader = fl_json_below(root, "post_processor");
    put_text(&tokenizer->single, 0); /* without one: the texts alone */
    put_text(&tokenizer->pair, 0);
    put_text(&tokenizer->pair, 1);
    if (root->status == 0 && reader.object != NULL)
        root->status = parse_processor(tokenizer, &reader);
    return root->status;
}

/* ---- Pairs ------------------------------------------------------------------------------------ */

/* What truncation leaves of two texts, as the reference computes it: not token by token. */
static bool share(size_t budget, fl_pair_truncation how, size_t *a, size_t *b) {
    size_t over = *a + *b > budget ? *a + *b - budget : 0;
    if (over == 0)
        return true;
    if (how != FL_PAIR_LONGEST_FIRST) {
        size_t *target = how == FL_PAIR_ONLY_FIRST ? a : b;
        if (*target <= over)
            return false;
        *target -= over;
        return true;
    }
    bool   swap = *a > *b;
    size_t few  = swap ? *b : *a, many;
    many        = few > budget || budget - few < few ? few : budget - few;
    if (few + many > budget) {
        few  = budget / 2;
        many = few + budget % 2;
    }
    *a = swap ? many : few;
    *b = swap ? few : many;
    return true;
}

typedef struct output {
    int32_t  *ids;
    uint32_t *offsets; /* may be NULL */
    uint8_t  *special; /* may be NULL */
    size_t    count, segment;
} output;

static void put(output *o, int32_t id, const uint32_t *offsets, bool special, uint8_t type) {
    if (type == 1 && o->segment == SIZE_MAX)
        o->segment = o->count;
    o->ids[o->count] = id;
    if (o->offsets != NULL) {
        o->offsets[2 * o->count]     = offsets != NULL ? offsets[0] : 0;
        o->offsets[2 * o->count + 1] = offsets != NULL ? offsets[1] : 0;
    }
    if (o->special != NULL)
        o->special[o->count] = special;
    o->count++;
}

static void put_side(output *o, const fl_pair_side *side, size_t keep, bool left, uint8_t type) {
    assert(keep <= side->count);
    size_t first = left ? side->count - keep : 0;
    for (size_t i = first; i < first + keep; i++)
        put(o, side->ids[i], side->offsets != NULL ? side->offsets + 2 * i : NULL, false, type);
}

/* Types 0 and then 1: the only order that one number describes. */
static bool types_fit(const fl_template *t) {
    uint8_t  last = 0;
    unsigned text = 0;
    for (uint32_t i = 0; i <= t->count; i++) {
        for (; text < t->texts && t->place[text] == i; text++) {
            if (t->text_type[text] < last || t->text_type[text] > 1)
                return false;
            last = t->text_type[text];
        }
        if (i < t->count && (t->types[i] < last || t->types[i] > 1))
            return false;
        last = i < t->count ? t->types[i] : last;
    }
    return true;
}

uint32_t fl_tokenizer_pair_special_count(const fl_tokenizer *tokenizer) {
    return tokenizer->pair.count;
}

int fl_tokenizer_pair(const fl_tokenizer *tokenizer, const fl_pair_side *a, const fl_pair_side *b,
                      const fl_encode_options *options, fl_pair_truncation how, int32_t *ids,
                      uint32_t *offsets, uint8_t *special, size_t capacity, fl_pair *out,
                      fletch_error *error) {
    const fl_template *t      = &tokenizer->pair;
    size_t             keep_a = a->count, keep_b = b->count;
    size_t             specials = options->no_special ? 0 : t->count;
    bool               left     = options->truncation == FL_TRUNCATE_LEFT;
    if (tokenizer->pair_class != NULL) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "the post_processor's template for pairs is not what %s makes; transformers "
                       "4 and 5 give different tokens here, so neither is right. Save the "
                       "tokenizer again, or set tokenizer_class to PreTrainedTokenizerFast",
                       tokenizer->pair_class);
    }
    if (!types_fit(t)) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "this tokenizer's template for pairs has token types other than 0 and "
                       "then 1, which is not supported");
    }
    if (options->max_length > 0) {
        size_t budget = options->max_length > specials ? options->max_length - specials : 0;
        if (!share(budget, how, &keep_a, &keep_b)) {
            return fl_fail(error, FLETCH_ETOOLONG, FLETCH_NOWHERE,
                           "a pair of %zu and %zu tokens cannot be cut to %u by shortening the %s "
                           "text alone",
                           a->count, b->count, options->max_length,
                           how == FL_PAIR_ONLY_FIRST ? "first" : "second");
        }
    }
    if (keep_a + keep_b + specials > capacity) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the buffer for token ids holds %zu; the pair has %zu", capacity,
                       keep_a + keep_b + specials);
    }
    output   o    = {ids, offsets, special, 0, SIZE_MAX};
    unsigned text = 0;
    for (uint32_t i = 0; i <= t->count; i++) {
        for (; text < t->texts && t->place[text] == i; text++) {
            out->begin[text] = o.count;
            put_side(&o, text == 0 ? a : b, text == 0 ? keep_a : keep_b, left, t->text_type[text]);
            out->end[text] = o.count;
        }
        if (i < t->count && !options->no_special)
            put(&o, t->ids[i], NULL, true, t->types[i]);
    }
    out->count     = o.count;
    out->segment   = o.segment == SIZE_MAX ? o.count : o.segment;
    out->truncated = keep_a < a->count || keep_b < b->count;
    return 0;
}
