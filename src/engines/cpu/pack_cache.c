/* SPDX-License-Identifier: Apache-2.0 */
/* pack_cache.c - packed weights in a file, so that the next process maps them and packs nothing.
 *
 * Role     cpu_engine.c asks here for the weights when it opens. Without model.pack_cache they are packed.
 * In/Out   FOLDER/FAMILY-PRECISION-ISA-HASH.pack: a page with magic, version, sizes, key and checksum, then the
 *          block that pack.c fills. The hash is that of the model's path and the options that the block depends on:
 *          other options have another file, another program and a changed model replace theirs.
 * Key      SHA-256 over the program's version, kernels, precision, descriptor, where each tensor lies in which
 *          file, and the state of each file (base/file_state.h): to read all of it would cost what the cache is to
 *          save. Tensors that lie in no file are hashed whole.
 * Trust    What others may write is not read. All of the block is compared with its checksum when opening, by all
 *          threads, at the speed of memory: a bit that fell over on a disk would be a wrong vector without a sign.
 *          So nothing waits for the disk to have the file: what a power cut tore is found to be damaged.
 *          What cannot be used is packed anew and replaced; whoever still maps the old file keeps it.
 * Memory   The pages are the kernel's file cache, once for all processes and replicas, also for who wrote them.
 * Share    Engines that open one after another on a node of memory, alike, have one block; the last to close
 *          frees it. Threads  open's own. Processes that write at once have a temporary each; the last one stays.
 * Proof    tests/golden/test_pack_cache.py, tests/unit/test_engine_pack.c. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/file_state.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/sha256.h"
#include "engines/cpu/cpu_engine.h"

enum {
    PAYS   = 256 << 20, /* bytes from which `auto` keeps them: less is packed in a blink */
    HEAD   = 4096,      /* the weights begin at a page */
    SLICE  = 1 << 20,   /* that a thread sums up at a time */
    DIGEST = 32
};
#define MAGIC "flpack\r\n" /* of 8 bytes: without its NUL */
static const char no_memory[] = "memory is short", damaged[] = "it is damaged";

typedef struct pack_head {
    char          magic[8];
    uint32_t      version, byte_order;
    uint64_t      bytes, checksum; /* of the weights */
    unsigned char key[DIGEST];
    uint64_t      own; /* checksum of what stands above */
} pack_head;

typedef struct pack_cache {
    fl_engine        *engine;
    const fl_encoder *encoder;
    const fl_log     *log;
    const fl_map    **files; /* owned [count]: those that tensors lie in */
    size_t            count;
    bool              adapted; /* tensors are not what their files hold */
    pack_head head;    /* of the file that is wanted; checksum and own only once it is written */
    unsigned  readers; /* a mode: those who may read all of the weights' files */
    size_t    folder;  /* so much of path */
    char      path[FL_OS_PATH];
} pack_cache;

/* ---- The key --------------------------------------------------------------------------------- */

static void put_u64(fl_buf *key, uint64_t value) {
    fl_buf_append(key, &value, sizeof value);
}

static void put_text(fl_buf *key, const char *text) {
    fl_buf_append(key, text, strlen(text) + 1);
}

/* A file's place in the list, to which it is added; the list has room for all tensors. */
static size_t number_of(pack_cache *c, const fl_map *file) {
    size_t i = 0;
    while (i < c->count && c->files[i] != file)
        i++;
    if (i == c->count)
        c->files[c->count++] = file;
    return i;
}

static void put_tensor(pack_cache *c, fl_buf *key, const fl_tensor *w) {
    put_u64(key, w->data != NULL);
    if (w->data == NULL)
        return;
    c->adapted = c->adapted || w->adapter != NULL;
    put_u64(key, w->dtype);
    put_u64(key, w->turned);
    put_u64(key, w->run);
    put_u64(key, w->step);
    put_u64(key, w->across);
    put_u64(key, w->bytes);
    if (w->packed != NULL) {
        put_u64(key, w->packed_row);
        put_u64(key, fl_packed_checksum(w->packed));
    }
    if (w->map == NULL) {
        put_u64(key, fl_checksum(w->data, (size_t)w->bytes));
        return;
    }
    put_u64(key, number_of(c, w->map));
    put_u64(key, (uint64_t)((const unsigned char *)w->data - w->map->data));
}

/* The descriptor byte by byte, its pointers aside. It begins as zeros, padding and all; were that not so, a key would
 * fit nothing, and never fit what it should not. */
