/* SPDX-License-Identifier: Apache-2.0 */
/* keep_alive.c - how long a model stays open without work, in the words of Ollama's clients.
 *
 * Role    keep_alive of a request, server.keep_alive.
 * In/Out  300, "300", "5m", "1h30m", "-1" to nanoseconds; negative ones are for ever.
 * Method  Go's durations, and seconds as a bare number.
 * Memory  none. Threads: pure functions.
 * Proof   tests/server/test_on_demand.py, tests/fuzz/fuzz_bodies.c. */
#include <string.h>

#include "base/number.h"
#include "server/server.h"

static bool take_unit(const char **at, const char *end, double *ns) {
    static const struct {
        const char *name;
        double      ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t size = strlen(units[i].name);
        if ((size_t)(end - *at) >= size && memcmp(*at, units[i].name, size) == 0) {
            *at += size;
            *ns = units[i].ns;
            return true;
        }
    }
    return false;
}

bool fl_keep_alive_parse(const char *text, size_t size, uint64_t *ns) {
    const char *at = text, *end = text + size;
    bool        quoted = size >= 2 && text[0] == '"' && text[size - 1] == '"';
    at += quoted;
    end -= quoted;
    bool negative = at < end && *at == '-';
    at += negative;
    double sum = 0;
    bool   any = false;
    while (at < end) {
        char   digits[32];
        size_t used = 0;
        double value, unit = 1e9;
        while (at < end && used + 1 < sizeof digits &&
               ((*at >= '0' && *at <= '9') || *at == '.' || *at == 'e' || *at == 'E' ||
                ((*at == '+' || *at == '-') && used > 0 && (at[-1] | 0x20) == 'e')))
            digits[used++] = *at++;
        digits[used] = '\0';
        if (!fl_parse_f64(digits, &value) || (at == end ? any : !take_unit(&at, end, &unit)))
            return false; /* a number alone is of seconds */
        sum += value * unit;
        any = true;
    }
    *ns = negative && sum > 0 ? UINT64_MAX : sum < 1e18 ? (uint64_t)sum : UINT64_MAX;
    return any;
}
