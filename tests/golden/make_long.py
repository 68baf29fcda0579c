#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_long.py - vectors of texts of 4,097 and 8,192 tokens for test_long.py: long/FOLDER.npy.

Made with sentence-transformers 6.2.0, transformers 5.23.0 and torch 2.15.0 from the folders of make_families.py, whose
rotary positions reach as far as config.json says: it says 8,192 here.
"""
import json
import pathlib
import random
import shutil
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = ("family-nomic", "family-gte", "family-modernbert", "family-qwen3", "family-qwen2", "family-llama", "family-eurobert",
           "family-mistral", "family-gemma3", "family-gemma3-causal", "family-jina3")
LENGTHS = (4097, 8192)


def texts() -> list[str]:
    """Letters of the small vocabulary, more than fit: a letter is a token."""
    draw = random.Random(8192)
    return [" ".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=length + 100)) for length in LENGTHS]


def longer(name: str, length: int, work: pathlib.Path) -> pathlib.Path:
    """A copy of a folder that takes texts of so many tokens."""
    path = work / f"{name}-{length}"
    shutil.copytree(HERE / "folders" / name, path)
    for file, change in (("config.json", {"max_position_embeddings": LENGTHS[-1]}),
                         ("sentence_bert_config.json", {"max_seq_length": length})):
        settings = json.loads((path / file).read_text())
        (path / file).write_text(json.dumps(settings | change))
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": length}))
    return path


def main() -> None:
    import numpy
    import sentence_transformers
    import torch
    (HERE / "long").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for name in FOLDERS:
            rows = []
            for text, length in zip(texts(), LENGTHS):
                model = sentence_transformers.SentenceTransformer(str(longer(name, length, pathlib.Path(work))), device="cpu",
                                                                  model_kwargs={"dtype": torch.float32})
                assert len(model.tokenize([text])["input_ids"][0]) == length
                rows.append(model.encode(text, show_progress_bar=False))
            numpy.save(HERE / "long" / f"{name}.npy", numpy.stack(rows).astype("<f4"))
            print(name, flush=True)


if __name__ == "__main__":
    main()
