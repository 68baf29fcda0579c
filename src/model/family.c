/* SPDX-License-Identifier: Apache-2.0 */
/* family.c - config.json becomes a descriptor, by the table of the family it names.
 *
 * Role    model.c hands over config.json; weights.c later finds the tensors by the same table.
 * Method  Which family: model_type, then the marks that tell variants of one model_type apart. Then
 *         fields, layers, rotary positions, windows and experts, each from the keys that the table
 *         names, absent ones with transformers' defaults. Sizes are bounded before anything is
 *         computed from them. A switch that changes the maths and that the tables do not express is
 *         refused by name: a vector that is nearly right is worse than none.
 * Memory  desc->layer, owned by whoever has the descriptor.
 * Proof   tests/unit/test_model.c; tests/golden/test_folders.py, test_families.py. */
#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/elementary.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

enum { KEY_MAX = 64, EXPERTS_MAX = 1024 };

#define FL_NAME(name) &fl_family_##name,
static const fl_family *const families[] = {FL_FAMILIES(FL_NAME)};
#undef FL_NAME

/* Of PretrainedConfig, and of others by name: each would make another network of the same tensors.
 * A family that knows more values has a line of its own. */
static const fl_only common[] = {
    {"is_decoder", "false"},
    {"add_cross_attention", "false"},
    {"position_embedding_type", "absolute"},
    {"attn_logit_softcapping", "absent"},
    {"final_logit_softcapping", "absent"},
    {"logn_attention_scale", "false"},
    {"use_sliding_window", "false"},
    {"use_bidirectional_attention", "false"},
    {"partial_rotary_factor", "1"},
};

static const struct {
    const char   *name;
    fl_activation activation;
    bool          gated;
} activations[] = {
    {"gelu", FL_ACT_GELU_ERF, false},
    {"gelu_python", FL_ACT_GELU_ERF, false},
    {"gelu_new", FL_ACT_GELU_TANH, false},
    {"gelu_pytorch_tanh", FL_ACT_GELU_TANH, false},
    {"gelu_fast", FL_ACT_GELU_TANH, false},
    {"gelu_python_tanh", FL_ACT_GELU_TANH, false},
    {"gelu_accurate", FL_ACT_GELU_TANH, false},
    {"silu", FL_ACT_SILU, false},
    {"swish", FL_ACT_SILU, false},
    {"relu", FL_ACT_RELU, false},
    {"quick_gelu", FL_ACT_QUICK_GELU, false},
    {"swiglu", FL_ACT_SILU, true},
    {"geglu", FL_ACT_GELU_ERF, true},
    {"reglu", FL_ACT_RELU, true},
};

void fl_family_refuse(fl_json_reader *config, const char *key, const char *value) {
    if (config->status == 0)
        config->status = fl_fail(config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                                 "%s: %s \"%.60s\" is not supported; it changes the vectors, so "
                                 "the model is rejected rather than approximated.",
                                 config->source, key, value);
}

static void damage(fl_json_reader *config, const char *key, double value, const char *why) {
    if (config->status == 0)
        config->status = fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s %g %s.",
                                 config->source, key, value, why);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* The first spelling that is there; the first of all when none is. */
static const char *spelling(const fl_json_reader *r, const char *keys, char key[KEY_MAX]) {
    for (const char *at = keys; *at != '\0'; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        snprintf(key, KEY_MAX, "%.*s", (int)size, at);
        if (fl_json_has(r, key))
            return key;
        at += size;
    }
    snprintf(key, KEY_MAX, "%.*s", (int)strcspn(keys, " "), keys);
    return key;
}

/* auto_map points to Python code in some repository: the network is what that code says. */
static const char *remote_code(fl_json_reader *config) {
    static const char *const keys[] = {"AutoModel", "AutoModelForSequenceClassification",
                                       "AutoConfig", "AutoModelForMaskedLM",
                                       "AutoModelForCausalLM"};
    fl_json_reader           map    = fl_json_below(config, "auto_map");
    const char              *code   = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && code == NULL; i++)
        code = fl_json_string(&map, keys[i], NULL);
    fl_json_settle(config, &map);
    return code;
}

/* "repository--module.Class"; a local copy leaves the repository out. Where the half of a name is not known, it is a
 * '*': "*.Class", "module.*". */
static bool knows_code(const fl_family *family, const char *code) {
    const char *own = strstr(code, "--");
    own             = own != NULL ? own + 2 : code;
    for (size_t i = 0; i < FL_WORDS_MAX && family->remote_code[i] != NULL; i++) {
        const char *known = family->remote_code[i], *bare = strstr(known, "--");
        if (strcmp(known, code) == 0 || (bare != NULL && strcmp(bare + 2, code) == 0) ||
            (known[0] == '*' && fl_path_ends_with(own, known + 1)) ||
            (fl_path_ends_with(known, "*") && strncmp(own, known, strlen(known) - 1) == 0))
            return true;
    }
    return false;
}

