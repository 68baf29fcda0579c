/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule.c - several slots and replicas, windows and budgets, memory that is short: the batches
 * go where they should, and what goes wrong in one slot is not lost in another. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "call.h"

TestSuite(schedule, .init = prepare);

typedef const char *const pairs[][2];

static fletch_stats stats_of(fletch_model *model) {
    fletch_stats stats = {.size = sizeof stats};
    cr_assert_eq(fletch_stats_get(model, &stats, NULL), 0);
    return stats;
}

enum { MANY = 5000 };

static char        many_words[MANY][sizeof words[0] + MANY / TEXTS];
static const char *many[MANY];
static float       many_rows[MANY * DIM_MAX];

static void check_many(void) {
    for (size_t i = 0; i < MANY; i++)
        cr_assert_eq(memcmp(many_rows + i * dim, want + i % TEXTS * dim, dim * sizeof(float)), 0,
                     "%zu", i);
}

/* Blanks behind a text change its bytes and not its tokens: equal texts of a call would be one. */
static fletch_texts many_texts(void) {
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(many_words[i], sizeof many_words[i], "%s%*s", strings[i % TEXTS],
                       (int)(i / TEXTS), "");
        many[i] = many_words[i];
    }
    return fletch_texts_from_strings(many, MANY);
}

/* ---- Slots and replicas ------------------------------------------------------------------------ */

static pairs eights = {{"batch.max_texts", "8"}, {NULL, NULL}};

