# SPDX-License-Identifier: Apache-2.0
"""families.py [ROW ...] - families beyond BERT at full size against their peers, and what the exact savings give.

Rows: nomic-v1.5, gte-base, modernbert-base, multilingual-e5-small, qwen3-0.6b, deberta-v3-base, t5-base, gemma2-2b-4 (random weights of those shapes, shapes.py),
cls (pooling to the first token against the mean, on the default model of 6 layers), prompt (queries after one instruction
against the same tokens with the instruction at the end, where nothing is shared; Qwen3's shape). None given: all.
Text in, unit rows out, one mixed set; engines in turns, every other round in reverse order; nothing is timed before all
engines agree with sentence-transformers. A row replaces the same row of an earlier run of the day in
results/DATE-MACHINE-families.json, and the section of docs/models.md is written anew from it. `tools/bench.sh families`.
"""
import pathlib
import subprocess
import sys
import tempfile

import harness
import record
import report
import shapes
import texts as text_sets

PEERS = ["fletch-int16", "fletch-int8", "onnxruntime", "fletch-onnxruntime", "openvino", "onnxruntime-int8", "openvino-int8",
         "sentence-transformers"]
RAW, RAW8 = ["onnxruntime", "openvino"], ["onnxruntime-int8", "openvino-int8"]
LLAMA = ["fletch-int16", "fletch-int8", "fletch-bf16", "fletch-q8_0", "fletch-q8_0-int8", "fletch-q4_0", "fletch-q4_k",
         "llama.cpp", "llama.cpp-bf16", "llama.cpp-q8_0", "llama.cpp-q4_0", "llama.cpp-q4_k", "sentence-transformers"]
ROWS = {name: PEERS for name in shapes.SHAPES} | {
    "qwen3-0.6b": LLAMA, "gemma2-2b-4": [*PEERS, "fletch-bf16"], "cls": ["fletch-mean"], "prompt": []}
# Row -> (words, ours, the peers of whom the fastest counts, at least so much)
NARROW = [("int16, against fp32", "fletch-int16", ["fletch"], 1.5), ("int8, against fp32", "fletch-int8", ["fletch"], 2.5)]
GOALS = {name: [*NARROW, ("fp32, against the best of onnxruntime and OpenVINO", "fletch", RAW, 1.3),
                ("int8, against the best int8 of onnxruntime and OpenVINO", "fletch-int8", RAW8, 1.4),
                ("fp32, against sentence-transformers", "fletch", ["sentence-transformers"], 2.0),
                ("fp32, against our own graph on onnxruntime", "fletch", ["fletch-onnxruntime"], None)]
         for name in shapes.SHAPES} | {
    "qwen3-0.6b": [*NARROW, ("fp32, against sentence-transformers", "fletch", ["sentence-transformers"], 1.5),
                   ("fp32, against llama.cpp in F32", "fletch", ["llama.cpp"], 1.0),
                   ("bf16, against llama.cpp in BF16", "fletch-bf16", ["llama.cpp-bf16"], 1.0),
                   ("Q8_0, fp32 products, against llama.cpp in Q8_0", "fletch-q8_0", ["llama.cpp-q8_0"], None),
                   ("Q8_0, int8, against llama.cpp in Q8_0", "fletch-q8_0-int8", ["llama.cpp-q8_0"], 2.0),
                   ("Q4_0, fp32 products, against llama.cpp in Q4_0", "fletch-q4_0", ["llama.cpp-q4_0"], None),
                   ("Q4_K_M, fp32 products, against llama.cpp in Q4_K_M", "fletch-q4_k", ["llama.cpp-q4_k"], None),
                   ("Q4_0, against Q8_0", "fletch-q4_0", ["fletch-q8_0"], 0.85)],
    "cls": [("pooling to the first token, against the mean", "fletch-cls", ["fletch-mean"], 1.1)],
    "prompt": [("one instruction in front of all, against it behind each", "shared", ["apart"], None)]}
