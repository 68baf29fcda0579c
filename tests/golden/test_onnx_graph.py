# SPDX-License-Identifier: Apache-2.0
"""The graph that the onnxruntime engine builds gives sentence-transformers' vectors, in each of its forms.

A graph has a form for the cpu provider (fused attention, no mask), one for cuda (fused, lengths) and one for all
others (standard operators, masked). The tool onnx_graph runs any of them on the CPU, with each text alone or all
texts padded into one batch, with no optimisation and all of it. The small folders have each pooling, prompts left out
of it, odd sizes, F16 and BF16, BERT and MPNet. Without a library everything here is skipped by name.
"""
import json
import os
import pathlib
import subprocess

import numpy
import pytest

import golden

onnx_files = pytest.importorskip("onnx_files", reason="the onnx package is not in this Python (tools/venv.sh)")
LIBRARY = onnx_files.library()
TOOL = golden.BUILD / "tests/onnx_graph"
pytestmark = [pytest.mark.skipif(not LIBRARY, reason="no ONNX Runtime library: make onnxruntime"),
              pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")]

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
FULL = "FLETCH_TEST_FULL" in os.environ  # make check-full: every level of optimisation in every form, padded up to the longest
LEVELS = "0123" if FULL else "3"
PROJECTED = ("family-voyage", "family-clip", "family-siglip", "family-siglip-whole", "family-jina-clip")


def known(folder: pathlib.Path) -> bool:
    return not folder.name.startswith(golden.NO_GRAPH)


def modules(folder: pathlib.Path) -> list:
    path = folder / "modules.json"
    return [m["type"].split(".")[-1] for m in json.loads(path.read_text())] if path.exists() else []


def runs():
    """(folder, index) of the runs whose rows are the pooled ones, as they are or of length 1; PROJECTED are those of others, or of code."""
    for path in sorted(FOLDERS.glob("*/expected.json")):
        after_pooling = set(modules(path.parent)) - {"Transformer", "Pooling"}
        if known(path.parent) and path.parent.name not in PROJECTED and after_pooling <= {"Normalize"} and path.parent.name != "truncate-dim":
            for index, run in enumerate(json.loads(path.read_text())):
                if run["flags"] in ([], ["--prompt-name", "passage"]):
                    yield pytest.param(path.parent, index, id=f"{path.parent.name}-{index}")


def tokenize(folder: pathlib.Path, texts, length: int) -> list:
    done = subprocess.run([str(golden.BIN), "tokenize", "-m", str(folder), "--input-format", "jsonl", "--format",
                           "jsonl", "--max-length", str(length)], capture_output=True, text=True, check=True,
                          input="".join(json.dumps(text) + "\n" for text in texts))
    return [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def prompt_of(folder: pathlib.Path, flags) -> tuple:
    """The prompt in front of each text, and how many tokens at the head stay out of pooling."""
    path = folder / "config_sentence_transformers.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    name = flags[1] if flags else settings.get("default_prompt_name")
    prompt = (settings.get("prompts") or {}).get(name) or ""
    pooling = json.loads((folder / "1_Pooling/config.json").read_text()) if modules(folder) else {}
    if not prompt or pooling.get("include_prompt", True):
        return prompt, 0
    return prompt, len(tokenize(folder, [prompt], 1000)[0]) - 1  # its last special token


def graphs(folder: pathlib.Path, ways, rows_of_ids, skip: int) -> dict:
    """The rows of each way (form, level, how): one process, in which opening the library is most of the work."""
    lines = "".join(f"{skip} {' '.join(map(str, ids))}\n" for ids in rows_of_ids)
    done = subprocess.run([str(TOOL), "run", str(folder), *(word for way in ways for word in way)], input=lines.encode(),
                          capture_output=True, env={**os.environ, "ORT_LIBRARY": LIBRARY})
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip(ways, numpy.frombuffer(done.stdout, numpy.float32).reshape(len(ways), len(rows_of_ids), -1)))


def computed(folder: pathlib.Path, index: int) -> tuple:
    """What is expected, and the rows of every way."""
    run = json.loads((folder / "expected.json").read_text())[index]
    prompt, skip = prompt_of(folder, run["flags"])
    ids = tokenize(folder, [prompt + text for text in TEXTS], run["max_length"])
    longest = run["max_length"] if FULL else max(map(len, ids))
    fixed = str(1 << (longest - 1).bit_length())  # compiling providers pad up to such a length
    whole = [("cpu", level, "alone") for level in LEVELS] + [("coreml", level, fixed) for level in LEVELS]
    whole += [("cuda", "0", fixed)]  # nothing optimised away: the operators as they are written
    half = [("coreml:fp16", "3", fixed)]
    if FULL:
        whole += [("cuda", "3", "0"), ("coreml", "3", "alone"), ("coreml", "0", "0")]
        half += [("cuda:fp16", "3", "0"), ("coreml:fp16", "0", "0"), ("cpu:fp16", "3", "alone")]
    rows = graphs(folder, whole + half, ids, skip)
    return numpy.load(folder / run["vectors"]), {way: rows[way] for way in whole}, {way: rows[way] for way in half}


def cosines(rows, expected):
    return (rows * expected).sum(axis=1) / numpy.maximum(
        numpy.linalg.norm(rows, axis=1) * numpy.linalg.norm(expected, axis=1), 1e-12)


@pytest.mark.parametrize("folder, index", list(runs()))
def test_folder(folder, index):
    """In full precision to the last digits. In half, which devices get with provider.precision fp16, the library takes the graph,
    runs it on the CPU as well as a CPU can (with its own casts), and the rows point where they should."""
    expected, whole, half = computed(folder, index)
    for way, rows in whole.items():
        if "Normalize" in modules(folder):
            rows = rows / numpy.maximum(numpy.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        assert golden.difference(rows, expected) <= 1e-5, way
    for way, rows in half.items():
        assert numpy.isfinite(rows).all() and cosines(rows, expected).min() >= 0.9995, way
        assert numpy.abs(rows - whole[way[0].split(":")[0], *way[1:]]).max() > 0, way  # it did compute in half precision


FLAGS = ("--provider-engine", "onnxruntime", "--onnxruntime-library", LIBRARY)
ALL = [(path.parent.name, index) for path in sorted(FOLDERS.glob("*/expected.json")) if known(path.parent)
       for index in range(len(json.loads(path.read_text())))]


@pytest.mark.parametrize("level", "03" if FULL else "3")
@pytest.mark.parametrize("name, index", ALL)
def test_embed(name, index, level, tmp_path):
    """The whole program on the built graph: what comes after pooling included."""
    folder = FOLDERS / name
    run = json.loads((folder / "expected.json").read_text())[index]
    rows = golden.embed(folder, TEXTS, *FLAGS, "--onnxruntime-graph-optimization-level", level, *run["flags"],
                        work=tmp_path)
    assert golden.difference(rows, numpy.load(folder / run["vectors"])) <= 1e-5


@pytest.mark.parametrize("folder", [path for path in sorted(FOLDERS.iterdir()) if path.is_dir() and not known(path)],
                         ids=lambda path: path.name)
def test_what_the_graph_lacks_is_refused_by_name(folder):
    flags = json.loads((folder / "expected.json").read_text())[0]["flags"]
    done = subprocess.run([str(golden.BIN), "embed", "-m", str(folder), *FLAGS, *flags, "hello"], capture_output=True, text=True)
    assert done.returncode in (2, 3) and "does not handle" in done.stderr and not done.stdout, done.stderr


def test_half_precision_by_the_whole_program(tmp_path):
    folder = FOLDERS / ALL[0][0]
    ask = (*FLAGS, "--onnxruntime-model", "graph", "--provider-precision")
    whole = golden.embed(folder, TEXTS, *ask, "fp32", work=tmp_path)
    rows = golden.embed(folder, TEXTS, *ask, "fp16", work=tmp_path)
    assert cosines(rows, whole).min() >= 0.9995 and numpy.abs(rows - whole).max() > 0
    done = subprocess.run([str(golden.BIN), "embed", "-m", str(folder), *ask, "int8", "hello"], capture_output=True,
                          text=True)
    assert done.returncode == 2 and "provider.precision" in done.stderr, done.stderr


VECTORS = golden.HERE / "vectors"
MODELS = [pytest.param("minilm", "FLETCH_MODEL", id="minilm"),
          pytest.param("mpnet", "FLETCH_MODEL_HIGH", id="mpnet", marks=pytest.mark.full)]


@pytest.mark.parametrize("form, level, how", [("cpu", "3", "alone"), ("cuda", "3", "0"), ("coreml", "2", "512")])
@pytest.mark.parametrize("name, variable", MODELS)
def test_model(name, variable, form, level, how):
    """Published weights, in texts of all lengths; padded up to a fixed shape as well."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no model folder")
    folder, expected = pathlib.Path(os.environ[variable]), numpy.load(VECTORS / f"{name}.npy")
    texts = json.loads((VECTORS / "texts.json").read_text(encoding="utf-8"))
    length = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    ids = tokenize(folder, texts, length)
    chosen = numpy.argsort([len(row) for row in ids], kind="stable")[::max(1, len(ids) // 12)]
    (rows,) = graphs(folder, [(form, level, how)], [ids[i] for i in chosen], 0).values()
    rows = rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
    assert numpy.abs(rows - expected[chosen]).max() <= 1e-5
