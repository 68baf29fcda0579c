# SPDX-License-Identifier: Apache-2.0
"""The GPU kit's agreement check (bench/gpu/agree.py) has teeth: a model whose queries or whose relative bias are lost
is off in every number format, and the same model again is not.

The shapes' random weights decide that (bench/gpu/shapes.py): at their usual size attention is so even that a device
whose attention is wrong would pass. The CPU engine stands in for the device.
"""
import json
import random
import struct
import sys

import pytest

import golden

sys.path.insert(0, str(golden.ROOT / "bench/gpu"))
import agree  # noqa: E402
import shapes  # noqa: E402

shapes.BLOCK = 65537  # of values of noise: less to make


def with_zeros(source, target, part: str) -> None:
    """A copy of a model folder in which the tensors with `part` in their names are 0."""
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).symlink_to(file)
    weights = target / "model.safetensors"
    data = bytearray(weights.read_bytes())
    weights.unlink()
    size = struct.unpack("<Q", data[:8])[0]
    found = [entry["data_offsets"] for name, entry in json.loads(data[8:8 + size]).items() if part in name]
    assert found
    for first, last in found:
        data[8 + size + first:8 + size + last] = bytes(last - first)
    weights.write_bytes(data)


@pytest.mark.parametrize("shape, part", [("toy", "self.query"), ("toy-mpnet", "attn.q"), ("toy-mpnet", "relative_attention_bias"),
                                         ("toy-modernbert", "Wqkv"), ("toy-qwen3", "q_proj")])
def test_a_lost_part_of_attention_is_seen(tmp_path, shape, part):
    shapes.make(tmp_path / shape, shape, shapes.invented_tokenizer())
    with_zeros(tmp_path / shape, tmp_path / "lost", part)
    dice, words = random.Random(1), agree.whole_words(tmp_path / shape)
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps(" ".join(dice.choices(words, k=3 + 3 * n))) + "\n" for n in range(12)))
    truth, lost = (agree.embed(golden.BIN, tmp_path / folder, texts, *agree.TRUTH) for folder in (shape, "lost"))
    for precision in agree.COSINES:
        assert agree.judge(truth, truth, precision)[0]
        good, seen = agree.judge(lost, truth, precision)
        assert not good, f"{precision}: {seen}"
