# SPDX-License-Identifier: Apache-2.0
"""python.py [PART ...] - what the Python package costs above the library: hand-over, CPU seconds beside `fletch embed`, asyncio, start, memory.

    PYTHONPATH=build/python FLETCH_MODEL=… FLETCH_BIN=build/fletch python bench/python.py [--rounds 3]

PART: hand_over, awaits, starts, texts_of_each_length; without one all of them.
CPU seconds (user and system of the process and its threads), rounds interleaved, the least of each: clocks of a shared
machine say little. Prints a table in Markdown."""
import asyncio
import importlib.util
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import texts as text_sets
from harness import arguments, in_turn, least_in_turns, spent_by

MODEL, PROGRAM = os.environ.get("FLETCH_MODEL", ""), os.environ.get("FLETCH_BIN", "build/fletch")
OPTIONS = None  # main() sets it


def least(work, count):
    best = 1e9
    for _ in range(count):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def hand_over():
    import fletch
    from fletch import _inputs
    model = fletch.Model(MODEL)
    rows = [("all of embed() but the text, µs", 1e6 * least(lambda: [model.embed([]) for _ in range(100)], 200) / 100)]
    texts = [f"text number {i} of a hundred thousand, of eighty-five bytes or so: {'x' * 20}" for i in range(100_000)]
    rows.append(("100k ASCII str, ms", 1e3 * least(lambda: _inputs.make_texts(texts), 20)))

    def other(i):
        return f"téxt nümber {i} of a hundred thousand, öf eighty-five bytes or so: {'ü' * 10}"
    fresh = [[other(i) for i in range(100_000)] for _ in range(5)]
    rows.append(("100k other str, first use, ms", 1e3 * min(least(lambda: _inputs.make_texts(one), 1) for one in fresh)))
    try:
        import pyarrow as pa
        column = pa.array(texts, pa.large_string())
        rows.append(("100k Arrow large_string, ms", 1e3 * least(lambda: _inputs.make_texts(column), 50)))
    except ImportError:
        pass
    return rows


EMBED = """
import sys, json, fletch
texts = [json.loads(line) for line in open(sys.argv[2])]
if "arrow" in sys.argv[3]:
    import pyarrow
    texts = pyarrow.array(texts)
model = fletch.Model(sys.argv[1])
if "open" not in sys.argv[3]:
    model.embed(texts, truncate="right")
"""


def beside_the_program(name, texts):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "texts.jsonl"
        path.write_text("".join(json.dumps(text) + "\n" for text in texts))
        command = [PROGRAM, "embed", "--model", MODEL, "--input", path, "--format", "raw", "--output", "/dev/null", "--quiet"]
        runs = {"fletch embed": command} | {how: [sys.executable, "-c", EMBED, MODEL, path, how] for how in ("list", "arrow", "open", "open arrow")}
        best = least_in_turns({how: lambda words=words: spent_by(words) for how, words in runs.items()}, OPTIONS.rounds)
        base = best["fletch embed"][0]
        return [(f"{name}: fletch embed, CPU s", base)] + [
            (f"{name}: {how} / fletch embed, CPU", best[how][0] / base) for how in ("list", "arrow")] + [
            (f"{name}: list less its own start / fletch embed", (best["list"][0] - best["open"][0]) / base),
            (f"{name}: arrow less its own start / fletch embed", (best["arrow"][0] - best["open arrow"][0]) / base),
            (f"{name}: pyarrow's start and its array, CPU s", best["open arrow"][0] - best["open"][0]),
            (f"{name}: memory above the program, MB", best["list"][1] - best["fletch embed"][1])]


def awaits(count=10_000):
    import fletch
    model = fletch.Model(MODEL)
    texts = [f"a short text of number {i}" for i in range(count)]

    def cpu(work):
        before = resource.getrusage(resource.RUSAGE_SELF)
        rows = work()
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert all(row.tobytes() == first.tobytes() for row, first in zip(rows, want, strict=True))
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    async def all_of_them():
        return await asyncio.gather(*(model.aembed(text) for text in texts))
    want = model.embed(texts)
    ways, found = (lambda: model.embed(texts), lambda: asyncio.run(all_of_them())), ([], [])
    for number in range(OPTIONS.rounds):
        for which in in_turn((0, 1), number):
            found[which].append(cpu(ways[which]))
    return [(f"one call of {count} texts, CPU s", min(found[0])),
            (f"{count} awaits / one call, CPU", min(found[1]) / min(found[0])),
            (f"{count} awaits / one call, CPU, all rounds", sum(found[1]) / sum(found[0]))]


def starts():
    best = {name: min(spent_by([sys.executable, "-c", code])[0] for _ in range(5)) for name, code in {
        "numpy": "import numpy", "fletch": "import fletch",
        "first": f"import fletch; fletch.Model({MODEL!r}).embed('x')"}.items()}
    return [("import fletch above numpy, CPU ms", 1e3 * (best["fletch"] - best["numpy"])), ("start to first vector, CPU s", best["first"])]


ORIGINAL = """
import json, resource, sys, time
begin = time.perf_counter()
if sys.argv[3] == "fletch":
    from fletch import SentenceTransformer
else:
    from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1])
model.encode("first")
start = time.perf_counter() - begin
texts = json.load(open(sys.argv[2]))
best = 1e9
for _ in range(2):
    begin = time.perf_counter()
    model.encode(texts)
    best = min(best, time.perf_counter() - begin)
print(start, len(texts) / best, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def beside_the_original(name, texts):
    """sentence-transformers on the same texts, in turns: start to the first vector, texts a second, memory."""
    if importlib.util.find_spec("sentence_transformers") is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "texts.json"
        path.write_text(json.dumps(texts))
        found = {"original": [], "fletch": []}
        for _ in range(OPTIONS.rounds):
            for which, rows in found.items():
                out = subprocess.run([sys.executable, "-c", ORIGINAL, MODEL, str(path), which], check=True,
                                     capture_output=True, text=True).stdout
                rows.append([float(word) for word in out.split()])
        (start, _, peak), (start_ours, _, peak_ours) = (map(min, zip(*rows)) for rows in found.values())
        rate, rate_ours = (max(row[1] for row in rows) for rows in found.values())
        return [(f"{name}: texts/s of sentence-transformers", rate), (f"{name}: texts/s of fletch", rate_ours),
                (f"{name}: fletch / sentence-transformers, texts/s", rate_ours / rate),
                (f"{name}: sentence-transformers / fletch, start to first vector", start / start_ours),
                (f"{name}: sentence-transformers / fletch, memory", peak / peak_ours)]


def texts_of_each_length():
    short = [row["a"] for row in text_sets.rows(OPTIONS.data / "stsb-en-dev.jsonl")]
    long = text_sets.abstracts(OPTIONS.data)[:200]
    for name, texts in (("short", short), ("long", long), ("mixed", short + long[:100])):
        yield from beside_the_program(name, texts)
    for name, texts in (("short", short[:600]), ("long", long[:60])):
        yield from beside_the_original(name, texts)


PARTS = {part.__name__: part for part in (hand_over, awaits, starts, texts_of_each_length)}

if __name__ == "__main__":
    asked = arguments(__doc__, "data", rounds=3)
    asked.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help=", ".join(PARTS))
    OPTIONS = asked.parse_args()
    print("| what | |\n|---|---|")
    for part in OPTIONS.parts or PARTS:
        for name, value in PARTS[part]():
            print(f"| {name} | {value:.3g} |", flush=True)
