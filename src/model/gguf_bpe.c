/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_bpe.c - byte-level BPE: the name of a pre-tokenizer becomes the steps of the repository that it stands for.
 *
 * tokenizer.ggml.pre names a split and, through the model that it was named after, what is normalised before; the
 * flags of the metadata say the rest. A name that is not in the table is refused: a split that is nearly right
 * gives other ids. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/gguf_arch.h"

static const fl_gguf_pre *find_pre(fl_gguf_maker *m) {
    char    known[200] = "";
    fl_span name;
    if (!fl_gguf_text(fl_gguf_key(m, "pre"), &name)) {
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "pre",
                       "is missing, and it decides the ids; convert the model again");
        return NULL;
    }
    for (const fl_gguf_pre *pre = fl_gguf_pres; pre->name != NULL; pre++) {
        if (fl_span_is(name, pre->name))
            return pre;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                 known[0] == '\0' ? "" : ", ", pre->name);
    }
    if (m->status == 0)
        m->status = fl_fail(m->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                            "%s: tokenizer.ggml.pre \"%.*s\" is not supported; fletch knows %s.",
                            m->source, (int)(name.size < 60 ? name.size : 60), name.data, known);
    return NULL;
}

static void put_merges(fl_gguf_maker *m) {
    const fl_gguf_value *list = fl_gguf_key(m, "merges");
    if (list == NULL || !list->array || list->type != FL_GGUF_TEXT) {
        fl_gguf_refuse(m, FLETCH_EMODEL, "merges", "is not a list of texts");
        return;
    }
    const unsigned char *at = list->data;
    fl_json_w_array(&m->w, "merges");
    for (uint64_t i = 0; i < list->count; i++) {
        fl_span merge = fl_gguf_next(&at);
        fl_json_w_bytes(&m->w, NULL, merge.data, merge.size);
    }
    fl_json_w_end(&m->w);
}

void fl_gguf_make_bpe(fl_gguf_maker *m) {
    const fl_gguf_pre *pre   = find_pre(m);
    bool               lower = fl_gguf_switch(m, "normalizer.lowercase", false);
    bool               strip = fl_gguf_switch(m, "normalizer.strip_accents", false);
    if (pre == NULL)
        return;
    if (strip || (lower && pre->nfc))
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "normalizer", "of a byte-level BPE changes letters");
    fl_gguf_around(m);
    if (m->status != 0)
        return;
    m->lstripped = pre->lstripped;
    if (lower || pre->nfc) {
        fl_tokenizer_put_step(&m->w, "normalizer", lower ? "Lowercase" : "NFC");
        fl_json_w_end(&m->w);
    }
    fl_json_w_raw(&m->w, "pre_tokenizer");
    fl_buf_puts(m->w.out, pre->steps);
    fl_tokenizer_put_step(&m->w, "decoder", "ByteLevel");
    fl_json_w_end(&m->w);
    fl_gguf_put_template(m);
    fl_gguf_put_added(m, NULL);
    fl_tokenizer_put_step(&m->w, "model", "BPE");
    fl_json_w_bool(&m->w, "ignore_merges", pre->ignores_merges);
    fl_gguf_put_vocab(m, NULL);
    put_merges(m);
    fl_json_w_end(&m->w);
}
