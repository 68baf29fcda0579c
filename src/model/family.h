/* SPDX-License-Identifier: Apache-2.0 */
/* family.h - one family of encoders as data: how its config.json becomes a descriptor and what its
 * tensors are called.
 *
 * A family is one table in src/model/families/NAME.c, without logic, and a line in FL_FAMILIES.
 * family.c reads config.json by it, weights.c finds the tensors. No model_type stands elsewhere. */
#ifndef FL_MODEL_FAMILY_H
#define FL_MODEL_FAMILY_H

#include "base/json.h"
#include "model/model.h"
#include "model/safetensors.h"

enum {
    FL_FIELDS_MAX      = 20,
    FL_ONLY_MAX        = 10,
    FL_NAMES_MAX       = 34,
    FL_WORDS_MAX       = 6,
    FL_FUSED_MAX       = 3,
    FL_HEAD_LAYERS_MAX = 4,
    FL_OLD_MAX         = 2
};

/* A key of config.json and the member of fl_encoder_desc that it fills. `keys` are spellings,
 * separated by spaces: the first that is there counts; "object.key" stands in an object. Sizes of 0 are filled in by
 * family.c: kv_heads with heads, head_dim with hidden / heads, embedding with hidden, intermediate with 4 hidden. */
typedef enum fl_field_kind {
    FL_FIELD_SIZE,
    FL_FIELD_REAL,
    FL_FIELD_BOOL,
    FL_FIELD_ACTIVATION,   /* also "swiglu", "geglu": only where mlp is FL_MLP_GLU */
    FL_FIELD_FEED_FORWARD, /* JinaBERT's word for activation and GLU: must be there */
    FL_FIELD_GATED_WORD,   /* T5's: "relu", or "gated-gelu" for a GLU of gelu_new */
    FL_FIELD_INVERSE_ROOT, /* 1 / √value */
    FL_FIELD_WORDS         /* fills nothing: an array or a string of exactly the words of `word` */
} fl_field_kind;
typedef struct fl_family_field {
    const char   *keys;
    size_t        at;
    fl_field_kind kind;
    double        fallback, min, max;
    const char   *word; /* fallback of an activation */
} fl_family_field;

/* `least` below 0: what is negative counts as 0. Bounds far above any model in use; products of two stay below 2^48. */
#define FL_SIZE(member, keys, fallback, least, most)                                               \
    { keys, offsetof(fl_encoder_desc, member), FL_FIELD_SIZE, fallback, least, most, NULL }
#define FL_HIDDEN(keys, fallback)       FL_SIZE(hidden, keys, fallback, 1, 65536)
#define FL_EMBEDDING(keys, fallback)    FL_SIZE(embedding, keys, fallback, 1, 65536)
#define FL_LAYERS(keys, fallback)       FL_SIZE(layers, keys, fallback, 1, 1024)
#define FL_HEADS(keys, fallback)        FL_SIZE(heads, keys, fallback, 1, 1024)
#define FL_KV_HEADS(keys, fallback)     FL_SIZE(kv_heads, keys, fallback, 1, 1024)
#define FL_HEAD_DIM(keys, fallback)     FL_SIZE(head_dim, keys, fallback, 1, 8192)
#define FL_MLP(keys, fallback)          FL_SIZE(intermediate, keys, fallback, 1, 1 << 20)
#define FL_VOCAB(keys, fallback)        FL_SIZE(vocab, keys, fallback, 1, 1 << 24)
#define FL_POSITIONS(keys, fallback)    FL_SIZE(positions, keys, fallback, 1, 1 << 24)
#define FL_TYPES(keys, fallback, least) FL_SIZE(types, keys, fallback, least, 65536)
#define FL_EPS(keys, fallback)                                                                     \
    { keys, offsetof(fl_encoder_desc, norm_eps), FL_FIELD_REAL, fallback, 0, 1, NULL }
#define FL_REAL(member, keys, fallback, least, below)                                              \
    { keys, offsetof(fl_encoder_desc, member), FL_FIELD_REAL, fallback, least, below, NULL }
