#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""agree.py FLETCH FOLDER [--texts N] [--words N] - the CUDA engine's vectors beside those of fletch's CPU engine.

For any model folder, also one of shapes.py with random weights: texts of 1 word to --words, in every number format.
The CPU engine's rows in float32 are the truth, being checked against sentence-transformers elsewhere; on x86 those of
its AVX2 kernels, since the wider ones may never have run on a machine like this one. A row must have its cosine, and
be nearer to its own text's row than to any other's. Prints a line a format; exit status 1 when one is off. Nothing but
numpy is needed.
"""
import argparse
import json
import pathlib
import platform
import random
import subprocess
import sys
import tempfile

import numpy

from measure import whole_words

TRUTH = ["--provider-order", "cpu", "--provider-precision", "fp32",
         *(["--cpu-isa", "avx2"] if platform.machine() == "x86_64" else [])]
COSINES = {"fp32": 0.99999, "fp16": 0.9995, "bf16": 0.9995, "int8": 0.995, "fp8": 0.995}


def embed(program: str, folder: pathlib.Path, texts: pathlib.Path, *flags: str) -> numpy.ndarray:
    """Unit rows; RuntimeError with the program's words when it fails."""
    with tempfile.TemporaryDirectory() as work:
        rows = pathlib.Path(work) / "rows.npy"
        done = subprocess.run([program, "embed", "-m", folder, "-i", texts, "--input-format", "jsonl", "--format", "npy",
                               "-o", rows, "--provider-engine", "native", "--provider-fallback", "false", *flags],
                              capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-400:])
        found = numpy.load(rows)
        return found / numpy.linalg.norm(found, axis=1, keepdims=True)


def judge(rows: numpy.ndarray, truth: numpy.ndarray, precision: str) -> tuple[bool, str]:
    """Whether the rows are those of the truth, and what was seen."""
    cosines, least = rows @ truth.T, COSINES[precision]
    lost = int((cosines.argmax(axis=1) != numpy.arange(len(truth))).sum())
    good = bool(cosines.diagonal().min() >= least) and lost == 0
    return good, (f"least cosine {cosines.diagonal().min():.6f} of {least}, {lost} of {len(truth)} rows nearer to "
                  f"another text")


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
                print(f"{precision}: {seen}{'' if good else '  OFF'}")
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                good = "which lacks it" in str(error)  # of this device
                print(f"{precision}: {error}{'' if good else '  OFF'}")
            off += not good
    return int(off > 0)


if __name__ == "__main__":
    sys.exit(main())
