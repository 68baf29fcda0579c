/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - what must never break in the memory watch: the lowest limit on the way up counts,
 * promises never pass the ceiling, and scarcity is seen wherever the kernel shows it.
 *
 * Every test lays a /proc and /sys/fs/cgroup tree of its own into a temporary folder, in the form the
 * kernel writes (Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst, accounting/psi.rst). */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "scheduler/memory.h"

static const uint64_t mib = 1 << 20;

static char root[64];

/* ---- The tree --------------------------------------------------------------------------------- */

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0777);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static void put_number(const char *path, uint64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)number);
    put(path, text);
}

static void put_resident(uint64_t bytes) {
    char text[96];
    snprintf(text, sizeof text, "999999 %llu 100 1 0 50 0\n",
             (unsigned long long)(bytes / (uint64_t)sysconf(_SC_PAGESIZE)));
    put("/proc/self/statm", text);
}

static void put_machine(uint64_t total, uint64_t available) {
    char text[160];
    snprintf(text, sizeof text,
             "MemTotal:       %llu kB\nMemFree:         1024 kB\nMemAvailable:   %llu kB\n",
             (unsigned long long)(total / 1024), (unsigned long long)(available / 1024));
    put("/proc/meminfo", text);
}

static void begin(void) {
    strcpy(root, "/tmp/fletch-memory-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    put_resident(100 * mib);
    put_machine(16384 * mib, 12000 * mib);
}

static void end(fl_memory *memory) {
    fl_memory_close(memory);
    cr_assert_eq(fl_path_remove(root, NULL), FLETCH_OK);
}

static fl_memory *watch(uint64_t limit) {
    fl_memory_options options = {.limit = limit, .detect = true, .threshold = 0.8, .root = root};
    fl_memory        *memory;
    fletch_error      error;
    cr_assert_eq(fl_memory_open(&memory, &options, &error), FLETCH_OK);
    return memory;
}

/* Under pressure, and the sentence says `word`. */
static bool scarce(fl_memory *memory, const char *word) {
    char why[160] = "";
    bool is       = fl_memory_pressure(memory, why, sizeof why);
    cr_assert(!is || strstr(why, word), "%s does not say %s", why, word);
    return is;
}

/* ---- The ceiling ------------------------------------------------------------------------------ */

Test(memory, without_groups_the_option_is_the_ceiling) {
    begin();
    fl_memory *memory = watch(512 * mib);
    cr_assert_eq(fl_memory_used(memory), 100 * mib);
    cr_assert_eq(fl_memory_limit(memory), 512 * mib);
    cr_assert_eq(fl_memory_room(memory), 412 * mib);
    end(memory);
}

Test(memory, without_any_limit_the_machine_is_the_ceiling) {
    begin();
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 0);
    cr_assert_eq(fl_memory_room(memory), (16384 - 100) * mib);
    end(memory);
}

Test(memory, where_nothing_can_be_read_there_is_no_ceiling) {
    begin();
    cr_assert_eq(fl_path_remove(root, NULL), FLETCH_OK);
    cr_assert_eq(mkdir(root, 0700), 0);
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 0);
    cr_assert_eq(fl_memory_room(memory), UINT64_MAX);
    cr_assert(fl_memory_reserve(memory, 1ULL << 50));
    cr_assert_not(scarce(memory, ""));
    end(memory);
}

Test(memory, v2_the_lowest_limit_on_the_way_up_counts) {
    begin();
    put("/proc/self/cgroup", "0::/system.slice/fletch.service/worker\n");
    put("/sys/fs/cgroup/system.slice/fletch.service/worker/memory.max", "max\n");
    put_number("/sys/fs/cgroup/system.slice/fletch.service/worker/memory.current", 90 * mib);
    put_number("/sys/fs/cgroup/system.slice/fletch.service/memory.max", 300 * mib);
    put_number("/sys/fs/cgroup/system.slice/fletch.service/memory.current", 250 * mib);
    put("/sys/fs/cgroup/system.slice/fletch.service/memory.stat",
        "anon 1\nfile 2\ninactive_anon 5\nactive_file 4096\ninactive_file 104857600\n");
    put_number("/sys/fs/cgroup/system.slice/memory.max", 800 * mib);
    put_number("/sys/fs/cgroup/system.slice/memory.current", 260 * mib);
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 300 * mib);
    cr_assert_eq(fl_memory_room(memory), 150 * mib, "300 - (250 - 100 that can be taken back)");
    /* a neighbour fills the slice */
    put_number("/sys/fs/cgroup/system.slice/memory.current", 790 * mib);
    cr_assert(scarce(memory, "control group"));
    cr_assert_eq(fl_memory_room(memory), 10 * mib);
    cr_assert_eq(fl_memory_limit(memory), 300 * mib);
    end(memory);
}

