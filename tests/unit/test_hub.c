/* SPDX-License-Identifier: Apache-2.0 */
/* test_hub.c - names, paths and checks of the hub that need no network.
 *
 * Must never break: an id or file name can never lead outside the cache; the cache folder is where
 * huggingface_hub looks; a token goes to the endpoint's origin alone; a partial snapshot is not
 * taken for a model; a removal never touches what another snapshot still uses. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/libcurl.h"
#include "base/mem.h"
#include "hub/download.h"
#include "hub/hub_cache.h"

#define COMMIT_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define COMMIT_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
/* sha256 of "hello\n", and the git blob sha1 of "hello\n" (git hash-object). */
#define HELLO_SHA256 "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
#define HELLO_SHA1   "ce013625030ba8dba906f756967f9e9ca394464a"

static char folder[64];

static void setup(void) {
    static const char *const names[] = {"HF_HOME",
                                        "HF_HUB_CACHE",
                                        "HUGGINGFACE_HUB_CACHE",
                                        "XDG_CACHE_HOME",
                                        "HF_ENDPOINT",
                                        "HF_TOKEN",
                                        "HF_HUB_OFFLINE",
                                        "HUGGING_FACE_HUB_TOKEN",
                                        "HF_TOKEN_PATH",
                                        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                        "TRANSFORMERS_OFFLINE",
                                        "HF_HUB_DISABLE_SYMLINKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    snprintf(folder, sizeof folder, "/tmp/fletch-hub-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    setenv("HOME", folder, 1);
}

static void teardown(void) {
    fl_path_remove(folder, NULL);
}

TestSuite(hub, .init = setup, .fini = teardown);

static void expect_id(const char *name, const char *id, const char *revision) {
    fl_hub_name  parsed;
    fletch_error error = {0};
    cr_assert_eq(fl_hub_name_parse(&parsed, name, &error), 0, "%s: %s", name, error.message);
    cr_assert_str_eq(parsed.id, id);
    cr_assert_str_eq(parsed.revision, revision);
    cr_assert_not(parsed.folder);
}

Test(hub, names_become_ids) {
    expect_id("medium", "sentence-transformers/all-MiniLM-L6-v2", "");
    expect_id("low", "sentence-transformers/paraphrase-MiniLM-L3-v2", "");
    expect_id("high", "sentence-transformers/all-mpnet-base-v2", "");
    expect_id("high@v1", "sentence-transformers/all-mpnet-base-v2", "v1");
    expect_id("all-MiniLM-L12-v2", "sentence-transformers/all-MiniLM-L12-v2", "");
    expect_id("BAAI/bge-small-en-v1.5", "BAAI/bge-small-en-v1.5", "");
    expect_id("org/name@refs/pr/3", "org/name", "refs/pr/3");
    expect_id("org/name@" COMMIT_A, "org/name", COMMIT_A);
    expect_id("_org/_name_", "_org/_name_", "");
}

Test(hub, paths_are_folders) {
    static const char *const paths[] = {"/x",  ".",     "..",   "./x", "../x",
                                        "~/x", "a/b/c", "a/b/", "x/"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        fl_hub_name parsed;
        cr_assert_eq(fl_hub_name_parse(&parsed, paths[i], NULL), 0, "%s", paths[i]);
        cr_assert(parsed.folder, "%s", paths[i]);
        cr_assert_str_eq(parsed.id, "");
    }
}

Test(hub, names_that_could_leave_the_cache_are_refused) {
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const names[]   = {
          "",      "a--b",      "a..b",     "org/..",    "org/.hidden", "-x",
          "x-",    "org/a b",   "org/a\nb", "org\\name", "org/x.git",   "org/a%2f..",
          "a@",    "a@../../x", "a@/x",     "a@x//y",    "a@.x",        "a@x/.",
          "a@x y", "a@x^",      "o/n?x=1",  "o/n#frag",  "\xc3\xa9/x",  longest};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fl_hub_name  parsed;
        fletch_error error = {0};
        cr_assert_eq(fl_hub_name_parse(&parsed, names[i], &error), FLETCH_EINVAL, "%s", names[i]);
        cr_assert_neq(error.message[0], '\0');
    }
}

