# SPDX-License-Identifier: Apache-2.0
"""test_pairs.py - two texts as one sequence, as Hugging Face's tokenizers puts them together.

What must never break: ids, byte offsets in both texts, special mask, the start of the second segment and what
truncation leaves of either text, for the templates of BERT, RoBERTa and TemplateProcessing and without one.
Needs: token_dump (FLETCH_BUILD), the default model's tokenizer.json (FLETCH_MODEL), the package tokenizers.
"""
import json
import random
import struct
import subprocess

import pytest

import token_cases
from test_tokens import DEFAULT, DUMP, byte_offsets, frames, numpy, tokenizers, vocab

TEMPLATES = {
    "default": None,  # the file's own
    "bert": {"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]},
    "roberta": {"type": "RobertaProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101],
                "trim_offsets": True, "add_prefix_space": False},
    "four": {"type": "TemplateProcessing",
             "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
             "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                      {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
                      {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
             "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [101], "tokens": ["[CLS]"]},
                                "[SEP]": {"id": "[SEP]", "ids": [102], "tokens": ["[SEP]"]}}},
    "bytelevel": {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        {"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}]},
    "none": {},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pairs")


def pairs():
    words = [word for word in vocab() if word.isalpha()]
    chance = random.Random(5)
    texts = [text for text in token_cases.FIXED + token_cases.Maker(vocab()).texts(540) if len(text) < 400]
    made = [("", ""), ("", "a"), ("a b", ""), ("a  [SEP] b", " é日本 ")]
    made += [(chance.choice(texts), chance.choice(texts)) for _ in range(400)]
    for first in range(0, 14):  # every way of being longer than the budget
        made += [(" ".join(chance.choices(words, k=first)), " ".join(chance.choices(words, k=second)))
                 for second in range(0, 14)]
    return token_cases.some(made, 3)


def dump(path, both, *flags):
    data = frames([text for pair in both for text in pair])
    done = subprocess.run([DUMP, "--json", path, "--pair", *flags], input=data, capture_output=True, check=False)
    if done.returncode != 0:
        return done.stderr.decode()
    out, at, result = done.stdout, 0, []
    for _ in both:
        count, truncated, segment = struct.unpack_from("=III", out, at)
        at += 12
        result.append((numpy.frombuffer(out, "=i4", count, at).tolist(),
                       numpy.frombuffer(out, "=u4", 2 * count, at + 4 * count).reshape(-1, 2),
                       list(out[at + 12 * count:at + 13 * count]), segment, bool(truncated)))
        at += 13 * count
    return result


def save(name, folder):
    path = folder / f"{name}.json"
    tree = json.loads(DEFAULT.read_text(encoding="utf-8"))
    if name != "default":
        tree["post_processor"] = TEMPLATES[name] or None
    path.write_text(json.dumps(tree), encoding="utf-8")
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, path


def compare(tokenizer, path, both, *flags, special=True):
    ours = dump(path, both, *flags)
    assert not isinstance(ours, str), ours
    for pair, mine, expected in zip(both, ours, tokenizer.encode_batch(both, add_special_tokens=special)):
        # Each of these copies its list: they are asked once.
        ids, types, sides, places = expected.ids, expected.type_ids, expected.sequence_ids, expected.offsets
        offsets = numpy.zeros((len(ids), 2), "u4")
        for side in (0, 1):
            where = [i for i, one in enumerate(sides) if one == side]
            if where:
                offsets[where] = byte_offsets(pair[side], [places[i] for i in where])
        segment = types.index(1) if 1 in types else len(ids)
        assert mine[0] == ids, pair
        assert numpy.array_equal(mine[1], offsets), pair
        assert mine[2] == expected.special_tokens_mask, pair
        assert mine[3] == segment, pair
        assert mine[4] == bool(expected.overflowing), pair


@pytest.mark.parametrize("name", TEMPLATES)
def test_pairs(name, folder):
    tokenizer, path = save(name, folder)
    both = pairs()
    compare(tokenizer, path, both)
    compare(tokenizer, path, both, "--no-special", special=False)
    for max_length in token_cases.some((4, 5, 8, 9, 12, 15), 2):
        for left in (False, True):
            tokenizer.enable_truncation(max_length, direction="left" if left else "right")
            compare(tokenizer, path, both, "--max-length", str(max_length), *(["--left"] if left else []))
        tokenizer.enable_truncation(max_length)
        compare(tokenizer, path, both, "--max-length", str(max_length), "--no-special", special=False)


@pytest.mark.parametrize("strategy", ["only_first", "only_second"])
def test_one_side_is_cut(strategy, folder):
    """What the reference refuses to cut is refused, the rest is equal."""
    tokenizer, path = save("default", folder)
    for max_length in (6, 9, 15):
        for left in (False, True):
            tokenizer.enable_truncation(max_length, strategy=strategy, direction="left" if left else "right")
            flags = ["--" + strategy.replace("_", "-"), "--max-length", str(max_length)] + (["--left"] if left else [])
            good, refused = [], []
            for pair in pairs():
                try:
                    tokenizer.encode(*pair)
                    good.append(pair)
                except Exception:  # the reference raises what it has at hand
                    refused.append(pair)
            compare(tokenizer, path, good, *flags)
            assert good and refused
            for pair in refused[::40]:
                assert "cannot be cut" in dump(path, [pair], *flags)
