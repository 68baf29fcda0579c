/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - who may ask: API keys from a file, compared without telling how much was right.
 *
 * Role    transport.c asks for every request that is not to an open route; lifecycle.c loads the file at
 *         the start and on SIGHUP.
 * In/Out  A file with one key a line:
 *             # words after the key are its limits
 *             sk-team-a   name=team-a rate=50 burst=100 concurrent=8
 *             sk-ops      name=ops admin
 *             sha256:2bb8…  name=nightly priority=bulk
 *         rate: requests a second; burst: how many at once; concurrent: how many under way;
 *         weight: its share of the engine beside other keys (1); queue: texts that may wait or be embedded at once,
 *         but that a request alone always passes;
 *         admin: it may pull and delete models (server.allow_pull).
 * Method  Only SHA-256 digests are kept. A presented key is hashed and compared with every digest, all
 *         bytes of it, whatever matched before: the time tells nothing. The rate is a bucket of
 *         tokens, counted in nanoseconds so that one 64-bit number holds it.
 * Memory  One table per loaded file, shared by its holders (the server, and each request that uses one
 *         of its keys), freed with the last. A reload begins with fresh counts.
 * Threads Any; the bucket has a lock, the table is read-only.
 * Proof   tests/server/test_transport_keys.py. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/sha256.h"
#include "server/server_internal.h"

enum {
    DIGEST         = 32,
    NAME_MAX_BYTES = 64,
    FILE_MAX       = 4 * 1024 * 1024,
    KEYS_MAX       = 10000,
    WEIGHT_MAX     = 1000
};

FL_LOCK_ROLE(key_role); /* the lock of fl_api_key: what changes of a key */

struct fl_api_key {
    unsigned char      digest[DIGEST];
    char               name[NAME_MAX_BYTES + 1];
    size_t             first;                          /* index of the first key of this name */
    uint64_t           rate, burst, concurrent, queue; /* 0: no limit */
    uint64_t           weight;
    bool               bulk, named, admin;
    pthread_mutex_t    lock;
    uint64_t filled_ns FL_GUARDED_BY(key_role); /* time to which the bucket is used up */
    uint64_t under_way FL_GUARDED_BY(key_role);
    uint64_t waiting   FL_GUARDED_BY(key_role); /* texts submitted and not answered … */
    uint64_t tokens    FL_GUARDED_BY(key_role); /* … and tokens of those that are */
};

FL_LOCK_OF(key_role, fl_api_key, lock, lock, unlock);

struct fl_keys {
    _Atomic int holders;
    fl_buf      list; /* of fl_api_key */
    size_t      count;
    fl_api_key *key; /* [count], in the list */
};

static bool parse_digest(const char *hex, unsigned char digest[DIGEST]) {
    if (strlen(hex) != DIGEST * 2)
        return false;
    for (size_t i = 0; i < DIGEST * 2; i++) {
        int value = fl_hex_digit(hex[i]);
        if (value < 0)
            return false;
        digest[i / 2] = (unsigned char)(i % 2 == 0 ? value << 4 : digest[i / 2] | value);
    }
    return true;
}

static bool parse_count(const char *text, uint64_t *out) {
    int64_t value;
    if (!fl_parse_i64(text, &value) || value < 1 || value > 1000000)
        return false;
    *out = (uint64_t)value;
    return true;
}

static bool parse_word(fl_api_key *key, const char *word) {
    if (strncmp(word, "name=", 5) == 0) {
        size_t size = strlen(word + 5);
        if (size == 0 || size > NAME_MAX_BYTES)
            return false;
        memcpy(key->name, word + 5, size + 1);
        key->named = true;
        return true;
    }
    const struct {
        const char *name;
        uint64_t   *value;
    } counts[] = {{"rate=", &key->rate},
                  {"burst=", &key->burst},
                  {"concurrent=", &key->concurrent},
                  {"queue=", &key->queue},
                  {"weight=", &key->weight}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        size_t size = strlen(counts[i].name);
        if (strncmp(word, counts[i].name, size) == 0)
            return parse_count(word + size, counts[i].value) && key->weight <= WEIGHT_MAX;
    }
    if (strcmp(word, "admin") == 0) {
        key->admin = true;
        return true;
    }
    key->bulk = strcmp(word, "priority=bulk") == 0;
    return key->bulk || strcmp(word, "priority=interactive") == 0;
}