/* Whether the network is the Hub's code, not a class of transformers. */
static bool is_hub_code(const fl_family *family, fl_json_reader *config) {
    const char *code = remote_code(config);
    return code != NULL && knows_code(family, code);
}

/* Whether a value is one of "true|12|word". */
static bool is_one_of(fl_json_reader *r, const char *key, const char *values, char *text,
                      size_t room) {
    if (strcmp(values, "absent") == 0) {
        snprintf(text, room, "present");
        return !fl_json_has(r, key);
    }
    if (strcmp(values, "*") == 0)
        return true;
    if (strncmp(values, "true", 4) == 0 || strncmp(values, "false", 5) == 0)
        snprintf(text, room, "%s", fl_json_bool(r, key, false) ? "true" : "false");
    else if (strchr("0123456789", values[0]) != NULL)
        snprintf(text, room, "%.9g", fl_json_double(r, key, 0));
    else
        snprintf(text, room, "%s", fl_json_string(r, key, ""));
    for (const char *at = values; r->status == 0 && *at != '\0'; at += strspn(at, "|")) {
        size_t size = strcspn(at, "|");
        if (strlen(text) == size && strncmp(at, text, size) == 0)
            return true;
        at += size;
    }
    return false;
}

/* Of "object.key" the key, and *config becomes the object; of another, itself. */
static const char *key_inside(fl_json_reader *config, const char *key) {
    char        object[KEY_MAX];
    const char *dot = strchr(key, '.');
    if (dot == NULL)
        return key;
    snprintf(object, sizeof object, "%.*s", (int)(dot - key), key);
    *config = fl_json_below(config, object);
    return dot + 1;
}

static void check_only(fl_json_reader *config, const fl_only *only) {
    char           text[100];
    const bool     must   = only->values[0] == '=';
    fl_json_reader inside = fl_json_inside(config, config->object);
    const char    *key    = key_inside(&inside, only->key);
    if (config->status != 0)
        return;
    if (!fl_json_has(&inside, key)) {
        if (must)
            fl_family_refuse(&inside, only->key, "absent");
    } else if (!is_one_of(&inside, key, only->values + must, text, sizeof text))
        fl_family_refuse(&inside, only->key, text);
    fl_json_settle(config, &inside);
}

static bool has_own(const fl_family *family, const char *key) {
    for (size_t i = 0; i < FL_ONLY_MAX && family->only[i].key != NULL; i++)
        if (strcmp(family->only[i].key, key) == 0)
            return true;
    return false;
}

static void refuse_switches(const fl_family *family, fl_json_reader *config) {
    for (size_t i = 0; i < FL_ONLY_MAX && family->only[i].key != NULL; i++)
        check_only(config, &family->only[i]);
    fl_json_reader kwargs = fl_json_inside(config, NULL);
    if (family->kwargs != NULL)
        kwargs = fl_json_below(config, family->kwargs);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (!has_own(family, common[i].key)) {
            check_only(config, &common[i]);
            check_only(&kwargs, &common[i]);
        }
    fl_json_settle(config, &kwargs);
    /* only the Hub's code reads these */
    const char *hub[] = {family->rope.fraction, family->rope.stretch};
    for (size_t i = 0; i < sizeof hub / sizeof *hub; i++)
        if (hub[i] != NULL && !is_hub_code(family, config) && family->rope.fraction_fallback == 0)
            check_only(config, &(fl_only){hub[i], "1"});
    const fl_only *needed = &family->remote_needs;
    if (needed->key != NULL && is_hub_code(family, config)) {
        check_only(config, needed);
        if (!fl_json_has(config, needed->key))
            fl_family_refuse(config, needed->key, "absent");
    }
    if (fl_json_count(fl_json_object(config, "pruned_heads")) > 0)
        fl_family_refuse(config, "pruned_heads", "not empty");
}

/* ---- Fields ---------------------------------------------------------------------------------- */

/* Whether `name` is an activation; `gated`: of those that name a gated MLP, too. */
static bool find_activation(const char *name, bool gated, fl_activation *out) {
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, name) == 0 && (!activations[i].gated || gated)) {
            *out = activations[i].activation;
            return true;
        }
    return false;
}

static void read_activation(const fl_encoder_desc *desc, fl_json_reader *config, const char *key,
                            const char *fallback, fl_activation *out) {
    const char *name = fl_json_string(config, key, fallback);
    if (!find_activation(name, desc->mlp == FL_MLP_GLU, out))
        fl_family_refuse(config, key, name);
}

