/* SPDX-License-Identifier: Apache-2.0 */
/* lengths.c - how many tokens a text may have, whether it is lower-cased, and where the tokenizer
 * is.
 *
 * Role    model.c calls it once the transformer's folder and the usable positions are known.
 * In/Out  sentence_bert_config.json (and its older names) and tokenizer_config.json ->
 *         max_length, lowercase, tokenizer_path and the flags of a tokenizer that is only a
 *         vocab.txt.
 * Method  max_seq_length if it is set, else the smaller of the tokenizer's model_max_length and
 *         the usable positions; never more than the positions of a table (where sentence-transformers
 *         would fail on a long text) or than those beyond which rotary angles change. Positions by a
 *         formula are as many as max_seq_length says. Settings of that file that would change the network are
 *         refused. A static model has tokenizer.json alone, whose block "truncation" counts.
 * Memory  strings, owned by the model. Threads: during opening only.
 * Proof   tests/unit/test_model.c; tests/golden/test_folders.py. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_in.h"
#include "base/mem.h"
#include "model/model_private.h"

/* The first of these that is there and not empty counts, as in sentence-transformers. */
static const char *const sentence_configs[] = {
    "sentence_bert_config.json",       "sentence_roberta_config.json",
    "sentence_distilbert_config.json", "sentence_camembert_config.json",
    "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
};

enum { TOKENS_MAX = 1 << 24 }; /* as FL_POSITIONS allows */

/* What the two files say; 0 where they say nothing. */
typedef struct wishes {
    int64_t     sentence;        /* max_seq_length */
    const char *sentence_origin; /* static: a file name */
    int64_t     tokenizer;       /* model_max_length */
} wishes;

/* An object that may only hold keys that do not change the vectors. */
static void refuse_other_keys(fl_json_reader *reader, const char *key, const char *const *harmless,
                              size_t count) {
    FL_JSON_EACH(fl_json_object(reader, key), name, value) {
        (void)value;
        size_t i = 0;
        while (i < count && strcmp(harmless[i], name) != 0)
            i++;
        if (i == count) {
            fl_family_refuse(reader, key, name);
            return;
        }
    }
}

/* Settings that reach into transformers' classes, under their older and newer names. */
static void refuse_settings(fl_json_reader *reader, fl_model *model) {
    const bool               classifier   = model->own->classifier;
    static const char *const model_keys[] = {
        "torch_dtype",       "dtype",           "attn_implementation", "device_map",
        "low_cpu_mem_usage", "use_safetensors", "add_pooling_layer"};
    static const char *const tokenizer_keys[] = {"model_max_length", "use_fast", "padding_side",
                                                 "truncation_side"};
    const char *task   = fl_json_string(reader, "transformer_task", "feature-extraction");
    const char *rows   = model->own->logits             ? "causal_logits"
                         : classifier                   ? "scores"
                         : model->ends || model->filled ? "sentence_embedding"
                                                        : "token_embeddings";
    const char *usual  = model->own->logits ? "text-generation"
                         : classifier       ? "sequence-classification"
                                            : "feature-extraction";
    const char *output = fl_json_string(reader, "module_output_name", rows);
    if (strcmp(task, "fill-mask") == 0 && fl_head_rules_of(model)->vocabulary)
        model->own->fill_mask = true;
    else if (strcmp(task, usual) != 0)
        fl_family_refuse(reader, "transformer_task", task);
    if (strcmp(output, rows) != 0)
        fl_family_refuse(reader, "module_output_name", output);
    refuse_other_keys(reader, "config_args", NULL, 0);
    refuse_other_keys(reader, "config_kwargs", NULL, 0);
    refuse_other_keys(reader, "model_args", model_keys, sizeof model_keys / sizeof *model_keys);
    refuse_other_keys(reader, "model_kwargs", model_keys, sizeof model_keys / sizeof *model_keys);
    refuse_other_keys(reader, "tokenizer_args", tokenizer_keys,
                      sizeof tokenizer_keys / sizeof *tokenizer_keys);
    refuse_other_keys(reader, "processor_kwargs", tokenizer_keys,
                      sizeof tokenizer_keys / sizeof *tokenizer_keys);
}