#define FL_BOOL(member, keys, fallback)                                                            \
    { keys, offsetof(fl_encoder_desc, member), FL_FIELD_BOOL, fallback, 0, 1, NULL }
#define FL_ATTENTION_BIASES(key) FL_BOOL(qkv_bias, key, false), FL_BOOL(out_bias, key, false)
/* A masked language model's head; its activation is "gelu" unless a key names another. */
#define FL_MLM_TIED FL_BOOL(mlm_tied, "tie_word_embeddings", true)
#define FL_MLM_ACTIVATION(keys)                                                                    \
    { keys, offsetof(fl_encoder_desc, mlm_activation), FL_FIELD_ACTIVATION, 0, 0, 0, "gelu" }
#define FL_MLP_BIASES(key) FL_BOOL(up_bias, key, false), FL_BOOL(down_bias, key, false)
#define FL_ACTIVATION(keys, word)                                                                  \
    { keys, offsetof(fl_encoder_desc, activation), FL_FIELD_ACTIVATION, 0, 0, 0, word }

#define FL_FEED_FORWARD(keys)                                                                      \
    { keys, offsetof(fl_encoder_desc, activation), FL_FIELD_FEED_FORWARD, 0, 0, 0, NULL }
#define FL_GATED_WORD(keys, word)                                                                  \
    { keys, offsetof(fl_encoder_desc, activation), FL_FIELD_GATED_WORD, 0, 0, 0, word }
#define FL_INVERSE_ROOT(member, keys, fallback)                                                    \
    { keys, offsetof(fl_encoder_desc, member), FL_FIELD_INVERSE_ROOT, fallback, 1e-9, 1e9, NULL }

#define FL_WORDS(keys, words)                                                                      \
    { keys, 0, FL_FIELD_WORDS, 0, 0, 0, words }

/* A key with the values that this family's tables express, separated by '|'; null and absent keys
 * pass. Anything else is refused by name. "absent": the key may not be there; '=' in front: it must be; "*" any. */
typedef struct fl_only {
    const char *key, *values;
} fl_only;

/* The tensors: '*' stands for the layer's number, '?' for a 0 in what all layers share. A name that ends in '.' is a
 * module, whose "weight" goes to the slots and whose "bias" to those that follow them. Several slots share the
 * rows, in order; several names of a slot are dialects: the first that is there counts. */