Test(hub, etags_and_commits_are_file_names) {
    cr_assert(fl_hub_etag_is_valid(HELLO_SHA256));
    cr_assert(fl_hub_etag_is_valid("abc-123.x_y"));
    cr_assert_not(fl_hub_etag_is_valid(""));
    cr_assert_not(fl_hub_etag_is_valid(".."));
    cr_assert_not(fl_hub_etag_is_valid("../x"));
    cr_assert_not(fl_hub_etag_is_valid("a/b"));
    cr_assert(fl_hub_commit_is_valid(COMMIT_A));
    cr_assert_not(fl_hub_commit_is_valid("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
    cr_assert_not(fl_hub_commit_is_valid("main"));
    cr_assert_not(fl_hub_commit_is_valid(HELLO_SHA256));
}

Test(hub, only_files_that_are_read_are_fetched) {
    static const char *const wanted[]   = {"config.json",
                                           "adapter_config.json",
                                           "adapters/text-matching/adapter_config.json",
                                           "adapters/text-matching/adapter_model.safetensors",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "vocab.txt",
                                           "modules.json",
                                           "special_tokens_map.json",
                                           "1_Pooling/config.json",
                                           "2_Dense/config.json",
                                           "2_Dense/model.safetensors",
                                           "sentence_bert_config.json",
                                           "config_sentence_transformers.json",
                                           "0_StaticEmbedding/tokenizer.json",
                                           "router_config.json",
                                           "query_0_SparseStaticEmbedding/config.json",
                                           "query_0_SparseStaticEmbedding/idf.json",
                                           "document_0_MLMTransformer/model.safetensors",
                                           "added_tokens.json",
                                           "sparse_linear.pt",
                                           "colbert_linear.safetensors",
                                           "idf.json"};
    static const char *const unwanted[] = {"pytorch_model.bin",
                                           "README.md",
                                           "onnx/model.onnx",
                                           "2_Dense/pytorch_model.bin",
                                           "train_script.py",
                                           "tf_model.h5",
                                           "onnx/config.json",
                                           "1_Pooling/deep/config.json",
                                           "adapters/adapter_config.json",
                                           "adapters/retrieval/deep/adapter_config.json",
                                           "adapters/retrieval/optimizer.pt",
                                           "rust_model.ot",
                                           "data.json",
                                           "Pooling/config.json",
                                           "1_Pooling/custom.py",
                                           "other.pt",
                                           "other.safetensors",
                                           "query_Dense/config.json"};
    fl_hub_names             none = {0}, named = {0};
    cr_assert_eq(fl_hub_names_add(&named, "Pooling", NULL), 0);
    cr_assert(fl_hub_file_is_needed("Pooling/config.json", &named));
    cr_assert_not(fl_hub_file_is_needed("Pooling/deep/config.json", &named));
    fl_hub_names_free(&named);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        cr_assert(fl_hub_file_is_needed(wanted[i], &none), "%s", wanted[i]);
    for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++)
        cr_assert_not(fl_hub_file_is_needed(unwanted[i], &none), "%s", unwanted[i]);
}

static const char *cache_of(const char *option) {
    static fl_hub_env    env;
    const fl_hub_options options = {.cache_dir = option};
    fletch_error         error   = {0};
    cr_assert_eq(fl_hub_env_read(&env, &options, &error), 0, "%s", error.message);
    return env.cache;
}

Test(hub, the_cache_is_where_huggingface_hub_has_it) {
    char expected[128];
    snprintf(expected, sizeof expected, "%s/.cache/huggingface/hub", folder);
    cr_assert_str_eq(cache_of(""), expected);
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    cr_assert_str_eq(cache_of(""), "/xdg/huggingface/hub");
    setenv("HF_HOME", "/home of hf/", 1);
    cr_assert_str_eq(cache_of(""), "/home of hf/hub");
    setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
    cr_assert_str_eq(cache_of(""), "/old");
    setenv("HF_HUB_CACHE", "~/$XDG_CACHE_HOME/${HF_HOME}$", 1);
    snprintf(expected, sizeof expected, "%s//xdg//home of hf/$", folder);
    cr_assert_str_eq(cache_of(NULL), expected);
    cr_assert_str_eq(cache_of("/option"), "/option");
    setenv("HF_HUB_CACHE", "", 1);
    cr_assert_str_eq(cache_of(""), "/old", "an empty variable counts as not set");
}

static fl_hub_env read_env(const fl_hub_options *options) {
    fl_hub_env   env;
    fletch_error error = {0};
    cr_assert_eq(fl_hub_env_read(&env, options, &error), 0, "%s", error.message);
    return env;
}

Test(hub, tokens_come_from_where_python_takes_them) {
    const fl_hub_options options = {0};
    char                 path[128];
    cr_assert_str_eq(read_env(&options).token, "");
    snprintf(path, sizeof path, "%s/.cache/huggingface", folder);
    cr_assert_eq(fl_folder_make(path, NULL), 0);
    snprintf(path, sizeof path, "%s/.cache/huggingface/token", folder);
    FILE *file = fopen(path, "w");
    fputs("  hf_file\r\n", file);
    fclose(file);
    cr_assert_str_eq(read_env(&options).token, "hf_file");
    setenv("HUGGING_FACE_HUB_TOKEN", "hf_old", 1);
    cr_assert_str_eq(read_env(&options).token, "hf_old");
    setenv("HF_TOKEN", "hf_new\n", 1);
    cr_assert_str_eq(read_env(&options).token, "hf_new");
    setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "TRUE", 1);
    cr_assert_str_eq(read_env(&options).token, "");
    cr_assert(read_env(&options).token_held_back);
    unsetenv("HF_HUB_DISABLE_IMPLICIT_TOKEN");
    setenv("HF_TOKEN", "hf_\x01", 1);
    fl_hub_env   env;
    fletch_error error = {0};
    cr_assert_eq(fl_hub_env_read(&env, &options, &error), FLETCH_ECONFIG);
    cr_assert_not_null(strstr(error.message, "HF_TOKEN"));
}

