/* SPDX-License-Identifier: Apache-2.0 */
/* flops.c - the arithmetic of one text: what a rate in texts is as a share of what a processor can do.
 *
 * Role    fletch_text_flops, for `fletch bench`.
 * Method  The matrices of tensors.def once a token, those of experts for the experts that a token goes
 *         to; queries against the keys that they see, and those keys' values; DeBERTa's both against
 *         distances, too. Norms, activations, pooling and heads are left out: they are a percent or
 *         two, and no share becomes too good.
 * Proof   tests/unit/test_flops.c. */
#include "model/encoder.h"

/* Pairs of a query and a key that it sees, in a text of n tokens. */
static uint64_t pairs_of(const fl_distance *rule, uint64_t n) {
    const uint64_t back  = rule->window > 0 && rule->window < n ? rule->window : n - 1;
    const uint64_t sides = rule->causal ? 1 : 2;
    return n + sides * (back * n - back * (back + 1) / 2); /* itself, and up to `back` to a side */
}

uint64_t fl_encoder_pair_flops(const fl_encoder_desc *d, uint32_t tokens) {
    uint64_t flops = 0;
    for (uint32_t i = 0; i < d->layers && tokens > 0; i++) {
        const fl_layer_desc *layer    = &d->layer[i];
        const uint64_t       products = layer->convolves          ? 0
                                        : fl_relative_span(d) > 0 ? 4
                                                                  : 2; /* of a pair, in each head */
        flops += 2 * products * fl_q_width(d) * pairs_of(&d->distance[layer->distance], tokens);
    }
    return flops;
}

uint64_t fl_encoder_flops(const fl_encoder_desc *d, uint32_t tokens) {
    uint64_t flops = fl_encoder_pair_flops(d, tokens);
    for (uint32_t i = 0; i < d->layers && tokens > 0; i++) {
        const fl_layer_desc *layer = &d->layer[i];
        uint64_t             cells = 0;
        for (int slot = 0; slot < FL_LAYER_SLOT_COUNT; slot++) {
            fl_shape shape;
            bool     once =
                slot == FL_LAYER_RELATIVE_Q_W || slot == FL_LAYER_RELATIVE_K_W; /* at open */
            if (!fl_encoder_shape(d, layer, slot, &shape) || shape.columns == 0 || once)
                continue;
            bool of_experts = slot == FL_LAYER_EXPERTS_UP || slot == FL_LAYER_EXPERTS_DOWN;
            cells += shape.rows * shape.columns / (of_experts ? layer->experts : 1) *
                     (of_experts ? layer->experts_used : 1);
        }
        flops += 2 * cells * tokens;
    }
    /* Queries and keys, values and output are one matrix each (cpu_latent.c). */
    const uint64_t latent = 2 * d->latents * (uint64_t)d->latent_heads * d->hidden +
                            (d->latents > 0 ? 3 * fl_latent_mlp(d) * d->hidden : 0);
    return flops + 2 * latent * tokens;
}