/* JinaBERT: every word that a family lets pass is gated, and the absent one is "original". */
static void read_feed_forward(fl_encoder_desc *desc, fl_json_reader *config, const char *key) {
    if (!fl_json_has(config, key))
        fl_family_refuse(config, key, "absent");
    else
        read_activation(desc, config, key, "", &desc->activation);
}

static void read_gated_word(fl_encoder_desc *desc, fl_json_reader *config, const char *key,
                            const char *fallback) {
    static const char gated[] = "gated-";
    const char       *word    = fl_json_string(config, key, fallback);
    if (strncmp(word, gated, sizeof gated - 1) == 0) {
        desc->mlp = FL_MLP_GLU;
        word += sizeof gated - 1;
        word = strcmp(word, "gelu") == 0 ? "gelu_new" : word;
    }
    if (!find_activation(word, false, &desc->activation))
        fl_family_refuse(config, key, word);
}

/* Whether a word is among those of `words`, with '|' between them. */
static bool has_word(const char *words, const char *word, size_t size) {
    for (const char *at = words; *at != '\0'; at += strspn(at, "| ")) {
        size_t length = strcspn(at, "| ");
        if (length == size && strncmp(at, word, size) == 0)
            return true;
        at += length;
    }
    return false;
}

static bool has_words(const char *words, const char *others) {
    for (const char *at = others; *at != '\0'; at += strspn(at, "| ")) {
        size_t size = strcspn(at, "| ");
        if (!has_word(words, at, size))
            return false;
        at += size;
    }
    return true;
}

/* "c2p|p2c", in any order, or an array of such words. */
static void check_words(fl_json_reader *config, const char *key, const char *words) {
    char        found[100] = "";
    fl_json    *list       = fl_json_get(config->object, key);
    const char *text       = fl_json_text(list);
    size_t      used       = 0;
    snprintf(found, sizeof found, "%s", text != NULL ? text : "");
    for (size_t i = 0; text == NULL && i < fl_json_count(list) && used < sizeof found; i++) {
        const char *word = fl_json_text(fl_json_item(list, i));
        used += (size_t)snprintf(found + used, sizeof found - used, "%s%s", i == 0 ? "" : "|",
                                 word != NULL ? word : "no string");
    }
    if (!has_words(found, words) || !has_words(words, found))
        fl_family_refuse(config, key, found[0] != '\0' ? found : "absent");
}

static void read_member(fl_encoder_desc *desc, fl_json_reader *config, const fl_family_field *field,
                        const char *keys) {
    char        spelt[KEY_MAX];
    const char *key   = spelling(config, keys, spelt);
    char       *at    = (char *)desc + field->at;
    double      value = field->fallback;
    switch (field->kind) {
    case FL_FIELD_SIZE: {
        int64_t  number = fl_json_int(config, key, (int64_t)field->fallback, (int64_t)field->min,
                                      (int64_t)field->max);
        uint32_t size   = number < 0 ? 0 : (uint32_t)number;
        memcpy(at, &size, sizeof size);
        return;
    }
    case FL_FIELD_BOOL: *(bool *)at = fl_json_bool(config, key, field->fallback != 0); return;
    case FL_FIELD_ACTIVATION:
        read_activation(desc, config, key, field->word, (fl_activation *)(void *)at);
        return;
    case FL_FIELD_FEED_FORWARD: read_feed_forward(desc, config, key); return;
    case FL_FIELD_GATED_WORD: read_gated_word(desc, config, key, field->word); return;
    case FL_FIELD_WORDS: check_words(config, key, field->word); return;
    case FL_FIELD_REAL:
    case FL_FIELD_INVERSE_ROOT: break;
    }
    value = fl_json_double(config, key, field->fallback);
    if (!(value >= field->min && value < field->max))
        damage(config, key, value, "is out of bounds");
    float real = (float)(field->kind == FL_FIELD_REAL ? value : fl_math_pow(value, -0.5));
    memcpy(at, &real, sizeof real);
}

static void read_field(fl_encoder_desc *desc, fl_json_reader *config,
                       const fl_family_field *field) {
    fl_json_reader inside = fl_json_inside(config, config->object);
    const char    *keys   = key_inside(&inside, field->keys);
    read_member(desc, &inside, field, keys);
    fl_json_settle(config, &inside);
}