Test(memory, v2_high_counts_like_max) {
    begin();
    put("/proc/self/cgroup", "0::/a\n");
    put_number("/sys/fs/cgroup/a/memory.max", 500 * mib);
    put_number("/sys/fs/cgroup/a/memory.high", 400 * mib);
    put_number("/sys/fs/cgroup/a/memory.current", 100 * mib);
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 400 * mib);
    cr_assert_eq(fl_memory_room(memory), 300 * mib);
    end(memory);
}

Test(memory, a_container_sees_its_group_as_the_root) {
    begin();
    put("/proc/self/cgroup", "0::/\n");
    put_number("/sys/fs/cgroup/memory.max", 256 * mib);
    put_number("/sys/fs/cgroup/memory.current", 128 * mib);
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 256 * mib);
    cr_assert_eq(fl_memory_room(memory), 128 * mib);
    end(memory);
}

Test(memory, a_path_of_another_namespace_ends_at_the_root) {
    begin();
    put("/proc/self/cgroup", "0::/../../other\n");
    put_number("/sys/fs/cgroup/memory.max", 256 * mib);
    put_number("/sys/fs/cgroup/memory.current", 56 * mib);
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_room(memory), 200 * mib);
    end(memory);
}

Test(memory, v1_is_read_from_its_own_mount) {
    begin();
    put("/proc/self/cgroup", "11:blkio:/x\n4:hugetlb,memory:/docker/abc\n1:name=systemd:/x\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 9000 * mib);
    put("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "9223372036854771712\n");
    put_number("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", 400 * mib);
    put_number("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", 350 * mib);
    put("/sys/fs/cgroup/memory/docker/abc/memory.stat",
        "cache 1\ninactive_file 1\ntotal_inactive_file 157286400\n");
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 400 * mib);
    cr_assert_eq(fl_memory_room(memory), 200 * mib);
    end(memory);
}

Test(memory, a_hybrid_system_has_its_memory_in_either_tree) {
    begin();
    put("/proc/self/cgroup", "4:memory:/box\n1:cpu:/\n0::/\n");
    put_number("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", 400 * mib);
    put_number("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", 100 * mib);
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 400 * mib);
    end(memory);
    begin();
    put("/proc/self/cgroup", "1:cpu:/\n0::/box\n");
    put_number("/sys/fs/cgroup/unified/box/memory.max", 300 * mib);
    put_number("/sys/fs/cgroup/unified/box/memory.current", 100 * mib);
    memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 300 * mib);
    cr_assert_eq(fl_memory_room(memory), 200 * mib);
    end(memory);
}

Test(memory, the_option_wins_where_it_is_lower_and_the_group_where_that_is) {
    begin();
    put("/proc/self/cgroup", "0::/a\n");
    put_number("/sys/fs/cgroup/a/memory.max", 500 * mib);
    put_number("/sys/fs/cgroup/a/memory.current", 450 * mib);
    fl_memory *memory = watch(300 * mib);
    cr_assert_eq(fl_memory_limit(memory), 300 * mib);
    cr_assert_eq(fl_memory_room(memory), 50 * mib, "the group has less left than the option");
    fl_memory_close(memory);
    memory = watch(800 * mib);
    cr_assert_eq(fl_memory_limit(memory), 500 * mib);
    end(memory);
}

Test(memory, a_limit_that_changes_is_seen) {
    begin();
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    put_number("/sys/fs/cgroup/a/memory.current", 100 * mib);
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 0);
    put_number("/sys/fs/cgroup/a/memory.max", 200 * mib);
    cr_assert_not(scarce(memory, ""));
    cr_assert_eq(fl_memory_limit(memory), 200 * mib);
    cr_assert_eq(fl_memory_room(memory), 100 * mib);
    end(memory);
}

Test(memory, damaged_files_are_no_limit) {
    begin();
    put("/proc/self/cgroup", "nonsense\n:\n0:\n::\n0::/a\n99999999:memory\n");
    put("/sys/fs/cgroup/a/memory.max", "\n");
    put("/sys/fs/cgroup/a/memory.current", "what\n");
    put("/proc/self/statm", "x\n");
    put("/proc/meminfo", "MemTotal\n");
    put("/proc/pressure/memory", "some\n");
    fl_memory *memory = watch(0);
    cr_assert_eq(fl_memory_limit(memory), 0);
    cr_assert_eq(fl_memory_room(memory), UINT64_MAX);
    cr_assert_not(scarce(memory, ""));
    end(memory);
}

/* ---- Promises --------------------------------------------------------------------------------- */

