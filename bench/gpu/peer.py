#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peer.py FOLDER plain|compile [DEVICE] - sentence-transformers as fletch's peer on a GPU; measure.py starts it.

fp16 weights, SDPA attention (eager where the architecture has no other, and then the name says so), at the best of several batch sizes for each set of texts (it sorts by length itself);
compile: the encoder through torch.compile with dynamic shapes. Commands and answers are those of fl-gpu (gpu.c):
text FILE SECONDS, one FILE SECONDS, describe. Only what is on the machine is used: HF_HUB_OFFLINE is set.
"""
import json
import os
import resource
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

BATCHES = (64, 256, 1024)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Peer:
    def __init__(self, folder: str, how: str, device: str) -> None:
        import sentence_transformers
        import torch
        self.torch, self.device = torch, device
        kind = torch.float16 if device.startswith("cuda") else torch.float32
        attention = "sdpa"

        def load(attention: str):
            return sentence_transformers.SentenceTransformer(
                folder, device=device, model_kwargs={"torch_dtype": kind, "attn_implementation": attention})

        try:
            self.model = load(attention)
        except ValueError as error:  # MPNet's: "does not support an attention implementation through … sdpa"
            if "sdpa" not in str(error) and "scaled_dot_product_attention" not in str(error):
                raise
            attention = "eager"
            self.model = load(attention)
        if how == "compile":
            self.model[0].auto_model.compile(dynamic=True)  # in place: to some versions auto_model is a name to read
        self.name = f"sentence-transformers {sentence_transformers.__version__}, torch {torch.__version__}, {attention} attention"
        self.best: dict[str, int] = {}
        self.files: dict[str, list[str]] = {}

    def describe(self) -> dict:
        cuda = self.device.startswith("cuda")
        return {"name": self.name, "device": self.torch.cuda.get_device_name() if cuda else "cpu"}

    def embed(self, texts: list[str], batch: int) -> float:
        start = time.perf_counter()
        self.model.encode(texts, batch_size=batch, convert_to_numpy=True, normalize_embeddings=True,
                          show_progress_bar=False)
        return time.perf_counter() - start

    def read(self, path: str) -> list[str]:
        if path not in self.files:
            with open(path, encoding="utf-8") as file:
                self.files[path] = file.read().splitlines()
        return self.files[path]

    def tune(self, path: str) -> int:
        """The best batch size for a file, by a part of it; the first try of each size is not counted."""
        if path not in self.best:
            part = self.read(path)[:4096]
            times = {}
            for batch in BATCHES:
                if batch > BATCHES[0] and batch > len(part):
                    continue
                self.embed(part[:2 * batch], batch)
                times[batch] = self.embed(part, batch)
            self.best[path] = min(times, key=times.get)
        return self.best[path]

    def text(self, path: str, seconds: float) -> dict:
        texts, batch = self.read(path), self.tune(path)
        start, cpu, calls = time.perf_counter(), cpu_seconds(), 0
        while time.perf_counter() - start < seconds:
            self.embed(texts, batch)
            calls += 1
        return {"calls": calls, "texts": calls * len(texts), "seconds": time.perf_counter() - start,
                "cpu_seconds": cpu_seconds() - cpu, "batch": batch}

    def one(self, path: str, seconds: float) -> dict:
        texts, times, start = self.read(path), [], time.perf_counter()
        while time.perf_counter() - start < seconds or len(times) < 20:
            times.append(self.embed([texts[len(times) % len(texts)]], 1))
        counted = sorted(times[len(times) // 10:])
        return {"calls": len(times), "p50": counted[len(counted) // 2], "p99": counted[len(counted) * 99 // 100]}


def main() -> None:
    folder, how, device = (sys.argv[1:] + ["cuda"])[:3]
    answers, peer = sys.stdout, None
    sys.stdout = sys.stderr  # what libraries print is not an answer
    for line in sys.stdin:
        try:
            peer = peer or Peer(folder, how, device)
            verb, *rest = line.split()
            if verb == "describe":
                answer = peer.describe()
            else:
                answer = {"text": peer.text, "one": peer.one}[verb](rest[0], float(rest[1]))
        except Exception as error:  # told to measure.py, which goes on without it
            answer = {"error": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(answer), file=answers, flush=True)


main()