static void put_descriptor(fl_buf *key, const fl_engine *e) {
    fl_encoder_desc desc;
    memcpy(&desc, &e->desc, sizeof desc);
    put_text(key, desc.architecture);
    desc.architecture = NULL;
    desc.layer        = NULL;
    fl_buf_append(key, &desc, sizeof desc);
    if (e->desc.layers > 0)
        fl_buf_append(key, e->desc.layer, e->desc.layers * sizeof *e->desc.layer);
}

/* All but the content of files. */
static void put_options(pack_cache *c, fl_buf *key) {
    const fl_engine *e       = c->engine;
    const uint64_t   sizes[] = {
          FL_CPU_LANES,  FL_CPU_MLP_TILE, (uint64_t)e->format, e->weights_kept,
          e->max_length, e->rows_max,     e->weights_bytes,    (uint64_t)e->narrow.group};
    put_text(key, FLETCH_VERSION);
    put_text(key, e->kernels->isa);
    put_text(key, e->kernels->name);
    fl_buf_append(key, sizes, sizeof sizes);
    put_descriptor(key, e);
    for (size_t i = 0; i < FL_SLOT_COUNT; i++)
        put_tensor(c, key, &c->encoder->global[i]);
    for (size_t i = 0; i < e->desc.layers * FL_LAYER_SLOT_COUNT; i++)
        put_tensor(c, key, &c->encoder->layer[i / FL_LAYER_SLOT_COUNT][i % FL_LAYER_SLOT_COUNT]);
}

/* NULL, or why the weights' files cannot be told from others; they go into the key. */
static const char *put_files(pack_cache *c, fl_buf *key) {
    for (size_t i = 0; i < c->count; i++) {
        fl_os_file    file;
        fl_file_state state;
        const char   *why = fl_file_state_read(c->files[i]->fd, &state);
        if (why != NULL)
            return why;
        fl_buf_append(key, &state, sizeof state);
        c->readers &= fl_os_look(c->files[i]->fd, &file) ? file.readers : 0;
    }
    return NULL;
}

/* The key of what is open now; NULL, or why there is none. */
static const char *make_key(pack_cache *c, unsigned char out[DIGEST]) {
    fl_buf key = {0};
    c->count   = 0;
    c->readers = ~0U;
    put_options(c, &key);
    const char *why =
        c->adapted ? "weights changed by an adapter are not stored" : put_files(c, &key);
    if (key.failed)
        why = no_memory;
    else if (why == NULL)
        fl_sha256(key.data, key.size, out);
    fl_buf_free(&key);
    return why;
}

/* ---- Where it is ----------------------------------------------------------------------------- */

/* The folder of model.pack_cache; false: none can be told. */
static bool find_folder(pack_cache *c, const char *asked) {
    const char *home = getenv("HOME");
    if (strcmp(asked, "auto") == 0)
        return fl_path_cache("fletch/packed", c->path, sizeof c->path);
    const bool below = strncmp(asked, "~/", 2) == 0 && home != NULL;
    return (size_t)snprintf(c->path, sizeof c->path, "%s%s", below ? home : "",
                            asked + (below ? 1 : 0)) < sizeof c->path;
}

/* The file of the model's path and of these options, in that folder; false: it does not fit. */
static bool find_file(pack_cache *c, const char *model) {
    const fl_engine *e       = c->engine;
    const uint64_t   sizes[] = {(uint64_t)e->format, e->weights_kept, e->max_length, e->rows_max};
    unsigned char    all[DIGEST * 2 + sizeof sizes], hash[DIGEST];
    char             real[PATH_MAX], hex[17], name[128];
    const char      *path = realpath(model, real) != NULL ? real : model;
    fl_sha256(path, strlen(path), all);
    fl_sha256(e->kernels->isa, strlen(e->kernels->isa), all + DIGEST);
    memcpy(all + 2 * DIGEST, sizes, sizeof sizes);
    fl_sha256(all, sizeof all, hash);
    fl_hex(hash, sizeof hex / 2, hex);
    (void)snprintf(name, sizeof name, "/%.40s-%s-%s-%s.pack", e->desc.architecture,
                   fl_cpu_format_name[e->format], e->kernels->isa, hex);
    c->folder         = strlen(c->path);
    const size_t left = sizeof c->path - c->folder;
    return (size_t)snprintf(c->path + c->folder, left, "%s", name) < left;
}

