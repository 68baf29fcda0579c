/* SPDX-License-Identifier: Apache-2.0 */
/* distance.c - attention's rules of distance as numbers: masks, T5's and DeBERTa's buckets, ALiBi's slopes.
 *
 * Role    Every engine makes its table by distance from fl_distance_value, once when it opens.
 * Method  float32 throughout: a bucket's edge and a slope must fall where the reference has them.
 *         Of T5's buckets half are for keys to the right of the query; of each half the first half
 *         counts single steps, the rest grows with the logarithm up to max_distance (checked by
 *         fl_encoder_check_sizes). ALiBi's slopes are powers of 2^(-8/n); for heads that are not a
 *         power of two, those of the power below, then every other of the one above. DeBERTa's scores
 *         are more than a number by distance: which row of its table a distance has is told here.
 * Proof   tests/unit/test_model_rules.c; tests/golden/test_folders.py. */
#include <math.h>

#include "base/elementary.h"
#include "model/encoder.h"

static uint32_t t5_bucket(ptrdiff_t distance, uint32_t buckets, uint32_t max_distance) {
    uint32_t half = buckets / 2, exact = half / 2, base = distance > 0 ? half : 0;
    uint32_t n = (uint32_t)(distance < 0 ? -distance : distance);
    if (n < exact)
        return base + n;
    float ratio = (float)fl_math_log((double)((float)n / (float)exact)) /
                  (float)fl_math_log((double)max_distance / (double)exact);
    uint32_t steps = (uint32_t)(ratio * (float)(half - exact));
    return base + (exact + steps < half - 1 ? exact + steps : half - 1);
}

static double slope_of_power(uint32_t heads, uint32_t head) {
    return fl_math_pow(2.0, -8.0 * (head + 1) / heads);
}

static float alibi_slope(uint32_t heads, uint32_t head) {
    uint32_t power = 1;
    while (power * 2 <= heads)
        power *= 2;
    return (float)(head < power ? slope_of_power(power, head)
                                : slope_of_power(2 * power, 2 * (head - power)));
}

/* Single steps up to half the buckets, then by the logarithm, as torch rounds it; ends of the table for what is
 * farther. */
uint32_t fl_distance_row(const fl_encoder_desc *desc, ptrdiff_t distance) {
    const fl_distance *rule = &desc->distance[0];
    const ptrdiff_t    span = fl_relative_span(desc), mid = rule->buckets / 2;
    ptrdiff_t          step = distance < 0 ? -distance : distance;
    if (rule->buckets > 0 && step > mid) {
        const double most  = (double)(rule->max_distance - 1) / (double)mid;
        const float  ratio = (float)fl_math_log((double)((float)step / (float)mid)) /
                            (float)fl_math_log((double)(float)most);
        step = (ptrdiff_t)ceilf(ratio * (float)(mid - 1)) + mid;
    }
    if (distance <= 0) /* a query after its key */
        return (uint32_t)(step < span ? span + step : 2 * span - 1);
    return (uint32_t)(step < span ? span - step : 0);
}

ptrdiff_t fl_distance_first(const fl_distance *rule) {
    return rule->window > 0 ? -(ptrdiff_t)rule->window : -PTRDIFF_MAX;
}

ptrdiff_t fl_distance_last(const fl_distance *rule) {
    return rule->causal ? 0 : rule->window > 0 ? (ptrdiff_t)rule->window : PTRDIFF_MAX;
}

float fl_distance_value(const fl_encoder *encoder, const fl_distance *rule, uint32_t layer,
                        uint32_t head, ptrdiff_t distance) {
    const fl_tensor *table = encoder->desc.bias_by_layer
                                 ? &encoder->layer[layer][FL_LAYER_ATTENTION_BIAS]
                                 : &encoder->global[FL_SLOT_ATTENTION_BIAS];
    uint32_t         heads = encoder->desc.heads;
    float            value = 0.0f;
    if (distance < fl_distance_first(rule) || distance > fl_distance_last(rule))
        return -INFINITY;
    if (rule->bias == FL_BIAS_T5_BUCKETS)
        fl_tensor_to_f32(
            table, (uint64_t)t5_bucket(distance, rule->buckets, rule->max_distance) * heads + head,
            1, &value);
    else if (rule->bias == FL_BIAS_ALIBI)
        value = -alibi_slope(heads, head) * (float)(distance < 0 ? -distance : distance);
    return value;
}
