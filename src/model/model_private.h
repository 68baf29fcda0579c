/* SPDX-License-Identifier: Apache-2.0 */
/* model_private.h - what the files of this room that read one folder share. */
#ifndef FL_MODEL_MODEL_PRIVATE_H
#define FL_MODEL_MODEL_PRIVATE_H

#include "base/json.h"
#include "base/log.h"
#include "model/family.h"
#include "model/model.h"
#include "model/safetensors.h"

/* Configuration files are some kilobytes; a tokenizer_config.json with many added tokens, a
 * megabyte. */
enum { FL_CONFIG_BYTES_MAX = 32 * 1024 * 1024, FL_MODEL_PATH_MAX = 4096 };

/* Which of the adapters, and how it is added. */
typedef struct fl_model_task {
    uint32_t    index, count, rank;
    float       scale;
    const char *instruction; /* its prompt where the folder names none so; or NULL */
} fl_model_task;

struct fl_model_private {
    fl_safetensors   *weights; /* owned; NULL without weights */
    fl_model_task     task;
    fl_adapter       *adapters; /* owned list */
    fl_packed_matrix *packed;   /* owned list */
    const char       *module;   /* a class in modules.json that is a family's own; or NULL */
    char            **kept;     /* owned strings that the model points to */
    size_t            kept_count, kept_room;
    char             *transformer; /* owned: folder of config.json, tokenizer and weights */
    char             *base;        /* owned: of config.json and the weights: that one, but for
                                              an adapter's (peft.c) */
    fl_safetensors   *peft;        /* owned: its matrices; NULL: there is none */
    double            peft_alpha;
    uint32_t          peft_rank;    /* of every matrix; 0: of each its own */
    const char       *peft_library; /* whose class it was trained on, or NULL: auto_mapping */
    bool              peft_root;    /* alpha is divided by the root of the rank */
    size_t            peft_taken;   /* tensors of it that matrices took */
    const char       *own_pooling;  /* of the family's code: modules.json lists none */
    const char       *tokenizer_config_path; /* kept; NULL: not asked for yet */
    const fl_tensor  *projection;            /* of every token, before pooling; NULL: none */
    const char       *projection_name;       /* what it is called */
    const char       *projection_bias;       /* likewise; NULL: it has none */
    bool              gated;                 /* static: a gate is behind the table */
    void             *table;                 /* owned: such a table, unpacked; or NULL */
    bool              has_modules;           /* modules.json is there */
    bool              bare;                  /* an .onnx file and no config.json */
    bool              scored;                /* a module has written the scores */
    bool              classifier; /* scores come from the network's own head, not from modules */
    bool              fill_mask;  /* the transformer has its vocabulary head */
    bool              pylate; /* late interaction as PyLate saves it: it does what no module says */
    bool              masks;  /* a MultiVectorMask is there */
    char       *queries; /* owned: folder of the table that queries are looked up in; or NULL */
    bool        logits;  /* scores are logits of a language model: */
    int64_t     true_token, false_token; /* of these tokens; -1: none */
    float       divisor;                 /* of their difference */
    const char *prefix[2]; /* of PyLate, before the prompts of queries and documents; NULL: none */
};