/* NULL: the cache is asked for, c->path and the key are known. Else why there is none; "" where nobody asked. */
static const char *find(pack_cache *c, const fl_engine_options *options) {
    const fl_engine *e = c->engine;
    const char      *asked =
        options->config ? fl_config_text(options->config, FL_KEY_MODEL_PACK_CACHE) : "";
    if (asked[0] == '\0')
        return "";
    if (e->weights_bytes == 0)
        return "nothing of this model is packed";
    if (strcmp(asked, "auto") == 0 && e->weights_bytes < PAYS)
        return "auto: packing these weights is faster than reading a file";
    if (options->folder == NULL || !find_folder(c, asked) || !find_file(c, options->folder))
        return "no folder: set HOME, or model.pack_cache to a shorter name";
    c->files = fl_alloc_array(FL_SLOT_COUNT + (size_t)e->desc.layers * FL_LAYER_SLOT_COUNT,
                              sizeof *c->files);
    if (c->files == NULL)
        return no_memory;
    c->head = (pack_head){.magic      = MAGIC,
                          .version    = FL_CPU_PACK_VERSION,
                          .byte_order = 0x01020304,
                          .bytes      = e->weights_bytes};
    return make_key(c, c->head.key);
}

/* ---- The checksum ---------------------------------------------------------------------------- */

typedef struct summing {
    const unsigned char *data;
    size_t               bytes;
    atomic_size_t        next; /* slice */
    uint64_t            *sum;  /* [slices] */
} summing;

static void sum_some(void *arg, unsigned member, unsigned size) {
    summing *s = arg;
    (void)member, (void)size;
    for (size_t i = atomic_fetch_add(&s->next, 1); i * SLICE < s->bytes;
         i        = atomic_fetch_add(&s->next, 1)) {
        size_t left = s->bytes - i * SLICE;
        s->sum[i]   = fl_checksum(s->data + i * SLICE, left < SLICE ? left : SLICE);
    }
}

/* Of the weights, by the whole team; false: no memory. */
static bool sum_up(const fl_engine *e, const void *weights, uint64_t *out) {
    const size_t slices = (e->weights_bytes + SLICE - 1) / SLICE;
    summing      s      = {.data = weights, .bytes = e->weights_bytes};
    s.sum               = fl_alloc_array(slices, sizeof *s.sum);
    if (s.sum == NULL)
        return false;
    fl_team_run(e->team, sum_some, &s);
    *out = fl_checksum(s.sum, slices * sizeof *s.sum);
    fl_free(s.sum);
    return true;
}

static uint64_t sum_head(const pack_head *head) {
    return fl_checksum(head, offsetof(pack_head, own));
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* NULL, or why a file is not used. *level: whether somebody should look at it. */
static const char *check(const pack_cache *c, const fl_map *map, int *level) {
    const pack_head *want = &c->head;
    pack_head        head;
    fl_os_file       file;
    uint64_t         sum;
    *level = FL_LOG_WARNING;
    if (!fl_os_look(map->fd, &file) || !file.guarded)
        return "users other than its reader may write to it";
    if (map->size < HEAD)
        return damaged;
    memcpy(&head, map->data, sizeof head);
    if (memcmp(head.magic, want->magic, sizeof head.magic) != 0 || head.own != sum_head(&head))
        return damaged;
    if (head.version != want->version || head.byte_order != want->byte_order ||
        memcmp(head.key, want->key, sizeof head.key) != 0) {
        *level = FL_LOG_INFO;
        return "it belongs to other weights or another version of fletch";
    }
    if (head.bytes != want->bytes || map->size - HEAD != want->bytes)
        return damaged;
    if (want->own != 0) /* written by this opening or by one beside it */
        return head.checksum == want->checksum ? NULL : damaged;
    if (!sum_up(c->engine, map->data + HEAD, &sum))
        return no_memory;
    return head.checksum == sum ? NULL : damaged;
}

/* Whether the engine's weights are mapped now. */
static bool load(const pack_cache *c) {
    fl_engine   *e = c->engine;
    fl_map       map;
    fletch_error error;
    int          level  = FL_LOG_WARNING;
    int          status = fl_map_open(&map, c->path, &error);
    if (status == FLETCH_ENOTFOUND)
        return false;
    const char *why = status < 0         ? error.message
                      : map.data == NULL ? damaged
                                         : check(c, &map, &level);
    if (why != NULL) {
        fl_log_write(c->log, level, "%s is not used, the weights are packed: %s", c->path, why);
        fl_map_close(&map);
        return false;
    }
    fl_cpu_pack_place(e, c->encoder, map.data + HEAD);
    e->panels->file = map;
    (void)snprintf(e->pack_note, sizeof e->pack_note, "%s", c->path);
    return true;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static int write_file(const pack_cache *c, fl_atomic_file *file, fletch_error *error) {
    unsigned char page[HEAD] = {0};
    memcpy(page, &c->head, sizeof c->head);
    FL_TRY(fl_atomic_write(file, page, sizeof page, error));
    return fl_atomic_write(file, c->engine->panels->block, c->engine->weights_bytes, error);
}

static int store(pack_cache *c, fletch_error *error) {
    fl_atomic_file file;
    unsigned char  key[DIGEST];
    char           folder[FL_OS_PATH];
    if (!sum_up(c->engine, c->engine->panels->block, &c->head.checksum))
        return fl_fail_nomem(error, c->engine->weights_bytes / SLICE, "a checksum");
    c->head.own = sum_head(&c->head);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)c->folder, c->path);
    FL_TRY(fl_folder_make(folder, error));
    (void)fl_atomic_sweep(folder, false); /* what a writer that was killed left */
    FL_TRY(fl_atomic_open(&file, c->path, error));
    file.care = FL_ATOMIC_CHECKED;
    (void)fchmod(file.fd, (mode_t)(S_IRUSR | S_IWUSR | c->readers));
    int status = write_file(c, &file, error);
    if (status == FLETCH_OK &&
        (make_key(c, key) != NULL || memcmp(key, c->head.key, sizeof key) != 0)) {
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                         "the weights' files changed while they were packed");
    }
    status = status == FLETCH_OK ? fl_atomic_commit(&file, error) : status;
    fl_atomic_abort(&file);
    return status;
}

