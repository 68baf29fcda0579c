/* SPDX-License-Identifier: Apache-2.0 */
/* canary.c - the texts whose vectors are kept beside an index: fletch_canary_text.
 *
 * Method  What tokenizers and models take in different ways: scripts, numbers, code, white space, nothing at all, and
 *         one text that is longer than most models read. A file of canaries runs its texts, so these may change.
 * Memory  static. Threads: any. */
#include "session/canary.h"

#define SENTENCES                                                                                  \
    "A cat sits on the mat. How do I get a refund for order #48213, placed on 3 May 2024? "        \
    "Der Aufsichtsrat hat die Übernahme für 1,5 Mrd. € genehmigt. Кошка сидит на коврике. "
#define FOUR(text)    text text text text
#define SIXTEEN(text) FOUR(FOUR(text))

static const char *const texts[] = {
    "",
    "a",
    "A cat sits on the mat.",
    "THE CAT SAT ON THE MAT!",
    "How do I get a refund for order #48213, placed on 3 May 2024?",
    "Der Aufsichtsrat hat die Übernahme für 1,5 Mrd. € genehmigt.",
    "El niño comió una piña en la montaña.",
    "Кошка сидит на коврике.",
    "猫がマットの上に座っている。",
    "고양이가 매트 위에 앉아 있다.",
    "القطة تجلس على الحصيرة.",
    "बिल्ली चटाई पर बैठी है।",
    "for (int i = 0; i < n; i++) { sum += x[i] * y[i]; }",
    "https://example.com/a?b=c&d=%20e#f",
    "  two  spaces,\ta tab,\nand a line ",
    "👩‍🚀 launched 🚀 at 07:45 ☕️",
    "naïve café, e\u0301 as two code points",
    SIXTEEN(SENTENCES),
};

const char *fl_canary_text(size_t index) {
    return index < sizeof texts / sizeof texts[0] ? texts[index] : NULL;
}