INSTRUCTION = ("Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ")
# Random weights forgive less than trained ones.
REDUCED = {"llama.cpp-bf16": 0.99, "fletch-bf16": 0.99, "fletch-q8_0": 0.99, "llama.cpp-q8_0": 0.95, "fletch-q8_0-int8": 0.95,
                "fletch-q4_0": 0.5, "llama.cpp-q4_0": 0.5, "fletch-q4_k": 0.5, "llama.cpp-q4_k": 0.5, "openvino-int8": 0.5, "onnxruntime-int8": 0.5}
def run_maker(what: str, program: str, *words, **more) -> None:
    """A program of this folder makes what is missing; where it cannot, the engines that need it are absent."""
    harness.say(f"making {what}")
    done = subprocess.run([sys.executable, harness.HERE / program, *words], capture_output=True, text=True, **more)
    if done.returncode:
        harness.say(f"no {what}: {done.stderr.strip().splitlines()[-1]}")


def prepare(name: str, folders: pathlib.Path, environment: dict) -> dict:
    """The row's model and its graphs, made where they are missing; the environment of its engines."""
    if name == "cls":
        return environment
    shape = "qwen3-0.6b" if name == "prompt" else name
    folder, made = folders / shape, folders / (shape + "-graphs")
    if not folder.exists():
        run_maker(f"{shape} of random weights", "shapes.py", shape, folder, env=environment)
    environment = environment | {"BENCH_MODEL": str(folder), "BENCH_GRAPHS": str(made)}
    for graph in ("plain.onnx", "int8.onnx", "openvino-int8.xml") if "onnxruntime" in ROWS[name] else ():
        if not (made / graph).exists():
            run_maker(f"{graph} of {shape}", "graphs.py", folder, made, pathlib.Path(graph).stem, env=environment)
    if "llama.cpp" in ROWS[name] and not all((made / f"{kind}.gguf").exists() for kind in ("q4_0", "q4_k")):
        run_maker(f"GGUF of {shape}", "gguf_file.py", folder, made, env=environment)
    return environment


def race_prompt(engine: harness.Engine, queries: list[str], rounds: int, clock: str) -> dict:
    """Seconds of the same words twice; the speed is queries a second."""
    sets = {"shared": [INSTRUCTION + text for text in queries], "apart": [f"{text} {INSTRUCTION}" for text in queries]}
    for name, given in sets.items():
        engine.ask("load", name=name, texts=given)
        engine.warm(given[::8])
    return harness.race({name: (engine, name) for name in sets}, len(queries), rounds, clock)


def measure(name: str, options, environment: dict, sets: dict, folder: str, kept: record.Record) -> dict:
    environment, absent = prepare(name, options.folders, environment), {}
    kept.begin()
    ours = "fletch-cls" if name == "cls" else "fletch"
    engines = harness.open_engines([ours, *(peer for peer in ROWS[name] if peer not in options.without.split(","))], environment, absent)
    found = {"clock": options.clock, "absent": absent, "versions": {key: engine.version for key, engine in engines.items()}}
    if "sentence-transformers" in engines:
        found["parity"] = harness.parity(engines, sets["mixed"][:32], folder, absent, REDUCED)
    if name == "prompt":
        found["speed"] = race_prompt(engines[ours], sets["short"], options.rounds, options.clock)
    else:
        given = sets["cls" if name == "cls" else "mixed"]
        lengths = text_sets.counts(environment["BENCH_MODEL"], given)
        found["speed"] = harness.race_texts(engines, name, given, sum(lengths), options.rounds, options.clock)
        pooled = name in ("gte-base", "qwen3-0.6b", "gemma2-2b-4", "cls")
        found |= {"texts": len(given), "tokens": sum(lengths), "gflop": text_sets.flop(environment["BENCH_MODEL"], lengths, pooled) / 1e9,
                  "peak": harness.peak(options.threads)}
    found["opening"] = {key: engine.opening for key, engine in engines.items()}
    found["memory"] = {key: engine.ask("memory")["megabytes"] for key, engine in engines.items()}
    harness.close(engines)
    return found | kept.stamp()