Test(hub, offline_names_what_said_so) {
    fl_hub_options options = {0};
    cr_assert_null(read_env(&options).offline);
    setenv("TRANSFORMERS_OFFLINE", "yes", 1);
    cr_assert_str_eq(read_env(&options).offline, "TRANSFORMERS_OFFLINE");
    setenv("HF_HUB_OFFLINE", "0", 1);
    cr_assert_null(read_env(&options).offline, "HF_HUB_OFFLINE wins, as in Python");
    setenv("HF_HUB_OFFLINE", "ON", 1);
    cr_assert_str_eq(read_env(&options).offline, "HF_HUB_OFFLINE");
    options.offline = true;
    cr_assert_str_eq(read_env(&options).offline, "model.offline");
}

Test(hub, the_endpoint_is_a_url_without_slash) {
    const fl_hub_options options = {0};
    cr_assert_str_eq(read_env(&options).endpoint, "https://huggingface.co");
    setenv("HF_ENDPOINT", "http://mirror:8080/hf//", 1);
    cr_assert_str_eq(read_env(&options).endpoint, "http://mirror:8080/hf");
    setenv("HF_ENDPOINT", "file:///etc", 1);
    fl_hub_env env;
    cr_assert_eq(fl_hub_env_read(&env, &options, NULL), FLETCH_ECONFIG);
}

Test(hub, an_origin_is_scheme_host_and_port) {
    if (fl_curl_open("a test needs", "", NULL) != 0) /* libcurl reads URLs */
        cr_skip_test("an emulator has no libcurl of its system");
    cr_assert(fl_url_same_origin("https://a.b/x", "https://A.b:443/y?z"));
    cr_assert_not(fl_url_same_origin("https://a.b/x", "http://a.b/x"));
    cr_assert_not(fl_url_same_origin("https://a.b/x", "https://a.b:444/x"));
    cr_assert_not(fl_url_same_origin("https://a.b/x", "https://a.b.evil/x"));
    cr_assert_not(fl_url_same_origin("https://a.b/x", "https://a.b@evil/x"));
    cr_assert_not(fl_url_same_origin("file:///a", "file:///a"));
}

Test(hub, urls_are_escaped) {
    fl_buf url = {0};
    fl_url_escape(&url, "refs/pr 1%\xc3\xa9", false);
    fl_buf_putc(&url, '|');
    fl_url_escape(&url, "1_Pooling/config.json", true);
    cr_assert_str_eq(url.data, "refs%2Fpr%201%25%C3%A9|1_Pooling/config.json");
    fl_buf_free(&url);
}

/* ---- a cache on disk ---- */