/* What newer files hand to the tokenizer at every call: only what changes no token may stand there. */
static void refuse_processing(fl_json_reader *reader, bool pairs) {
    fl_json_reader all = fl_json_below(reader, "processing_kwargs");
    FL_JSON_EACH(all.object, part, arguments) {
        if (strcmp(part, "text") != 0 && strcmp(part, "common") != 0) {
            if (fl_json_count(arguments) > 0)
                fl_family_refuse(reader, "processing_kwargs", part);
            continue;
        }
        FL_JSON_EACH(arguments, name, value) {
            const char *word = fl_json_text(value);
            bool        pads = strcmp(name, "padding") == 0 || strcmp(name, "padding_side") == 0 ||
                        strcmp(name, "return_tensors") == 0;
            bool cuts = strcmp(name, "truncation") == 0 &&
                        (fl_json_true(value) ||
                         (word != NULL && (strcmp(word, "longest_first") == 0 ||
                                           (!pairs && strcmp(word, "only_first") == 0))));
            bool specials = strcmp(name, "add_special_tokens") == 0 && fl_json_true(value);
            if (!pads && !cuts && !specials)
                fl_family_refuse(reader, "processing_kwargs", name);
        }
    }
    fl_json_settle(reader, &all);
}

/* Pairs are messages of a chat, and the template is in the folder. */
static void read_messages(fl_json_reader *modality, fl_model *model, fl_json_reader *reader) {
    fl_json_reader message = fl_json_below(modality, "message");
    const char    *format  = fl_json_string(&message, "format", "structured");
    bool           found   = false;
    if (strcmp(format, "flat") != 0)
        fl_family_refuse(&message, "format of messages", format);
    reader->status =
        message.status != 0 ? message.status : fl_chat_read(model, &found, reader->error);
    if (reader->status == 0 &&
        (!fl_chat_has(model, FL_CHAT_QUERY) || !fl_chat_has(model, FL_CHAT_DOCUMENT)))
        reader->status = fl_fail(
            reader->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: the chat template %s.",
            reader->source, found ? "lacks the message of a query or of a document" : "is missing");
}

/* Newer files say which output of the network is the tokens' rows: the last layer's, or logits. */
static void refuse_outputs(fl_json_reader *reader, fl_model *model) {
    fl_json_reader modality = fl_json_below(reader, "modality_config");
    fl_json_reader text     = fl_json_below(&modality, "text");
    bool           logits =
        model->own->classifier || model->own->logits || fl_head_rules_of(model)->vocabulary;
    const char *wanted = logits                         ? "logits"
                         : model->ends || model->filled ? "pooler_output"
                                                        : "last_hidden_state";
    const char *output = fl_json_string(&text, "method_output_name", wanted);
    if (strcmp(output, wanted) != 0)
        fl_family_refuse(&text, "method_output_name", output);
    fl_json_settle(reader, &text);
    if (reader->status == 0 && fl_head_rules_of(model)->pairs && fl_json_has(&modality, "message"))
        read_messages(&modality, model, reader);
}

/* model_max_length inside tokenizer_args wins over max_seq_length, truncation_side over tokenizer_config's. */
static int64_t read_tokenizer_args(fl_json_reader *reader, fl_model *model, int64_t fallback) {
    static const char *const keys[] = {"tokenizer_args", "processor_kwargs"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        fl_json_reader args = fl_json_below(reader, keys[i]);
        fallback            = fl_json_int(&args, "model_max_length", fallback, 1, INT64_MAX);
        const char *side    = fl_json_string(&args, "truncation_side", NULL);
        if (side != NULL)
            model->cut_side = strcmp(side, "left") == 0 ? "left" : "right";
        fl_json_settle(reader, &args);
    }
    return fallback;
}

static int read_sentence_config(fl_model *model, wishes *out, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader reader = {.object = NULL};
    for (size_t i = 0; i < sizeof sentence_configs / sizeof *sentence_configs; i++) {
        fl_json_free(reader.object); /* an empty one */
        out->sentence_origin = sentence_configs[i];
        FL_TRY(
            fl_model_read_json(&reader, path, model->own->transformer, sentence_configs[i], error));
        if (fl_json_count(reader.object) > 0)
            break;
    }
    if (fl_json_count(reader.object) == 0) {
        fl_json_free(reader.object);
        return 0;
    }
    out->sentence    = fl_json_int(&reader, "max_seq_length", 0, 1, INT64_MAX);
    out->sentence    = read_tokenizer_args(&reader, model, out->sentence);
    model->lowercase = fl_json_bool(&reader, "do_lower_case", false);
    fl_late_lengths(model, &reader);
    refuse_settings(&reader, model);
    refuse_outputs(&reader, model);
    refuse_processing(&reader, fl_head_rules_of(model)->pairs);
    fl_json_free(reader.object);
    return reader.status;
}