Test(schedule, texts_of_one_chunk_keep_all_slots_busy) {
    fl_fault_plan plan  = {.slots = 2, .meet = 2};
    fletch_model *model = open_with(&plan, eights);
    static call   c;
    call_init(&c, model);
    cr_assert_eq(submit(&c, 16, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    cr_assert(!fl_fault_lonely(), "the second slot slept while texts were queued");
    check_rows(&c, 16);
    fletch_close(model);
}

/* Whether all threads of this process but one, its own, are asleep. */
static bool others_sleep(void) {
    DIR           *folder = opendir("/proc/self/task");
    struct dirent *entry;
    int            awake = 0;
    cr_assert_not_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        char path[300], text[512], state = 'S';
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (file && fgets(text, sizeof text, file) && strrchr(text, ')'))
            state = strrchr(text, ')')[2];
        if (file)
            fclose(file);
        awake += state != 'S';
    }
    closedir(folder);
    return awake == 1;
}

/* Once every slot has run a batch, and nobody is on the way from one place to sleep to another. */
static void let_all_slots_sleep(call *c) {
    fl_fault_plan all = {.slots = 2, .devices = 2, .meet = 4};
    fl_fault_set(&all);
    cr_assert_eq(submit(c, 32, false, 0), 0);
    cr_assert_eq(wait_for(c), FLETCH_OK);
    cr_assert(!fl_fault_lonely());
    for (int seen = 0; seen < 3; seen = others_sleep() ? seen + 1 : 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

Test(schedule, batches_go_to_the_replica_with_the_fewest_tokens) {
    fl_fault_plan plan  = {.slots = 2, .devices = 2, .meet = 2};
    fletch_model *model = open_with(&plan, eights);
    static call   c;
    call_init(&c, model);
    let_all_slots_sleep(&c);
    call_init(&c, model);
    fl_fault_set(&plan);
    cr_assert_eq(submit(&c, 16, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    cr_assert_eq(fl_fault_reached(), 2, "both batches went to one device");
    fletch_close(model);
}

Test(schedule, one_call_is_spread_over_idle_devices) {
    fl_fault_plan  plan    = {.slots = 1, .devices = 4, .meet = 4};
    fletch_model  *model   = open_with(&plan, NULL);
    fletch_request request = FLETCH_REQUEST_INIT;
    static call    c;
    call_init(&c, model);
    fl_fault_set(&plan);
    request.texts       = many_texts();
    request.texts.count = 256;
    request.out         = fletch_matrix_f32(many_rows, 256, dim);
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    cr_assert_eq(fl_fault_reached(), 4, "a device stood idle");
    fletch_close(model);
}

/* What it allocates comes to lie where its threads are; whoever opened it keeps the cores it had. */
Test(schedule, a_group_of_cores_opens_on_them) {
    fl_fault_plan plan  = {.slots = 1, .cuda_gone = true};
    static pairs  two   = {{"cpu.replicas", "2"}, {NULL, NULL}};
    unsigned      cores = fl_cpu_usable();
    if (cores < 2)
        cr_skip_test("one processor has no two groups");
    fletch_model *model = open_with(&plan, two);
    cr_assert_eq(stats_of(model).replicas_ready, 2);
    cr_assert_eq(fl_fault_pinned(), 2);
    cr_assert_eq(fl_cpu_usable(), cores);
    fletch_close(model);
}

Test(schedule, warming_reaches_every_replica) {
    fl_fault_plan plan  = {.slots = 2, .devices = 3};
    fletch_model *model = open_with(&plan, NULL);
    fletch_error  error;
    fl_fault_set(&plan);
    cr_assert_eq(fletch_warm(model, &error), 0, "%s", error.message);
    cr_assert_eq(fl_fault_reached(), 3);
    fletch_close(model);
}

/* What the replicas carried adds up to what the model did; what no driver tells is told as that. */
Test(schedule, replicas_tell_what_each_carried) {
    fl_fault_plan       plan   = {.slots = 2, .devices = 3};
    fletch_model       *model  = open_with(&plan, NULL);
    fletch_device_stats device = {.size = sizeof device};
    fletch_error        error;
    uint64_t            batches = 0, tokens = 0;
    cr_assert_eq(fletch_warm(model, &error), 0, "%s", error.message);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(fletch_device_stats_get(model, i, &device, &error), 0, "%s", error.message);
        cr_assert_eq(device.device, i);
        cr_assert(device.ready && device.batches > 0);
        cr_assert_eq(device.utilisation, -1);
        cr_assert_eq(device.memory_total + device.pool_requests, 0U);
        cr_assert_str_eq(device.name, "test");
        batches += device.batches;
        tokens += device.tokens;
    }
    cr_assert_eq(batches, stats_of(model).counter[FLETCH_COUNT_BATCHES]);
    cr_assert_eq(tokens, stats_of(model).counter[FLETCH_COUNT_TOKENS]);
    cr_assert_eq(fletch_device_stats_get(model, 3, &device, &error), FLETCH_ENOTFOUND);
    device.size = 0;
    cr_assert_eq(fletch_device_stats_get(model, 0, &device, &error), FLETCH_EINVAL);
    fletch_close(model);
}

static fletch_device_stats device_of(fletch_model *model, size_t replica) {
    fletch_device_stats device = {.size = sizeof device};
    cr_assert_eq(fletch_device_stats_get(model, replica, &device, NULL), 0);
    return device;
}

static void a_moment(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Device d ends d + 1 batches and keeps the next: what it does not take, the others do. */
Test(schedule, each_device_takes_as_many_batches_as_it_is_quick) {
    fl_fault_plan  plan = {.slots = 1, .devices = 8, .gated = true}, open = {.slots = 1};
    fletch_model  *model   = open_with(&plan, eights);
    fletch_request request = FLETCH_REQUEST_INIT;
    static call    c;
    uint64_t       carried = 0;
    call_init(&c, model);
    request.texts = many_texts();
    request.out   = fletch_matrix_f32(many_rows, MANY, dim);
    request.lane  = FLETCH_LANE_BULK;
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
    for (uint32_t d = 0; d < 8; d++)
        fl_fault_allow(d, d + 1);
    for (uint32_t d = 0; d < 8; d++) {
        while (device_of(model, d).batches < d + 1 || device_of(model, d).outstanding_tokens == 0)
            a_moment();
        cr_assert_eq(device_of(model, d).batches, d + 1);
        carried += device_of(model, d).tokens;
    }
    cr_assert_eq(carried, stats_of(model).counter[FLETCH_COUNT_TOKENS]);
    fl_fault_set(&open);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    check_many();
    fletch_close(model);
}

Test(schedule, slots_that_break_together_lose_nothing) {
    for (uint32_t devices = 1; devices <= 2; devices++) {
        fl_fault_plan plan  = {.slots   = 3 - devices,
                               .devices = devices,
                               .meet    = 2,
                               .planned = FL_FAULT_BROKEN,
                               .times   = 2};
        fletch_model *model = open_with(&plan, eights);
        static call   c;
        call_init(&c, model);
        cr_assert_eq(submit(&c, TEXTS, true, 0), 0);
        cr_assert_eq(wait_for(&c), FLETCH_OK, "%s", c.outcome.error.message);
        cr_assert(!fl_fault_lonely());
        for (size_t i = 0; i < TEXTS; i++)
            cr_assert_eq(c.status[i], FLETCH_OK, "text %zu", i);
        check_rows(&c, TEXTS);
        cr_assert_eq(stats_of(model).counter[FLETCH_COUNT_BATCH_RETRIES], 2);
        fletch_close(model);
        cr_assert_eq(c.answers, 1);
    }
}

Test(schedule, a_batch_that_breaks_half_done_goes_on_from_there) {
    static pairs  options = {{"pool.enable", "false"}, {NULL, NULL}};
    fl_fault_plan plan    = {
           .slots    = 1,
           .late_ms  = 100,
           .scripted = true,
           .script   = {FL_FAULT_LATE, FL_FAULT_NOMEM, FL_FAULT_NONE, FL_FAULT_BROKEN, FL_FAULTS}};
    fletch_model *model = open_with(&plan, options);
    static call   calls[5];
    for (int i = 0; i < 5; i++) { /* the first is late; the others make one batch */
        call_init(&calls[i], model);
        cr_assert_eq(submit(&calls[i], 1, false, 0), 0);
        while (i == 0 && stats_of(model).slots_busy == 0)
            ;
    }
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(wait_for(&calls[i]), FLETCH_OK, "%s", calls[i].outcome.error.message);
        check_rows(&calls[i], 1);
    }
    fletch_close(model);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(calls[i].answers, 1);
}

static void embed_all(fletch_model *model) {
    static call c;
    call_init(&c, model);
    cr_assert_eq(submit(&c, TEXTS, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK, "%s", c.outcome.error.message);
    check_rows(&c, TEXTS);
}

/* Whatever the other engine's slots: a card runs two batches at once, the processor one. */
Test(schedule, an_engine_that_is_gone_is_replaced_by_the_next_provider_and_that_is_counted) {
    static pairs options = {
        {"provider.order", "cuda,cpu"}, {"provider.devices", "1"}, {NULL, NULL}};
    fl_fault_plan plan  = {.slots = 3, .cpu_slots = 1, .devices = 2};
    fletch_model *model = open_with(&plan, options);
    static call   c;
    cr_assert_str_eq(stats_of(model).provider, "cuda");
    plan.planned     = FL_FAULT_BROKEN;
    plan.times       = 1;
    plan.bad_devices = 2; /* at once, and after a second */
    fl_fault_set(&plan);
    call_init(&c, model);
    cr_assert_eq(submit(&c, 10, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK, "%s", c.outcome.error.message);
    check_rows(&c, 10);
    fletch_stats stats = stats_of(model);
    cr_assert_str_eq(stats.provider, "cpu");
    cr_assert_eq(stats.counter[FLETCH_COUNT_PROVIDER_FALLBACKS], 1);
    cr_assert_eq(stats.counter[FLETCH_COUNT_REPLICA_REOPENS], 1);
    embed_all(model);
    uint64_t tried = fl_fault_opens();
    while (fl_fault_opens() == tried)
        a_moment();
    embed_all(model);
    cr_assert_str_eq(stats_of(model).provider, "cpu");
    plan.bad_devices = 0;
    fl_fault_set(&plan);
    while (strcmp(stats_of(model).provider, "cuda") != 0) { /* it comes back, and nothing is lost */
        embed_all(model);
        a_moment();
    }
    for (int i = 0; i < 3; i++)
        embed_all(model);
    cr_assert_eq(device_of(model, 0).device, 1);
    cr_assert_not(fl_fault_overlapped());
    fletch_close(model);
    cr_assert_eq(fl_fault_open(), 0);
}

/* Both streams of a device stand still, and it does not open again: one waiting ends both, what they had and what
 * waited goes to the processor, which runs one batch at once, and closing waits for nothing. */
Test(schedule, a_device_that_hangs_leaves_the_work_to_the_next_provider) {
    static pairs options = {{"provider.order", "cuda,cpu"}, {"batch.max_texts", "4"}, {NULL, NULL}};
    fl_fault_plan  plan  = {.slots = 2, .cpu_slots = 1};
    fletch_model  *model = open_with(&plan, options);
    static call    calls[6];
    const uint64_t opens = fl_fault_opens();
    plan.cuda_gone       = true;
    plan.planned         = FL_FAULT_HANG;
    plan.late_ms         = 300;
    plan.times = plan.meet = 2;
    fl_fault_set(&plan);
    for (int i = 0; i < 6; i++) {
        call_init(&calls[i], model);
        cr_assert_eq(submit(&calls[i], TEXTS, false, 0), 0);
    }
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(wait_for(&calls[i]), FLETCH_OK);
        check_rows(&calls[i], TEXTS);
    }
    cr_assert_not(fl_fault_lonely());
    cr_assert_gt(fl_fault_opens(), opens);
    cr_assert_str_eq(stats_of(model).provider, "cpu");
    cr_assert_not(fl_fault_overlapped());
    fletch_close(model);
    cr_assert_eq(fl_fault_open(), 0);
}

static bool is_ready(fletch_model *model, size_t replica) {
    return device_of(model, replica).ready != 0;
}

/* One that went elsewhere comes home although another, which is home again, could do the work. */
Test(schedule, every_device_comes_home) {
    static pairs  options = {{"provider.order", "cuda,cpu"},
                             {"provider.devices", "all"},
                             {"batch.max_texts", "4"},
                             {NULL, NULL}};
    fl_fault_plan plan    = {.slots = 1, .devices = 2};
    fletch_model *model   = open_with(&plan, options);
    plan.cuda_gone        = true;
    plan.planned          = FL_FAULT_BROKEN;
    for (int broken = 0; broken < 2; broken++) { /* the last one goes elsewhere */
        plan.times = 1;
        fl_fault_set(&plan);
        embed_all(model);
    }
    while (strcmp(device_of(model, 0).provider, "cpu") != 0 &&
           strcmp(device_of(model, 1).provider, "cpu") != 0)
        embed_all(model);
    fl_fault_set(&(fl_fault_plan){.slots = 1, .devices = 2});
    for (uint32_t d = 0; d < 2; d++)
        while (strcmp(device_of(model, d).provider, "cuda") != 0 || !is_ready(model, d)) {
            embed_all(model);
            a_moment();
        }
    cr_assert_eq(device_of(model, 1).device, 1);
    fletch_close(model);
    cr_assert_eq(fl_fault_open(), 0);
}

/* The memory of a card is not the processor's. */
Test(schedule, a_device_without_memory_leaves_the_model_to_the_next_provider) {
    static pairs  both  = {{"provider.order", "cuda,cpu"}, {NULL, NULL}};
    static pairs  one   = {{"provider.order", "cuda"}, {NULL, NULL}};
    fl_fault_plan plan  = {.slots = 1, .opens_fail = 1, .opens_code = FLETCH_ENOMEM};
    fletch_model *model = open_with(&plan, both);
    cr_assert_str_eq(stats_of(model).provider, "cpu");
    embed_all(model);
    fletch_close(model);
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    fl_fault_set(&plan);
    cr_assert_eq(fletch_config_set(config, one[0][0], one[0][1], NULL), 0);
    cr_assert_eq(fletch_open(&model, FOLDER, config, &error), FLETCH_ENOMEM);
    fletch_config_free(config);
}

/* A card that is too old for the cuda engine, or a model that it has no kernels for: what its probe could
 * not know. provider.engine says whether another engine may have the card. */
Test(schedule, what_one_engine_of_a_provider_refuses_goes_to_the_other) {
    static const struct {
        const char *engine, *provider;
        uint64_t    opens, fallbacks;
    } cases[] = {{"auto", "cuda", 2, 0}, {"native", "cpu", 2, 1}, {"onnxruntime", "cpu", 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pairs options = {
            {"provider.order", "cuda,cpu"}, {"provider.engine", cases[i].engine}, {NULL, NULL}};
        fl_fault_plan plan   = {.slots = 1, .opens_fail = 1, .onnxruntime = true};
        uint64_t      before = fl_fault_opens();
        fletch_model *model  = open_with(&plan, options);
        fletch_stats  stats  = stats_of(model);
        cr_assert_str_eq(stats.provider, cases[i].provider, "%s", cases[i].engine);
        cr_assert_eq(stats.counter[FLETCH_COUNT_PROVIDER_FALLBACKS], cases[i].fallbacks);
        cr_assert_eq(fl_fault_opens() - before, cases[i].opens);
        embed_all(model);
        fletch_close(model);
    }
    cr_assert_eq(fl_fault_open(), 0);
}

/* ---- Devices that do not open ------------------------------------------------------------------ */

static int gather(void *user, const char *name, const char *value, const char *comment) {
    char *text = user;
    (void)comment;
    snprintf(text + strlen(text), 4096 - strlen(text), "%s=%s\n", name, value);
    return 0;
}

/* Two of four are gone: the others work, it is told which are missing and why, and they come back. */
static void open_without(const char *devices) {
    const char *const options[][2] = {
        {"provider.order", "cuda"}, {"provider.devices", devices}, {NULL, NULL}};
    fl_fault_plan plan = {.slots = 2, .devices = 4, .bad_devices = 5}, well = plan;
    char          text[4096] = "";
    fletch_model *model      = open_with(&plan, options);
    fletch_stats  stats      = stats_of(model);
    cr_assert_eq(stats.replicas, 4);
    cr_assert_eq(stats.replicas_ready, 2);
    cr_assert_eq(stats.slots, 8);
    cr_assert_str_eq(stats.device, "test");
    for (uint32_t d = 0; d < 4; d++) {
        fletch_device_stats device = device_of(model, d);
        cr_assert_eq(device.device, d);
        cr_assert_eq(device.ready, d == 1 || d == 3);
        cr_assert_str_eq(device.failure, device.ready ? "" : "the device is gone");
        cr_assert_str_eq(device.name, device.ready ? "test" : "");
        cr_assert_str_eq(device.provider, "cuda");
    }
    cr_assert_eq(fletch_model_describe(model, gather, text), 0);
    cr_assert_not_null(strstr(text, "replica.2=cuda device 2 failed: the device is gone"), "%s",
                       text);
    for (int i = 0; i < 3; i++)
        embed_all(model);
    well.bad_devices = 0;
    fl_fault_set(&well);
    while (stats_of(model).replicas_ready < 4)
        a_moment();
    cr_assert_str_eq(device_of(model, 0).failure, "");
    cr_assert_eq(fletch_warm(model, NULL), 0);
    cr_assert(device_of(model, 0).batches > 0 && device_of(model, 2).batches > 0);
    fletch_close(model);
    cr_assert_eq(fl_fault_open(), 0);
}

Test(schedule, devices_that_do_not_open_leave_the_work_to_the_others) {
    open_without("all");
    open_without("0,1,2,3,9"); /* and 9 is none */
}

/* The place for it is smaller than an error's: no character is torn, for that would be no JSON. */
Test(schedule, a_long_failure_is_cut_at_a_whole_character) {
    static char failure[400];
    for (size_t i = 0; i < 300; i += 2)
        memcpy(failure + i, "\xC3\xA9", 2);
    fl_fault_plan plan  = {.slots = 1, .devices = 2, .bad_devices = 2, .why = failure};
    fletch_model *model = open_with(&plan, NULL);
    cr_assert_eq(strlen(device_of(model, 1).failure), 254);
    cr_assert_eq(memcmp(device_of(model, 1).failure, failure, 254), 0);
    fletch_close(model);
}

Test(schedule, when_no_device_opens_the_next_provider_does) {
    const char *const options[][2] = {
        {"provider.order", "cuda,cpu"}, {"provider.devices", "all"}, {NULL, NULL}};
    fl_fault_plan plan  = {.slots = 1, .devices = 3, .opens_fail = 3};
    fletch_model *model = open_with(&plan, options);
    cr_assert_str_eq(stats_of(model).provider, "cpu");
    cr_assert_eq(stats_of(model).counter[FLETCH_COUNT_PROVIDER_FALLBACKS], 1);
    cr_assert_eq(stats_of(model).replicas_ready, 3);
    fletch_close(model);
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    plan.opens_fail = 6;
    fl_fault_set(&plan);
    cr_assert_eq(fletch_config_set(config, "provider.order", "cuda,cpu", NULL), 0);
    cr_assert_eq(fletch_open(&model, FOLDER, config, &error), FLETCH_EPROVIDER);
    cr_assert_str_eq(error.message, "the device is gone");
    cr_assert_eq(fl_fault_open(), 0);
    fletch_config_free(config);
}

/* One of several that breaks waits for its own device: its work is not worth a slower provider. */
Test(schedule, a_broken_device_keeps_to_its_provider_while_others_work) {
    const char *const options[][2] = {
        {"provider.order", "cuda,cpu"}, {"provider.devices", "all"}, {NULL, NULL}};
    fl_fault_plan plan  = {.slots = 1, .devices = 2, .bad_devices = 2};
    fletch_model *model = open_with(&plan, options);
    uint64_t      first = stats_of(model).counter[FLETCH_COUNT_PROVIDER_SELECTIONS],
             tried      = fl_fault_opens();
    embed_all(model);
    while (fl_fault_opens() < tried + 2)
        a_moment();
    plan.bad_devices = 0;
    fl_fault_set(&plan);
    while (!is_ready(model, 1))
        a_moment();
    cr_assert_str_eq(device_of(model, 1).provider, "cuda");
    cr_assert_eq(device_of(model, 1).device, 1);
    cr_assert_eq(stats_of(model).counter[FLETCH_COUNT_PROVIDER_FALLBACKS], 0);
    cr_assert_eq(stats_of(model).counter[FLETCH_COUNT_PROVIDER_SELECTIONS], first + 1);
    fletch_close(model);
}

/* A device that comes later and takes less makes every batch smaller: none is too large for it. */
Test(schedule, a_device_that_comes_later_is_asked_for_no_more_than_it_takes) {
    static pairs  options = {{"batch.max_tokens", "4096"}, {NULL, NULL}};
    fl_fault_plan plan    = {.slots = 1, .devices = 2, .bad_devices = 2, .small = 128};
    fletch_model *model   = open_with(&plan, options);
    cr_assert_eq(stats_of(model).batch_tokens, 4096);
    plan.bad_devices = 0;
    fl_fault_set(&plan);
    while (!is_ready(model, 1))
        a_moment();
    cr_assert_eq(stats_of(model).batch_tokens, 128);
    for (int i = 0; i < 5; i++)
        embed_all(model);
    cr_assert_leq(fl_fault_most_tokens(), 128);
    cr_assert(!fl_fault_overlapped());
    fletch_close(model);
}

static void *close_model(void *model) {
    fletch_close(model);
    return NULL;
}

/* Closing waits for a device that is being opened again, and for a whole set that is. */
Test(schedule, closing_while_devices_open_waits_for_them) {
    fl_fault_plan plan = {.slots = 1, .devices = 8, .bad_devices = 0xF0}, held = plan;
    held.opens_held     = true;
    fletch_model *model = open_with(&plan, NULL);
    pthread_t     closer;
    fl_fault_set(&held);
    while (fl_fault_opening() < 4)
        a_moment();
    pthread_create(&closer, NULL, close_model, model);
    cr_assert_gt(fl_fault_open(), 0);
    plan.bad_devices = 0;
    fl_fault_set(&plan);
    pthread_join(closer, NULL);
    cr_assert_eq(fl_fault_open(), 0);
}

static void *reopen_model(void *model) {
    fletch_model_reopen(model, NULL, NULL);
    return NULL;
}

Test(schedule, closing_while_all_devices_load_waits_for_them) {
    fl_fault_plan plan = {.slots = 1, .devices = 8}, held = plan;
    held.opens_held     = true;
    fletch_model *model = open_with(&plan, NULL);
    pthread_t     loader, closer;
    fl_fault_set(&held);
    pthread_create(&loader, NULL, reopen_model, model);
    while (fl_fault_opening() < 8)
        a_moment();
    pthread_create(&closer, NULL, close_model, model);
    fl_fault_set(&plan);
    pthread_join(loader, NULL);
    pthread_join(closer, NULL);
    cr_assert_eq(fl_fault_open(), 0);
}

/* ---- Calls from inside callbacks --------------------------------------------------------------- */

static void embed_many(call *c) {
    fletch_texts  texts = many_texts();
    fletch_matrix out   = fletch_matrix_f32(many_rows, MANY, dim);
    cr_assert_eq(fletch_embed(c->model, &texts, NULL, &out, NULL), 0);
}

Test(schedule, a_callback_may_embed_more_than_a_window) {
    fl_fault_plan plan  = {.slots = 1};
    fletch_model *model = open_with(&plan, NULL);
    static call   c;
    call_init(&c, model);
    c.inside = embed_many;
    cr_assert_eq(submit(&c, 1, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    check_many();
    fletch_close(model);
}

static void *embed_late(void *arg) {
    call               *c = arg;
    static float        row[DIM_MAX];
    fletch_texts        texts = fletch_texts_from_strings(strings, 1);
    fletch_matrix       out   = fletch_matrix_f32(row, 1, dim);
    const fl_fault_plan late  = {.slots = 1, .planned = FL_FAULT_LATE, .times = 1, .late_ms = 100};
    fl_fault_set(&late);
    cr_assert_eq(fletch_embed(c->model, &texts, NULL, &out, NULL), 0);
    return NULL;
}

/* Another caller has the only slot when this one comes, and leaves afterwards. */
static void embed_behind(call *c) {
    pthread_t     other;
    float         row[DIM_MAX];
    fletch_texts  texts  = fletch_texts_from_strings(strings, 1);
    fletch_matrix out    = fletch_matrix_f32(row, 1, dim);
    uint64_t      before = fl_fault_forwards();
    pthread_create(&other, NULL, embed_late, c);
    while (fl_fault_forwards() == before)
        ;
    cr_assert_eq(fletch_embed(c->model, &texts, NULL, &out, NULL), 0);
    pthread_join(other, NULL);
}

Test(schedule, a_callback_that_waits_behind_a_caller_is_woken) {
    fl_fault_plan plan  = {.slots = 1};
    fletch_model *model = open_with(&plan, NULL);
    static call   c;
    call_init(&c, model);
    c.inside = embed_behind;
    cr_assert_eq(submit(&c, 1, false, 0), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    fletch_close(model);
}

/* ---- Windows and budgets ----------------------------------------------------------------------- */

Test(schedule, a_bulk_request_takes_no_more_buffers_than_its_window) {
    fl_fault_plan  plan    = {.slots = 1};
    fletch_model  *model   = open_with(&plan, NULL);
    fletch_request request = FLETCH_REQUEST_INIT;
    static call    c;
    call_init(&c, model);
    request.texts = many_texts();
    request.out   = fletch_matrix_f32(many_rows, MANY, dim);
    request.lane  = FLETCH_LANE_BULK;
    uint64_t before =
        stats_of(model).counter[FLETCH_COUNT_POOL_ALLOCATIONS]; /* some were made ahead */
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    check_many();
    uint64_t made = stats_of(model).counter[FLETCH_COUNT_POOL_ALLOCATIONS] - before;
    cr_assert_leq(made, 6, "%d buffers for 20 chunks, 2 or 3 at a time", (int)made);
    fletch_close(model);
}

Test(schedule, batches_keep_to_their_budgets) {
    static pairs  options = {{"batch.max_texts", "8"}, {"batch.max_tokens", "200"}, {NULL, NULL}};
    fl_fault_plan plan    = {.slots = 1};
    fletch_model *model   = open_with(&plan, options);
    for (int lane = 0; lane < 2; lane++) {
        fletch_request request = FLETCH_REQUEST_INIT;
        static call    c;
        call_init(&c, model);
        request.texts = fletch_texts_from_strings(strings, TEXTS);
        request.out   = fletch_matrix_f32(c.rows, TEXTS, dim);
        request.lane  = (fletch_lane)lane;
        fl_fault_set(&plan);
        cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
        cr_assert_eq(wait_for(&c), FLETCH_OK);
        check_rows(&c, TEXTS);
        cr_assert_leq(fl_fault_most_texts(), 8);
        cr_assert_leq(fl_fault_most_tokens(), 200);
        cr_assert_gt(fl_fault_most_texts(), 1);
    }
    fletch_close(model);
}

/* ---- Memory ------------------------------------------------------------------------------------ */

static uint64_t resident(void) {
    unsigned long size = 0, pages = 0;
    FILE         *file = fopen("/proc/self/statm", "r");
    cr_assert_eq(fscanf(file, "%lu %lu", &size, &pages), 2);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

Test(schedule, a_batch_that_does_not_fit_under_the_limit_is_split_and_lost_nowhere) {
    enum { MIB = 1 << 20 };
    char          limit[32];
    pairs         options = {{"memory.limit", limit},
                             {"batch.max_texts", "64"},
                             {"batch.max_tokens", "4096"},
                             {NULL, NULL}};
    fl_fault_plan plan    = {.slots = 1, .token_bytes = 4 * MIB};
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)(resident() + 600u * MIB));
    fletch_model *model = open_with(&plan, options);
    static call   c;
    call_init(&c, model);
    cr_assert_eq(submit(&c, TEXTS, true, 0), 0); /* some 400 tokens */
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    for (size_t i = 0; i < TEXTS; i++)
        cr_assert_eq(c.status[i], FLETCH_OK, "text %zu", i);
    check_rows(&c, TEXTS);
    fletch_stats stats = stats_of(model);
    cr_assert_gt(stats.counter[FLETCH_COUNT_BATCH_SPLITS], 0);
    cr_assert_eq(stats.counter[FLETCH_COUNT_FAILED_TEXTS], 0);
    cr_assert_eq(stats.memory_reserved, 0);
    fletch_close(model);
}

Test(schedule, any_allocation_may_fail_and_the_request_is_answered_once) {
    int refused = 0, failed = 0;
    for (uint64_t n = 1; n <= 12; n++) {
        static pairs  options = {{"pool.enable", "false"}, {NULL, NULL}};
        fl_fault_plan plan    = {.slots = 1, .devices = 1};
        fletch_model *model   = open_with(&plan, options);
        static call   c;
        call_init(&c, model);
        fl_alloc_fail_after(n);
        int status = submit(&c, TEXTS, false, 0);
        if (status == 0)
            status = wait_for(&c);
        else
            refused++;
        fl_alloc_fail_after(0);
        cr_assert(status == FLETCH_OK || status == FLETCH_ENOMEM, "%d", status);
        failed += status < 0;
        if (status == FLETCH_OK)
            check_rows(&c, TEXTS);
        call_init(&c, model); /* and the model is as good as before */
        cr_assert_eq(submit(&c, TEXTS, false, 0), 0);
        cr_assert_eq(wait_for(&c), FLETCH_OK);
        check_rows(&c, TEXTS);
        fletch_close(model);
    }
    cr_assert_gt(refused, 0);
    cr_assert_gt(failed, refused);
}

/* ---- What is asked ----------------------------------------------------------------------------- */

Test(schedule, a_text_of_ten_megabytes_is_cut_or_refused_like_any_other) {
    enum { BYTES = 10 * 1000 * 1000 };
    fl_fault_plan plan  = {.slots = 1};
    fletch_model *model = open_with(&plan, NULL);
    char         *text  = malloc(BYTES);
    static call   c;
    for (size_t i = 0; i < BYTES; i++)
        text[i] = i % 4 == 3 ? ' ' : "cat"[i % 4];
    const char    *both[2]       = {strings[0], text};
    size_t         sizes[]       = {strlen(strings[0]), BYTES};
    uint8_t        cut[2]        = {9, 9};
    fletch_request request       = FLETCH_REQUEST_INIT;
    request.texts                = fletch_texts_from_strings(both, 2);
    request.texts.lengths        = sizes;
    request.out                  = fletch_matrix_f32(c.rows, 2, dim);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    request.options              = &options;
    options.truncated            = cut;
    for (int round = 0; round < 2; round++) {
        call_init(&c, model);
        options.truncate = round ? FLETCH_TRUNCATE_ERROR : FLETCH_TRUNCATE_RIGHT;
        cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
        cr_assert_eq(wait_for(&c), round ? FLETCH_ETOOLONG : FLETCH_OK);
        cr_assert_eq(cut[0], 0);
        cr_assert_eq(cut[1], !round);
    }
    cr_assert_eq(c.outcome.error.where, 1);
    fletch_close(model);
    free(text);
}

Test(schedule, offsets_that_run_backwards_fail_their_texts_alone) {
    fl_fault_plan  plan      = {.slots = 1};
    fletch_model  *model     = open_with(&plan, NULL);
    const char     bytes[]   = "one two three";
    const int32_t  offsets[] = {0, 3, 7, 4, 13};
    fletch_request request   = FLETCH_REQUEST_INIT;
    static call    c;
    call_init(&c, model);
    request.texts                = (fletch_texts){.count = 4, .bytes = bytes, .offsets32 = offsets};
    request.out                  = fletch_matrix_f32(c.rows, 4, dim);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    request.options              = &options;
    options.status               = c.status;
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(c.status[i], i == 2 ? FLETCH_EINVAL : FLETCH_OK, "text %zu", i);
    fletch_close(model);
}

/* What is beyond the last offset lies nowhere, whatever the next offset is; text 0 would be read before it. */
Test(schedule, offsets_and_lengths_that_lead_anywhere_are_refused_unread) {
    fl_fault_plan plan  = {.slots = 1};
    fletch_model *model = open_with(&plan, NULL);
    const char bytes[] = "one two three", *const two[] = {bytes, bytes};
    const int64_t offsets[] = {0, INT64_MAX, 2, 9}, far[] = {0, INT64_MAX, INT64_MAX, 2};
    const size_t  lengths[] = {SIZE_MAX, 3}, halved[] = {SIZE_MAX / 2, 3};
    const struct {
        fletch_texts texts;
        size_t       good;
    } cases[] = {{{.count = 3, .bytes = bytes, .offsets64 = offsets}, 2},
                 {{.count = 3, .bytes = bytes, .offsets64 = far}, 3},
                 {{.count = 2, .pointers = two, .lengths = lengths}, 1},
                 {{.count = 2, .pointers = two, .lengths = halved}, 1}};
    static call c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fletch_request       request = FLETCH_REQUEST_INIT;
        fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
        fletch_error         error;
        call_init(&c, model);
        options.status  = c.status;
        request.texts   = cases[i].texts;
        request.out     = fletch_matrix_f32(c.rows, request.texts.count, dim);
        request.options = &options;
        cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
        (void)wait_for(&c);
        for (size_t k = 0; k < request.texts.count; k++)
            cr_assert_eq(c.status[k], k == cases[i].good ? FLETCH_OK : FLETCH_EINVAL,
                         "case %zu, text %zu: %d", i, k, c.status[k]);
        cr_assert_eq(fletch_embed(model, &request.texts, NULL, &request.out, &error),
                     FLETCH_EINVAL);
    }
    fletch_close(model);
}

Test(schedule, rows_keep_to_a_wide_stride) {
    fl_fault_plan plan  = {.slots = 1};
    fletch_model *model = open_with(&plan, NULL);
    static float  rows[10 * (DIM_MAX + 5)];
    static call   c;
    size_t        stride = dim + 5;
    call_init(&c, model);
    for (size_t i = 0; i < 10 * stride; i++)
        rows[i] = 7.0f;
    fletch_request request = FLETCH_REQUEST_INIT;
    request.texts          = fletch_texts_from_strings(strings, 10);
    request.out            = fletch_matrix_f32(rows, 10, dim);
    request.out.stride     = stride * sizeof(float);
    cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
    cr_assert_eq(wait_for(&c), FLETCH_OK);
    for (size_t i = 0; i < 10; i++) {
        cr_assert_eq(memcmp(rows + i * stride, want + i * dim, dim * sizeof(float)), 0);
        for (size_t k = dim; k < stride; k++)
            cr_assert_eq(rows[i * stride + k], 7.0f, "row %zu: written behind its end", i);
    }
    fletch_close(model);
}

/* Rows of ids [0, 6): what is left of them under each way to cut at 4. */
Test(schedule, token_ids_are_cut_at_the_end_that_was_asked_for) {
    static const struct {
        fletch_truncate how;
        int64_t         first;
    } ways[] = {{FLETCH_TRUNCATE_RIGHT, 0}, {FLETCH_TRUNCATE_LEFT, 2}, {FLETCH_TRUNCATE_ERROR, 0}};
    const int32_t ids[] = {5, 6, 7, 8, 9, 10};
    fl_fault_plan plan  = {.slots = 1};
    fletch_model *model = open_with(&plan, NULL);
    static call   c;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        bool           refuses   = ways[i].how == FLETCH_TRUNCATE_ERROR;
        int64_t        offsets[] = {0, 6, ways[i].first, ways[i].first + 4};
        fletch_request request   = FLETCH_REQUEST_INIT;
        for (int whole = 0; whole < 2; whole++) {
            call_init(&c, model);
            request.ids                  = ids;
            request.texts                = (fletch_texts){.count = 1};
            request.texts.offsets64      = whole ? offsets : offsets + 2;
            request.out                  = fletch_matrix_f32(c.rows + (whole ? dim : 0), 1, dim);
            fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
            request.options              = &options;
            options.truncate             = ways[i].how;
            options.max_length           = 4;
            static float kept[DIM_MAX];
            cr_assert_eq(fletch_submit(model, &request, done, &c, NULL, NULL), 0);
            cr_assert_eq(wait_for(&c), whole && refuses ? FLETCH_ETOOLONG : FLETCH_OK);
            if (whole && !refuses)
                cr_assert_eq(memcmp(c.rows + dim, kept, dim * sizeof(float)), 0, "way %zu", i);
            memcpy(kept, c.rows, dim * sizeof(float));
        }
    }
    fletch_close(model);
}

/* ---- Several models ------------------------------------------------------------------------------ */

Test(schedule, bulk_texts_give_way_to_interactive_ones_of_another_model) {
    fl_fault_plan plan  = {.slots = 1, .devices = 1};
    fletch_model *asked = open_with(&plan, NULL), *filled = open_with(&plan, NULL);
    static call   quick, slow;
    call_init(&quick, asked);
    call_init(&slow, filled);
    slow.lane  = FLETCH_LANE_BULK;
    plan.gated = true;
    fl_fault_set(&plan);
    uint64_t before = fl_fault_forwards();
    cr_assert_eq(submit(&quick, 1, false, 0), 0);
    while (fl_fault_forwards() == before) /* it is in the engine, and stays there */
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    cr_assert_eq(submit(&slow, 4, false, 0), 0);
    while (fl_fault_forwards() == before + 1) /* it comes in though nothing has left */
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    cr_assert_eq(stats_of(filled).counter[FLETCH_COUNT_BULK_DEFERRALS], 1);
    cr_assert_eq(stats_of(asked).counter[FLETCH_COUNT_BULK_DEFERRALS], 0);
    plan.gated = false;
    fl_fault_set(&plan);
    cr_assert_eq(wait_for(&quick), FLETCH_OK);
    cr_assert_eq(wait_for(&slow), FLETCH_OK);
    check_rows(&slow, 4);
    call_init(&slow, filled);
    slow.lane = FLETCH_LANE_BULK;
    cr_assert_eq(submit(&slow, 4, false, 0), 0);
    cr_assert_eq(wait_for(&slow), FLETCH_OK);
    cr_assert_eq(stats_of(filled).counter[FLETCH_COUNT_BULK_DEFERRALS], 1,
                 "nobody else was at work");
    fletch_close(asked);
    fletch_close(filled);
}
