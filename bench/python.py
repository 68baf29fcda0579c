# SPDX-License-Identifier: Apache-2.0
"""What the Python package costs above the library: hand-over, CPU seconds beside `fletch embed`, asyncio, start, memory.

    PYTHONPATH=build/python FLETCH_MODEL=… FLETCH_BIN=build/fletch FLETCH_TEST_DATA=… python bench/python.py [PART …]

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

MODEL, PROGRAM = os.environ["FLETCH_MODEL"], os.environ["FLETCH_BIN"]
DATA = pathlib.Path(os.environ["FLETCH_TEST_DATA"])
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))


def least(work, count):
    best = 1e9
    for _ in range(count):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def child_cpu(command, **more):
    """CPU seconds and peak MB of a program."""
    pid = subprocess.Popen(command, stdout=subprocess.DEVNULL, **more)
    _, status, used = os.wait4(pid.pid, 0)
    assert status == 0, command
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


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
        command = [PROGRAM, "embed", "--model", MODEL, "--input", str(path), "--format", "raw", "--output", "/dev/null", "--quiet"]
        runs = {"fletch embed": command} | {how: [sys.executable, "-c", EMBED, MODEL, str(path), how] for how in ("list", "arrow", "open", "open arrow")}
        best = {}
        for _ in range(ROUNDS):
            for how, words in runs.items():
                cpu, peak = child_cpu(words)
                best[how] = min(best.get(how, (1e9, 0)), (cpu, peak))
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
    ways = (lambda: model.embed(texts)), (lambda: asyncio.run(all_of_them()))
    want, found = model.embed(texts), ([], [])
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            found[which].append(cpu(ways[which]))
    return [(f"one call of {count} texts, CPU s", min(found[0])),
            (f"{count} awaits / one call, CPU", min(found[1]) / min(found[0])),
            (f"{count} awaits / one call, CPU, all rounds", sum(found[1]) / sum(found[0]))]


def starts():
    rows = []
    best = {name: min(child_cpu([sys.executable, "-c", code])[0] for _ in range(5)) for name, code in {
        "numpy": "import numpy", "fletch": "import fletch",
        "first": f"import fletch; fletch.Model({MODEL!r}).embed('x')"}.items()}
    rows.append(("import fletch above numpy, CPU ms", 1e3 * (best["fletch"] - best["numpy"])))
    rows.append(("start to first vector, CPU s", best["first"]))
    return rows


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
        for _ in range(ROUNDS):
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
    short = [json.loads(line)["a"] for line in (DATA / "stsb-en-dev.jsonl").read_text().splitlines()]
    long = [json.loads(line)["text"] for line in (DATA / "cranfield-docs.jsonl").read_text().splitlines()][:200]
    yield from beside_the_program("short", short)
    yield from beside_the_program("long", long)
    yield from beside_the_program("mixed", short + long[:100])
    yield from beside_the_original("short", short[:600])
    yield from beside_the_original("long", long[:60])


if __name__ == "__main__":
    print("| what | |\n|---|---|")
    for part in sys.argv[1:] or ("hand_over", "awaits", "starts", "texts_of_each_length"):
        for name, value in globals()[part]():
            print(f"| {name} | {value:.3g} |", flush=True)
