#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_vectors.py - the vectors that sentence-transformers gives for vectors/texts.json.

    make_vectors.py MINILM_FOLDER MPNET_FOLDER

Writes tests/golden/vectors/{minilm,mpnet}.npy ([texts, dimensions], float32, one text at a time so that
padding plays no part) and manifest.json with the versions, the sha256 of the weights and the token counts.
Needs torch and sentence-transformers; the tests themselves need neither.
"""
import hashlib
import importlib.metadata
import json
import pathlib
import sys

import numpy
import torch
from sentence_transformers import SentenceTransformer

HERE = pathlib.Path(__file__).resolve().parent / "vectors"
PACKAGES = ("sentence-transformers", "transformers", "tokenizers", "torch", "numpy")


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make(name: str, folder: str, texts: list[str]) -> dict:
    model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    rows = numpy.stack([model.encode(text, show_progress_bar=False) for text in texts])
    numpy.save(HERE / f"{name}.npy", rows.astype("<f4"))
    lengths = [int(model.tokenize([text])["input_ids"].shape[1]) for text in texts]
    return {
        "model.safetensors": sha256(pathlib.Path(folder) / "model.safetensors"),
        "tokenizer.json": sha256(pathlib.Path(folder) / "tokenizer.json"),
        "tokens": lengths,
    }


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    texts = json.loads((HERE / "texts.json").read_text(encoding="utf-8"))
    manifest = {
        "made by": "tests/golden/make_vectors.py",
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "minilm": make("minilm", sys.argv[1], texts),
        "mpnet": make("mpnet", sys.argv[2], texts),
    }
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
