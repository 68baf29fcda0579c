/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_text.c - see tokenizer_text.h. */
#include "model/tokenizer_text.h"

void fl_tokenizer_put_step(fl_json_w *w, const char *key, const char *type) {
    fl_json_w_object(w, key);
    fl_json_w_text(w, "type", type);
}

void fl_tokenizer_put_map(fl_json_w *w, const char *key, const unsigned char *map, size_t size) {
    fl_tokenizer_put_step(w, key, "Precompiled");
    fl_json_w_raw(w, "precompiled_charsmap");
    fl_buf_base64(w->out, map, size);
    fl_json_w_end(w);
}

void fl_tokenizer_put_metaspace(fl_json_w *w, const char *key) {
    fl_tokenizer_put_step(w, key, "Metaspace");
    fl_json_w_text(w, "replacement", "\xE2\x96\x81");
    fl_json_w_text(w, "prepend_scheme", "always");
    fl_json_w_bool(w, "split", true);
    fl_json_w_end(w);
}

void fl_tokenizer_put_added(fl_json_w *w, int64_t id, fl_span content, bool lstrip, bool normalized,
                            bool special) {
    fl_json_w_object(w, NULL);
    fl_json_w_i64(w, "id", id);
    fl_json_w_bytes(w, "content", content.data, content.size);
    fl_json_w_bool(w, "single_word", false);
    fl_json_w_bool(w, "lstrip", lstrip);
    fl_json_w_bool(w, "rstrip", false);
    fl_json_w_bool(w, "normalized", normalized);
    fl_json_w_bool(w, "special", special);
    fl_json_w_end(w);
}

void fl_tokenizer_put_part(fl_json_w *w, const char *kind, const char *id, unsigned type) {
    fl_json_w_object(w, NULL);
    fl_json_w_object(w, kind);
    fl_json_w_text(w, "id", id);
    fl_json_w_u64(w, "type_id", type);
    fl_json_w_end(w), fl_json_w_end(w);
}

void fl_tokenizer_put_special(fl_json_w *w, const char *name, int64_t id, fl_span token) {
    fl_json_w_object(w, name);
    fl_json_w_text(w, "id", name);
    fl_json_w_array(w, "ids");
    fl_json_w_i64(w, NULL, id);
    fl_json_w_end(w);
    fl_json_w_array(w, "tokens");
    fl_json_w_bytes(w, NULL, token.data, token.size);
    fl_json_w_end(w), fl_json_w_end(w);
}

void fl_tokenizer_put_piece_decoder(fl_json_w *w, bool prefix) {
    fl_json_w_raw(w, "decoder");
    fl_buf_puts(w->out, "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
                        "{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":"
                        "\"ByteFallback\"},{\"type\":\"Fuse\"}");
    fl_buf_puts(w->out,
                prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}" : "]}");
}
