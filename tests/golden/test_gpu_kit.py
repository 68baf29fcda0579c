# SPDX-License-Identifier: Apache-2.0
"""The GPU kit's agreement check (bench/gpu/agree.py) has teeth: a model whose queries or whose relative bias are lost
is off in every number format, and the same model again is not. What fails in its script is told, and the rest is done.

The shapes' random weights decide that (bench/gpu/shapes.py): at their usual size attention is so even that a device
whose attention is wrong would pass. The CPU engine stands in for the device.
"""
import json
import math
import os
import random
import struct
import subprocess
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


def test_a_cosine_that_is_no_number_is_off():
    assert not agree.judge([[math.nan, 1.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], "fp8")[0]


def test_every_step_of_the_kit_runs_whatever_failed_before_it(tmp_path):
    """On a machine where nothing was built, and with a step that there is not."""
    done = subprocess.run([golden.ROOT / "bench/gpu/run.sh", "nonsense", "check", "measure", "profile", "times", "shapes"],
                          env=os.environ | {"BENCH_WORK": str(tmp_path), "BENCH_SHAPES": "toy", "FLETCH_MODEL": ""},
                          capture_output=True, text=True, timeout=3600)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("OFF: ")]
    assert [line.split(":")[1].strip() for line in said] == ["there is no step 'nonsense'", "kernels", "the engine beside the CPU's", "the first figures",
                                                            "measuring", "the profile", "times of the kernels"], done.stderr
    assert all("the step 'build' makes it" in line for line in said[1:]), done.stderr
    assert (tmp_path / "models/toy/model.safetensors").exists()


def test_the_kit_ends_before_its_machine_goes(tmp_path):
    for name in ("fl-gpu", "fletch", "fl-cuda-kernels"):  # programs that would go on for long
        (tmp_path / "build").mkdir(exist_ok=True)
        (tmp_path / "build" / name).write_text("#!/bin/sh\nexec sleep 100000\n")
        (tmp_path / "build" / name).chmod(0o755)
    done = subprocess.run([golden.ROOT / "bench/gpu/run.sh", "check", "times"], capture_output=True, text=True, timeout=3600,
                          env=os.environ | {"BENCH_WORK": str(tmp_path), "BENCH_SHAPES": "toy", "FLETCH_MODEL": "", "BENCH_UNTIL": "1"})
    assert done.returncode == 1 and "times of the kernels" in done.stderr and "no time is left for it" in done.stderr