static fl_hub_env  env;
static fl_hub_repo repo;

static void open_repo(void) {
    const fl_hub_options options = {.cache_dir = folder};
    env                          = read_env(&options);
    cr_assert_eq(fl_hub_repo_at(&repo, &env, "org/name", NULL), 0);
}

static void write_file(const char *path, const char *text) {
    char parent[FL_HUB_PATH_MAX];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    cr_assert_eq(fl_folder_make(parent, NULL), 0);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

/* A file of a snapshot with its blob, as a download leaves it. */
static void put(const char *commit, const char *relative, const char *etag, const char *text) {
    char blob[FL_HUB_PATH_MAX];
    cr_assert_eq(fl_hub_repo_path(&repo, "blobs", etag, "", blob, NULL), 0);
    write_file(blob, text);
    cr_assert_eq(fl_hub_link(&env, &repo, commit, relative, etag, true, NULL), 0);
}

static bool blob_exists(const char *etag) {
    char blob[FL_HUB_PATH_MAX];
    cr_assert_eq(fl_hub_repo_path(&repo, "blobs", etag, "", blob, NULL), 0);
    return fl_file_exists(blob);
}

Test(hub, links_are_relative) {
    open_repo();
    put(COMMIT_A, "1_Pooling/config.json", HELLO_SHA1, "hello\n");
    char path[FL_HUB_PATH_MAX];
    char target[256];
    fl_hub_repo_path(&repo, "snapshots", COMMIT_A, "1_Pooling/config.json", path, NULL);
    ssize_t size = readlink(path, target, sizeof target - 1);
    cr_assert_gt(size, 0);
    target[size] = '\0';
    cr_assert_str_eq(target, "../../../blobs/" HELLO_SHA1);
    cr_assert(fl_file_exists(path));
}

Test(hub, without_links_the_file_itself_lies_in_the_snapshot) {
    open_repo();
    env.symlinks = false;
    put(COMMIT_A, "config.json", HELLO_SHA1, "hello\n");
    char        path[FL_HUB_PATH_MAX];
    struct stat info;
    fl_hub_repo_path(&repo, "snapshots", COMMIT_A, "config.json", path, NULL);
    cr_assert_eq(lstat(path, &info), 0);
    cr_assert(S_ISREG(info.st_mode));
    cr_assert_not(blob_exists(HELLO_SHA1));
}

Test(hub, refs_are_read_back_and_rubbish_is_not) {
    char commit[FL_HUB_COMMIT_MAX];
    char path[FL_HUB_PATH_MAX];
    open_repo();
    cr_assert_not(fl_hub_ref_read(&repo, "main", commit));
    cr_assert_eq(fl_hub_ref_write(&repo, "refs/pr/1", COMMIT_A, NULL), 0);
    cr_assert(fl_hub_ref_read(&repo, "refs/pr/1", commit));
    cr_assert_str_eq(commit, COMMIT_A);
    cr_assert(fl_hub_ref_read(&repo, COMMIT_B, commit));
    cr_assert_str_eq(commit, COMMIT_B);
    fl_hub_repo_path(&repo, "refs", "main", "", path, NULL);
    write_file(path, "../../../../etc");
    cr_assert_not(fl_hub_ref_read(&repo, "main", commit));
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_not(fl_hub_ref_read(&repo, "main", commit), "and it does not wait for a writer");
}

static fl_hub_state state(void) {
    char missing[FL_HUB_ID_MAX];
    return fl_hub_snapshot_state(&repo, COMMIT_A, missing);
}

Test(hub, a_router_is_complete_with_the_modules_of_both_routes) {
    open_repo();
    put(COMMIT_A, "modules.json", "e1",
        "[{\"path\":\"\",\"type\":\"sentence_transformers.models.Router\"}]");
    cr_assert_eq(state(), FL_HUB_PARTIAL);
    put(COMMIT_A, "router_config.json", "e2",
        "{\"types\":{\"query_0_T\":\"sentence_transformers.x.SparseStaticEmbedding\","
        "\"document_0_M\":\"sentence_transformers.x.MLMTransformer\","
        "\"document_1_S\":\"sentence_transformers.x.SpladePooling\"}}");
    cr_assert_eq(state(), FL_HUB_PARTIAL);
    put(COMMIT_A, "query_0_T/config.json", "e3", "{}");
    put(COMMIT_A, "document_0_M/config.json", "e4", "{}");
    put(COMMIT_A, "document_0_M/tokenizer.json", "e5", "{}");
    put(COMMIT_A, "document_0_M/model.safetensors", "e6", "x");
    cr_assert_eq(state(), FL_HUB_PARTIAL);
    put(COMMIT_A, "document_1_S/config.json", "e7", "{}");
    cr_assert_eq(state(), FL_HUB_COMPLETE);
}

Test(hub, a_snapshot_is_complete_only_with_every_module) {
    open_repo();
    cr_assert_eq(state(), FL_HUB_PARTIAL);
    put(COMMIT_A, "config.json", "e1", "{}");
    put(COMMIT_A, "tokenizer.json", "e2", "{}");
    cr_assert_eq(state(), FL_HUB_PARTIAL);
    put(COMMIT_A, "model.safetensors", "e3", "x");
    cr_assert_eq(state(), FL_HUB_UNSURE, "nobody asked for modules.json");
    cr_assert_eq(fl_hub_mark_absent(&repo, COMMIT_A, "modules.json", NULL), 0);
    cr_assert_eq(state(), FL_HUB_COMPLETE);
    put(COMMIT_A, "modules.json", "e4",
        "[{\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"},"
        "{\"path\":\"1_Pooling\",\"type\":\"sentence_transformers.models.Pooling\"},"
        "{\"path\":\"2_Normalize\",\"type\":\"sentence_transformers.models.Normalize\"}]");
    cr_assert_eq(state(), FL_HUB_PARTIAL, "the pooling is missing");
    put(COMMIT_A, "1_Pooling/config.json", "e5", "{}");
    cr_assert_eq(state(), FL_HUB_COMPLETE);
}

