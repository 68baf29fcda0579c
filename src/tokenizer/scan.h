/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h - the first look at text: 64 bytes become bit masks of where words end.
 *
 * Role     token_stream.c lets it classify a window of text at a time and then only visits the set bits;
 *          added.c uses `find` to skip to bytes that may begin an added token.
 * In/Out   Raw text -> lower-cased copy and masks, bit i of word w for byte 64 w + i.
 * Method   One implementation per instruction set, chosen when a tokenizer opens; all give the same
 *          bits. Classes of ASCII are data (fl_scan_table), so that BERT's flags need no second code.
 * Proof    tests/unit/test_tokenizer_parts.c compares the implementations on random bytes. */
#ifndef FL_TOKENIZER_SCAN_H
#define FL_TOKENIZER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FL_SCAN_WINDOW = 4096,
    FL_SCAN_MASKS  = FL_SCAN_WINDOW / 64,
    FL_SCAN_SLACK  = 64 /* bytes after the window that `lower` must have */
};

/* What a byte is for the fast path. A byte is one of these. */
typedef enum fl_byte_class {
    FL_BYTE_WORD  = 0, /* belongs to a word as it is (or lower-cased) */
    FL_BYTE_SPACE = 1, /* ends a word and vanishes */
    FL_BYTE_PUNCT = 2, /* a word of its own */
    FL_BYTE_EXACT = 3  /* the word needs the exact path: not ASCII, or a control that vanishes */
} fl_byte_class;

/* A set of bytes for byte shuffles: byte 16 h + l is in it when bit h of plane[l] is set, from 80 up when bit h - 8 of
 * plane[16 + l] is. */
typedef struct fl_byte_set {
    uint8_t plane[32];
    bool    high; /* it has bytes >= 0x80 */
} fl_byte_set;

typedef struct fl_scan_table {
    uint8_t     kind[256]; /* fl_byte_class of each byte */
    fl_byte_set space, punct, exact;
    bool        lowercase; /* A-Z become a-z */
} fl_scan_table;

typedef struct fl_scan_masks {
    uint64_t boundary[FL_SCAN_MASKS]; /* FL_BYTE_SPACE or FL_BYTE_PUNCT */
    uint64_t punct[FL_SCAN_MASKS];
    uint64_t exact[FL_SCAN_MASKS];
} fl_scan_masks;

typedef struct fl_scan {
    /* Classify text[size], size <= FL_SCAN_WINDOW; bits past the end are boundaries. */
    void (*window)(const fl_scan_table *table, const char *text, size_t size, char *lower,
                   fl_scan_masks *masks);
    /* Position of the first byte of text[size] that is in the set, or size. */
    size_t (*find)(const fl_byte_set *set, const char *text, size_t size);
    /* The same for two bytes in a row, of which the second may lie beyond the end. */
    size_t (*find_pair)(const fl_byte_set *first, const fl_byte_set *second, const char *text,
                        size_t size);
} fl_scan;

void fl_byte_set_add(fl_byte_set *set, uint8_t byte);
bool fl_byte_set_has(const fl_byte_set *set, uint8_t byte);

/* fl_scan.find_pair, a byte at a time. */
size_t fl_find_pair(const fl_byte_set *first, const fl_byte_set *second, const char *text,
                    size_t size);

/* Fill the three sets from kind[]. */
void fl_scan_table_finish(fl_scan_table *table);

extern const fl_scan fl_scan_ref;
#if defined(__x86_64__)
extern const fl_scan fl_scan_avx2; /* only where fl_cpu.avx2 holds */
#endif

#endif
