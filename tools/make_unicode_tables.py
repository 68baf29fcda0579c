#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_unicode_tables.py - write src/tokenizer/unicode_tables.c from the Unicode Character Database.

Usage:  tools/make_unicode_tables.py [--ucd /usr/share/unicode] > src/tokenizer/unicode_tables.c

The reference (Hugging Face tokenizers 0.22 and 0.23) mixes several ages of Unicode, because each of its
parts carries its own tables. Equal ids need the same ages, so each property here is made for the age its
part has:

  property                                       age    how it is made from the 15.0.0 files
  punctuation, nonspacing marks, Cc Cf Co        8.0    category of characters that DerivedAge puts at or
                                                        before 8.0, with the few that changed since (below)
  decomposition, combining class, StripAccents   9.0    the same with 9.0
  White_Space                                    15.0   unchanged up to 17.0
  \\w (Alphabetic, M, Nd, Pc, Join_Control)       16.0   15.0 and the additions of 15.1 and 16.0 (below)
  lower case                                     17.0   15.0 and the additions of 16.0 and 17.0 (below)
  grapheme clusters                              17.0   15.0 and the additions since (below)
  numeric (Nd, Nl, No)                           16.0   likewise
  category and Han of regular expressions        16.0   15.0 and the additions of 15.1 and 16.0 (below)
  compatibility decomposition, composition       9.0    as decomposition
  sentence break                                 15.0   as it is: no reference's ids hang on it

tests/golden/test_tokens.py and test_tokens_bpe.py compare every code point with the installed reference.
Input: the Debian package unicode-data 15.0.0-1 (DerivedAge, UnicodeData, PropList, DerivedCoreProperties,
Scripts and others).
"""

import argparse
import os
import sys

LAST = 0x110000
PAGE = 128
HANGUL = range(0xAC00, 0xAC00 + 11172)  # decomposed by rule, not by table

FLAGS = ["DROP", "SPACE", "PUNCT", "MARK_BERT", "MARK", "CJK", "WORD", "LOWER", "DECOMPOSES",
         "CCC", "EXTEND", "PREPEND", "PICTURE", "CONTROL", "NUMERIC", "COMPOSES", "HAN", "WORD_SIGN"]
# The order is that of fl_category. SPACE_CONTROL are the control characters with White_Space.
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co"
              " SPACE_CONTROL").split()

# The order is that of fl_sentence_class. What UAX 29 treats alike is one class: Extend with Format, CR and LF with Sep.
SENTENCE_CLASSES = ["Other", "Extend", "Sep", "Sp", "Lower", "Upper", "OLetter", "Numeric", "ATerm", "SContinue",
                    "STerm", "Close"]
SENTENCE_ALIKE = {"Format": "Extend", "CR": "Sep", "LF": "Sep"}

# Characters whose category changed between 8.0 and 15.0: what they were in 8.0.
CATEGORY_8 = {0x166D: "Po", 0x111C9: "Po", 0x1734: "Mn", 0x1885: "Lo", 0x1886: "Lo", 0xA9BD: "Mc"}
# Between 9.0 and 15.0, as far as "is it a mark" goes.
MARK_9 = {0x1CF2: True, 0x1CF3: True, 0x111C9: False}
# BERT's Chinese ranges; 2B920 (not 2B820) is a slip in the reference that decides ids, so it stays.
CJK = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
       (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]
# Simple lower case of letters added in 16.0 and 17.0: first, last, lower case of the first.
LOWER_NEW = [(0x1C89, 0x1C89, 0x1C8A), (0xA7CB, 0xA7CB, 0x264), (0xA7CC, 0xA7CC, 0xA7CD),
             (0xA7CE, 0xA7CE, 0xA7CF), (0xA7D2, 0xA7D2, 0xA7D3), (0xA7D4, 0xA7D4, 0xA7D5),
             (0xA7DA, 0xA7DA, 0xA7DB), (0xA7DC, 0xA7DC, 0x19B), (0x10D50, 0x10D65, 0x10D70),
             (0x16EA0, 0x16EB8, 0x16EBB)]
# Word characters added in 15.1 and 16.0.
WORD_NEW = """897 1C89-1C8A A7CB-A7CD A7DA-A7DC 105C0-105F3 10D40-10D65 10D69-10D6D 10D6F-10D85
10EC2-10EC4 10EFC 11380-11389 1138B 1138E 11390-113B5 113B7-113C0 113C2 113C5 113C7-113CA 113CC-113D3
113E1-113E2 116D0-116E3 11BC0-11BE0 11BF0-11BF9 11F5A 13460-143FA 16100-16139 16D40-16D6C 16D70-16D79
18CFF 1CCF0-1CCF9 1E5D0-1E5FA 2EBF0-2EE5D"""


# What grapheme clusters gained from 15.1 to 17.0, and digits.
EXTEND_NEW = "897 1ACF-1ADD 1AE0-1AEB 10D69-10D6D 10EFA-10EFC 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113D0 113D2 113E1-113E2 11F5A 1611E-1612F 11B60-11B67 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5"
NUMERIC_NEW = "10D40-10D49 116D0-116E3 11BF0-11BF9 16D70-16D79 1CCF0-1CCF9 1E5F1-1E5FA"
# Categories of 15.1 and 16.0, as the regular expressions of tokenizer.json (Oniguruma) see them.
CATEGORY_NEW = {
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
# Oniguruma's \w beside its categories: old digits of Latin-1, and letters in circles and squares.
WORD_SIGNS = "B2-B3 B9 BC-BE 24B6-24E9 1F130-1F149 1F150-1F169 1F170-1F189"


def parse_range(text):
    first, _, last = text.partition("..")
    return range(int(first, 16), int(last or first, 16) + 1)


def points_of(text):
    """The code points of "897 1C89-1C8A"."""
    return {point for part in text.split() for point in parse_range(part.replace("-", ".."))}


def read_properties(path):
    """{name: set of code points} of a file of "range ; name" lines."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.split("#")[0].strip()
            if line:
                where, name = [part.strip() for part in line.split(";")][:2]
                found.setdefault(name, set()).update(parse_range(where))
    return found