/* One line without its newline. The message never repeats it: it may hold a key. */
static int parse_line(fl_keys *keys, char *line, const char *path, size_t number,
                      fletch_error *error) {
    char *rest = NULL, *word = strtok_r(line, " \t\r", &rest);
    if (word == NULL || word[0] == '#')
        return FLETCH_OK;
    fl_api_key key  = {.weight = 1};
    size_t     size = strlen(word);
    if (strncmp(word, "sha256:", 7) == 0) {
        if (!parse_digest(word + 7, key.digest)) {
            return fl_fail(error, FLETCH_ECONFIG, number,
                           "%s:%zu: sha256: must be followed by 64 hexadecimal digits", path,
                           number);
        }
    } else if (size > FL_LIMIT_API_KEY) {
        return fl_fail(error, FLETCH_ECONFIG, number, "%s:%zu: a key has at most %d bytes", path,
                       number, FL_LIMIT_API_KEY);
    } else {
        fl_sha256(word, size, key.digest);
    }
    memset(word, 0, size);
    snprintf(key.name, sizeof key.name, "key-%zu", keys->count + 1);
    while ((word = strtok_r(NULL, " \t\r", &rest)) != NULL) {
        if (!parse_word(&key, word)) {
            return fl_fail(
                error, FLETCH_ECONFIG, number,
                "%s:%zu: a key can be followed by name=, rate=, burst=, concurrent=, queue=, "
                "weight= (1 to 1000000; weight 1000), priority=bulk|interactive or admin",
                path, number);
        }
    }
    key.burst = key.burst == 0 ? key.rate : key.burst;
    while (key.first < keys->count && strcmp(keys->key[key.first].name, key.name) != 0)
        key.first++;
    for (size_t i = 0; i < keys->count; i++)
        if (memcmp(keys->key[i].digest, key.digest, DIGEST) == 0)
            return fl_fail(error, FLETCH_ECONFIG, number, "%s:%zu: duplicate key", path, number);
    if (keys->count == KEYS_MAX)
        return fl_fail(error, FLETCH_ECONFIG, number, "%s: more than %d keys", path, KEYS_MAX);
    fl_buf_append(&keys->list, &key, sizeof key);
    if (keys->list.failed)
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for the API keys");
    keys->key = (fl_api_key *)(void *)keys->list.data;
    keys->count++;
    return FLETCH_OK;
}

static int parse_file(fl_keys *keys, fl_buf *text, const char *path, fletch_error *error) {
    size_t number = 0;
    char  *line   = text->size > 0 ? text->data : NULL;
    if (line != NULL && strlen(line) < text->size) { /* UTF-16, say, would pass as odd keys */
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s holds a NUL byte; write it as plain text, one key per line", path);
    }
    while (line != NULL) {
        char *next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        FL_TRY(parse_line(keys, line, path, ++number, error));
        line = next;
    }
    if (keys->count == 0) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s holds no keys; write one per line, or leave server.api_key_file empty",
                       path);
    }
    return FLETCH_OK;
}

int fl_keys_load(fl_keys **out, const char *path, fletch_error *error) {
    *out = NULL;
    if (path == NULL || path[0] == '\0')
        return FLETCH_OK;
    fl_buf   text = {0};
    fl_keys *keys = fl_alloc_zero(1, sizeof *keys);
    if (keys == NULL)
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for the API keys");
    atomic_store(&keys->holders, 1);
    int status = fl_file_read(path, FILE_MAX, &text, error);
    if (status < 0)
        fl_error_prefix(error, "server.api_key_file");
    else
        status = parse_file(keys, &text, path, error);
    if (text.data != NULL)
        memset(text.data, 0, text.capacity);
    fl_buf_free(&text);
    for (size_t i = 0; i < keys->count; i++)
        pthread_mutex_init(&keys->key[i].lock, NULL);
    if (status < 0) {
        fl_keys_drop(keys);
        return status;
    }
    *out = keys;
    return FLETCH_OK;
}

fl_keys *fl_keys_hold(fl_keys *keys) {
    if (keys != NULL)
        (void)atomic_fetch_add(&keys->holders, 1);
    return keys;
}

