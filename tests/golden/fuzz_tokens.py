#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fuzz_tokens.py - random texts through whole tokenizer.json files, against the package tokenizers.

    fuzz_tokens.py [--count 1000000] [--seed 1] FILE ...

Texts are drawn from hostile characters (token_cases.py), from the file's own vocabulary with its pieces cut and
joined, and from real sentences with letters changed; ids, byte offsets, special mask and truncation must be equal.
Every text goes both ways, with offsets and without (token_dump). The first texts that differ are told; then the end is 1.
Needs token_dump (FLETCH_BUILD), numpy and tokenizers; FLETCH_TEST_DATA has the sentences.
"""
import argparse
import os
import pathlib
import random
import sys

import tokenizers

import token_cases
from test_tokens import byte_offsets, dump

DATA = pathlib.Path(os.environ.get("FLETCH_TEST_DATA", "../shared/data"))
BATCH = 20000
SPACES = [" "] * 12 + ["", "", "  ", "\n", "\t", "\r\n", "\u3000", "\xa0", "\u2581", "."]
DIGITS = ["1", "12", "123", "1234", "12345678", "²", "٣", "Ⅷ", "½"]


class Texts:
    def __init__(self, tokenizer, seed: int):
        self.random = random.Random(seed)
        vocab = tokenizer.get_vocab()
        words = {token.strip("\u2581\u0120#"): index for token, index in vocab.items()}
        words.pop("", None)
        self.pieces = [tokenizer.decode([index]) or token for token, index in
                       self.random.sample(sorted(vocab.items()), min(20000, len(vocab)))]
        self.added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self.maker = token_cases.Maker(words, seed)
        self.maker.pieces = self.pieces
        self.sentences = token_cases.spread(token_cases.read_shared(DATA), 20000) or self.pieces

    def of_pieces(self) -> str:
        pick = self.random
        return "".join(pick.choice(self.pieces) + pick.choice(SPACES) for _ in range(pick.randrange(1, 12)))

    def changed(self) -> str:
        """A part of a sentence with some places replaced."""
        pick = self.random
        text = pick.choice(self.sentences)
        start = pick.randrange(len(text) or 1)
        part = list(text[start:start + pick.randrange(1, 90)])
        for _ in range(pick.randrange(0, 4)):
            odd = pick.choice([token_cases.ODD, token_cases.MARKS, token_cases.SPACES, token_cases.SYMBOLS, DIGITS,
                               token_cases.EMOJI, self.added or DIGITS, self.pieces])
            part.insert(pick.randrange(len(part) + 1), pick.choice(odd))
        return "".join(part)

    def draw(self, count: int) -> list[str]:
        kinds = [self.of_pieces, self.changed, self.changed, self.of_pieces]
        return [kinds[i % len(kinds)]() if i % 8 < 5 else one
                for i, one in enumerate(self.maker.texts(count))]


def differs(text, mine, expected, cut: bool) -> bool:
    return (mine[0] != expected.ids or mine[2] != expected.special_tokens_mask
            or mine[3] != (bool(expected.overflowing) and cut)
            or mine[1].tobytes() != byte_offsets(text, expected.offsets).tobytes())


def run(path: pathlib.Path, count: int, seed: int) -> int:
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    texts, wrong, size = Texts(tokenizer, seed), 0, 0
    for done in range(0, count, BATCH):
        batch = texts.draw(min(BATCH, count - done))
        size += sum(len(text.encode()) for text in batch)
        length = texts.random.choice([None, None, 2, 3, 7, 16])
        tokenizer.no_truncation() if length is None else tokenizer.enable_truncation(length)
        ours = dump(path, batch, *(["--max-length", str(length)] if length else []))
        for text, mine, expected in zip(batch, ours, tokenizer.encode_batch(batch)):
            if differs(text, mine, expected, length is not None):
                wrong += 1
                if wrong <= 5:
                    print(f"{path.name}, at most {length} tokens: {text!a}\n  {mine[0]} {mine[1].tolist()}\n"
                          f"  {expected.ids} {expected.offsets}", file=sys.stderr)
    print(f"{path}: {count} texts, {size / 1e6:.1f} MB, {wrong} differ", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return 1 if sum(run(path, options.count, options.seed) for path in options.files) else 0


if __name__ == "__main__":
    sys.exit(main())
