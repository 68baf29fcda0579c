#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_peft.py - adapters as sentence-transformers and peft save them, for test_peft.py.

Each folder of peft/ is an adapter of a folder of folders/, whose name its adapter_config.json has (the tests put a path in its place):
LoRA of some matrices of a decoder, of a fused one with rslora, of BERT's with its pooler and ranks of their own, and peft's own
form, an adapter and nothing else. Needs torch, sentence-transformers and peft; the tests need none of them.
"""
import json
import pathlib
import shutil

import numpy
import torch
import transformers.integrations.peft
from peft import LoraConfig, TaskType
from sentence_transformers import SentenceTransformer

import make_folders as base

HERE = pathlib.Path(__file__).resolve().parent / "peft"
CASES = {
    "decoder": ("family-qwen3", {"target_modules": ["q_proj", "v_proj", "down_proj"], "r": 4, "lora_alpha": 8}),
    "fused": ("family-modernbert", {"target_modules": ["Wqkv", "Wi"], "r": 3, "lora_alpha": 5, "use_rslora": True}),
    "pooler": ("plain-bert", {"target_modules": ["query", "value", "dense"], "r": 4, "lora_alpha": 8, "rank_pattern": {"query": 2}}),
    "shared": ("family-albert", {"target_modules": ["query", "ffn"], "r": 2, "lora_alpha": 4}),
    "alone": ("family-llama", {"target_modules": ["k_proj", "o_proj", "gate_proj"], "r": 2, "lora_alpha": 4}),
}


def make(name: str, folder: str, settings: dict) -> None:
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    model = SentenceTransformer(str(base.HERE / folder), device="cpu", model_kwargs={"dtype": torch.float32})
    model.add_adapter(LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, inference_mode=True, **settings))
    generator = torch.Generator().manual_seed(sum(name.encode()))
    for key, parameter in model.named_parameters():
        if "lora_" in key:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    model.save(str(path))
    saved = SentenceTransformer(str(path), device="cpu", model_kwargs={"dtype": torch.float32})
    rows = numpy.stack([saved.encode(text, show_progress_bar=False) for text in base.TEXTS])
    numpy.save(path / "expected.npy", rows.astype("<f4"))
    (path / "README.md").unlink()
    config = json.loads((path / "adapter_config.json").read_text())
    base.write_json(path / "adapter_config.json", config | {"base_model_name_or_path": folder})


def make_alone() -> None:
    """What peft's save_pretrained writes; sentence-transformers pools the mean, without length."""
    path = HERE / "alone"
    for entry in list(path.iterdir()):
        if entry.is_dir():
            shutil.rmtree(entry)
        elif not entry.name.startswith(("adapter_", "expected")):
            entry.unlink()


if __name__ == "__main__":
    transformers.integrations.peft.check_peft_version = lambda **_: None  # asks for one that no index has yet
    HERE.mkdir(exist_ok=True)
    for name, (folder, settings) in CASES.items():
        make(name, folder, settings)
    make_alone()