/* What follows from the sizes alone. */
static void complete(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    desc->architecture = family->name;
    desc->kv_heads     = desc->kv_heads == 0 ? desc->heads : desc->kv_heads;
    desc->embedding    = desc->embedding == 0 ? desc->hidden : desc->embedding;
    desc->word_rows    = desc->vocab;
    desc->intermediate = desc->intermediate == 0 ? 4 * desc->hidden : desc->intermediate;
    if (desc->head_dim == 0 && desc->hidden % desc->heads != 0)
        config->status = fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: hidden_size %u is not a multiple of num_attention_heads %u.",
                                 config->source, desc->hidden, desc->heads);
    if (desc->heads % desc->kv_heads != 0)
        damage(config, "num_key_value_heads", desc->kv_heads,
               "does not divide the number of attention heads");
    if (desc->head_dim == 0)
        desc->head_dim = desc->hidden / desc->heads;
    if (desc->distance[0].bias == FL_BIAS_DISENTANGLED) { /* three products make a score */
        fl_distance *rule     = &desc->distance[0];
        desc->attention_scale = 1.0f / sqrtf((float)desc->head_dim * 3.0f);
        rule->max_distance    = rule->max_distance > 0 ? rule->max_distance : desc->positions;
    }
    if (desc->attention_scale == 0)
        desc->attention_scale = 1.0f / sqrtf((float)desc->head_dim);
    if (family->scale_embedding)
        desc->embed_scale = (float)sqrt((double)desc->hidden);
    for (size_t i = 0; i < FL_FIELDS_MAX && family->fields[i].keys != NULL; i++)
        if (family->fields[i].at == offsetof(fl_encoder_desc, types))
            desc->token_type = desc->types > 0;
}

static void narrow_mlp(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    const char *factor = family->narrowed.factor;
    if (family->narrowed.when == NULL || !fl_json_bool(config, family->narrowed.when, true))
        return;
    desc->intermediate = 2 * desc->intermediate / 3;
    const bool   null  = fl_json_find(config->object, factor, NULL) && !fl_json_has(config, factor);
    const double scale = fl_json_double(config, factor, 1.0);
    const double step  = (double)fl_json_int(config, family->narrowed.multiple, 256, 1, 1 << 16);
    const double wanted  = floor(scale * desc->intermediate);
    const double rounded = null ? desc->intermediate : ceil(wanted / step) * step;
    if (!(rounded >= 1 && rounded <= 1 << 20))
        damage(config, factor, scale, "makes an MLP of no width, or of one that is too large");
    else
        desc->intermediate = (uint32_t)rounded;
}

/* Tables with a row for padding: the first token has the row after it. */
static void read_padding(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    enum { PAD_MAX = 1 << 20 };
    if (family->padding_key == NULL)
        return;
    desc->pad_token = family->padding;
    if (family->padding_key[0] != '\0')
        desc->pad_token =
            (uint32_t)fl_json_int(config, family->padding_key, family->padding, 0, PAD_MAX);
    desc->position_offset    = desc->pad_token + 1;
    desc->position_skips_pad = true;
    if (desc->positions <= desc->position_offset)
        damage(config, "max_position_embeddings", desc->positions, "leaves no usable position");
    else
        desc->positions -= desc->position_offset;
}

/* ---- Rotary positions ------------------------------------------------------------------------ */

/* What yarn adds to the size of scores, by how far it stretches. */
static double yarn_size(double factor, double weight) {
    return factor <= 1 ? 1.0 : 0.1 * weight * fl_math_log(factor) + 1.0;
}

/* Where a pair stands that turns so often in the trained positions. */
static double yarn_place(const fl_rope *rope, double turns) {
    return rope->dims * fl_math_log(rope->trained / (turns * 2 * M_PI)) /
           (2 * fl_math_log(rope->theta));
}

static void read_yarn(const fl_encoder_desc *desc, fl_rope *rope, fl_json_reader *scaling) {
    const double fast  = fl_json_double(scaling, "beta_fast", 0);
    const double slow  = fl_json_double(scaling, "beta_slow", 0);
    const double scale = fl_json_double(scaling, "mscale", 0);
    const double all   = fl_json_double(scaling, "mscale_all_dim", 0);
    if (!fl_json_has(scaling, "factor"))
        rope->factor = (double)desc->positions / rope->trained;
    const double size = scale != 0 && all != 0
                            ? yarn_size(rope->factor, scale) / yarn_size(rope->factor, all)
                            : yarn_size(rope->factor, 1);
    const double low  = floor(yarn_place(rope, fast != 0 ? fast : 32));
    const double high = ceil(yarn_place(rope, slow != 0 ? slow : 1));
    rope->scaling     = FL_ROPE_YARN;
    rope->size        = fl_json_double(scaling, "attention_factor", size);
    rope->low_factor  = low > 0 ? low : 0;
    rope->high_factor = high < rope->dims - 1 ? high : rope->dims - 1;
    check_only(scaling, &(fl_only){"truncate", "true"});
    if (!(rope->factor >= 1 && rope->size > 0 && isfinite(rope->size)))
        damage(scaling, "factor", rope->factor, "and its attention_factor make no yarn");
    if (!(isfinite(low) && isfinite(high) && rope->high_factor >= rope->low_factor))
        damage(scaling, "beta_fast", fast, "is not above beta_slow, or there is no such turn");
}

