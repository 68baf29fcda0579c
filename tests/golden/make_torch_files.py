#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_torch_files.py - the weights of two golden folders as torch.save writes and wrote them.

    make_torch_files.py      writes tests/golden/torch_files/ anew

weights-f16 once in each form that pytorch_model.bin has had, and dense-tanh's module. What a file must give is what the
folder's model.safetensors gives, byte for byte. Needs torch; the tests do not.
"""
import collections
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "torch_files"


def strided(tensors: dict) -> dict:
    """Transposed matrices, and vectors as every other element of a longer one."""
    return {name: tensor.t().contiguous().t() if tensor.dim() == 2 else torch.stack([tensor, -tensor], 1).flatten()[::2]
            for name, tensor in tensors.items()}


def shared(tensors: dict) -> dict:
    """All tensors lie in one storage, and one has two names."""
    whole, made, at = torch.cat([tensor.flatten() for tensor in tensors.values()]), collections.OrderedDict(), 0
    for name, tensor in tensors.items():
        made[name] = whole[at:at + tensor.numel()].view(tensor.shape)
        at += tensor.numel()
    made["cls.predictions.decoder.weight"] = made["embeddings.word_embeddings.weight"]
    return made


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    tensors = collections.OrderedDict(load_file(HERE / "folders/weights-f16/model.safetensors"))
    whole = collections.OrderedDict(tensors)
    whole["embeddings.position_ids"] = torch.arange(64).unsqueeze(0)
    whole._metadata = collections.OrderedDict({"": {"version": 1}, "embeddings": {"version": 1}})
    torch.save(whole, OUT / "zip.bin")
    torch.save(whole, OUT / "old.bin", _use_new_zipfile_serialization=False)
    torch.save(strided(tensors), OUT / "strided.bin")
    torch.save(shared(tensors), OUT / "shared.bin")
    torch.save(shared(tensors), OUT / "shared-old.bin", _use_new_zipfile_serialization=False)
    parameters = {name: torch.nn.Parameter(tensor) for name, tensor in tensors.items()}
    torch.save(parameters, OUT / "parameters.bin")
    torch.save({"bert." + name: tensor for name, tensor in tensors.items()}, OUT / "prefixed.bin")
    names = list(tensors)
    halves = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for file, part in halves.items():
        torch.save({name: tensors[name] for name in part}, OUT / file)
    index = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, part in halves.items() for name in part}}
    (OUT / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    torch.save(load_file(HERE / "folders/dense-tanh/2_Dense/model.safetensors"), OUT / "dense.bin")


if __name__ == "__main__":
    main()