Test(hub, huggingface_hubs_listing_settles_the_doubt) {
    char path[FL_HUB_PATH_MAX];
    open_repo();
    put(COMMIT_A, "config.json", "e1", "{}");
    put(COMMIT_A, "vocab.txt", "e2", "x");
    put(COMMIT_A, "model.safetensors", "e3", "x");
    fl_hub_repo_path(&repo, "trees", COMMIT_A ".json", "", path, NULL);
    write_file(path, "{\"format_version\":1,\"files\":{\"modules.json\":{\"size\":1}}}");
    cr_assert_eq(state(), FL_HUB_UNSURE);
    write_file(path, "{\"format_version\":1,\"files\":{\"config.json\":{\"size\":1}}}");
    cr_assert_eq(state(), FL_HUB_COMPLETE);
}

Test(hub, every_shard_of_an_index_must_be_there) {
    open_repo();
    put(COMMIT_A, "config.json", "e1", "{}");
    put(COMMIT_A, "tokenizer.json", "e2", "{}");
    fl_hub_mark_absent(&repo, COMMIT_A, "modules.json", NULL);
    put(COMMIT_A, "model.safetensors.index.json", "e3",
        "{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}}");
    put(COMMIT_A, "model-1.safetensors", "e4", "x");
    cr_assert_eq(state(), FL_HUB_PARTIAL);
    put(COMMIT_A, "model-2.safetensors", "e5", "x");
    cr_assert_eq(state(), FL_HUB_COMPLETE);
}

Test(hub, an_index_cannot_name_files_elsewhere) {
    static const char *const names[] = {"../x.safetensors", "/etc/x.safetensors", "model.bin", ""};
    char                     path[FL_HUB_PATH_MAX];
    open_repo();
    fl_hub_repo_path(&repo, "index.json", "", "", path, NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char         text[128];
        fl_hub_names shards;
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        write_file(path, text);
        cr_assert_eq(fl_hub_shards_read(path, ".safetensors", &shards, NULL), FLETCH_EMODEL, "%s",
                     names[i]);
        cr_assert_eq(shards.count, 0);
    }
}

static int count_wrong(void *user, const char *name, const char *value, const char *origin) {
    (void)name, (void)origin;
    *(int *)user += strncmp(value, "ok", 2) != 0 && strncmp(value, "no hash", 7) != 0;
    return 0;
}