static uint32_t trained_positions(const fl_encoder_desc *desc, fl_json_reader *scaling) {
    return (uint32_t)fl_json_int(scaling, "original_max_position_embeddings", desc->positions, 1,
                                 1 << 24);
}

/* longrope: a number for each pair, above 0. */
static void read_factors(fl_rope *rope, fl_json_reader *scaling, const char *key) {
    fl_json     *list  = fl_json_array(scaling, key);
    const size_t pairs = rope->dims / 2, count = fl_json_count(list);
    if (count != pairs || pairs > FL_ROPE_PAIRS) {
        damage(scaling, key, (double)count, "is not as many factors as pairs, 64 at most");
        return;
    }
    for (size_t i = 0; i < pairs; i++) {
        const double factor = fl_json_f64(fl_json_item(list, i));
        rope->factors[i]    = (float)factor;
        if (!(factor > 0 && isfinite(rope->factors[i])))
            damage(scaling, key, factor, "is not a factor of angles");
    }
}

static void read_longrope(const fl_encoder_desc *desc, fl_rope *rope, fl_json_reader *scaling) {
    if (!fl_json_has(scaling, "factor"))
        rope->factor = (double)desc->positions / rope->trained;
    const double grown = fl_math_log(rope->factor) / fl_math_log(rope->trained);
    rope->scaling      = FL_ROPE_FACTORS;
    rope->size         = rope->factor <= 1 ? 1.0 : sqrt(1 + grown);
    rope->size         = fl_json_double(scaling, "attention_factor", rope->size);
    read_factors(rope, scaling, "short_factor");
    if (!(rope->size > 0 && isfinite(rope->size)))
        damage(scaling, "attention_factor", rope->size, "is not a size");
}

/* The object that tells of rotary positions: rope_scaling where that says anything. */
static const char *rope_key(fl_json_reader *config) {
    bool scaled = fl_json_count(fl_json_object(config, "rope_scaling")) > 0;
    return scaled ? "rope_scaling" : "rope_parameters";
}

static void read_scaling(const fl_family *family, const fl_encoder_desc *desc, fl_rope *rope,
                         fl_json_reader *scaling) {
    const char *type = fl_json_string(scaling, "type", "default");
    type             = fl_json_string(scaling, "rope_type", type);
    rope->factor     = fl_json_double(scaling, "factor", 1.0);
    if (!(rope->factor >= 1))
        damage(scaling, "rope factor", rope->factor, "is less than 1");
    if (strcmp(type, "dynamic") == 0) /* no position that fletch allows is beyond these */
        rope->trained = desc->positions;
    if (strcmp(type, "default") == 0 || strcmp(type, "dynamic") == 0)
        return;
    if (strcmp(type, "linear") == 0) {
        rope->scaling = FL_ROPE_LINEAR;
    } else if (strcmp(type, "ntk") == 0 && family->rope.ntk && !fl_json_has(scaling, "mixed_b")) {
        rope->scaling = FL_ROPE_LINEAR;
        rope->theta *= rope->factor;
        rope->factor = fl_math_pow(rope->factor, 2.0 / rope->dims);
    } else if (strcmp(type, "yarn") == 0) {
        rope->trained = trained_positions(desc, scaling);
        read_yarn(desc, rope, scaling);
    } else if (strcmp(type, "longrope") == 0 && family->rope.yarn && family->rope.growth == NULL) {
        rope->trained = trained_positions(desc, scaling);
        read_longrope(desc, rope, scaling);
    } else if (strcmp(type, "llama3") == 0) {
        rope->scaling     = FL_ROPE_LLAMA3;
        rope->trained     = trained_positions(desc, scaling);
        rope->low_factor  = fl_json_double(scaling, "low_freq_factor", 0);
        rope->high_factor = fl_json_double(scaling, "high_freq_factor", 0);
        if (!(rope->low_factor > 0 && rope->high_factor > rope->low_factor))
            damage(scaling, "high_freq_factor", rope->high_factor, "is not above low_freq_factor");
    } else {
        fl_family_refuse(scaling, "rope type", type);
    }
}

/* transformers takes the number beside these objects for theirs, where there is one. */
static void check_trained(const fl_rope *rope, fl_json_reader *config) {
    const char *key = "original_max_position_embeddings";
    char        text[32];
    snprintf(text, sizeof text, "%u", rope->trained);
    if (rope->scaling >= FL_ROPE_LLAMA3)
        check_only(config, &(fl_only){key, text});
}

/* One rope: of rope_scaling where that says anything, else of rope_parameters, whose rope_theta is before the
 * older key; of the object under `kind` where there is one for each kind of layer. */