Test(memory, promises_never_pass_the_ceiling) {
    begin();
    fl_memory *memory = watch(200 * mib);
    cr_assert(fl_memory_reserve(memory, 60 * mib));
    cr_assert_not(fl_memory_reserve(memory, 41 * mib));
    cr_assert_eq(fl_memory_reserved(memory), 60 * mib, "a refused promise reserves nothing");
    cr_assert(fl_memory_reserve(memory, 40 * mib));
    cr_assert_eq(fl_memory_room(memory), 0);
    cr_assert_not(fl_memory_reserve(memory, 1));
    cr_assert_not(fl_memory_reserve(memory, UINT64_MAX));
    cr_assert(fl_memory_reserve(memory, 0));
    fl_memory_release(memory, 60 * mib);
    cr_assert_eq(fl_memory_room(memory), 60 * mib);
    fl_memory_release(memory, 40 * mib);
    cr_assert_eq(fl_memory_reserved(memory), 0);
    end(memory);
}

Test(memory, a_process_over_its_ceiling_has_no_room) {
    begin();
    put_resident(300 * mib);
    fl_memory *memory = watch(200 * mib);
    cr_assert_eq(fl_memory_room(memory), 0);
    cr_assert_not(fl_memory_reserve(memory, 1));
    end(memory);
}

Test(memory, before_a_refusal_it_looks_again) {
    begin();
    put_resident(190 * mib);
    fl_memory *memory = watch(200 * mib);
    for (int i = 0; i < 20;
         i++) { /* at once: no sample is old enough to be taken again by itself */
        put_resident((i % 2 ? 190 : 100) * mib);
        cr_assert_eq(fl_memory_reserve(memory, 50 * mib), i % 2 == 0);
        fl_memory_release(memory, i % 2 == 0 ? 50 * mib : 0);
        put_resident(190 * mib);
        cr_assert_not(fl_memory_reserve(memory, 101 * mib));
    }
    end(memory);
}

typedef struct reserver {
    fl_memory   *memory;
    atomic_long *held, *most;
} reserver;

static void *reserve_some(void *arg) {
    reserver *r = arg;
    for (int i = 0; i < 3000; i++) {
        if (fl_memory_reserve(r->memory, 10 * mib)) {
            long now = atomic_fetch_add(r->held, 1) + 1, seen = atomic_load(r->most);
            while (now > seen && !atomic_compare_exchange_weak(r->most, &seen, now)) {
            }
            if (i % 8 == 0)
                fl_memory_pressure(r->memory, NULL, 0);
            atomic_fetch_sub(r->held, 1);
            fl_memory_release(r->memory, 10 * mib);
        }
    }
    return NULL;
}

Test(memory, threads_together_never_pass_the_ceiling) {
    enum { THREADS = 8 };
    begin();
    fl_memory  *memory = watch(150 * mib); /* room for five */
    pthread_t   thread[THREADS];
    atomic_long held = 0, most = 0;
    reserver    r = {memory, &held, &most};
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, reserve_some, &r), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    cr_assert_leq(atomic_load(&most), 5);
    cr_assert_gt(atomic_load(&most), 0);
    cr_assert_eq(fl_memory_reserved(memory), 0);
    end(memory);
}

/* ---- Pressure --------------------------------------------------------------------------------- */

Test(memory, pressure_is_seen_in_each_of_the_four_places) {
    begin();
    put("/proc/self/cgroup", "0::/a\n");
    put_number("/sys/fs/cgroup/a/memory.max", 1000 * mib);
    put_number("/sys/fs/cgroup/a/memory.current", 100 * mib);
    put("/sys/fs/cgroup/a/memory.pressure",
        "some avg10=0.00 avg60=90.00 avg300=90.00 total=9\nfull avg10=99.00 avg60=0 avg300=0\n");
    fl_memory *memory = watch(500 * mib);
    cr_assert_not(scarce(memory, ""));

    put_resident(401 * mib);
    cr_assert(scarce(memory, "401 of 500 MiB of memory.limit"));
    put_resident(399 * mib);
    cr_assert_not(scarce(memory, ""));

    put_number("/sys/fs/cgroup/a/memory.current", 801 * mib);
    cr_assert(scarce(memory, "801 of 1000 MiB of the control group"));
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file 104857600\n");
    cr_assert_not(scarce(memory, ""));

    put_machine(16384 * mib, 3000 * mib);
    cr_assert(scarce(memory, "machine"));
    put_machine(16384 * mib, 4000 * mib);
    cr_assert_not(scarce(memory, ""));

    put("/sys/fs/cgroup/a/memory.pressure", "some avg10=19.99 avg60=0.00 avg300=0.00 total=9\n");
    cr_assert_not(scarce(memory, ""));
    put("/sys/fs/cgroup/a/memory.pressure", "some avg10=20.00 avg60=0.00 avg300=0.00 total=9\n");
    cr_assert(scarce(memory, "waited for memory 20 %"));
    cr_assert(fl_memory_pressure(memory, NULL, 0));
    end(memory);
}