/* tokenizer_config.json: the length, and the BERT switches that a vocab.txt needs. */
static int read_tokenizer_config(fl_model *model, wishes *out, fletch_error *error) {
    fl_json_reader reader;
    FL_TRY(fl_model_read_tokenizer_config(model, &reader, error));
    out->tokenizer            = fl_json_int(&reader, "model_max_length", 0, 1, INT64_MAX);
    model->bert_lowercase     = fl_json_bool(&reader, "do_lower_case", true);
    model->bert_strip_accents = fl_json_bool(&reader, "strip_accents", model->bert_lowercase);
    model->bert_chinese_chars = fl_json_bool(&reader, "tokenize_chinese_chars", true);
    if (model->tokenizer_is_vocab) {
        const char *class_name =
            fl_json_string(&reader, "tokenizer_class",
                           model->config_class != NULL ? model->config_class : "BertTokenizer");
        if (strcmp(class_name, "BertTokenizer") != 0 &&
            strcmp(class_name, "BertTokenizerFast") != 0)
            fl_family_refuse(&reader, "tokenizer_class without tokenizer.json", class_name);
        if (!fl_json_bool(&reader, "do_basic_tokenize", true))
            fl_family_refuse(&reader, "do_basic_tokenize", "false");
    }
    return reader.status;
}

/* No file that can be read: SentencePiece's own is told by its name. */
static int no_tokenizer(const char *folder, fletch_error *error) {
    static const char *const pieces[] = {"sentencepiece.bpe.model", "spiece.model",
                                         "tokenizer.model"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        char path[FL_MODEL_PATH_MAX];
        if (fl_file_find(path, sizeof path, folder, pieces[i], error) > 0)
            return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s has %s and no tokenizer.json. Write it once, in that folder: "
                           "python -c \"from transformers import AutoTokenizer as T; "
                           "T.from_pretrained('.').backend_tokenizer.save('tokenizer.json')\"",
                           folder, pieces[i]);
    }
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%s has neither tokenizer.json nor vocab.txt. If it has another kind of "
                   "vocabulary, save the tokenizer once with transformers >= 4 to get "
                   "tokenizer.json.",
                   folder);
}

int fl_tokenizer_files_read(fl_model *model, const fl_family *family, fletch_error *error) {
    char        path[FL_MODEL_PATH_MAX];
    const char *folder = model->own->transformer;
    int         there  = fl_file_find(path, sizeof path, folder, "tokenizer.json", error);
    if (there == 0 && !model->is_static) {
        there                 = fl_old_tokenizer_read(model, family, path, error);
        model->tokenizer_made = there > 0;
    }
    if (there == 0 && !model->is_static) {
        there                     = fl_file_find(path, sizeof path, folder, "vocab.txt", error);
        model->tokenizer_is_vocab = true;
    }
    if (there < 0)
        return there;
    if (there == 0)
        return no_tokenizer(folder, error);
    if (model->tokenizer_is_vocab && family != NULL && !family->vocab_is_enough)
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s has no tokenizer.json, and a vocab.txt is enough only for bert, not for %s.",
            folder, family->name);
    model->tokenizer_path = fl_strdup(path);
    return model->tokenizer_path != NULL ? 0 : fl_fail_nomem(error, strlen(path), "a path");
}

/* The block "truncation" of tokenizer.json, NULL where there is none. No tree is made of the rest: the
 * tokenizer makes it, and tells what is damaged. */
static int read_truncation(const char *path, fl_json **out, fletch_error *error) {
    fl_buf     file = {0};
    fl_json_in in;
    fl_span    key, raw = {0};
    bool       found  = false;
    int        status = fl_file_read(path, FL_TOKENIZER_BYTES_MAX, &file, error);
    if (status < 0) {
        fl_buf_free(&file);
        if (status == FLETCH_EINVAL &&
            error != NULL) /* too large, or a folder: the file is at fault */
            error->code = FLETCH_EMODEL;
        return status == FLETCH_EINVAL ? FLETCH_EMODEL : status;
    }
    fl_json_in_begin(&in, file.data, file.size);
    if (fl_json_in_enter(&in, FL_JSON_OBJECT))
        while (!found && fl_json_in_key(&in, &key)) {
            found = fl_span_is(key, "truncation");
            fl_json_in_skip(&in, &raw);
        }
    if (in.failed)
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s (line %zu)", path,
                         in.message, in.line);
    else if (found)
        status = fl_json_parse(out, raw.data, raw.size, raw.size, 0, path, error);
    fl_buf_free(&file);
    if (status == 0 && *out != NULL && !fl_json_is(*out, FL_JSON_OBJECT))
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                         "%s: \"truncation\" is neither an object nor null", path);
    return status;
}