class Database:
    def __init__(self, folder):
        self.age = {}
        for name, points in read_properties(os.path.join(folder, "DerivedAge.txt")).items():
            version = tuple(int(part) for part in name.split("."))
            self.age.update((point, version) for point in points)
        self.property = read_properties(os.path.join(folder, "PropList.txt"))
        self.property.update(read_properties(os.path.join(folder, "DerivedCoreProperties.txt")))
        self.cluster = read_properties(os.path.join(folder, "auxiliary/GraphemeBreakProperty.txt"))
        self.sentence = {}
        for name, points in read_properties(os.path.join(folder, "auxiliary/SentenceBreakProperty.txt")).items():
            self.sentence.update((point, SENTENCE_CLASSES.index(SENTENCE_ALIKE.get(name, name))) for point in points)
        self.picture = read_properties(os.path.join(folder, "emoji/emoji-data.txt"))["Extended_Pictographic"]
        self.excluded = read_properties(os.path.join(
            folder, "DerivedNormalizationProps.txt"))["Full_Composition_Exclusion"]
        self.han = read_properties(os.path.join(folder, "Scripts.txt"))["Han"] | points_of(HAN_NEW)
        self.word_new, self.extend_new, self.numeric_new, self.word_signs = map(
            points_of, (WORD_NEW, EXTEND_NEW, NUMERIC_NEW, WORD_SIGNS))
        self.category, self.ccc, self.canonical, self.lower = {}, {}, {}, {}
        self.compatible = {}
        first = None
        with open(os.path.join(folder, "UnicodeData.txt"), encoding="utf-8") as file:
            for line in file:
                field = line.rstrip("\n").split(";")
                point = int(field[0], 16)
                if field[1].endswith("First>"):
                    first = point
                    continue
                span = range(first if first is not None else point, point + 1)
                first = None
                for one in span:
                    self.take(one, field)
        for first, last, target in LOWER_NEW:
            for point in range(first, last + 1):
                self.lower[point] = target + point - first
        self.seconds = {second for _, second, _ in self.compositions()}
        self.category_16 = dict(self.category)
        for name, text in CATEGORY_NEW.items():
            self.category_16.update((point, name) for point in points_of(text))

    def take(self, point, field):
        self.category[point] = field[2]
        if int(field[3]):
            self.ccc[point] = int(field[3])
        if field[5] and not field[5].startswith("<"):
            self.canonical[point] = [int(part, 16) for part in field[5].split()]
        if field[5]:
            self.compatible[point] = [int(part, 16) for part in field[5].split() if part[0] != "<"]
        if field[13]:
            self.lower[point] = int(field[13], 16)

    def upto(self, point, version):
        return self.age.get(point, (99, 0)) <= version

    def decompose(self, point):
        if point in self.canonical and self.upto(point, (9, 0)):
            return [part for one in self.canonical[point] for part in self.decompose(one)]
        return [point]

    def decompose_fully(self, point):
        if point in self.compatible and self.upto(point, (9, 0)):
            return [part for one in self.compatible[point] for part in self.decompose_fully(one)]
        return [point]

    def compositions(self):
        """[(first, second, composed)] in order."""
        return sorted((parts[0], parts[1], point) for point, parts in self.canonical.items()
                      if len(parts) == 2 and point not in self.excluded and self.upto(point, (9, 0)))

    def category_8(self, point):
        if point in CATEGORY_8:
            return CATEGORY_8[point]
        return self.category.get(point, "Cn") if self.upto(point, (8, 0)) else "Cn"

    def class_9(self, point):
        return self.ccc.get(point, 0) if self.upto(point, (9, 0)) else 0