static fl_rope read_rope(const fl_family *family, const fl_encoder_desc *desc,
                         fl_json_reader *config, const char *kind, const char *theta,
                         double fallback) {
    char           key[KEY_MAX];
    fl_json_reader all = fl_json_below(config, rope_key(config));
    bool nested = fl_json_has(&all, "full_attention") || fl_json_has(&all, "sliding_attention");
    fl_json_reader one = nested ? fl_json_below(&all, kind) : all;
    if (family->rope.local_theta != NULL && !nested && one.object != NULL)
        fl_family_refuse(config, "rope_parameters", "for all layers alike");
    double       fraction = 1.0;
    const double whole = family->rope.fraction_fallback > 0 ? family->rope.fraction_fallback : 1.0;
    if (family->rope.fraction != NULL)
        fraction = fl_json_double(config, spelling(config, family->rope.fraction, key), whole);
    if (family->rope.fraction_fallback > 0)
        fraction = fl_json_double(&one, "partial_rotary_factor", fraction);
    else
        check_only(&one, &(fl_only){"partial_rotary_factor", "1"});
    fl_rope rope = {.theta = fl_json_double(config, spelling(config, theta, key), fallback)};
    rope.theta   = fl_json_double(&one, "rope_theta", rope.theta);
    if (!(fraction > 0 && fraction <= 1))
        damage(config, family->rope.fraction, fraction, "is not within 0..1");
    else
        rope.dims = (uint32_t)(desc->head_dim * fraction);
    if (!(rope.theta > 0 && rope.theta < 1e18))
        damage(config, key, rope.theta, "is not a base of rotary positions");
    if (rope.dims == 0 || rope.dims % 2 != 0)
        damage(config, "head_dim", rope.dims, "cannot be turned in pairs by rotary positions");
    if (config->status == 0 && one.status == 0)
        read_scaling(family, desc, &rope, &one);
    if (rope.scaling >= FL_ROPE_YARN && (!family->rope.yarn || is_hub_code(family, config)))
        fl_family_refuse(&one, "rope type", rope.scaling == FL_ROPE_YARN ? "yarn" : "longrope");
    if (family->rope.growth != NULL && fl_json_double(&one, family->rope.growth, 0) != 0) {
        rope.trained = trained_positions(desc, &one);
        rope.ends    = true;
    }
    check_trained(&rope, config);
    fl_json_settle(&all, &one);
    fl_json_settle(config, &all);
    return rope;
}