/* Keep a formatted string as long as the model; ENOMEM speaks of `purpose`, and *out is NULL then. */
int fl_model_keep(fl_model *model, const char **out, const char *purpose, fletch_error *error,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Read folder/name as a JSON object, which the caller frees: out->object is NULL, without error, when there is no
 * such file. `path` [FL_MODEL_PATH_MAX] gets the joined name, which messages use. */
int fl_model_read_json(fl_json_reader *out, char *path, const char *folder, const char *name,
                       fletch_error *error);

/* tokenizer_config.json of the transformer's folder, read once; *out has no object where there is none. */
int fl_model_read_tokenizer_config(fl_model *model, fl_json_reader *out, fletch_error *error);

/* modules.c: modules.json, or what stands in for it. First the transformer's folder, then the
 * rest. Of a Router's routes the document's are the modules: router.c. */
enum { FL_MODULES_MAX = 32 };
typedef struct fl_module {
    const char *type, *path; /* of a tree below, or the model's */
} fl_module;
typedef struct fl_modules {
    fl_json  *root;   /* NULL without modules.json */
    fl_json  *router; /* router_config.json, or NULL */
    fl_module list[FL_MODULES_MAX];
    size_t    count;
    char      path[FL_MODEL_PATH_MAX]; /* of the file that they stand in */
} fl_modules;
int fl_modules_open(fl_modules *modules, fl_model *model, const fl_model_options *options,
                    fletch_error *error);
/* A class of somebody's own as the first module is only known with its family. */
int fl_modules_check(const fl_modules *modules, const fl_model *model, const fl_family *family,
                     fletch_error *error);
int fl_modules_read(const fl_modules *modules, fl_model *model, const fl_model_options *options,
                    fletch_error *error);
/* What a family multiplies every token by, before pooling: own->projection. */
int  fl_projection_find(fl_model *model, const fl_family *family, fletch_error *error);
void fl_modules_close(fl_modules *modules);
/* Whether module `index` is there and of that kind: the last component of its type. */
bool fl_modules_kind(const fl_modules *modules, size_t index, const char *kind);

/* router.c: the routes of a Router in `path` of the folder: modules->list becomes the document's, model->lookup
 * says what the query's is; or the list is that of the route `task` ("": "text"). Then, once the document's files
 * are read, whether both know the same tokens. */
int fl_router_open(fl_modules *modules, fl_model *model, const char *path, const char *task,
                   fletch_error *error);
int fl_router_check(fl_model *model, fletch_error *error);

/* pooling.c: the modes of a pooling configuration, and names. */
int fl_pooling_read(fl_model *model, const char *folder, const char *module, fletch_error *error);
int fl_pooling_override(fl_model *model, const char *text, fletch_error *error);
/* This mode alone; `origin` is who says so. */
void fl_pooling_set(fl_model *model, fl_pooling pooling, const char *origin);

/* dense.c: one stage from a module's folder; `width` is what comes in. What a module reads and writes is
 * the feature `own`, FL_SENTENCE or FL_TOKENS; a Dense may write `output` instead (NULL: it may not), and
 * *writes_it says whether it does. */
#define FL_SENTENCE "sentence_embedding"
#define FL_TOKENS   "token_embeddings"
int  fl_dense_read(fl_stage *stage, const char *folder, uint32_t width, const char *own,
                   const char *output, bool *writes_it, fletch_error *error);
void fl_stage_free(fl_stage *stage); /* what it holds */
/* config.json of a module, which must be there; freed as that of fl_model_read_json. */
int fl_module_config_read(fl_json_reader *out, char *path, const char *folder, fletch_error *error);
/* The gate of a static table of `width` columns. */
int fl_gate_read(fl_stage *stage, const fl_safetensors *file, const char *folder, uint32_t width,
                 fletch_error *error);
int fl_layer_norm_read(fl_stage *stage, const char *folder, uint32_t width, fletch_error *error);
/* A module that reads or writes another feature is another network; `fallback` is what one reads that
 * does not say. */
void fl_refuse_other_features(fl_json_reader *reader, const char *own, const char *fallback);

/* "torch.nn.modules.activation.Tanh"; false: not known. */
bool fl_dense_activation_of(const char *path, fl_dense_activation *out);
/* A tensor of exactly rows x columns (columns 0: a vector of rows) as new float32 memory. */
int fl_dense_load(float **out, const fl_safetensors *file, const char *folder, const char *name,
                  uint64_t rows, uint64_t columns, fletch_error *error);

/* scores.c: head and own->classifier, once modules.json is open; then, when the weights are there,
 * what becomes of a row: stages, labels, activation. */
int fl_scores_find(fl_model *model, const fl_modules *modules, fletch_error *error);
int fl_scores_read(fl_model *model, const fl_family *family, fletch_error *error);

/* pair_code.c: the head and the text of a pair, where config.json names code that is known to make one. */
int fl_pair_code_find(fl_model *model, fl_json *config, fletch_error *error);

/* chat_template.c: the folder's chat template as pieces; *found: there is one. EUNSUPPORTED names what
 * it has that is not known. */
int fl_chat_read(fl_model *model, bool *found, fletch_error *error);
/* The pieces of a text that is not empty, which changes; `source` is for messages. */
int  fl_chat_compile(fl_model *model, fl_buf *text, const char *source, fletch_error *error);
bool fl_chat_has(const fl_model *model, fl_chat_kind kind);

/* causal_scores.c: whether a plain language model reranks; a LogitScore's folder; its pooling; the score,
 * when the weights are there (`tied`: the vocabulary's matrix is the word table). */
int fl_causal_find(fl_model *model, fletch_error *error);
/* It reranks by logit(yes) - logit(no), or the first alone (no: NULL), over `divisor`. */
int  fl_causal_take(fl_model *model, const char *yes, const char *no, float divisor,
                    fletch_error *error);
int  fl_causal_module(fl_model *model, const char *folder, fletch_error *error);
void fl_causal_pool(fl_model *model);
int  fl_causal_read(fl_model *model, bool tied, fletch_error *error);

/* late_interaction.c: whether token vectors are for late interaction, and what older files say of them; what
 * sentence_bert_config.json says; a MultiVectorMask's folder; then, when the weights are there and the
 * modules read, the rest. fl_late_names says whether a module's type is one of PyLate's. */
int  fl_late_find(fl_model *model, const fl_modules *modules, fletch_error *error);
int  fl_late_prompts(fl_model *model, fletch_error *error);
void fl_late_lengths(fl_model *model, fl_json_reader *sentence);
int  fl_late_mask(fl_model *model, const char *folder, fletch_error *error);
int  fl_late_finish(fl_model *model, fletch_error *error);
bool fl_late_names(const char *type);
enum { FL_LATE_STAGES = 2 }; /* that fl_late_finish may add */

/* token_heads.c: bge-m3's further heads, when the rest is read; `pooling` is what the user asks for, may be NULL. */
#define FL_POOLING_COLBERT "colbert"
int fl_token_heads_read(fl_model *model, const char *pooling, fletch_error *error);

/* lengths.c: how long a text may be; `positions` 0 when the architecture is not known. */
int fl_lengths_read(fl_model *model, uint32_t positions, fletch_error *error);
/* The tokenizer's files. */
int fl_tokenizer_files_read(fl_model *model, const fl_family *family, fletch_error *error);

/* onnx_only.c: the folder's model is an .onnx file and nothing else, and what config.json says
 * of it. */
bool fl_onnx_only(const fl_model *model);
int  fl_onnx_sizes_read(fl_encoder_desc *desc, fl_json_reader *config);
/* The same without config.json, by the file's outputs and the tokenizer's settings. */
int fl_onnx_sizes_guess(fl_model *model, fletch_error *error);
/* The output that an engine takes: its width, 0 where none will do or has a fixed one, and whether the
 * file pools by itself. */
typedef struct fl_onnx_output {
    uint32_t width;
    bool     pooled;
} fl_onnx_output;
void fl_onnx_output_read(const fl_model *model, fl_onnx_output *out);

/* prompts.c: config_sentence_transformers.json. */
int fl_prompts_read(fl_model *model, fletch_error *error);

/* weight_files.c: what the weights are as files, for people; what cannot be read is told as 0. */
void fl_weight_files_read(fl_model *model);

/* static.c: the weights of a table with a gate; then a model whose first module is a StaticEmbedding or that. */
int fl_static_open(fl_model *model, fletch_error *error);
int fl_static_read(fl_model *model, fletch_error *error);

/* task.c: the task of model.task, where the family has tasks: ECONFIG when it is none of them. Then,
 * whatever the folder is: ECONFIG when there is a task and nothing to choose by it. */
int fl_task_read(fl_model *model, const fl_family *family, fl_json_reader *config,
                 const fl_model_options *options);
int fl_task_check(const fl_model *model, const fl_model_options *options, fletch_error *error);
/* The adapter of tensor `prefix``name`, `whole`, for `part`, its rows from `first`; none where there is none.
 * `table`: the rows are looked up, not multiplied. */
int  fl_task_adapt(fl_model *model, const char *prefix, const char *name, const fl_tensor *whole,
                   uint64_t first, bool table, fl_tensor *part, fletch_error *error);
void fl_task_close(fl_model *model);
/* own->adapters = scale * left[from left_row on, rank] * right[rank rows from right_row on, columns]. */
int fl_adapter_add(fl_model *model, const fl_tensor *right, uint64_t right_row,
                   const fl_tensor *left, uint64_t left_row, float scale, fletch_error *error);

/* packed.c: quantised matrices of own->weights under their names, as config.json's quantization_config has them;
 * EUNSUPPORTED for what is not read, EMODEL for damage. */
int  fl_packed_gather(fl_model *model, fl_json_reader *config);
void fl_packed_free(fl_model *model);

/* peft.c: own->base, and what adapter_config.json says where the folder has one. Then as fl_task_adapt, for a matrix
 * whose name ends in ".weight"; then, whether all of the adapter was taken. */
int fl_peft_open(fl_model *model, const fl_model_options *options, fletch_error *error);
/* The adapter of model->task, in a folder of its name below `folder` of the transformer's; `weighed`: its matrices. */
int fl_peft_open_task(fl_model *model, const char *folder, bool weighed, fletch_error *error);
int fl_peft_adapt(fl_model *model, const char *prefix, const char *name, const fl_tensor *whole,
                  uint64_t first, fl_tensor *part, fletch_error *error);
int fl_peft_finish(fl_model *model, const fl_family *family, fletch_error *error);

/* old_tokenizer.c: model->tokenizer_text from what a folder has in the place of tokenizer.json; `path` is its file. 1:
 * made; 0: nothing that a class of its family (NULL: none) is made of. */
int fl_old_tokenizer_read(fl_model *model, const fl_family *family, char path[FL_MODEL_PATH_MAX],
                          fletch_error *error);

/* gguf_model.c: model->folder is such a file. Then, whether `folder` holds one: how many, at most 1, whose path
 * goes to `path`; EINVAL when there are several. */
int fl_gguf_model_read(fl_model *model, const fl_model_options *options, fletch_error *error);
int fl_gguf_in_folder(const char *folder, char *path, size_t capacity, fletch_error *error);

/* weights.c: every slot of the encoder, its shape checked. `names` are the tensors' instead of the family's, and
 * then every tensor of the file must be used; NULL: the family's. */
int fl_weights_read(fl_model *model, const fl_family *family, const fl_name *names,
                    const fl_log *log, fletch_error *error);
/* Whether a tensor of the file is in a slot: not a pooler or a head. */
bool fl_weights_uses(const fl_model *model, const fl_tensor *tensor);
/* The prefix of the folder's names: one of the family's, or "". */
const char *fl_weights_prefix(fl_model *model, const fl_family *family);

#endif