def engine_rows(name: str, row: dict) -> list:
    rows = []
    for engine, speed in row["speed"].items():
        process = "fletch" if name == "prompt" else engine
        near, opening, memory = (row.get(key, {}).get(which) for key, which in (("parity", engine), ("opening", process), ("memory", process)))
        rows.append((name, engine, report.three(speed, ".0f"), *("" if value is None else f"{value:.{digits}f}" for value, digits in (
            (near, 6), (opening, 1), (memory, 0)))))
    return rows + [(name, engine, f"absent: {why}", "", "", "") for engine, why in row["absent"].items()]


def render(result: dict) -> list[str]:
    rows, goals = {name: result["rows"][name] for name in ROWS if name in result["rows"]}, []
    for name, row in rows.items():
        goals += report.goals(name, row["speed"], GOALS[name])
        if "fletch" in row["speed"] and row.get("peak") and row["clock"] == "seconds":
            share = [value / row["tokens"] * row["gflop"] / row["peak"] for value in row["speed"]["fletch"]["all"]]
            goals += report.line(f"{name}: fp32, share of the FMA peak, tokenising and pooling included", share, 0.8)
    versions = sorted({version for row in rows.values() for version in row["versions"].values()})
    return [f"{report.where(result['machine'])}, {result['date']}.", "", *report.table(report.GOALS_HEAD, goals), *report.table(
        ("row", "engine", "tokens/s (prompt: queries/s), lowest / median / highest", "least cosine to sentence-transformers",
         "process start to ready, processor s", "peak resident MB"), [cells for name, row in rows.items() for cells in engine_rows(name, row)]),
            *report.table(("row", "when", "commit", "clock", "load before and after", "texts, tokens", "seconds"), [
                (name, row["when"], row["commit"], row["clock"], f"{row['load'][0]}, {row['load'][1]}",
                 f"{row.get('texts', '')}, {row.get('tokens', '')}", f"{row['seconds']:.0f}") for name, row in rows.items()]),
            "Versions: " + "; ".join(versions) + "."]


def main() -> None:
    parser = harness.arguments(__doc__, "model", "data", "clock", "out", "document", threads=2, rounds=3)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS) + " (default: all)")
    parser.add_argument("--folders", type=pathlib.Path, default=harness.ROOT / ".cache/shapes", help="where the shapes are kept")
    parser.add_argument("--short", type=int, default=64, help="sentences in a pass")
    parser.add_argument("--long", type=int, default=6, help="abstracts in a pass")
    parser.add_argument("--without", default="", help="engines to leave out, comma separated")
    options = parser.parse_args()
    if unknown := [name for name in options.rows if name not in ROWS]:
        parser.error(f"unknown row {unknown[0]}; there are {', '.join(ROWS)}")
    options.folders, options.data = options.folders.absolute(), options.data.absolute()
    # sentence-transformers sorts by length: of 32 texts a batch, 26 sentences would be padded to the length of 6 abstracts.
    environment = harness.environment_of(options) | {"BENCH_TOKENIZERS": str(options.data / "tokenizers"), "BENCH_BATCH": "8",
                                                     "BENCH_DATA": str(options.data)}
    sets = text_sets.read_sets(options.data, options.short, options.long, False)
    sets["mixed"] = [*sets["short"], *sets["long"]]
    sets["cls"] = text_sets.read_sets(options.data, 8 * options.short, 1, False)["short"]
    kept = record.Record(options, "families")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.rows or ROWS:
            kept.result.setdefault("rows", {})[name] = measure(name, options, environment, sets, folder, kept)
            lines = render(kept.result)
            kept.write(["# Families at full size, random weights", "", *lines])
            if options.document:
                goals = lines[:lines.index("", 2) + 1]
                beside = f"All figures: [{kept.base.name}.md](../bench/results/{kept.base.name}.md)."
                report.write_section(options.document, "families.py", [*goals, beside])
    print("\n".join(lines))
    harness.say(f"written: {kept.path('.json')} and .md")


if __name__ == "__main__":
    main()