static void read_ropes(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    const char *local = family->rope.local_theta;
    if (family->rope.theta == NULL || config->status != 0)
        return;
    const bool stretched = family->rope.stretch != NULL && is_hub_code(family, config) &&
                           fl_json_double(config, family->rope.stretch, 0) > 0;
    if (stretched) {
        uint32_t trained =
            (uint32_t)fl_json_int(config, family->rope.trained, desc->positions, 1, 1 << 24);
        desc->positions = trained < desc->positions ? trained : desc->positions;
    }
    desc->rope[0] = read_rope(family, desc, config, "full_attention", family->rope.theta,
                              family->rope.fallback);
    if (stretched)
        desc->rope[0].trained = desc->positions;
    if (desc->rope[0].scaling == FL_ROPE_FACTORS && config->status == 0) {
        fl_json_reader scaling = fl_json_below(config, rope_key(config));
        desc->rope[1]          = desc->rope[0];
        desc->rope[0].longer   = 2;
        read_factors(&desc->rope[1], &scaling, "long_factor");
        fl_json_settle(config, &scaling);
    }
    if (desc->rope[0].ends && desc->rope[0].trained < desc->positions)
        desc->positions = desc->rope[0].trained;
    if (local != NULL)
        desc->rope[1] = read_rope(family, desc, config, "sliding_attention", local,
                                  family->rope.local_fallback);
    for (uint32_t i = 0; i < desc->layers; i++)
        desc->layer[i].rope = desc->layer[i].convolves                       ? 0
                              : local != NULL && desc->layer[i].distance > 0 ? 2
                                                                             : 1;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static void read_causal(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    bool *causal = &desc->distance[0].causal;
    bool  null =
        fl_json_find(config->object, "is_causal", NULL) && !fl_json_has(config, "is_causal");
    if (family->causal_inverted && null)
        fl_family_refuse(config, "is_causal", "null"); /* as false */
    else if (family->causal_key != NULL && null && strcmp(family->causal_key, "is_causal") == 0)
        *causal = false; /* as transformers: nothing is no yes */
    else if (family->causal_key != NULL)
        *causal = fl_json_bool(config, family->causal_key, *causal != family->causal_inverted) !=
                  family->causal_inverted;
}

/* The window as |key - query| <= reach; 0 when the config says that there is none. */
static uint32_t read_window(const fl_family *family, const fl_encoder_desc *desc,
                            fl_json_reader *config) {
    bool        causal = desc->distance[0].causal;
    const char *key    = family->window.window;
    if (!fl_json_has(config, key) &&
        (family->window.fallback == 0 || fl_json_find(config->object, key, NULL)))
        return 0; /* null says that there is none, and so may silence */
    uint32_t window = (uint32_t)fl_json_int(config, key, family->window.fallback, 1, 1 << 30);
    uint32_t reach  = causal ? window - 1 : family->window.halved ? window / 2 : window;
    if (reach == 0)
        damage(config, key, window, "is a window that holds no other token");
    return reach;
}

/* Whether a list of whole numbers, where there is one, has this one. */
static bool has_index(const fl_json_reader *config, const char *key, uint32_t index) {
    fl_json *list  = fl_json_get(config->object, key);
    bool     found = !fl_json_has(config, key);
    for (size_t i = 0; !found && i < fl_json_count(list); i++)
        found = fl_json_int64(fl_json_item(list, i)) == index;
    return found;
}

/* layer_types, else every n-th; `out` [layers] is true where a layer has the window. */
static void read_layer_types(const fl_family *family, fl_encoder_desc *desc,
                             fl_json_reader *config) {
    fl_json *types = fl_json_array(config, "layer_types");
    uint32_t every = 0;
    if (family->window.every != NULL)
        every = (uint32_t)fl_json_int(config, family->window.every, family->window.every_fallback,
                                      1, 1024);
    if (types != NULL && fl_json_count(types) != desc->layers)
        damage(config, "layer_types: its length", (double)fl_json_count(types),
               "is not that of the layers");
    for (uint32_t i = 0; config->status == 0 && i < desc->layers; i++) {
        const char *type = every > 0 && (i + family->window.shift) % every != 0
                               ? "sliding_attention"
                               : "full_attention";
        if (family->window.always)
            type = "sliding_attention";
        if (family->attending != NULL && !has_index(config, family->attending, i))
            type = "conv";
        if (types != NULL) {
            type = fl_json_text(fl_json_item(types, i));
            type = type == NULL ? "no string" : type;
        }
        bool sliding = strcmp(type, "sliding_attention") == 0, conv = strcmp(type, "conv") == 0;
        if ((!sliding && !conv && strcmp(type, "full_attention") != 0) ||
            (sliding && family->window.window == NULL) || (conv && family->attending == NULL))
            fl_family_refuse(config, "layer_types", type);
        desc->layer[i].distance  = sliding;
        desc->layer[i].convolves = conv;
    }
}

static void read_layers(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    if (config->status != 0)
        return;
    desc->layer = fl_alloc_zero(desc->layers, sizeof *desc->layer);
    if (desc->layer == NULL) {
        config->status =
            fl_fail_nomem(config->error, desc->layers * sizeof *desc->layer, "the layers");
        return;
    }
    desc->layer[0].skips_attention_norm = family->first_layer_unnormed;
    read_layer_types(family, desc, config);
    if (family->window.window == NULL || config->status != 0)
        return;
    uint32_t window          = read_window(family, desc, config);
    desc->distance[1]        = desc->distance[0];
    desc->distance[1].window = window;
    for (uint32_t i = 0; window == 0 && i < desc->layers; i++)
        desc->layer[i].distance = 0;
}

static void read_experts(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    if (family->experts.count == NULL || config->status != 0)
        return;
    uint32_t count = (uint32_t)fl_json_int(config, family->experts.count, 0, 2, EXPERTS_MAX);
    uint32_t used  = (uint32_t)fl_json_int(config, family->experts.used, 2, 1, EXPERTS_MAX);
    uint32_t every = (uint32_t)fl_json_int(config, family->experts.every, 2, 1, EXPERTS_MAX);
    if (used > count)
        damage(config, family->experts.used, used, "is more than there are experts");
    for (uint32_t i = 0; i < desc->layers; i++)
        if (i % every == every - 1) {
            desc->layer[i].experts      = count;
            desc->layer[i].experts_used = used;
        }
}

/* ---- Which family ---------------------------------------------------------------------------- */

/* Code of the Hub may know no model_type: it says itself what it is. */
static bool is_of(const fl_family *family, const char *model_type, const char *code) {
    if (model_type[0] == '\0')
        return code != NULL && knows_code(family, code);
    for (size_t i = 0; i < FL_WORDS_MAX && family->model_types[i] != NULL; i++)
        if (strcmp(family->model_types[i], model_type) == 0)
            return true;
    return false;
}

/* Without weights the code's repository alone tells variants with a mark_tensor apart. */
static bool has_marks(const fl_family *family, fl_json_reader *config, const char *code,
                      const fl_safetensors *weights) {
    char name[128], text[100];
    if (family->mark_key != NULL &&
        (!fl_json_has(config, family->mark_key) ||
         (strcmp(family->mark_value, "*") != 0 &&
          !is_one_of(config, family->mark_key, family->mark_value, text, sizeof text))))
        return false;
    if (family->only_remote && (code == NULL || !knows_code(family, code)))
        return false;
    if (family->mark_tensor == NULL)
        return true;
    if (weights == NULL)
        return code != NULL && strstr(code, "--") != NULL && knows_code(family, code);
    bool found = fl_safetensors_find(weights, family->mark_tensor) != NULL;
    for (size_t i = 0; !found && i < FL_WORDS_MAX && family->prefixes[i] != NULL; i++) {
        snprintf(name, sizeof name, "%s%s", family->prefixes[i], family->mark_tensor);
        found = fl_safetensors_find(weights, name) != NULL;
    }
    return found;
}

static int refuse_type(const fl_json_reader *config, const char *model_type) {
    char known[320] = ""; /* a message has room for more only where the path is short */
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        fl_error_list(known, sizeof known, families[i]->name);
    return fl_fail(config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: model_type \"%.60s\" is not supported; fletch knows %s and others.",
                   config->source, model_type, known);
}

static int choose(const fl_family **out, fl_json_reader *config, const fl_safetensors *weights) {
    const char *model_type = fl_json_string(config, "model_type", "");
    const char *code       = remote_code(config);
    bool        other      = false; /* the model_type is known with other code than this */
    if (config->status != 0)
        return config->status;
    if (model_type[0] == '\0' && code == NULL)
        return fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s has no model_type: is this a Hugging Face model folder?",
                       config->source);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const bool named = is_of(families[i], model_type, code);
        other            = other || (named && families[i]->only_remote);
        if (!named || !has_marks(families[i], config, code, weights))
            continue;
        *out = families[i];
        if (code != NULL && !knows_code(*out, code))
            fl_family_refuse(config, "auto_map (remote code)", code);
        return config->status;
    }
    if (model_type[0] == '\0' || (other && code != NULL))
        fl_family_refuse(config, "auto_map (remote code)", code);
    return config->status != 0 ? config->status : refuse_type(config, model_type);
}

