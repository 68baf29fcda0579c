/* SPDX-License-Identifier: Apache-2.0 */
/* number.c - numbers to text and back, exactly, without locale.
 *
 * Role    JSON output prints 384 and more floats per text; the configuration reads numbers and
 *         sizes.
 * Method  A float32 v = c * 2^q owns the interval of reals that round to it, from halfway to the
 *         float below to halfway to the one above. The shortest decimal is a multiple of the
 *         largest power 10^k that has a multiple inside; k follows from the interval's width, and
 *         at most one digit less can do. So four candidates are enough: the multiples of 10^(k+1)
 *         and of 10^k around v (R. Giulietti's Schubfach). v and both ends are scaled by 10^-k
 *         with one 64 x 32 bit product each. Of the product, whatever lies below 1/4 only matters
 *         as "not zero", so it is kept as a sticky lowest bit, and every comparison is exact.
 *         printf("%.9g") is 8 times slower and prints 0.1f as 0.100000001.
 * Memory  a table of 77 words (number_tables.h). Threads: any.
 * Proof   tests/unit/test_base_number.c: against strtof and %.{1..9}e on every exponent, all
 *         powers of two and ten, denormals and random bit patterns. */
#include "base/number.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number_tables.h"
#include "base/os.h"

/* ---- Finite ----------------------------------------------------------------------------------- */

/* NaN and infinity alone have every bit of the exponent set. Unlike a sum of floats this keeps no order, so
 * it takes a vector at a time. */
bool fl_all_finite(const float *values, size_t count) {
    assert(values || count == 0);
    const uint32_t exponent = 0x7F800000U;
    uint32_t       bad      = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return bad == 0;
}

/* ---- float32 to text ------------------------------------------------------------------------- */

/* A positive number digits * 10^exponent. */
typedef struct decimal {
    uint32_t digits;
    int      exponent;
} decimal;

/* floor(g * c / 2^64), with the lowest bit set when anything was cut off. g comes one too large
 * from the table, so a product that is exact (or hides less than the error) shows as a rest of 0
 * or 1. */
static uint32_t scale_sticky(uint64_t g, uint32_t c) {
    assert(c > 0);
    uint64_t low  = (g & 0xFFFFFFFFu) * c;
    uint64_t sum  = (g >> 32) * c + (low >> 32);
    uint32_t rest = (uint32_t)sum;
    return (uint32_t)(sum >> 32) | (rest > 1);
}

/* floor(e * log2(10)), exact for the exponents used here; >> of a negative number rounds down in
 * gcc and clang. */
static int floor_log2_of_power(int e) {
    return (e * 1741647) >> 19;
}

/* The shortest decimal of c * 2^q; of several the nearest, of two equally near the even one.
 * `narrow`: v is a power of two, so the float below is only half as far away as the one above. */
static decimal shortest_decimal(uint32_t c, int q, bool narrow) {
    /* k = floor(log10(width of the interval)), which is 2^q, or 3/4 of it where narrow:
     * 1262611 / 2^22 = log10(2), 524031 / 2^22 = -log10(3/4). */
    int      k     = (q * 1262611 - (narrow ? 524031 : 0)) >> 22;
    int      shift = q + floor_log2_of_power(-k) + 1;
    uint64_t g     = power_of_ten[-k - POWER_MIN];
    /* Everything is held in quarters of 10^k, so that halfway points are whole numbers. */
    uint32_t lower  = scale_sticky(g, (4 * c - 2 + narrow) << shift);
    uint32_t value  = scale_sticky(g, (4 * c) << shift);
    uint32_t upper  = scale_sticky(g, (4 * c + 2) << shift);
    uint32_t is_odd = c & 1; /* the ends of the interval round to v only when c is even */
    lower += is_odd;
    upper -= is_odd;

    uint32_t s = value / 4;
    if (s >= 10) {
        uint32_t tens         = s / 10;
        bool     below_inside = lower <= 40 * tens;
        bool     above_inside = 40 * tens + 40 <= upper;
        if (below_inside != above_inside)
            return (decimal){tens + above_inside, k + 1};
    }
    bool below_inside = lower <= 4 * s;
    bool above_inside = 4 * s + 4 <= upper;
    if (below_inside != above_inside)
        return (decimal){s + above_inside, k};
    uint32_t middle   = 4 * s + 2;
    bool     round_up = value > middle || (value == middle && (s & 1) != 0);
    return (decimal){s + round_up, k};
}