void fl_keys_drop(fl_keys *keys) {
    if (keys == NULL || atomic_fetch_sub(&keys->holders, 1) > 1)
        return;
    for (size_t i = 0; i < keys->count; i++)
        pthread_mutex_destroy(&keys->key[i].lock);
    fl_buf_free(&keys->list);
    fl_free(keys);
}

size_t fl_keys_count(const fl_keys *keys) {
    return keys == NULL ? 0 : keys->count;
}

fl_api_key *fl_keys_find(fl_keys *keys, const char *text, size_t size) {
    unsigned char digest[DIGEST];
    if (size == 0 || size > FL_LIMIT_API_KEY)
        return NULL;
    fl_sha256(text, size, digest);
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < keys->count; i++) {
        unsigned difference = 0;
        for (size_t k = 0; k < DIGEST; k++)
            difference |= (unsigned)(digest[k] ^ keys->key[i].digest[k]);
        size_t mask = (size_t)0 - (size_t)((difference - 1) >> 31); /* all ones when equal */
        found       = (found & ~mask) | (i & mask);
    }
    return found == SIZE_MAX ? NULL : &keys->key[found];
}

const char *fl_api_key_name(const fl_api_key *key) {
    return key->name;
}

bool fl_api_key_is_bulk(const fl_api_key *key) {
    return key->bulk;
}

void fl_api_key_owner(const fl_api_key *key, char out[FL_OWNER]) {
    unsigned char digest[DIGEST], text[1 + DIGEST + NAME_MAX_BYTES] = {0};
    out[0] = '\0';
    if (key != NULL) { /* a digest of either, so that a file tells neither keys nor names */
        size_t size = key->named ? strlen(key->name) : DIGEST;
        text[0]     = key->named;
        memcpy(text + 1, key->named ? (const void *)key->name : key->digest, size);
        fl_sha256(text, 1 + size, digest);
        fl_hex(digest, FL_OWNER / 2, out);
    }
}

fl_api_key *fl_keys_of_owner(fl_keys *keys, const char *owner) {
    char its[FL_OWNER];
    for (size_t i = 0; keys != NULL && i < keys->count; i++) {
        fl_api_key_owner(&keys->key[i], its);
        if (strcmp(its, owner) == 0)
            return &keys->key[i];
    }
    return NULL;
}

bool fl_api_key_is_admin(const fl_api_key *key) {
    return key == NULL || key->admin;
}

uint32_t fl_api_key_weight(const fl_api_key *key) {
    return (uint32_t)key->weight;
}

bool fl_api_key_submit(fl_api_key *key, uint64_t texts) {
    lock(key);
    bool ok =
        texts == 0 || key->queue == 0 || key->waiting == 0 || key->waiting + texts <= key->queue;
    key->waiting += ok ? texts : 0;
    unlock(key);
    return ok;
}

void fl_api_key_answered(fl_api_key *key, uint64_t texts, uint64_t tokens) {
    lock(key);
    key->waiting -= texts;
    key->tokens += tokens;
    unlock(key);
}

void fl_keys_usage(fl_keys *keys, fl_key_usage *usage) {
    for (size_t i = 0; i < keys->count; i++) {
        fl_api_key   *key = &keys->key[i];
        fl_key_usage *sum = &usage[key->first];
        lock(key);
        *sum = (fl_key_usage){key->name, sum->waiting + key->waiting, sum->tokens + key->tokens};
        unlock(key);
    }
}

bool fl_api_key_enter(fl_api_key *key, uint64_t now_ns, unsigned *wait_seconds) {
    bool ok       = true;
    *wait_seconds = 1;
    lock(key);
    if (key->concurrent > 0 && key->under_way >= key->concurrent) {
        ok = false;
    } else if (key->rate > 0) {
        uint64_t share = 1000000000u / key->rate, depth = share * key->burst;
        uint64_t start =
            now_ns > depth && key->filled_ns < now_ns - depth ? now_ns - depth : key->filled_ns;
        if (start + share > now_ns) {
            ok            = false;
            *wait_seconds = 1 + (unsigned)((start + share - now_ns) / 1000000000u);
        } else {
            key->filled_ns = start + share;
        }
    }
    key->under_way += ok;
    unlock(key);
    return ok;
}

void fl_api_key_leave(fl_api_key *key) {
    lock(key);
    key->under_way--;
    unlock(key);
}
