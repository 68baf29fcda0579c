/* SPDX-License-Identifier: Apache-2.0 */
/* fault_engine.h - an engine that computes a toy and goes wrong when it is told to.
 *
 * It stands in the registry under the names "cpu" and "cuda", so the runtime takes it for the real one; its rows
 * depend on a text's ids alone. Which forward goes wrong, and how, is either planned (the n-th from
 * now) or drawn from a seed. The plan is the test program's: one per process. */
#ifndef FL_TESTS_FAULT_ENGINE_H
#define FL_TESTS_FAULT_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fl_fault {
    FL_FAULT_NONE,
    FL_FAULT_LATE,       /* some milliseconds late, or until the next plan */
    FL_FAULT_BROKEN,     /* EINTERNAL: the replica is broken */
    FL_FAULT_NOMEM,      /* ENOMEM unless the batch is a single text */
    FL_FAULT_NOMEM_ALL,  /* ENOMEM for as long as it is planned */
    FL_FAULT_BAD_TEXT,   /* EMODEL naming one text */
    FL_FAULT_SILENT_NAN, /* NaN in a row, and success */
    FL_FAULT_HANG, /* silent for some milliseconds, then EINTERNAL for all forwards of its replica */
    FL_FAULTS
} fl_fault;

enum { FL_FAULT_DEVICES = 8 };

#define FL_FAULT_HELD (UINT64_C(1) << 40) /* milliseconds: until fl_fault_set */

typedef struct fl_fault_plan {
    uint32_t slots; /* of a replica */
    uint32_t devices;
    uint64_t seed; /* faults drawn: one in `rarity` forwards; 0: none */
    uint32_t rarity;
    fl_fault planned; /* the `at`-th forward from now (0: the next), `times` times */
    int64_t  at, times;
    int64_t  opens_fail; /* so many opens fail with EPROVIDER, or with `opens_code` */
    int      opens_code;
    bool     cuda_gone;   /* opens on the provider cuda fail with EPROVIDER */
    bool     onnxruntime; /* there is an engine of that name as well */
    uint32_t cpu_slots;   /* of a replica on the provider cpu; 0: slots */
    /* how late FL_FAULT_LATE is, how long FL_FAULT_HANG is silent; 0: a few; FL_FAULT_HELD: until told */
    uint64_t    late_ms;
    fl_fault    script[8]; /* the next forwards one by one, up to the first FL_FAULTS */
    bool        scripted;
    uint32_t    bad_devices; /* bits: their opens fail with EPROVIDER */
    const char *why;         /* opens fail; NULL: the device is gone */
    bool        opens_held;  /* opens wait for the next plan, and fail or not by that */
    bool        gated;       /* forwards end as fl_fault_allow says */
    uint32_t    small;       /* tokens of a batch that device 1 takes; 0: as many as the others */
    uint32_t    meet;        /* so many forwards wait for each other, once */
    uint64_t    token_bytes; /* memory predicted for a token; 0: 1024 */
} fl_fault_plan;

/* Takes effect at once, for engines that are open too (slots and devices: at the next open). */
void fl_fault_set(const fl_fault_plan *plan);

/* While the plan is gated: `forwards` more of `device` may end. */
void fl_fault_allow(uint32_t device, uint32_t forwards);

uint64_t fl_fault_opens(void);   /* tried so far */
uint64_t fl_fault_opening(void); /* of these, waiting */
uint64_t
fl_fault_pinned(void); /* of these, by a thread that is pinned to the first of the engine's cores */
uint64_t fl_fault_forwards(void);   /* forwards so far */
uint64_t fl_fault_here(void);       /* of these, on the calling thread */
uint64_t fl_fault_open(void);       /* engines that are open now */
bool     fl_fault_overlapped(void); /* a slot was entered twice at once: never */
bool     fl_fault_lonely(void);     /* a forward that was to meet others waited in vain */
uint64_t fl_fault_reached(void);    /* engines that ran a forward, since the plan was set */
uint64_t fl_fault_most_texts(void); /* of a batch, since the plan was set; likewise tokens */
uint64_t fl_fault_most_tokens(void);

#endif
