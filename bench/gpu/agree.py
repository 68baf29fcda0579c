#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""agree.py FLETCH FOLDER [--texts N] [--words N] - the CUDA engine's vectors beside those of fletch's CPU engine.

For any model folder, also one of shapes.py with random weights: texts of 1 word to --words, in every number format.
The CPU engine's rows in float32 are the truth, being checked against sentence-transformers elsewhere; on x86 those of
its AVX2 kernels, since the wider ones may never have run on a machine like this one. A row must have its cosine, and
be nearer to its own text's row than to any other's. Prints a line a format; exit status 1 when one is off. A format
that the engine refuses by name, for the device or for the model, is told and not off. Nothing but Python is needed.
"""
import argparse
import array
import json
import math
import operator
import pathlib
import platform
import random
import subprocess
import sys
import tempfile

from measure import whole_words

TRUTH = ["--provider-order", "cpu", "--provider-precision", "fp32",
         *(["--cpu-isa", "avx2"] if platform.machine() == "x86_64" else [])]
COSINES = {"fp32": 0.99999, "fp16": 0.9995, "bf16": 0.9995, "int8": 0.995, "fp8": 0.995}
REFUSALS = ("which lacks it", "provider.precision fp8: ")  # by cuda_engine.c: of the device, of the model
dot = getattr(math, "sumprod", None) or (lambda a, b: sum(map(operator.mul, a, b)))  # Python 3.12 has it


def embed(program: str, folder: pathlib.Path, texts: pathlib.Path, *flags: str) -> list[list[float]]:
    """Unit rows; RuntimeError with the program's words when it fails."""
    with tempfile.TemporaryDirectory() as work:
        rows = pathlib.Path(work) / "rows.raw"
        done = subprocess.run([program, "embed", "-m", folder, "-i", texts, "--input-format", "jsonl", "--format", "raw",
                               "-o", rows, "--provider-engine", "native", "--provider-fallback", "false", *flags],
                              capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-400:])
        values = array.array("f", rows.read_bytes())
        if sys.byteorder == "big":
            values.byteswap()
    with open(texts, encoding="utf-8") as file:
        count = sum(1 for _ in file)
    width = len(values) // count
    found = [values[at:at + width].tolist() for at in range(0, len(values), width)]
    return [[value / length for value in row] for row in found for length in [math.sqrt(dot(row, row))]]


def judge(rows: list[list[float]], truth: list[list[float]], precision: str) -> tuple[bool, str]:
    """Whether the rows are those of the truth, and what was seen. A cosine that is no number is off."""
    least, own, lost = COSINES[precision], [dot(row, right) for row, right in zip(rows, truth)], 0
    for number, row in enumerate(rows):
        lost += any(dot(row, other) > own[number] for at, other in enumerate(truth) if at != number)
    worst = min(own) if not any(map(math.isnan, own)) else math.nan
    return worst >= least and lost == 0, (f"least cosine {worst:.6f} of {least}, {lost} of {len(truth)} rows nearer "
                                          "to another text")


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    command.add_argument("program")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument("--texts", type=int, default=200)
    command.add_argument("--words", type=int, default=300)
    args = command.parse_args()
    dice, words, off = random.Random(20261121), whole_words(args.folder), 0
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for number in range(args.texts):  # half are short
            longest = args.words if number % 2 else min(args.words, 40)
            file.write(json.dumps(" ".join(dice.choices(words, k=dice.randint(1, longest)))) + "\n")
        file.flush()
        truth = embed(args.program, args.folder, file.name, *TRUTH)
        for precision in COSINES:
            try:
                rows = embed(args.program, args.folder, file.name, "--provider-order", "cuda", "--provider-precision", precision)
                good, seen = judge(rows, truth, precision)
                print(f"{precision}: {seen}{'' if good else '  OFF'}", flush=True)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                good = any(words in str(error) for words in REFUSALS)
                print(f"{precision}: {error}{'' if good else '  OFF'}", flush=True)
            off += not good
    return int(off > 0)


if __name__ == "__main__":
    sys.exit(main())