Test(memory, without_a_group_the_machines_stalls_count) {
    begin();
    put("/proc/pressure/memory", "some avg10=35.10 avg60=1.00 avg300=0.00 total=9\n");
    fl_memory *memory = watch(0);
    cr_assert(scarce(memory, "35 %"));
    end(memory);
}

Test(memory, detection_can_be_switched_off) {
    begin();
    put_resident(490 * mib);
    fl_memory_options options = {
        .limit = 500 * mib, .detect = false, .threshold = 0.8, .root = root};
    fl_memory   *memory;
    fletch_error error;
    cr_assert_eq(fl_memory_open(&memory, &options, &error), FLETCH_OK);
    cr_assert_not(scarce(memory, ""));
    cr_assert_eq(fl_memory_room(memory), 10 * mib, "the ceiling holds all the same");
    end(memory);
}

Test(memory, the_real_tree_can_be_read) {
    fl_memory_options options = {.limit = 0, .detect = true, .threshold = 0.8, .root = ""};
    fl_memory        *memory;
    fletch_error      error;
    cr_assert_eq(fl_memory_open(&memory, &options, &error), FLETCH_OK);
    cr_assert_gt(fl_memory_used(memory), 256 * 1024);
    cr_assert_gt(fl_memory_room(memory), 0);
    fl_memory_pressure(memory, NULL, 0);
    fl_memory_close(memory);
    fl_memory_close(NULL);
}

Test(memory, out_of_memory_at_open_is_told) {
    begin();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    fl_memory_options options = {.threshold = 0.8, .root = root};
    fl_memory        *memory;
    fletch_error      error;
    for (uint64_t n = 1; n <= 4; n++) {
        fl_alloc_fail_after(n);
        cr_assert_eq(fl_memory_open(&memory, &options, &error), FLETCH_ENOMEM);
        cr_assert_null(memory);
    }
    fl_alloc_fail_after(0);
    cr_assert_eq(fl_memory_open(&memory, &options, &error), FLETCH_OK);
    end(memory);
}

/* ---- The optimiser ---------------------------------------------------------------------------- */

/* An engine that says: 1 MiB and 1 KiB a token. */
static uint64_t simple_memory(const fl_engine *engine, uint32_t texts, uint32_t tokens,
                              uint32_t longest) {
    (void)engine, (void)texts, (void)longest;
    return mib + (uint64_t)tokens * 1024;
}

static const fl_engine_ops simple = {.memory = simple_memory};

Test(memory, the_batch_fills_four_fifths_of_what_the_model_leaves) {
    /* (available - model) * 0.8 = 1 MiB + texts * 128 KiB */
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, 110 * mib, 100 * mib, 128), 56);
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, 105 * mib, 100 * mib, 128), 24);
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, 105 * mib - 1, 100 * mib, 128), 23);
}

Test(memory, the_batch_stays_within_1_and_256_texts) {
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, 101 * mib, 100 * mib, 128), 1);
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, 50 * mib, 100 * mib, 128), 1);
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, 0, 0, 128), 1);
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, 1ULL << 40, 100 * mib, 128), 256);
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, UINT64_MAX, 0, 128), 256);
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, UINT64_MAX, 0, 0), 256);
    cr_assert_eq(fl_memory_batch_texts(&simple, NULL, UINT64_MAX, 0, UINT32_MAX), 1);
}

Test(memory, a_token_budget_is_made_of_whole_texts_within_its_bounds) {
    /* 8 MiB - 1 MiB = 7168 tokens, 14 texts of 512 */
    cr_assert_eq(fl_memory_batch_tokens(&simple, NULL, 110 * mib, 100 * mib, 512, 512, 16384),
                 14 * 512);
    cr_assert_eq(fl_memory_batch_tokens(&simple, NULL, 110 * mib, 100 * mib, 512, 512, 4000), 4000);
    cr_assert_eq(fl_memory_batch_tokens(&simple, NULL, 10 * mib, 100 * mib, 512, 512, 16384), 512);
    cr_assert_eq(fl_memory_batch_tokens(&simple, NULL, 110 * mib, 100 * mib, 512, 9000, 16384),
                 9000);
    cr_assert_eq(fl_memory_batch_tokens(&simple, NULL, UINT64_MAX, 0, 512, 512, 16384), 16384);
    cr_assert_eq(fl_memory_batch_tokens(&simple, NULL, UINT64_MAX, 0, 512, 1, UINT32_MAX),
                 UINT32_MAX / 512 * 512);
    cr_assert_eq(fl_memory_batch_tokens(&simple, NULL, 110 * mib, 100 * mib, 1, 1, 100000), 7168);
}