/* Write what was packed, and map it instead: pages that the next process shares, and one copy in memory. */
static void keep(pack_cache *c) {
    fl_engine   *e = c->engine;
    fletch_error error;
    if (store(c, &error) < 0) {
        (void)snprintf(e->pack_note, sizeof e->pack_note, "%s", error.message);
        fl_log_write(c->log, FL_LOG_WARNING,
                     "packed weights are not stored for the next opening: %s. Fix it, or leave "
                     "model.pack_cache empty",
                     error.message);
    } else if (load(c)) {
        fl_log_write(c->log, FL_LOG_INFO, "packed weights are stored in %s", c->path);
        fl_big_free(e->panels->block, e->weights_bytes);
        e->panels->block = NULL;
    }
}

/* The weights of an engine like this one; false: there is none. */
static bool borrow(fl_engine *e, const fl_encoder *encoder, const fl_engine *like) {
    if (like == NULL || like->weights_bytes != e->weights_bytes || like->kernels != e->kernels ||
        like->format != e->format || like->max_length != e->max_length)
        return false;
    e->panels  = like->panels;
    e->borrows = true;
    atomic_fetch_add(&e->panels->users, 1);
    fl_cpu_pack_place(e, encoder,
                      e->panels->block ? e->panels->block : e->panels->file.data + HEAD);
    (void)snprintf(e->pack_note, sizeof e->pack_note, "%s", like->pack_note);
    return true;
}

void fl_cpu_weights_close(fl_engine *e) {
    fl_cpu_panels *p = e->panels;
    e->panels        = NULL;
    if (p == NULL || atomic_fetch_sub(&p->users, 1) > 1)
        return;
    fl_big_free(p->block, p->bytes);
    fl_map_close(&p->file);
    fl_free(p);
}

int fl_cpu_weights_open(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options,
                        fletch_error *error) {
    pack_cache c = {.engine = e, .encoder = encoder, .log = options->log};
    fl_cpu_pack_size(e, encoder);
    if (borrow(e, encoder, options->like))
        return FLETCH_OK;
    e->panels = fl_alloc_zero(1, sizeof *e->panels);
    if (e->panels == NULL)
        return fl_fail_nomem(error, sizeof *e->panels, "packed weights");
    atomic_init(&e->panels->users, 1);
    e->panels->bytes   = e->weights_bytes;
    const char *why    = find(&c, options);
    int         status = FLETCH_OK;
    if (why != NULL || !load(&c)) {
        status = fl_cpu_pack(e, encoder, error);
        if (status == FLETCH_OK && e->format == FL_CPU_INT8)
            status = fl_cpu_calibrate(e, encoder, error);
        if (why != NULL)
            (void)snprintf(e->pack_note, sizeof e->pack_note, "%s", why);
        else if (status == FLETCH_OK)
            keep(&c);
    }
    fl_free(c.files);
    return status;
}
