# SPDX-License-Identifier: Apache-2.0
"""Real clients against the real server: what they return must be what the command line computes."""
import json
import subprocess

import clients
import pytest
import serving
from dialects import TEXTS, f32, tokens, unbase64, vectors

PROGRAMS = serving.ROOT / "tests" / "server" / "client_programs.py"


@pytest.fixture
def client(server, tmp_path):
    """client(NAME): what that client got."""

    def run(name, texts=TEXTS, server=server):
        host, port = server.where
        done = subprocess.run([clients.python(), PROGRAMS, name, f"http://{host}:{port}"], input=json.dumps(texts),
                              env=clients.environment() | {"HOME": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True,
                              timeout=serving.WAIT, check=False)
        if done.returncode == 77:
            pytest.skip(f"{name} is not installed: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_openai_python(client):
    got = client("openai")
    want = vectors(TEXTS)
    assert [f32(row) for row in got["rows"]] == want
    assert f32(got["cut"]) == vectors(TEXTS[:1], "--dimensions", "64")[0]
    assert got["tokens"] == sum(tokens(TEXTS)) and got["models"] == [serving.NAME]
    assert [f32(row) for row in got["many"]] == want * 5  # together in batches, and still the same numbers
    assert got["refused"][0] == 400 and got["refused"][1].startswith("'$.input' is invalid.")
    assert got["refused"][2] == "invalid_request_error"


def test_several_outputs_by_openai_python(client):
    got = client("openai_outputs")
    assert [f32(row) for row in got["rows"]] == vectors(TEXTS) and got["counts"] == tokens(TEXTS)
    assert [f32(row) for row in got["cut"]] == [unbase64(row) for row in got["packed"]] == vectors(TEXTS, "--dimensions", "64")


def test_batches_by_openai_python(client, start, tmp_path):
    got = client("openai_batches", TEXTS, start("--server-batches", tmp_path / "kept"))
    assert [f32(row) for row in got["rows"]] == vectors(TEXTS) and got["ids"] == [str(i) for i in range(len(TEXTS) + 1)]
    assert got["status"][:2] == ["completed", "failed"] and got["status"][2] in ("cancelled", "completed")
    assert got["counts"] == {"total": len(TEXTS) + 1, "completed": len(TEXTS), "failed": 1} and got["metadata"] == {"for": "a test"}
    assert (got["code"], got["line"], got["error"]) == ("invalid_json_line", 1, 400)
    assert got["batches"] and got["files"] and got["gone"] == [True, 404]
    assert got["lives"][0] == 3600 and 7190 <= got["lives"][1] <= 7210


def test_huggingface_hub(client):
    got = client("huggingface_hub")
    assert [f32(row) for row in got["rows"]] == vectors(TEXTS)
    assert f32(got["raw"]) == vectors(TEXTS[:1], "--normalize", "false")[0]


def test_huggingface_hub_similarity(client):
    rows = vectors(TEXTS)
    want = [sum(a * b for a, b in zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert client("huggingface_similarity")["cosine"] == pytest.approx(want, abs=1e-6)


def test_huggingface_hub_classification(client, start):
    server = start("--model", serving.ROOT / "tests/golden/scores/bert-three", model=False)
    got = client("huggingface_classification", TEXTS, server)["best"]
    for text, (label, score) in zip(TEXTS, got, strict=True):
        rows = server.ask("POST", "/predict", json.dumps({"inputs": text}).encode()).json()
        assert label in ("contradiction", "entailment", "neutral")
        assert (label, score) == max(((row["label"], row["score"]) for row in rows), key=lambda row: row[1])


def test_huggingface_hub_zero_shot(client, start):
    scores = serving.ROOT / "tests/golden/scores"
    told = json.loads((scores / "zero-shot.json").read_text(encoding="utf-8"))
    case = next(case for case in told["cases"] if case["template"] == "It is {} at sea" and not case["multi"])
    got = client("huggingface_zero_shot", told["texts"], start("--model", scores / "bert-three", model=False))["found"]
    assert got == pytest.approx(dict(zip(case["labels"], case["scores"][0])), abs=1e-6)


def test_langchain_openai(client):
    got = client("langchain_openai")
    assert [f32(row) for row in got["rows"]] == vectors(TEXTS)
    assert f32(got["query"]) == vectors(TEXTS[:1])[0]


def test_llama_index(client):
    assert [f32(row) for row in client("llama_index")["rows"]] == vectors(TEXTS)


def test_ollama_python(client):
    got = client("ollama")
    assert [f32(row) for row in got["rows"]] == vectors(TEXTS)
    assert f32(got["raw"]) == vectors(TEXTS[:1], "--normalize", "false")[0]
    assert got["tokens"] == sum(tokens(TEXTS)) and got["models"] == [serving.NAME]
    assert got["refused"] == [400, "the input length exceeds the context length"]


def test_ollama_python_pulls_and_removes_models(client, pulling, tmp_path):
    got = client("ollama_models", ["org/tiny", "org/none"], pulling())
    assert got["steps"][0] == {"status": "pulling manifest"} and got["steps"][-1] == {"status": "success"}
    weights = [step for step in got["steps"] if step.get("digest") == "model.safetensors"][-1]
    assert weights["completed"] == weights["total"] == (serving.SMALL / "model.safetensors").stat().st_size
    assert got["again"] == got["deleted"] == "success" and got["rows"] == 2
    assert got["listed"] == got["running"] == ["base"]
    assert [status for status, _ in got["refused"]] == [404, 404, 404] and "org/none" in got["refused"][0][1]
    assert not list((tmp_path / "hf/hub").glob("models--*"))


def test_cohere_python(client):
    got = client("cohere")
    want = vectors(TEXTS)
    assert [f32(row) for row in got["rows"]] == want == [unbase64(row) for row in got["base64"]]
    assert got["int8"] == [[int(x) for x in row] for row in vectors(TEXTS, "--dtype", "int8")]
    assert got["ubinary"] == [[int(x) for x in row] for row in vectors(TEXTS, "--dtype", "ubinary")]
    assert got["texts"] == list(TEXTS)
    assert got["refused"][0] == 400 and "not a re-ranker model" in got["refused"][1]


SPANS = json.loads((serving.ROOT / "tests/golden/spans.json").read_text(encoding="utf-8"))
CHUNKS = [SPANS["text"].encode()[begin:end].decode() for begin, end in SPANS["spans"][:3]]  # laid end to end, the text


@pytest.mark.parametrize("name", ["openai_late", "voyageai"])
def test_clients_that_chunk_late(client, start, name):
    """Jina's word for openai-python, Voyage's client; the vectors are those of torch."""
    server = start("--model", serving.ROOT / "tests/golden/folders/family-distilbert", model=False)
    want = next(case["vectors"] for case in SPANS["cases"] if case["folder"] == "family-distilbert" and not case["window"])
    got = client(name, CHUNKS, server)
    rows = got["rows"] if name == "openai_late" else got["rows"][0]
    assert [row == pytest.approx(vector, abs=1e-5) for row, vector in zip(rows, want[:3], strict=True)] == [True] * 3
    if name == "voyageai":
        assert [len(rows) for rows in got["rows"]] == [3, 1] and [len(row) for row in got["small"]] == [8] * 3
        assert got["refused"] == [400, "output_dimension must be from 1 to 32 for this model"]


@pytest.fixture
def ranker(start):
    return start("--model", serving.ROOT / "tests/golden/scores/bert", model=False)


DOCUMENTS = ["the cat", *[second for first, second in json.loads((serving.ROOT / "tests/golden/scores/pairs.json").read_text())
                          if first == "the cat"], "rain at sea"]


def ranked(server, query, documents):
    """[(index, score)], the best first, as the reference has the pairs (tests/server/test_scores.py)."""
    rows = server.ask("POST", "/rerank", json.dumps({"query": query, "texts": documents}).encode()).json()
    return [(row["index"], row["score"]) for row in rows]


@pytest.mark.parametrize("name", ["cohere_rerank", "langchain_jina", "llama_index_jina", "llama_index_tei"])
def test_clients_that_rerank(client, ranker, name):
    """Cohere's both generations, Jina's of LangChain and LlamaIndex, TEI's of LlamaIndex."""
    got = client(name, DOCUMENTS, ranker)
    want = ranked(ranker, DOCUMENTS[0], DOCUMENTS[1:])
    assert [index for index, _ in got["ranked"]] == [index for index, _ in want[:2]]
    assert [score for _, score in got["ranked"]] == pytest.approx([score for _, score in want[:2]], rel=1e-6)
    if name == "cohere_rerank":
        assert [(index, text) for index, _, text in got["old"]] == [(index, DOCUMENTS[1 + index]) for index, _ in want]


def test_scores_by_openai_python(client, ranker):
    got = client("openai_score", DOCUMENTS, ranker)
    want = dict(ranked(ranker, DOCUMENTS[0], DOCUMENTS[1:]))
    assert got["scores"] == pytest.approx([want[i] for i in range(len(want))], rel=1e-6) and got["tokens"] > 0