typedef struct fl_name {
    const char *name;
    uint8_t     count;
    uint8_t     slot[FL_FUSED_MAX];
} fl_name;
#define FL_AT(name, ...)                                                                           \
    {                                                                                              \
        name, sizeof((uint8_t[]){__VA_ARGS__}), {                                                  \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* weights.c: what a name says, and a tensor that it names: "blk.*.attn_q." of layer 7 is "blk.7.attn_q.bias". */
enum { FL_NAME_BYTES = 256 };
bool fl_name_is_module(const fl_name *row);
bool fl_name_is_of_layers(const fl_name *row);
void fl_name_spell(char out[FL_NAME_BYTES], const fl_name *row, bool bias, uint32_t layer);

/* A layer of the family's ...ForSequenceClassification, after pooling. */
typedef struct fl_head_layer {
    const char         *name; /* a module, "classifier.", with the family's prefix or without */
    fl_stage_kind       kind; /* dense or layer norm, with the encoder's eps */
    fl_dense_activation activation;
    const char         *activation_key; /* config.json may name another; NULL: it may not */
    const char         *bias_key; /* config.json says whether there is one; NULL: always … */
    bool                unbiased; /* … or never */
} fl_head_layer;

typedef struct fl_family {
    const char *name;                      /* of messages and /info: the first model_type */
    const char *model_types[FL_WORDS_MAX]; /* of config.json */
    /* Of several families of one model_type the first whose marks are there is taken. */
    const char *mark_key, *mark_value;     /* config.json has this value ("*": any) */
    const char *mark_tensor;               /* the checkpoint has this tensor */
    const char *remote_code[FL_WORDS_MAX]; /* auto_map's AutoModel whose mathematics this is */
    fl_only     remote_needs;              /* where config.json says this; key NULL: always */
    bool        only_remote;               /* taken only with such an auto_map */
    const char *prefixes[FL_WORDS_MAX];    /* that names may carry: "bert." */
    bool        vocab_is_enough;           /* BERT: a vocab.txt makes the tokenizer */
    const char *tokenizer_class;    /* where no file names one; NULL: as the model_type is called */
    bool        tokenizer_forced;   /* transformers 5 makes that one, whatever the class */
    bool        tokenizer_as_saved; /* transformers takes tokenizer.json, whatever the class … */
    bool        llama_as_saved;     /* … or where that is LlamaTokenizer */
    const char *old_tokenizers[FL_OLD_MAX]; /* classes whose own files do for tokenizer.json */
    bool        untyped_pairs;              /* the tokenizer of its class makes no token types */

    const char
           *below; /* the object of config.json that tells of this network, where it is there … */
    fl_only above; /* … and what config.json itself has to say then; key NULL: nothing */
    const char     *kwargs; /* an object there whose keys change the network, too; NULL: none */
    fl_encoder_desc fixed;  /* switches that config.json does not tell */
    fl_family_field fields[FL_FIELDS_MAX];
    fl_only         only[FL_ONLY_MAX];
    const char     *padding_key; /* positions begin after the padding's row: its key, or "" for */
    uint32_t        padding;     /* this row always */
    bool            scale_embedding; /* by √hidden */
    const char     *causal_key;      /* fixed.distance[0].causal unless this key says otherwise: */
    bool            causal_inverted; /* true means not causal */

    struct { /* rotary positions; theta NULL: none */
        const char *theta;
        double      fallback;
        const char *local_theta; /* of the layers with a window; NULL: the same */
        double      local_fallback;
        const char *fraction; /* of head_dim that turns, where code of the Hub reads it … */
        double
            fraction_fallback; /* … or transformers does, as partial_rotary_factor too: its default */
        bool        ntk;       /* "ntk" of rope_scaling is GTE's fixed one */
        bool        yarn;      /* it may be "yarn" or "longrope", but not in code of the Hub */
        const char *growth;  /* beside the angles: queries grow behind the trained positions */
        const char *trained; /* longest position; the key of the next says that more is scaled */
        const char *stretch;
    } rope;
    struct { /* layers that see a window; window NULL: none */
        const char *window;
        uint32_t    fallback;
        bool        always; /* every layer, unless the key is null */
        bool        halved; /* the key counts both sides, where attention is not causal */
        const char *every;  /* a layer sees all when (number + shift) % value == 0 */
        uint32_t    every_fallback, shift;
    } window;
    const char *attending; /* layers may convolve: layer_types says which, else all but these; NULL:
                              none does */
    struct
    { /* the MLP has two thirds of what its key says, times a factor, made a whole multiple, unless `when` is
                false; NULL: what its key says */
        const char *when, *factor, *multiple;
    } narrowed;
    struct { /* mixtures of experts; count NULL: none */
        const char *count, *used, *every;
    } experts;
    struct
    { /* latents behind the layers, of which this object of config.json itself tells, also where it is not there;
                NULL: none */
        const char *object, *count, *heads, *dims;
        uint32_t    count_fallback, heads_fallback, dims_fallback;
    } latent;
    const char *
        ends_key; /* a text ends in the end token unless this of config.json itself is false; NULL: as the
                             tokenizer says */
    struct { /* adapters, one for each task; names NULL: none */
        const char *names, *rank, *alpha, *instructions;
        const char
            *folder; /* of peft's, in a folder of the task's name each; NULL: among the weights */
    } tasks;
    const char *own_pooling; /* code of its own pools so and normalises: modules.json need not say
                                so; NULL: none does */
    const char *
        projection; /* a matrix that every token is multiplied by before pooling, or a module, "head.", with
                        a bias; NULL: none */
    const char
        *end_key; /* what counts is the row of the first token of this id, nothing is pooled: … */
    int32_t     end;    /* … its default; key NULL: modules say what is pooled */
    bool        filled; /* instead: of a text filled up to the longest with padding, which is
                           attended to, the last row */
    const char *module; /* a class of its own that modules.json may name */
    bool        first_layer_unnormed; /* ModernBERT */
    bool by_heads; /* what shares a tensor lies in it head by head: q, k and v of the first, … */
    bool across;   /* the layers' matrices are [in, out] in the file: GPT-2's Conv1D */
    fl_name tensors[FL_NAMES_MAX];
    struct { /* of rerankers and classifiers; without layers there are none of this family */
        const char   *pooling_key;     /* "cls", "mean" or "avg", "last"; NULL: … */
        const char   *pooling;         /* … when absent this; NULL: "cls" */
        const char   *temperature_key; /* scores are over this; NULL: 1 */
        bool          last_token;      /* instead: decoders … */
        int32_t       padding; /* … that is not pad_token_id, when absent this; -1: none */
        fl_head_layer layers[FL_HEAD_LAYERS_MAX]; /* the last gives a score for each label */
    } head;
} fl_family;

/* Every family, in the order in which they are asked. */
#define FL_FAMILIES(X)                                                                             \
    X(jina_qk)                                                                                     \
    X(jina)                                                                                        \
    X(ernie_tasks)                                                                                 \
    X(bert)                                                                                        \
    X(mpnet)                                                                                       \
    X(jina5_nano)                                                                                  \
    X(jina5)                                                                                       \
    X(jina3_tasks)                                                                                 \
    X(jina_flash)                                                                                  \
    X(roberta)                                                                                     \
    X(roberta_prelayernorm)                                                                        \
    X(distilbert)                                                                                  \
    X(electra)                                                                                     \
    X(deberta)                                                                                     \
    X(deberta_v1)                                                                                  \
    X(bloom)                                                                                       \
    X(gpt2)                                                                                        \
    X(gpt_neox)                                                                                    \
    X(albert)                                                                                      \
    X(t5)                                                                                          \
    X(umt5)                                                                                        \
    X(clip)                                                                                        \
    X(siglip)                                                                                      \
    X(jina_clip)                                                                                   \
    X(nomic_moe)                                                                                   \
    X(nomic)                                                                                       \
    X(gte)                                                                                         \
    X(jina3)                                                                                       \
    X(modernbert)                                                                                  \
    X(voyage)                                                                                      \
    X(pplx)                                                                                        \
    X(splade_code)                                                                                 \
    X(qwen3_bidirectional)                                                                         \
    X(qwen3)                                                                                       \
    X(qwen2)                                                                                       \
    X(nvembed)                                                                                     \
    X(reasonir)                                                                                    \
    X(llama)                                                                                       \
    X(eurobert)                                                                                    \
    X(llama_bidirec)                                                                               \
    X(mistral)                                                                                     \
    X(ministral3)                                                                                  \
    X(gemma)                                                                                       \
    X(gemma2)                                                                                      \
    X(gemma3)                                                                                      \
    X(lfm2_bidirectional)                                                                          \
    X(lfm2)
#define FL_NAME(name) extern const fl_family fl_family_##name;
FL_FAMILIES(FL_NAME)
#undef FL_NAME

/* Fill *desc, which is zero or a former one whose layers are freed. `weights` tells variants apart
 * by their tensors; NULL: by config.json alone. EUNSUPPORTED names what is not known. */
/* Of a family with an end_key: that token's id. */
int fl_family_end(const fl_family *family, fl_json_reader *config, int32_t *end);
int fl_family_describe(const fl_family **family, fl_encoder_desc *desc, fl_json_reader *config,
                       const fl_safetensors *weights);

/* "key "value" is not supported": EUNSUPPORTED in config->status. */
void fl_family_refuse(fl_json_reader *config, const char *key, const char *value);

#endif
