# SPDX-License-Identifier: Apache-2.0
"""gguf_file.py MODEL FOLDER - a model folder as llama.cpp reads it: FOLDER/f32.gguf, bf16, q8_0, q4_0 and q4_k.

`fletch model convert` writes them, with the bytes of the package gguf. q4_k is Q4_K_M by llama.cpp's own quantiser, and is left
out where llama_cpp is not installed."""
import ctypes
import importlib.util
import pathlib
import subprocess
import sys

from harness import ROOT


def quantise(source: pathlib.Path, path: pathlib.Path) -> None:
    import llama_cpp
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
    if llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(settings)) != 0:
        raise RuntimeError(f"llama.cpp cannot quantise {source}")


def main(folder: str, target: pathlib.Path) -> None:
    """Each file appears only when it is whole."""
    target.mkdir(parents=True, exist_ok=True)
    part = target / "part.gguf"
    for kind in ("F32", "BF16", "Q8_0", "Q4_0", *(["Q4_K"] if importlib.util.find_spec("llama_cpp") else [])):
        path = target / f"{kind.lower()}.gguf"
        if path.exists():
            continue
        if kind == "Q4_K":
            quantise(target / "f32.gguf", part)
        else:
            subprocess.run([ROOT / "build/fletch", "model", "convert", folder, part, "--type", kind, "--force"], check=True)
        part.rename(path)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
