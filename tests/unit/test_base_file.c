/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_file.c - what must never break: a written file is whole or not there, nothing outside the
 * named folder is touched, links are not followed when removing, and checksums are the published ones. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_state.h"
#include "base/mem.h"
#include "base/sha256.h"

static char folder[64];

static void make_folder(void) {
    strcpy(folder, "/tmp/fl-test-file-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void drop_folder(void) {
    fletch_error error;
    cr_assert_eq(fl_path_remove(folder, &error), 0, "%s", error.message);
    cr_assert_not(fl_folder_exists(folder));
}

TestSuite(file, .init = make_folder, .fini = drop_folder);

static const char *in(const char *name) {
    static char path[4][256];
    static int  turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static int entries(void) {
    int            count = 0;
    DIR           *dir   = opendir(folder);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

Test(file, map_shows_the_bytes_and_refuses_what_is_no_file) {
    fl_map       map;
    fletch_error error;
    char         large[20001] = "hello";
    memset(large + 5, 'x', sizeof large - 6);
    put(in("a"), large);
    cr_assert_eq(fl_map_open(&map, in("a"), &error), 0);
    cr_assert_eq(map.size, sizeof large - 1);
    cr_assert_eq(memcmp(map.data, large, map.size), 0);
    fl_pages_release(map.data, map.size);
    fl_pages_release(map.data + 1, map.size - 1);
    fl_pages_release(map.data + 9, 1);
    fl_map_release(&map, map.data + 5000, 9000);
    cr_assert_eq(memcmp(map.data, large, map.size), 0, "released pages come back from the file");
    char copy[9000];
    cr_assert(fl_map_copy(&map, map.data + 3, sizeof copy, copy));
    cr_assert_eq(memcmp(copy, large + 3, sizeof copy), 0);
    cr_assert_not(fl_map_copy(&map, map.data + map.size - 10, 11, copy), "behind the end");
    fl_map_close(&map);
    fl_map_close(&map);
    put(in("empty"), "");
    cr_assert_eq(fl_map_open(&map, in("empty"), &error), 0);
    cr_assert(map.size == 0 && map.data == NULL);
    fl_map_close(&map);
    cr_assert_eq(fl_map_open(&map, in("absent"), &error), FLETCH_ENOTFOUND);
    cr_assert_not_null(strstr(error.message, "absent"));
    cr_assert_eq(fl_map_open(&map, folder, &error), FLETCH_EINVAL);
    cr_assert_eq(mkfifo(in("pipe"), 0600), 0);
    cr_assert_eq(fl_map_open(&map, in("pipe"), &error), FLETCH_EINVAL, "and does not wait");
}

Test(file, read_appends_up_to_the_limit) {
    fl_buf       buf = {0};
    fletch_error error;
    put(in("a"), "hello");
    fl_buf_puts(&buf, ">");
    cr_assert_eq(fl_file_read(in("a"), 5, &buf, &error), 0);
    cr_assert_str_eq(buf.data, ">hello");
    cr_assert_eq(fl_file_read(in("a"), 4, &buf, &error), FLETCH_EINVAL);
    cr_assert_str_eq(buf.data, ">hello", "a failed read appends nothing");
    cr_assert_eq(fl_file_read(folder, 4096, &buf, &error), FLETCH_EINVAL);
    cr_assert_eq(fl_file_read(in("absent"), 5, &buf, &error), FLETCH_ENOTFOUND);
    cr_assert_eq(fl_file_read("/proc/self/status", 1 << 20, &buf, &error), 0,
                 "size unknown before");
    cr_assert_gt(buf.size, 100);
    cr_assert_eq(fl_file_read("/dev/zero", 1 << 20, &buf, &error), FLETCH_EINVAL, "no file");
    cr_assert_not_null(strstr(error.message, "device or pipe"));
    cr_assert_eq(fl_pipe_read("/dev/zero", 1 << 20, &buf, &error), FLETCH_EINVAL, "endless");
    cr_assert_eq(mkfifo(in("pipe"), 0600), 0);
    cr_assert_eq(fl_file_read(in("pipe"), 9, &buf, &error), FLETCH_EINVAL, "and does not wait");
    fl_buf_free(&buf);
    cr_assert_lt(fl_file_read("/proc/self/mem", 1 << 20, &buf, &error), 0, "EIO in the middle");
    cr_assert_null(buf.data, "a failed read into an empty buffer leaves nothing to free");
}

static int find(const char *name, fletch_error *error) {
    char path[256];
    int  there = fl_file_find(path, sizeof path, folder, name, error);
    cr_expect_str_eq(path, in(name));
    return there;
}

Test(file, a_name_that_leads_to_no_file_is_not_taken_for_absent) {
    fletch_error error;
    put(in("a"), "hello");
    cr_assert_eq(symlink("a", in("link")), 0);
    cr_assert_eq(find("a", &error), 1);
    cr_assert_eq(find("link", &error), 1);
    cr_assert_eq(find("b", &error), 0);
    cr_assert_eq(find("a/b", &error), 0);
    cr_assert_eq(symlink("gone", in("broken")), 0);
    cr_assert_eq(symlink("loop", in("loop")), 0);
    cr_assert_eq(mkfifo(in("pipe"), 0600), 0);
    static const char *const wrong[] = {"broken", "loop", "pipe", "."};
    for (size_t i = 0; i < 4; i++) {
        cr_expect_eq(find(wrong[i], &error), FLETCH_EMODEL, "%s", wrong[i]);
        cr_expect_not_null(strstr(error.message, in(wrong[i])));
    }
}

Test(file, atomic_file_appears_whole_at_commit_only) {
    fl_atomic_file file;
    fletch_error   error;
    put(in("out"), "old");
    mode_t before = umask(027);
    cr_assert_eq(fl_atomic_open(&file, in("out"), &error), 0, "%s", error.message);
    cr_assert_eq(fl_atomic_write(&file, "new ", 4, &error), 0);
    cr_assert_eq(fl_atomic_write(&file, "text", 4, &error), 0);
    fl_buf buf = {0};
    fl_file_read(in("out"), 99, &buf, &error);
    cr_assert_str_eq(buf.data, "old");
    cr_assert_eq(fl_atomic_commit(&file, &error), 0, "%s", error.message);
    umask(before);
    fl_buf_clear(&buf);
    fl_file_read(in("out"), 99, &buf, &error);
    cr_assert_str_eq(buf.data, "new text");
    fl_buf_free(&buf);
    struct stat status;
    stat(in("out"), &status);
    cr_assert_eq(status.st_mode & 0777, 0640, "0666 less the umask");
    cr_assert_eq(entries(), 1, "no temporary is left");
    fl_atomic_abort(&file);
}

Test(file, abort_leaves_the_old_file_and_no_temporary) {
    fl_atomic_file file;
    fletch_error   error;
    put(in("out"), "old");
    cr_assert_eq(fl_atomic_open(&file, in("out"), &error), 0);
    fl_atomic_write(&file, "half", 4, &error);
    fl_atomic_abort(&file);
    fl_atomic_abort(&file);
    cr_assert_eq(entries(), 1);
    fl_buf buf = {0};
    fl_file_read(in("out"), 99, &buf, &error);
    cr_assert_str_eq(buf.data, "old");
    fl_buf_free(&buf);
}

Test(file, a_file_under_way_is_not_swept_and_what_a_writer_left_is) {
    fl_atomic_file file, left;
    fletch_error   error;
    cr_assert_eq(fl_atomic_open(&file, in("mine"), &error), 0);
    cr_assert_eq(fl_atomic_open(&left, in("theirs"), &error), 0);
    close(left.fd); /* its writer is gone, and with it the lock */
    cr_assert(fl_file_exists(left.temporary));
    put(in(".x.fletch-0123456789abcdef.tmp"), "of another host");
    put(in(".fletch-short.tmp"), "no temporary");
    cr_assert_eq(fl_atomic_sweep(in(""), false), 1);
    cr_assert(!fl_file_exists(left.temporary));
    cr_assert(fl_file_exists(in(".x.fletch-0123456789abcdef.tmp")));
    cr_assert_eq(fl_atomic_sweep(in(""), true), 1);
    cr_assert(fl_file_exists(in(".fletch-short.tmp")));
    cr_assert_eq(fl_atomic_commit(&file, &error), 0, "%s", error.message);
    left.fd = -1;
    fl_atomic_abort(&left);
    cr_assert_eq(fl_atomic_sweep(in("no such folder"), true), 0);
}

Test(file, who_sweeps_without_a_pause_takes_nothing_from_a_writer) {
    enum { FILES = 3000 };
    fletch_error error;
    const pid_t  sweeper = fork();
    if (sweeper == 0)
        for (;;)
            (void)fl_atomic_sweep(in(""), false);
    int status = 0;
    for (int i = 0; i < FILES && status == 0; i++) {
        fl_atomic_file file;
        status    = fl_atomic_open(&file, in("out"), &error);
        file.care = FL_ATOMIC_CHECKED;
        if (status == 0)
            status = fl_atomic_write(&file, "text", 4, &error);
        if (status == 0)
            status = fl_atomic_commit(&file, &error);
        fl_atomic_abort(&file);
    }
    kill(sweeper, SIGKILL);
    waitpid(sweeper, NULL, 0);
    cr_assert_eq(status, 0, "%s", error.message);
}

Test(file, atomic_failures_are_reported_and_leave_nothing) {
    fl_atomic_file file;
    fletch_error   error;
    cr_assert_eq(fl_atomic_open(&file, in("no/such/out"), &error), FLETCH_ENOTFOUND);
    cr_assert_eq(fl_atomic_open(&file, in("folder/"), &error), FLETCH_EINVAL);
    cr_assert_eq(fl_atomic_open(&file, "", &error), FLETCH_EINVAL);
    mkdir(in("folder"), 0700);
    cr_assert_eq(fl_atomic_open(&file, in("folder"), &error), 0);
    cr_assert_eq(fl_atomic_commit(&file, &error), FLETCH_EIO, "a folder cannot be replaced");
    cr_assert_eq(fl_atomic_commit(&file, NULL), FLETCH_EINVAL, "nothing is open");
    cr_assert_eq(entries(), 1);
    for (uint64_t n = 1; n <= 2; n++) {
        fl_alloc_fail_after(n);
        cr_assert_eq(fl_atomic_open(&file, in("x"), &error), FLETCH_ENOMEM);
    }
    fl_alloc_fail_after(0);
    cr_assert_eq(entries(), 1);
}

/* /dev/full stands for a full disk: every write to it is ENOSPC. */
Test(file, a_full_disk_is_enospc_with_a_hint) {
    fletch_error   error;
    fl_atomic_file file = {.fd = open("/dev/full", O_WRONLY), .path = fl_strdup("/big/out.npy")};
    cr_assert_eq(fl_atomic_write(&file, "x", 1, &error), FLETCH_ENOSPC);
    cr_assert_not_null(strstr(error.message, "/big/out.npy"));
    cr_assert_not_null(strstr(error.message, "free some space"));
    fl_atomic_abort(&file);
}

Test(file, write_all_gets_a_large_text_through_a_slow_non_blocking_pipe) {
    enum { SIZE = 1 << 20 };
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    pid_t child = fork();
    if (child == 0) {
        char  *text = malloc(SIZE);
        size_t sum  = 0;
        close(ends[1]);
        for (ssize_t n; (n = read(ends[0], text, 4096)) > 0;)
            sum += (size_t)n;
        _exit(sum == SIZE ? 0 : 1);
    }
    close(ends[0]);
    char *text = calloc(1, SIZE);
    cr_assert_eq(fl_write_all(ends[1], text, SIZE), 0);
    close(ends[1]);
    free(text);
    int status;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Test(file, folders_are_made_with_their_parents) {
    fletch_error error;
    cr_assert_eq(fl_folder_make(in("a/b//c/"), &error), 0, "%s", error.message);
    cr_assert(fl_folder_exists(in("a/b/c")));
    cr_assert_eq(fl_folder_make(in("a/b/c"), &error), 0, "again");
    put(in("file"), "");
    cr_assert_neq(fl_folder_make(in("file"), &error), 0);
    cr_assert_eq(fl_folder_make(in("file/x"), &error), FLETCH_EIO, "a file is in the way");
    cr_assert_eq(fl_folder_make("", &error), FLETCH_EINVAL);
    cr_assert(fl_file_exists(in("file")));
    cr_assert_not(fl_file_exists(in("a")));
    cr_assert_not(fl_folder_exists(in("file")));
}

Test(file, remove_takes_links_not_what_they_point_to) {
    fletch_error error;
    put(in("precious"), "x");
    mkdir(in("keep"), 0700);
    put(in("keep/inner"), "x");
    fl_folder_make(in("victim/deep/er"), &error);
    put(in("victim/deep/f"), "x");
    cr_assert_eq(symlink(in("precious"), in("victim/link")), 0);
    cr_assert_eq(symlink(in("keep"), in("victim/deep/folderlink")), 0);
    cr_assert_eq(fl_path_remove(in("victim"), &error), 0, "%s", error.message);
    cr_assert_not(fl_folder_exists(in("victim")));
    cr_assert(fl_file_exists(in("precious")));
    cr_assert(fl_file_exists(in("keep/inner")));
    cr_assert_eq(symlink(in("keep"), in("link")), 0);
    cr_assert_eq(fl_path_remove(in("link"), &error), 0);
    cr_assert(fl_file_exists(in("keep/inner")));
    cr_assert_eq(fl_path_remove(in("precious"), &error), 0);
    cr_assert_eq(fl_path_remove(in("precious"), &error), FLETCH_ENOTFOUND);
}

Test(file, join_adds_one_slash_and_checks_the_room) {
    char         path[8];
    fletch_error error;
    cr_assert_eq(fl_path_join(path, sizeof path, "ab", "cde", &error), 0);
    cr_assert_str_eq(path, "ab/cde");
    cr_assert_eq(fl_path_join(path, sizeof path, "ab/", "cde", &error), 0);
    cr_assert_str_eq(path, "ab/cde");
    cr_assert_eq(fl_path_join(path, sizeof path, "", "cde", &error), 0);
    cr_assert_str_eq(path, "cde");
    cr_assert_eq(fl_path_join(path, sizeof path, "abc", "def", &error), 0);
    cr_assert_eq(fl_path_join(path, sizeof path, "abcd", "def", &error), FLETCH_ENOSPC);
}

Test(file, the_prefix_of_a_program_is_above_the_first_folder_of_path_that_has_it) {
    char         path[600], out[300], want[300];
    fletch_error error;
    cr_assert_eq(fl_folder_make(in("a/bin"), &error), 0);
    cr_assert_eq(fl_folder_make(in("b/bin"), &error), 0);
    put(in("a/bin/tool"), "not to be run");
    put(in("b/bin/tool"), "");
    cr_assert_eq(chmod(in("a/bin/tool"), 0644), 0);
    cr_assert_eq(chmod(in("b/bin/tool"), 0755), 0);
    snprintf(path, sizeof path, "%s:%s:%s", in("none"), in("a/bin"), in("b/bin"));
    setenv("PATH", path, 1);
    snprintf(want, sizeof want, "%s/..", in("b/bin"));
    cr_expect(fl_path_prefix("tool", out, sizeof out));
    cr_expect_str_eq(out, want);
    cr_expect_not(fl_path_prefix("tool", out, strlen(want)), "it does not fit");
    cr_expect_not(fl_path_prefix("other", out, sizeof out));
    unsetenv("PATH");
    cr_expect_not(fl_path_prefix("tool", out, sizeof out));
}

Test(file, the_cache_is_where_xdg_says_or_below_home) {
    char out[64];
    setenv("HOME", "/home/u", 1);
    setenv("XDG_CACHE_HOME", "/var/c", 1);
    cr_expect(fl_path_cache("a/b", out, sizeof out));
    cr_expect_str_eq(out, "/var/c/a/b");
    setenv("XDG_CACHE_HOME", "relative", 1); /* to be ignored, says XDG */
    cr_expect(fl_path_cache("a/b", out, sizeof out));
    cr_expect_str_eq(out, "/home/u/.cache/a/b");
    cr_expect_not(fl_path_cache("a/b", out, strlen("/home/u/.cache/a/b")), "it does not fit");
    unsetenv("HOME");
    cr_expect_not(fl_path_cache("a/b", out, sizeof out));
}

Test(file, only_names_that_stay_inside_are_safe) {
    const char *safe[]   = {"a", "a/b.json", "..a", "a..", "a/...", "1_Pooling/config.json", ".a"};
    const char *unsafe[] = {"",     "/a",   "..",    "../a", "a/..",   "a/../b",
                            "a\\b", "a\nb", "a\x7f", "./..", "a//../b"};
    for (size_t i = 0; i < sizeof safe / sizeof safe[0]; i++)
        cr_assert(fl_path_is_safe(safe[i]), "%s", safe[i]);
    for (size_t i = 0; i < sizeof unsafe / sizeof unsafe[0]; i++)
        cr_assert_not(fl_path_is_safe(unsafe[i]), "%s", unsafe[i]);
}

/* FIPS 180-4 examples, and what `git hash-object` prints. */
Test(file, checksums_are_the_published_ones) {
    char         hex[65];
    fletch_error error;
    put(in("abc"), "abc");
    cr_assert_eq(fl_file_sha256(in("abc"), hex, &error), 0);
    cr_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    put(in("empty"), "");
    cr_assert_eq(fl_file_git_sha1(in("empty"), hex, &error), 0);
    cr_assert_str_eq(hex, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    put(in("hello"), "hello\n");
    cr_assert_eq(fl_file_git_sha1(in("hello"), hex, &error), 0);
    cr_assert_str_eq(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    cr_assert_eq(fl_file_sha256(in("hello"), hex, &error), 0);
    put(in("around"), "xxabcxx");
    char range[65], abc[65];
    cr_assert_eq(fl_file_sha256(in("abc"), abc, &error), 0);
    cr_assert_eq(fl_file_sha256_range(in("around"), 2, 5, range, &error), 0);
    cr_assert_str_eq(range, abc);
    cr_assert_eq(fl_file_sha256_range(in("around"), 2, 9, range, &error), FLETCH_EIO,
                 "it ends before");
    cr_assert_str_eq(range, "");
    cr_assert_str_eq(hex, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    FILE *file = fopen(in("million"), "w");
    for (int i = 0; i < 1000000; i++)
        fputc('a', file);
    fclose(file);
    cr_assert_eq(fl_file_sha256(in("million"), hex, &error), 0, "more than one chunk");
    cr_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    FILE *large = fopen(in("large"), "w"); /* above the size from which libcrypto is asked */
    for (int i = 0; i < 2 << 20; i++)
        fputc('a', large);
    fclose(large);
    cr_assert_eq(fl_file_sha256(in("large"), hex, &error), 0);
    cr_assert_str_eq(hex, "5256ec18f11624025905d057d6befb03d77b243511ac5f77ed5e0221ce6d84b5");
    cr_assert_eq(fl_file_git_sha1(in("large"), hex, &error), 0);
    cr_assert_str_eq(hex, "64a7c1a36a6972183ec97e15c75a788d4079e24e");
    cr_assert_eq(fl_file_sha256(in("absent"), hex, &error), FLETCH_ENOTFOUND);
    cr_assert_eq(fl_file_sha256(folder, hex, &error), FLETCH_EINVAL);
    fl_alloc_fail_after(1);
    cr_assert_eq(fl_file_sha256(in("hello"), hex, &error), FLETCH_ENOMEM);
}

static void put_large(const char *path, char first) {
    enum { BYTES = 16 << 20 };
    char *text = fl_alloc(BYTES + 1);
    memset(text, 'x', BYTES);
    text[0]     = first;
    text[BYTES] = '\0';
    int fd      = open(path, O_WRONLY | O_CREAT, 0600); /* in place: the file keeps its number */
    cr_assert(fd >= 0 && fl_write_all(fd, text, BYTES) == 0);
    close(fd);
    fl_free(text);
}

/* The one file below folder/fletch/sha256; NULL: none. */
static const char *record(void) {
    DIR           *dir   = opendir(in("fletch/sha256"));
    struct dirent *entry = NULL;
    const char    *found = NULL;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char name[300];
        snprintf(name, sizeof name, "fletch/sha256/%s", entry->d_name);
        found = entry->d_name[0] == '.' ? found : in(name);
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* Whether the file still is so young; it was when it was hashed, then. */
static bool fresh(const char *path) {
    struct stat     status;
    struct timespec now;
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_eq(clock_gettime(CLOCK_REALTIME, &now), 0);
    return now.tv_sec - status.st_ctim.tv_sec < 2;
}

/* The kept hash of the file once it has one: not while the file is fresh. */
static void wait_for_record(const char *name, char hex[65]) {
    fletch_error error;
    while (record() == NULL) {
        cr_assert_eq(fl_file_sha256_kept(in(name), hex, &error), 0, "%s", error.message);
        usleep(100000);
    }
}

Test(file, a_kept_hash_is_that_of_the_content) {
    char         hex[65], whole[65], kept[65], other[65];
    fletch_error error;
    struct stat  status;
    cr_assert_eq(setenv("XDG_CACHE_HOME", folder, 1), 0);
    put(in("small"), "abc");
    put_large(in("large"), 'a');
    cr_assert_eq(fl_file_sha256(in("large"), whole, &error), 0);
    cr_assert_eq(fl_file_sha256_kept(in("large"), hex, &error), 0);
    cr_assert_str_eq(hex, whole);
    cr_assert(record() == NULL || !fresh(in("large")),
              "a file that changed a moment ago might change again unseen");
    wait_for_record("large", kept);
    cr_assert_str_eq(kept, whole);
    cr_assert_eq(fl_file_sha256_kept(in("small"), hex, &error), 0);
    cr_assert_eq(unlink(record()), 0);
    cr_assert_null(record(), "a small file has none");
    wait_for_record("large", kept);
    /* It is used: what it says is believed, for its writer alone can write it. */
    char text[512] = "";
    int  fd        = open(record(), O_RDWR);
    cr_assert(fd >= 0);
    ssize_t size = read(fd, text, sizeof text - 1);
    cr_assert_gt(size, 65);
    text[size - 2] = text[size - 2] == '0' ? '1' : '0';
    cr_assert_eq(pwrite(fd, text, (size_t)size, 0), size);
    cr_assert_eq(fl_file_sha256_kept(in("large"), hex, &error), 0);
    cr_assert_str_neq(hex, whole);
    /* Not if others could, nor what is cut off or no hash. */
    cr_assert_eq(fchmod(fd, 0666), 0);
    cr_assert_eq(fl_file_sha256_kept(in("large"), hex, &error), 0);
    cr_assert_str_eq(hex, whole);
    fd = open(record(), O_RDWR);
    cr_assert_eq(pwrite(fd, "Z", 1, size - 2), 1);
    cr_assert_eq(fl_file_sha256_kept(in("large"), hex, &error), 0);
    cr_assert_str_eq(hex, whole);
    fd = open(record(), O_RDWR);
    cr_assert_eq(ftruncate(fd, size - 1), 0);
    cr_assert_eq(fl_file_sha256_kept(in("large"), hex, &error), 0);
    cr_assert_str_eq(hex, whole);
    /* Written in place, with its size, number and time of writing as before. */
    cr_assert_eq(stat(in("large"), &status), 0);
    put_large(in("large"), 'b');
    const struct timespec times[2] = {status.st_atim, status.st_mtim};
    cr_assert_eq(utimensat(AT_FDCWD, in("large"), times, 0), 0);
    cr_assert_eq(fl_file_sha256(in("large"), other, &error), 0);
    cr_assert_eq(fl_file_sha256_kept(in("large"), hex, &error), 0);
    cr_assert_str_eq(hex, other);
    cr_assert_str_neq(hex, whole);
    cr_assert_eq(fl_file_sha256_kept(in("absent"), hex, &error), FLETCH_ENOTFOUND);
    cr_assert_str_eq(hex, "");
}
