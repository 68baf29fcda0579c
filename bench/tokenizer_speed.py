# SPDX-License-Identifier: Apache-2.0
"""tokenizer_speed.py - MB/s of tokenizer.json files by language, against the reference wheel, on one thread.

    python bench/tokenizer_speed.py --data DIR [--build build] FILE ...      each FILE is a tokenizer.json

Processor time of one thread, both in the same run on the same texts: ours as `token_dump --time` counts it, theirs as called
from Python (encode_batch_fast).
"""
import argparse
import os
import pathlib
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE))

import texts  # noqa: E402


def sets(data: pathlib.Path) -> dict[str, list[str]]:
    found = {"cranfield": texts.abstracts(data)}
    for language in texts.LANGUAGES:
        path = next((data / f"stsb-{language}-{part}.jsonl" for part in ("train", "dev")
                     if (data / f"stsb-{language}-{part}.jsonl").is_file()), None)
        if path is not None:
            found[language] = texts.sentences(path)
    return found


def ours(dump: pathlib.Path, file: str, batch: list[str]) -> float:
    data = b"".join(struct.pack("=I", len(text.encode())) + text.encode() for text in batch)
    done = subprocess.run([dump, "--json", file, "--time"], input=data, capture_output=True, check=True)
    return float(done.stdout.decode().split(": ")[1].split(" ")[0])


def theirs(file: str, batch: list[str]) -> float:
    """In a process of its own: the wheel's module and this file have one name."""
    script = """
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer
t = Tokenizer.from_file(sys.argv[1]); t.no_truncation(); t.no_padding()
texts = json.load(sys.stdin); size = sum(len(x.encode()) for x in texts)
best = 1e9
for _ in range(2):
    begin = time.process_time(); t.encode_batch_fast(texts); best = min(best, time.process_time() - begin)
print(size / best / 1e6)
"""
    import json
    done = subprocess.run([sys.executable, "-I", "-c", script, file], input=json.dumps(batch), capture_output=True,
                          check=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("FLETCH_TEST_DATA"), help="folder of the text sets")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("files", nargs="+", help="tokenizer.json files")
    options = parser.parse_args()
    dump = options.build / "tests" / "token_dump"
    print(time.strftime("%F"), flush=True)
    print("| tokenizer | text | fletch MB/s | wheel MB/s | times |\n|---|---|---|---|---|", flush=True)
    for file in options.files:
        for name, batch in sets(pathlib.Path(options.data)).items():
            mine, other = ours(dump, file, batch), theirs(file, batch[:2000])
            label = pathlib.Path(file).parent.name if pathlib.Path(file).name == "tokenizer.json" else pathlib.Path(file).stem
            print(f"| {label} | {name} | {mine:.0f} | {other:.2f} | {mine / other:.0f} |", flush=True)


if __name__ == "__main__":
    main()