/* Digits of a number into out[..20]; returns their count. */
static size_t put_digits(char *out, uint64_t number) {
    char   reversed[20];
    size_t count = 0;
    do {
        reversed[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    for (size_t i = 0; i < count; i++)
        out[i] = reversed[count - 1 - i];
    return count;
}

/* d.ddde±x */
static size_t put_scientific(char *out, const char *digits, size_t count, int exponent) {
    assert(count > 0);
    size_t length = 0;
    out[length++] = digits[0];
    if (count > 1) {
        out[length++] = '.';
        memcpy(out + length, digits + 1, count - 1);
        length += count - 1;
    }
    out[length++] = 'e';
    if (exponent < 0) {
        out[length++] = '-';
        exponent      = -exponent;
    }
    return length + put_digits(out + length, (uint32_t)exponent);
}

/* The value is 0.DIGITS * 10^point. */
static size_t put_plain(char *out, const char *digits, size_t count, int point) {
    assert(count > 0);
    size_t length = 0;
    if (point <= 0) {
        out[length++] = '0';
        out[length++] = '.';
        memset(out + length, '0', (size_t)-point);
        length += (size_t)-point;
        memcpy(out + length, digits, count);
        return length + count;
    }
    size_t whole = (size_t)point;
    if (count <= whole) {
        memcpy(out, digits, count);
        memset(out + count, '0', whole - count);
        return whole;
    }
    memcpy(out, digits, whole);
    out[whole] = '.';
    memcpy(out + whole + 1, digits + whole, count - whole);
    return count + 1;
}

size_t fl_f32_text(char out[FL_F32_TEXT_MAX], float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t fraction = bits & 0x7FFFFF;
    int      exponent = (int)(bits >> 23 & 0xFF);
    size_t   length   = 0;
    if (exponent == 0xFF) {
        memcpy(out, "null", 4);
        return 4;
    }
    if (bits >> 31 != 0)
        out[length++] = '-';
    if (exponent == 0 && fraction == 0) {
        out[length++] = '0';
        return length;
    }
    decimal shortest = exponent == 0 ? shortest_decimal(fraction, -149, false)
                                     : shortest_decimal(fraction | 0x800000, exponent - 150,
                                                        fraction == 0 && exponent > 1);
    while (shortest.digits % 10 == 0) {
        shortest.digits /= 10;
        shortest.exponent++;
    }
    char   digits[10];
    size_t count = put_digits(digits, shortest.digits);
    int    point = (int)count + shortest.exponent; /* value = 0.DIGITS * 10^point */
    if (point < -4 || point > 16)
        return length + put_scientific(out + length, digits, count, point - 1);
    return length + put_plain(out + length, digits, count, point);
}

size_t fl_u64_text(char out[20], uint64_t value) {
    return put_digits(out, value);
}

/* ---- Text to numbers ------------------------------------------------------------------------- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool fl_parse_i64(const char *text, int64_t *out) {
    assert(text && out);
    const char *p        = text + (text[0] == '-' || text[0] == '+' ? 1 : 0);
    bool        negative = text[0] == '-';
    int64_t     value    = 0;
    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++) {
        int digit =
            negative ? '0' - *p : *p - '0'; /* downwards, as INT64_MIN has no positive twin */
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    if (*p != '\0')
        return false;
    *out = value;
    return true;
}

static const char *skip_digits(const char *p) {
    while (is_digit(*p))
        p++;
    return p;
}

/* [+-] digits [. digits] [e [+-] digits], digits on at least one side of the point: what strtod
 * takes beyond that (hexadecimal, inf, nan, spaces) is refused. */
static bool is_decimal(const char *p) {
    p += *p == '-' || *p == '+' ? 1 : 0;
    const char *whole = p;
    p                 = skip_digits(p);
    size_t digits     = (size_t)(p - whole);
    if (*p == '.') {
        const char *fraction = ++p;
        p                    = skip_digits(p);
        digits += (size_t)(p - fraction);
    }
    if (digits == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '-' || *p == '+' ? 1 : 0;
        if (!is_digit(*p))
            return false;
        p = skip_digits(p);
    }
    return *p == '\0';
}

bool fl_parse_f64(const char *text, double *out) {
    assert(text && out);
    if (!is_decimal(text))
        return false;
    double value = fl_os_strtod(text);
    if (!isfinite(value))
        return false;
    *out = value;
    return true;
}

/* The factor of a unit, 0 when there is no such unit. */
static uint64_t unit_factor(const char *unit) {
    static const char letters[] = "KMGT";
    if (unit[0] == '\0' || strcmp(unit, "B") == 0)
        return 1;
    char        first  = unit[0] == 'k' ? 'K' : unit[0];
    const char *letter = strchr(letters, first);
    bool binary = unit[1] == '\0' || strcmp(unit + 1, "iB") == 0 || strcmp(unit + 1, "i") == 0;
    if (letter == NULL || (!binary && strcmp(unit + 1, "B") != 0))
        return 0;
    uint64_t factor = 1;
    for (const char *p = letters; p <= letter; p++)
        factor *= binary ? 1024 : 1000;
    return factor;
}

bool fl_parse_size(const char *text, uint64_t *out) {
    assert(text && out);
    enum { FRACTION_DIGITS_MAX = 6 }; /* 10^6 * 2^40 still fits 64 bits */
    const char *p        = text;
    uint64_t    whole    = 0;
    uint64_t    fraction = 0;
    uint64_t    scale    = 1;
    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    if (*p == '.') {
        const char *start = ++p;
        for (; is_digit(*p) && p - start < FRACTION_DIGITS_MAX; p++) {
            fraction = fraction * 10 + (uint64_t)(*p - '0');
            scale *= 10;
        }
        if (p == start || is_digit(*p))
            return false;
    }
    p += *p == ' ' ? 1 : 0;
    uint64_t factor = unit_factor(p);
    uint64_t bytes;
    bool     bare_space = *p == '\0' && p[-1] == ' ';
    if (factor == 0 || (factor == 1 && scale > 1) || bare_space)
        return false; /* "12 " and half a byte ("1.5") included */
    if (__builtin_mul_overflow(whole, factor, &bytes) ||
        __builtin_add_overflow(bytes, fraction * factor / scale, &bytes))
        return false;
    *out = bytes;
    return true;
}