static void put_model(const char *commit, const char *tokenizer) {
    put(commit, "config.json", "0123", "{}");
    put(commit, "tokenizer.json", tokenizer, "hello\n");
    put(commit, "model.safetensors", HELLO_SHA256, "hello\n");
    fl_hub_mark_absent(&repo, commit, "modules.json", NULL);
}

Test(hub, verify_finds_the_flipped_byte) {
    int                  wrong   = 0;
    const fl_hub_options options = {.cache_dir = folder, .offline = true};
    open_repo();
    put_model(COMMIT_A, HELLO_SHA1);
    cr_assert_eq(fl_hub_ref_write(&repo, "main", COMMIT_A, NULL), 0);
    cr_assert_eq(fl_hub_verify("org/name", &options, count_wrong, &wrong, NULL), 0);
    cr_assert_eq(wrong, 0);
    put(COMMIT_A, "model.safetensors", HELLO_SHA256, "hellO\n");
    cr_assert_eq(fl_hub_verify("org/name", &options, count_wrong, &wrong, NULL), FLETCH_ECHECKSUM);
    cr_assert_eq(wrong, 1);
    put(COMMIT_A, "tokenizer.json", HELLO_SHA1, "hellO\n");
    cr_assert_eq(fl_hub_verify("org/name", &options, count_wrong, &wrong, NULL), FLETCH_ECHECKSUM);
    cr_assert_eq(wrong, 3);
}

static int join_names(void *user, const fletch_hub_entry *entry) {
    char  *names = user;
    size_t used  = strlen(names);
    snprintf(names + used, 256 - used, "%s (%s);", entry->id, entry->refs);
    return 0;
}

Test(hub, names_in_the_cache_that_no_hub_gives_are_passed_over) {
    const fl_hub_options options    = {.cache_dir = folder, .offline = true};
    char                 names[256] = "";
    char                 path[FL_HUB_PATH_MAX];
    open_repo();
    put_model(COMMIT_A, HELLO_SHA1);
    cr_assert_eq(fl_hub_ref_write(&repo, "main", COMMIT_A, NULL), 0);
    fl_hub_repo_path(&repo, "refs", "red\x1b[31m", "", path, NULL);
    write_file(path, COMMIT_A);
    static const char *const strange[] = {"models--a--..--..--etc", "models--\x1b[31m--b"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/snapshots/" COMMIT_A "/config.json", folder, strange[i]);
        write_file(path, "{}");
    }
    cr_assert_eq(fl_hub_list(&options, join_names, names, NULL), 0);
    cr_assert_str_eq(names, "org/name (main);");
}

Test(hub, remove_keeps_what_another_revision_uses) {
    const fl_hub_options options = {.cache_dir = folder, .offline = true};
    uint64_t             freed   = 0;
    char                 commit[FL_HUB_COMMIT_MAX];
    open_repo();
    put_model(COMMIT_A, HELLO_SHA1);
    put_model(COMMIT_B, "4567");
    cr_assert_eq(fl_hub_ref_write(&repo, "main", COMMIT_B, NULL), 0);
    cr_assert_eq(fl_hub_ref_write(&repo, "refs/pr/1", COMMIT_A, NULL), 0);
    cr_assert_eq(fl_hub_remove("org/name@refs/pr/1", &options, &freed, NULL), 0);
    cr_assert_eq(freed, 6 + 40, "only the tokenizer and the ref were its own");
    cr_assert_not(blob_exists(HELLO_SHA1));
    cr_assert(blob_exists("4567") && blob_exists("0123") && blob_exists(HELLO_SHA256));
    cr_assert_not(fl_hub_ref_read(&repo, "refs/pr/1", commit));
    cr_assert(fl_hub_ref_read(&repo, "main", commit));
    char path[FL_HUB_PATH_MAX];
    cr_assert_eq(fl_hub_path("org/name", &options, path, sizeof path, NULL), 0);
    cr_assert_eq(fl_hub_remove("org/name", &options, &freed, NULL), 0);
    cr_assert_not(fl_folder_exists(repo.folder));
    cr_assert_eq(fl_hub_remove("org/name", &options, &freed, NULL), FLETCH_ENOTFOUND);
}