def flags_of(data, point):
    found = set()
    category = data.category_8(point)
    if point not in (9, 10, 13) and (point in (0, 0xFFFD) or category in ("Cc", "Cf", "Co")):
        found.add("DROP")
    if point in data.property["White_Space"]:
        found.add("SPACE")
    if category[0] == "P" or chr(point) in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~":
        found.add("PUNCT")
    if category == "Mn":
        found.add("MARK_BERT")
    if MARK_9.get(point, data.category.get(point, "Cn")[0] == "M" and data.upto(point, (9, 0))):
        found.add("MARK")
    if any(first <= point <= last for first, last in CJK):
        found.add("CJK")
    now = data.category.get(point, "Cn")
    if (point in data.property["Alphabetic"] or now[0] == "M" or now in ("Nd", "Pc")
            or point in data.property["Join_Control"] or point in data.word_new):
        found.add("WORD")
    if point in data.lower:
        found.add("LOWER")
    if data.decompose(point) != [point] or point in HANGUL:
        found.add("DECOMPOSES")
    if data.class_9(point):
        found.add("CCC")
    cluster = next((name for name, points in data.cluster.items() if point in points), "Other")
    if cluster in ("Extend", "SpacingMark", "ZWJ") or point in data.extend_new:
        found.add("EXTEND")
    elif cluster in ("Prepend", "Control", "CR", "LF"):
        found.add("PREPEND" if cluster == "Prepend" else "CONTROL")
    if point in data.picture:
        found.add("PICTURE")
    if now in ("Nd", "Nl", "No") or point in data.numeric_new:
        found.add("NUMERIC")
    if point in data.seconds or 0x1161 <= point <= 0x1175 or 0x11A8 <= point <= 0x11C2:
        found.add("COMPOSES")
    if point in data.han:
        found.add("HAN")
    if point in data.word_signs:
        found.add("WORD_SIGN")
    return sum(1 << FLAGS.index(name) for name in found)


def category_of(data, point):
    name = data.category_16.get(point, "Cn")
    return CATEGORIES.index("SPACE_CONTROL" if name == "Cc" and point in data.property["White_Space"] else name)


def emit_array(kind, name, texts):
    print(f"const {kind} {name}[{len(texts)}] = {{")
    line = "   "
    for text in texts:
        if len(line) + len(text) + 2 > 100:
            print(line)
            line = "   "
        line += f" {text},"
    print(line)
    print("};\n")


def emit_pages(kind, page_kind, name, values):
    """A two-stage table: value = name_data[name_page[point / PAGE] * PAGE + point % PAGE]."""
    pages, index, data = {}, [], []
    for start in range(0, LAST, PAGE):
        page = tuple(values[start:start + PAGE])
        if page not in pages:
            pages[page] = len(pages)
            data.extend(page)
        index.append(pages[page])
    assert page_kind == "uint16_t" or len(pages) <= 256, len(pages)
    emit_array(page_kind, name + "_page", [str(one) for one in index])
    emit_array(kind, name + "_data", [str(one) for one in data])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ucd", default="/usr/share/unicode", help="folder of the 15.0.0 files")
    data = Database(parser.parse_args().ucd)
    records, entries, pool = {}, {}, [0]  # entry: its place in the pool
    record, decomposition = [], []
    for point in range(LAST):
        flags, ccc = flags_of(data, point), data.class_9(point)
        lower = data.lower.get(point, point) - point
        record.append(records.setdefault((flags, lower, ccc, category_of(data, point)), len(records)))
        parts, wide = data.decompose(point), data.decompose_fully(point)
        wide = () if wide == parts else tuple(wide)
        parts = () if parts == [point] else tuple(parts)
        entry = (len(parts) | len(wide) << 8,) + parts + wide
        if parts + wide and entry not in entries:
            entries[entry] = len(pool)
            pool.extend(entry)
        decomposition.append(entries.get(entry, 0))
        # The streaming normaliser relies on both:
        both = (1 << FLAGS.index("PUNCT")) | (1 << FLAGS.index("SPACE"))
        assert not (ccc and flags & both), hex(point)
        assert len(parts) <= 4, hex(point)
    assert len(pool) < 65536 and len(records) <= 256
    compositions = data.compositions()
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* unicode_tables.c - made by tools/make_unicode_tables.py; do not edit.")
    print(" *")
    print(" * From the Unicode Character Database 15.0.0, with each property brought to the age that the")
    print(" * reference has: categories 8.0 (of regular expressions 16.0), decomposition and combining class 9.0,")
    print(" * White_Space and sentence break 15.0, \\w 16.0, lower case 17.0. unicode.h says how the tables are read. */")
    print('#include "tokenizer/unicode.h"\n')
    print("/* clang-format off */")
    emit_array("fl_unicode_record", "fl_unicode_records",
               [f"{{{flags:#x}, {lower}, {ccc}, {category}}}" for flags, lower, ccc, category in records])
    emit_pages("uint8_t", "uint16_t", "fl_unicode_record", record)
    emit_pages("uint16_t", "uint8_t", "fl_unicode_decomposition", decomposition)
    emit_pages("uint8_t", "uint8_t", "fl_unicode_sentence", [data.sentence.get(point, 0) for point in range(LAST)])
    emit_array("uint32_t", "fl_unicode_pool", [f"{one:#x}" for one in pool])
    print(f"const unsigned fl_unicode_compositions_count = {len(compositions)};\n")
    emit_array("uint32_t", "fl_unicode_compositions", [f"{one:#x}" for row in compositions for one in row])
    return 0


if __name__ == "__main__":
    sys.exit(main())
