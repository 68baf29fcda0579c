/* SPDX-License-Identifier: Apache-2.0 */
/* pair_code.c - rerankers whose own code makes one text of a query and a document, which no file of the folder says.
 *
 * Role    scores.c asks first where a folder has no modules.json.
 * In/Out  auto_map of config.json -> the pieces of model->chat, and what is read: one token's logit, or the
 *         network's own head (llama_bidirec).
 * Method  The text as a chat template, so that all that is done for those is done here. zerank:
 *         sigmoid(logit("Yes") / 5) of a chat whose system message is the query; its code cuts both texts by
 *         characters and strips them as Python does.
 * Memory  model->chat. Threads: during opening only.
 * Proof   tests/golden/test_language.py. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "model/model_private.h"

#define MESSAGE(role)                                                                              \
    "{{messages|selectattr('role','eq','" role "')|map(attribute='content')|first}}"

typedef struct pair_code {
    const char *code, *architecture; /* "module.Class" in auto_map; the end of architectures' */
    const char *text;
    const char *token;           /* whose logit is the score … */
    float       divisor;         /* … over this; token NULL: the network's head makes it */
    uint32_t    query, document; /* characters that count; 0: all */
} pair_code;

static const pair_code codes[] = {
    {"modeling_zeranker.ZEConfig", "ForCausalLM",
     "<|im_start|>system\n" MESSAGE("query") "<|im_end|>\n<|im_start|>user\n" MESSAGE(
         "document") "<|im_end|>\n<|im_start|>assistant\n\n", /* Jinja takes a line's end off */
     "Yes", 5, 2000, 10000},
    {"llama_bidirectional_model.LlamaBidirectionalForSequenceClassification",
     "ForSequenceClassification",
     "question:" MESSAGE("query") " \n \n passage:" MESSAGE("document"), NULL, 1, 0, 0},
};

/* "repository--module.Class"; a local copy leaves the repository out. */
static bool is_code(fl_json *map, const char *key, const char *code) {
    const char *text = fl_json_text(fl_json_get(map, key)), *bare;
    if (text != NULL && (bare = strstr(text, "--")) != NULL)
        text = bare + 2;
    return text != NULL && strcmp(text, code) == 0;
}

static const pair_code *find(fl_json *config) {
    fl_json    *map  = fl_json_get(config, "auto_map");
    const char *kind = fl_json_text(fl_json_item(fl_json_get(config, "architectures"), 0));
    for (size_t i = 0; map != NULL && kind != NULL && i < sizeof codes / sizeof *codes; i++)
        if (fl_path_ends_with(kind, codes[i].architecture) &&
            (is_code(map, "AutoConfig", codes[i].code) ||
             is_code(map, "AutoModelForSequenceClassification", codes[i].code)))
            return &codes[i];
    return NULL;
}

int fl_pair_code_find(fl_model *model, fl_json *config, fletch_error *error) {
    const pair_code *code = find(config);
    fl_buf           text = {0};
    if (code == NULL)
        return 0;
    fl_buf_puts(&text, code->text);
    int status = text.failed ? fl_fail_nomem(error, strlen(code->text), "a chat template")
                             : fl_chat_compile(model, &text, code->code, error);
    fl_buf_free(&text);
    FL_TRY(status);
    for (uint32_t i = 0; i < model->chat_count; i++)
        model->chat[i].most = model->chat[i].kind == FL_CHAT_QUERY      ? code->query
                              : model->chat[i].kind == FL_CHAT_DOCUMENT ? code->document
                                                                        : 0;
    model->head            = FL_HEAD_SCORES;
    model->own->classifier = code->token == NULL;
    if (code->token == NULL)
        return 0;
    model->activation               = FL_DENSE_SIGMOID;
    model->activation_source.origin = code->code;
    return fl_causal_take(model, code->token, NULL, code->divisor, error);
}
