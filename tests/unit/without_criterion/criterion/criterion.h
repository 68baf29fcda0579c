/* SPDX-License-Identifier: Apache-2.0 */
/* criterion.h - a stand-in for Criterion, so that one source serves both.
 *
 * Role    Criterion keeps its tests in an arena at an address that ThreadSanitizer's memory layout
 *         forbids (Criterion issue 274), so no Criterion program starts under it; nor is there one for each
 *         system that is compiled for. The tests of those builds have this one.
 * Method  Test() registers its function before main; main runs all in one process, in order of the file,
 *         and ends at the first failed assertion. A TestSuite's init and fini run around each test of the
 *         program, a test's own around it; timeouts are ctest's business.
 * Memory  none. Threads: assertions may be made from any thread. */
#ifndef FL_TEST_WITHOUT_CRITERION_H
#define FL_TEST_WITHOUT_CRITERION_H

#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a test, or of the program's one suite; all zero where nothing is said. */
typedef struct plain_options {
    void (*init)(void);
    void (*fini)(void);
    double timeout; /* not looked at */
    bool   given;
} plain_options;

typedef struct plain_test {
    const char *name;
    void (*run)(void);
    plain_options      options;
    struct plain_test *next;
} plain_test;

static plain_test  *plain_tests;
static plain_test **plain_tests_end = &plain_tests;

static plain_options plain_suite;
static jmp_buf       plain_end; /* of a test that is skipped */
#define TestSuite(suite, ...) static plain_options plain_suite = {__VA_ARGS__}

#define Test(suite, test, ...)                                                                     \
    static void       suite##_##test##_run(void);                                                  \
    static plain_test suite##_##test##_entry = {                                                   \
        #suite "::" #test, suite##_##test##_run, {.given = true, __VA_ARGS__}, NULL};              \
    __attribute__((constructor)) static void suite##_##test##_register(void) {                     \
        *plain_tests_end = &suite##_##test##_entry;                                                \
        plain_tests_end  = &suite##_##test##_entry.next;                                           \
    }                                                                                              \
    static void suite##_##test##_run(void)

#define plain_check(condition, words)                                                              \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, words);                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define cr_assert(condition, ...)      plain_check((condition), #condition)
#define cr_assert_not(condition, ...)  plain_check(!(condition), "not " #condition)
#define cr_assert_eq(a, b, ...)        plain_check((a) == (b), #a " == " #b)
#define cr_assert_neq(a, b, ...)       plain_check((a) != (b), #a " != " #b)
#define cr_assert_lt(a, b, ...)        plain_check((a) < (b), #a " < " #b)
#define cr_assert_leq(a, b, ...)       plain_check((a) <= (b), #a " <= " #b)
#define cr_assert_gt(a, b, ...)        plain_check((a) > (b), #a " > " #b)
#define cr_assert_geq(a, b, ...)       plain_check((a) >= (b), #a " >= " #b)
#define cr_assert_null(a, ...)         plain_check((a) == NULL, #a " == NULL")
#define cr_assert_not_null(a, ...)     plain_check((a) != NULL, #a " != NULL")
#define cr_assert_str_eq(a, b, ...)    plain_check(strcmp((a), (b)) == 0, #a " equals " #b)
#define cr_assert_str_neq(a, b, ...)   plain_check(strcmp((a), (b)) != 0, #a " differs from " #b)
#define cr_assert_arr_eq(a, b, n, ...) plain_check(memcmp((a), (b), (n)) == 0, #a " equals " #b)
#define cr_assert_float_eq(a, b, error, ...)                                                       \
    plain_check(fabs((double)(a) - (double)(b)) <= (double)(error), #a " is near " #b)
#define cr_assert_fail(...) plain_check(false, #__VA_ARGS__)

#define cr_log_warn(...)  (fprintf(stderr, __VA_ARGS__), fprintf(stderr, "\n"))
#define cr_skip_test(...) (cr_log_warn("skipped: " __VA_ARGS__), longjmp(plain_end, 1))

/* What Criterion would go on after ends the program here. */
#define cr_expect          cr_assert
#define cr_expect_not      cr_assert_not
#define cr_expect_eq       cr_assert_eq
#define cr_expect_neq      cr_assert_neq
#define cr_expect_lt       cr_assert_lt
#define cr_expect_leq      cr_assert_leq
#define cr_expect_gt       cr_assert_gt
#define cr_expect_geq      cr_assert_geq
#define cr_expect_null     cr_assert_null
#define cr_expect_not_null cr_assert_not_null
#define cr_expect_str_eq   cr_assert_str_eq
#define cr_expect_arr_eq   cr_assert_arr_eq
#define cr_expect_float_eq cr_assert_float_eq

int main(void) {
    for (plain_test *test = plain_tests; test != NULL; test = test->next) {
        fprintf(stderr, "%s\n", test->name);
        if (plain_suite.init)
            plain_suite.init();
        if (test->options.init)
            test->options.init();
        if (setjmp(plain_end) == 0)
            test->run();
        if (test->options.fini)
            test->options.fini();
        if (plain_suite.fini)
            plain_suite.fini();
    }
    return 0;
}

#endif
