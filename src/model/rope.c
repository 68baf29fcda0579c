/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c - the tables of rotary positions, with torch's roundings.
 *
 * Role    Engines make one table per entry of desc.rope when they open.
 * Method  torch keeps frequencies and angles in float32, and at position 8000 an angle that is more
 *         exact turns a vector by 5e-4 of its length. So each step is rounded where torch rounds:
 *         exponent 2i/d, power (correctly rounded here, which torch's is but for one value in 64),
 *         its inverse, the scaling, and the product with the position. Only the sine and cosine of
 *         that rounded angle are taken in double.
 * Proof   tests/unit/test_model_rules.c, values of torch 2.15; tests/golden/test_folders.py. */
#include <math.h>

#include "base/elementary.h"
#include "model/encoder.h"

/* yarn: pairs that turn often in the trained positions are left, those that turn less than once are stretched by
 * the factor, those between are mixed by their number. */
static float yarn(const fl_rope *rope, uint32_t i, float power) {
    const double low = rope->low_factor, high = rope->high_factor;
    const double run   = low == high ? high + 0.001 - low : high - low;
    const float  ramp  = ((float)i - (float)low) / (float)run;
    const float  mixed = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
    const float  kept  = 1.0f - mixed;
    return 1.0f / ((float)rope->factor * power) * (1.0f - kept) + 1.0f / power * kept;
}

/* Of pair i: how far one position turns it. */
static float frequency(const fl_rope *rope, uint32_t i) {
    const float exponent = (float)(2 * i) / (float)rope->dims;
    const float power    = (float)fl_math_pow((double)(float)rope->theta, (double)exponent);
    const float plain    = 1.0f / power;
    const float factor   = (float)rope->factor;
    if (rope->scaling == FL_ROPE_YARN)
        return yarn(rope, i, power);
    if (rope->scaling == FL_ROPE_FACTORS)
        return 1.0f / (rope->factors[i] * power);
    if (rope->scaling == FL_ROPE_LINEAR)
        return plain / factor;
    if (rope->scaling == FL_ROPE_DEFAULT)
        return plain;
    /* llama3: long waves are stretched by the factor, short ones are left, those between are mixed.
     * torch divides a number by a tensor as the tensor's inverse times the number. */
    const float trained = (float)rope->trained, wave = 1.0f / plain * (float)(2.0 * M_PI);
    if (wave > (float)((double)rope->trained / rope->low_factor))
        return plain / factor;
    if (wave < (float)((double)rope->trained / rope->high_factor))
        return plain;
    const float smooth = (1.0f / wave * trained - (float)rope->low_factor) /
                         (float)(rope->high_factor - rope->low_factor);
    return (1.0f - smooth) * plain / factor + smooth * plain;
}

void fl_rope_table(const fl_rope *rope, uint32_t first, uint32_t count, float *cosines,
                   float *sines) {
    const uint32_t half = rope->dims / 2;
    const float    size = rope->size > 0 ? (float)rope->size : 1.0f;
    for (uint32_t i = 0; i < half; i++) {
        const float turn = frequency(rope, i);
        for (uint32_t p = 0; p < count; p++) {
            const float angle             = (float)(first + p) * turn;
            cosines[(size_t)p * half + i] = (float)fl_math_cos((double)angle) * size;
            sines[(size_t)p * half + i]   = (float)fl_math_sin((double)angle) * size;
        }
    }
}
