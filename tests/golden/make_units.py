#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_units.py - write tests/golden/units.json: texts, and where sentences and Markdown's sections end in them.

Usage:  tests/golden/make_units.py > tests/golden/units.json       (pip install uniseg==0.10.1 markdown-it-py==4.3.0)
        tests/golden/make_units.py --check SentenceBreakTest.txt   (Unicode 15.0's; needs FLETCH_BUILD)

Sentences are uniseg's (UAX 29, Unicode 16.0), on characters whose class is that of 15.0; a text in which a full stop
and a symbol stand before a lower case letter is left out: SB8 of the standard keeps them together and uniseg does not.
Sections are made of markdown-it-py's headings (CommonMark), of texts without HTML and quotes: a section ends before a
heading of the document if text stands in it already.
--check runs all of Unicode's own test, which is not in this repository."""
import json
import random
import sys

SENTENCES = "aB1.!?,:-\"'()[] \t\n\r\x85\u2028\u2029\u3002\u0301\u200d\xad\xe9\xc9\xdf\u4e2d\u304b\u2024\u0661\u2019\u201d\xbb\xa0\u1e9e\u06d4\xaa\ufdfa"
WORDS = ["Mr. Smith went home.", "It is 3.4 m long.", "U.S. law", "\"Is it?\" he asked.", "Wait... what?!", "(Yes.) No.",
         "\u732b\u306f\u5ea7\u308b\u3002\u72ac\u3082\u3002", "\u041e\u043d \u043f\u0440\u0438\u0448\u0451\u043b. \u041a\u043e\u0433\u0434\u0430?", "etc. and so on.", "End.\n", "No end", "a.b.c D.E."]
LINES = ["text", "more text", "", "", "# One", "## Two ##", "#no heading", "####### seven", "   ### indented", "    # code",
         "```", "```python", "````", "~~~", "~~~ x", "Title", "=====", "---", "# in it", "  ", "``` a ` b", "#", "#\ttab"]


def sentence_cases(draw):
    for _ in range(400):
        yield "".join(draw.choice(SENTENCES) for _ in range(draw.randrange(1, 40)))
    for _ in range(100):
        yield " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 6)))


def section_ends(text):
    """Offsets of lines at which a section ends, by the headings that CommonMark has at the top."""
    from markdown_it import MarkdownIt
    heads, other = {}, set()
    for token in MarkdownIt("commonmark").parse(text):
        if token.map is None or token.level != 0 or token.nesting < 0:
            continue
        first, last = token.map
        if token.type == "heading_open":
            heads[first] = last
        else:
            other.update(range(first, last))
    lines, ends, holds, at = text.splitlines(keepends=True), [], False, 0
    for number, line in enumerate(lines):
        if number in heads and holds:
            ends.append(at)
            holds = False
        holds = holds or number in other
        at += len(line.encode())
    return [*ends, at]


def main():
    from uniseg.sentencebreak import sentences
    draw = random.Random(29)
    found = {"sentences": [], "sections": []}
    for text in sentence_cases(draw):
        ends, at = [], 0
        for sentence in sentences(text):
            at += len(sentence.encode())
            ends.append(at)
        found["sentences"].append([text, ends])
    while len(found["sections"]) < 300:
        lines = [draw.choice(LINES) for _ in range(draw.randrange(1, 14))]
        text = "\n".join(lines) + "\n"
        found["sections"].append([text, section_ends(text)])
    json.dump(found, sys.stdout, separators=(",", ":"))
    print()


def check(path):
    from test_units import SENTENCE, ends_of
    texts, expected = [], []
    with open(path, encoding="utf-8") as file:
        for line in file:
            parts = [[int(point, 16) for point in part.replace("\u00d7", " ").split()]
                     for part in line.split("#")[0].split("\u00f7")]
            parts = [bytes("".join(map(chr, part)), "utf-8") for part in parts if part]
            if parts:
                texts.append(b"".join(parts).decode())
                expected.append([len(b"".join(parts[:i + 1])) for i in range(len(parts))])
    wrong = [pair for pair in zip(texts, expected, ends_of(SENTENCE, texts)) if pair[1] != pair[2]]
    print(f"{len(texts)} cases, {len(wrong)} wrong", *wrong[:5], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(check(sys.argv[2]) if sys.argv[1:2] == ["--check"] else main())
