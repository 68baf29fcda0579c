#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_unicode_categories.py - write src/tokenizer/unicode_categories.c from the Unicode Character Database.

Usage:  tools/make_unicode_categories.py [--ucd /usr/share/unicode] > src/tokenizer/unicode_categories.c

The general category of every code point and the script Han, as the regular expressions of tokenizer.json
see them. The reference (Hugging Face tokenizers 0.23, Oniguruma) has Unicode 16.0; the input is the Debian
package unicode-data 15.0.0-1, so what 15.1 and 16.0 added or changed is listed here.
tests/golden/test_tokens_bpe.py compares every code point with the installed reference.
"""

import argparse
import os
import sys

from make_unicode_tables import LAST, Database, emit_array, emit_pages, parse_range, read_properties

# The order is that of unicode_categories.h. SPACE_CONTROL are the control characters with White_Space.
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co"
              " SPACE_CONTROL").split()
NEW = {
    "Lu": "1C89 A7CB-A7CC A7DA A7DC 10D50-10D65",
    "Ll": "1C8A A7CD A7DB 10D70-10D85",
    "Lm": "10D4E 10D6F 16D40-16D42 16D6B-16D6C",
    "Lo": """105C0-105F3 10D4A-10D4D 10D4F 10EC2-10EC4 11380-11389 1138B 1138E 11390-113B5 113B7 113D1
             113D3 11BC0-11BE0 13460-143FA 16100-1611D 16D43-16D6A 18CFF 1E5D0-1E5ED 1E5F0 2EBF0-2EE5D""",
    "Mn": """897 10D69-10D6D 10EFC 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11F5A 1611E-16129
             1612D-1612F 1E5EE-1E5EF""",
    "Mc": "113B8-113BA 113C2 113C5 113C7-113CA 113CC-113CD 113CF 1171E 1612A-1612C",
    "Nd": "10D40-10D49 116D0-116E3 11BF0-11BF9 16130-16139 16D70-16D79 1CCF0-1CCF9 1E5F1-1E5FA",
    "Pd": "10D6E",
    "Po": "1B4E-1B4F 1B7F 113D4-113D5 113D7-113D8 11BE1 16D6D-16D6F 1E5FF",
    "Sm": "10D8E-10D8F",
    "So": """2427-2429 2FFC-2FFF 31E4-31E5 31EF 1CC00-1CCEF 1CD00-1CEB3 1F8B2-1F8BB 1F8C0-1F8C1 1FA89
             1FA8F 1FABE 1FAC6 1FADC 1FADF 1FAE9 1FBCB-1FBEF""",
}
HAN_NEW = "2EBF0-2EE5D"


def points(text):
    return {point for part in text.split() for point in parse_range(part.replace("-", ".."))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ucd", default="/usr/share/unicode", help="folder of the 15.0.0 files")
    folder = parser.parse_args().ucd
    data = Database(folder)
    for name, text in NEW.items():
        data.category.update((point, name) for point in points(text))
    values = []
    for point in range(LAST):
        name = data.category.get(point, "Cn")
        if name == "Cc" and point in data.property["White_Space"]:
            name = "SPACE_CONTROL"
        values.append(CATEGORIES.index(name))
    han = sorted(read_properties(os.path.join(folder, "Scripts.txt"))["Han"] | points(HAN_NEW))
    ranges = []
    for point in han:
        if ranges and ranges[-1] == point - 1:
            ranges[-1] = point
        else:
            ranges += [point, point]
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* unicode_categories.c - made by tools/make_unicode_categories.py; do not edit.")
    print(" *")
    print(" * Unicode 16.0. unicode_categories.h says how the tables are read. */")
    print('#include "tokenizer/unicode_categories.h"\n')
    emit_pages("uint8_t", "fl_unicode_category", values, False)
    emit_array("uint32_t", "fl_unicode_han", ranges)
    return 0


if __name__ == "__main__":
    sys.exit(main())
