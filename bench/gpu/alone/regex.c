/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c - no regular expressions, for a build with FLETCH_MINIMAL=ON (see bench/gpu/README.md).
 *
 * Method  A tokenizer.json that needs PCRE2 is refused; the patterns that fletch scans by hand work. */
#include "tokenizer/regex.h"

#include "base/error.h"

int fl_regex_open(fl_regex **out, const char *pattern, const char *source, fletch_error *error) {
    *out = NULL;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s: the regular expression \"%.60s\" needs PCRE2, and this is a minimal build",
                   source, pattern);
}

void fl_regex_close(fl_regex *regex) {
    (void)regex;
}

void fl_regex_work_free(fl_regex_work *work) {
    (void)work;
}

fl_regex_result fl_regex_next(const fl_regex *regex, fl_regex_work *work, const char *text,
                              size_t size, fl_regex_walk *walk, size_t *begin, size_t *end) {
    (void)regex, (void)work, (void)text, (void)size, (void)walk, (void)begin, (void)end;
    return FL_REGEX_NONE;
}