/* StaticEmbedding reads tokenizer.json alone, and leaves its block "truncation" in force. */
static int read_static(fl_model *model, uint32_t limit, fletch_error *error) {
    fl_json *block                  = NULL;
    model->max_length               = limit;
    model->max_length_source.origin = "the table's width";
    int status                      = read_truncation(model->tokenizer_path, &block, error);
    if (status != 0) {
        fl_json_free(block);
        return status;
    }
    fl_json_reader cut      = {.object = block, .source = model->tokenizer_path, .error = error};
    int64_t        wanted   = fl_json_int(&cut, "max_length", limit, 1, INT64_MAX);
    int64_t        stride   = fl_json_int(&cut, "stride", 0, 0, INT64_MAX);
    const char    *side     = fl_json_string(&cut, "direction", "Right");
    const char    *strategy = fl_json_string(&cut, "strategy", "LongestFirst");
    if (stride != 0)
        fl_family_refuse(&cut, "truncation stride", "not 0");
    if (strcmp(strategy, "LongestFirst") != 0 && strcmp(strategy, "OnlyFirst") != 0)
        fl_family_refuse(&cut, "truncation strategy", strategy);
    if (strcmp(side, "Left") == 0)
        model->cut_side = "left";
    if (wanted < limit) {
        model->max_length               = (uint32_t)wanted;
        model->max_length_source.origin = "tokenizer.json: truncation";
    }
    fl_json_free(block);
    return cut.status;
}

/* Whether a text that is longer than config.json speaks of is computed by the same formula. */
static bool is_unbounded(const fl_model *model) {
    const fl_encoder_desc *desc  = &model->encoder.desc;
    bool                   plain = desc->position == FL_POSITION_NONE && !fl_onnx_only(model);
    for (size_t i = 0; i < FL_RULES_MAX; i++)
        plain = plain && !desc->rope[i].ends &&
                (desc->rope[i].scaling != FL_ROPE_DEFAULT || desc->rope[i].trained == 0);
    return plain;
}

/* What says how long a text may be beyond the usual positions: sentence-transformers' file; of T5, whose config.json
 * knows no length, the tokenizer's too. */
static int64_t asked_length(const fl_model *model, const wishes *wish) {
    const fl_encoder_desc *desc    = &model->encoder.desc;
    bool                   buckets = desc->position == FL_POSITION_NONE && fl_t5_rows(desc) > 0;
    return wish->sentence != 0 || !buckets || wish->tokenizer > TOKENS_MAX ? wish->sentence
                                                                           : wish->tokenizer;
}

int fl_lengths_read(fl_model *model, uint32_t positions, fletch_error *error) {
    wishes  wish  = {0};
    int64_t limit = positions == 0 ? UINT32_MAX : positions;
    if (model->is_static)
        return read_static(model, (uint32_t)limit, error);
    FL_TRY(read_tokenizer_config(model, &wish, error));
    if (model->own->has_modules)
        FL_TRY(read_sentence_config(model, &wish, error));
    const int64_t asked = asked_length(model, &wish);
    if (positions > 0 && asked > limit && is_unbounded(model)) {
        limit                         = asked < TOKENS_MAX ? asked : TOKENS_MAX;
        model->encoder.desc.positions = (uint32_t)limit;
    }
    int64_t     wanted = wish.sentence != 0 ? wish.sentence : wish.tokenizer;
    const char *origin = wish.sentence != 0 ? wish.sentence_origin : "tokenizer_config.json";
    if (wanted == 0 || wanted > limit) {
        origin =
            model->own->bare ? "default: no config.json" : "config.json: max_position_embeddings";
        wanted = limit;
    }
    model->max_length               = (uint32_t)wanted;
    model->max_length_source.origin = origin;
    return 0;
}