/* What config.json says of the network: all of it, or one of its objects. */
static fl_json_reader network_of(const fl_family *family, fl_json_reader *config) {
    char key[KEY_MAX];
    if (family->below == NULL || !fl_json_has(config, spelling(config, family->below, key)))
        return fl_json_inside(config, config->object);
    return fl_json_below(config, key);
}

int fl_family_end(const fl_family *family, fl_json_reader *config, int32_t *end) {
    fl_json_reader network = network_of(family, config);
    *end = (int32_t)fl_json_int(&network, family->end_key, family->end, 0, INT32_MAX);
    fl_json_settle(config, &network);
    return config->status;
}

static void describe(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    *desc = family->fixed;
    for (size_t i = 0; i < FL_FIELDS_MAX && family->fields[i].keys != NULL; i++)
        read_field(desc, config, &family->fields[i]);
    refuse_switches(family, config);
    if (config->status != 0)
        return;
    complete(family, desc, config);
    narrow_mlp(family, desc, config);
    read_padding(family, desc, config);
    read_causal(family, desc, config);
    read_layers(family, desc, config);
    read_experts(family, desc, config);
    read_ropes(family, desc, config);
}

enum { LATENTS_MAX = 1 << 16, LATENT_DIMS_MAX = 1 << 16 };

static void read_latents(const fl_family *family, fl_encoder_desc *desc, fl_json_reader *config) {
    fl_json_reader own = fl_json_below(config, family->latent.object);
    desc->latents = (uint32_t)fl_json_int(&own, family->latent.count, family->latent.count_fallback,
                                          1, LATENTS_MAX);
    desc->latent_heads = (uint32_t)fl_json_int(&own, family->latent.heads,
                                               family->latent.heads_fallback, 1, LATENTS_MAX);
    desc->latent_dims  = (uint32_t)fl_json_int(&own, family->latent.dims,
                                               family->latent.dims_fallback, 1, LATENT_DIMS_MAX);
    fl_json_settle(config, &own);
}

int fl_family_describe(const fl_family **out, fl_encoder_desc *desc, fl_json_reader *config,
                       const fl_safetensors *weights) {
    memset(desc, 0, sizeof *desc);
    FL_TRY(choose(out, config, weights));
    fl_json_reader network = network_of(*out, config);
    if ((*out)->above.key != NULL && network.object != config->object)
        check_only(config, &(*out)->above);
    describe(*out, desc, &network);
    fl_json_settle(config, &network);
    if ((*out)->latent.object != NULL && config->status == 0)
        read_latents(*out, desc, config);
    return config->status;
}
