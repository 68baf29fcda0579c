#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_lists.py - what sentence-transformers gives that is not one vector a text: vectors of tokens.

    make_lists.py            writes tokens.npz into some of the folders of make_folders.py

tokens.npz holds what encode(output_value="token_embeddings") gives for the first texts of texts.json, text after
text, and where each begins. Needs torch and sentence-transformers; the tests need neither.
"""
import json
import pathlib

import numpy
from sentence_transformers import SentenceTransformer

FOLDERS = pathlib.Path(__file__).resolve().parent / "folders"
# A plain encoder, one whose pooling reads a single row, norms in front and at the end, prompts, modules after pooling.
TOKENS = ("plain-bert", "pooling-cls", "mpnet", "family-modernbert", "family-qwen3", "prompts-left-out-mean",
          "normalize-dense")
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))[:12]


def write(path: pathlib.Path, rows: list, **more) -> None:
    offsets = numpy.cumsum([0] + [len(row) for row in rows])
    numpy.savez(path, embeddings=numpy.concatenate(rows).astype(numpy.float32), offsets=offsets, **more)


def main() -> None:
    for name in TOKENS:
        model = SentenceTransformer(str(FOLDERS / name), device="cpu", local_files_only=True)
        rows = model.encode(TEXTS, output_value="token_embeddings", batch_size=len(TEXTS))
        write(FOLDERS / name / "tokens.npz", [row.float().numpy() for row in rows])


if __name__ == "__main__":
    main()