Test(hub, remove_touches_nothing_outside_the_cache) {
    const fl_hub_options options = {.cache_dir = folder, .offline = true};
    char                 elsewhere[128];
    char                 keep[256];
    fletch_error         error;
    open_repo();
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
    snprintf(keep, sizeof keep, "%s/snapshots/" COMMIT_A "/keep", elsewhere);
    write_file(keep, "precious");
    cr_assert_eq(fl_hub_remove(elsewhere, &options, NULL, &error), FLETCH_EINVAL);
    cr_assert_eq(fl_hub_remove("../x", &options, NULL, &error), FLETCH_EINVAL);
    cr_assert_eq(symlink(elsewhere, repo.folder), 0);
    cr_assert_eq(fl_hub_remove("org/name", &options, NULL, &error), FLETCH_EDENIED);
    cr_assert(fl_file_exists(keep));
    unlink(repo.folder);
    /* A link to a folder outside inside a snapshot, and a "blob" that is none of ours. */
    put_model(COMMIT_A, HELLO_SHA1);
    char path[FL_HUB_PATH_MAX];
    fl_hub_repo_path(&repo, "snapshots", COMMIT_A, "away", path, NULL);
    cr_assert_eq(symlink(elsewhere, path), 0);
    cr_assert_eq(fl_hub_remove("org/name", &options, NULL, &error), 0);
    cr_assert(fl_file_exists(keep));
    cr_assert_not(fl_folder_exists(repo.folder));
}

Test(hub, a_folder_wins_and_a_missing_one_says_so) {
    char                 path[FL_HUB_PATH_MAX];
    char                 id[256];
    char                 commit[64];
    char                 model[128];
    char                 config[256];
    fletch_error         error;
    const fl_hub_options options = {.cache_dir = folder, .offline = true};
    snprintf(model, sizeof model, "%s/medium", folder);
    snprintf(config, sizeof config, "%s/config.json", model);
    write_file(config, "{}");
    cr_assert_eq(fl_hub_resolve(model, &options, NULL, NULL, path, sizeof path, id, commit, &error),
                 0);
    cr_assert_str_eq(path, model);
    cr_assert_str_eq(id, "");
    cr_assert_eq(chdir(folder), 0);
    cr_assert_eq(
        fl_hub_resolve("medium", &options, NULL, NULL, path, sizeof path, id, commit, &error), 0);
    cr_assert_str_eq(path, "medium");
    cr_assert_eq(
        fl_hub_resolve("./no", &options, NULL, NULL, path, sizeof path, id, commit, &error),
        FLETCH_ENOTFOUND);
    cr_assert_eq(
        fl_hub_resolve(config, &options, NULL, NULL, path, sizeof path, id, commit, &error),
        FLETCH_ENOTFOUND);
    cr_assert_not_null(strstr(error.message, "neither an .onnx nor a GGUF file"));
    cr_assert_eq(fl_hub_resolve("low", &options, NULL, NULL, path, sizeof path, id, commit, &error),
                 FLETCH_ENOTFOUND);
    cr_assert_not_null(strstr(error.message, "model.offline"));
}

static int count_entry(void *user, const fletch_hub_entry *entry) {
    (void)entry;
    ++*(int *)user;
    return 0;
}

Test(hub, out_of_memory_is_a_status_and_never_a_crash) {
    const fl_hub_options options = {.cache_dir = folder, .offline = true};
    char                 path[FL_HUB_PATH_MAX];
    open_repo();
    put_model(COMMIT_A, HELLO_SHA1);
    put_model(COMMIT_B, "4567");
    cr_assert_eq(fl_hub_ref_write(&repo, "main", COMMIT_A, NULL), 0);
    for (uint64_t n = 1; n < 120; n++) {
        int entries = 0;
        int wrong   = 0;
        fl_alloc_fail_after(n);
        int path_status = fl_hub_path("org/name", &options, path, sizeof path, NULL);
        fl_alloc_fail_after(n);
        int list_status = fl_hub_list(&options, count_entry, &entries, NULL);
        fl_alloc_fail_after(n);
        int verify_status = fl_hub_verify("org/name", &options, count_wrong, &wrong, NULL);
        fl_alloc_fail_after(0);
        cr_assert(path_status == 0 || path_status == FLETCH_ENOMEM ||
                  path_status == FLETCH_ENOTFOUND);
        cr_assert(list_status == FLETCH_ENOMEM || (list_status == 0 && entries == 2));
        cr_assert_leq(verify_status, 0);
    }
}
