# SPDX-License-Identifier: Apache-2.0
"""Late chunking over HTTP: Jina's late_chunking on /v1/embeddings, Voyage's /v1/contextualizedembeddings, and
/embed_chunks. Vectors are those of the published pooling in torch (tests/golden/spans.json); plain chunks have the
bytes of /embed; what is wrong is named, and no gate of memory or time is passed by."""
import json

import pytest
import serving
from dialects import good, post

GOLDEN = serving.ROOT / "tests/golden"
SPANS = json.loads((GOLDEN / "spans.json").read_text(encoding="utf-8"))
WANT = next(case["vectors"] for case in SPANS["cases"] if case["folder"] == "family-distilbert" and not case["window"])
TEXT, BYTES = SPANS["text"], SPANS["text"].encode()
CHUNKS = [BYTES[begin:end].decode() for begin, end in SPANS["spans"][:3]]  # laid end to end, the text
CHARS = [[len(BYTES[:begin].decode()), len(BYTES[:end].decode())] for begin, end in SPANS["spans"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folders = {"mean": "folders/family-distilbert", "static": "folders/family-static", "cls": "folders/family-electra",
               "rank": "scores/bert"}
    flags = [word for name, folder in folders.items() for word in ("--model", f"{name}={GOLDEN / folder}")]
    running = serving.Server(tmp_path_factory.mktemp("late"), *flags, model=False)
    yield running
    assert running.process.poll() is None, running.log()
    assert running.end() == 0, running.log()


def near(rows, want):
    return len(rows) == len(want) and all(row == pytest.approx(vector, abs=1e-5) for row, vector in zip(rows, want))


def token_count(server, text):
    return len(good(post(server, "/tokenize", {"inputs": text, "model": "mean"}))[0])


def test_jina(server):
    reply = post(server, "/v1/embeddings", {"input": CHUNKS, "model": "mean", "late_chunking": True})
    body = good(reply)
    assert near([item["embedding"] for item in body["data"]], WANT[:3])
    assert body["usage"]["prompt_tokens"] == token_count(server, TEXT)
    assert "x-fletch-vector-id" not in reply.headers  # that of the text alone would be a lie
    plain = post(server, "/v1/embeddings", {"input": [TEXT], "model": "mean"})
    one = post(server, "/v1/embeddings", {"input": TEXT, "model": "mean", "late_chunking": True, "details": True})
    assert good(one) == good(plain) and "x-fletch-vector-id" in plain.headers


def test_voyage(server):
    body = good(post(server, "/v1/contextualizedembeddings", {"inputs": [CHUNKS, [TEXT]], "model": "mean"}))
    assert list(body) == ["object", "data", "model", "usage"] and body["object"] == "list"
    assert [item["index"] for item in body["data"]] == [0, 1]
    first, second = ([item["embedding"] for item in document["data"]] for document in body["data"])
    assert near(first, WANT[:3]) and near(second, WANT[3:4])
    assert body["usage"] == {"total_tokens": 2 * token_count(server, TEXT)}


@pytest.mark.parametrize("late", [True, False])
def test_chunks_with_their_places(server, late):
    body = {"inputs": [TEXT, " \n", "na\u00efve tea"], "size": 16, "overlap": 4, "model": "mean", "late_chunking": late}
    documents = good(post(server, "/embed_chunks", body))
    assert [len(chunks) for chunks in documents][1:] == [0, 1] and len(documents[0]) > 2
    for text, chunks in zip(body["inputs"], documents):
        assert not chunks or (chunks[0]["chars"][0], chunks[-1]["chars"][1]) == (0, len(text))
        for chunk in chunks:
            (begin, end), (first, last) = chunk["chars"], chunk["bytes"]
            assert text[begin:end].encode() == text.encode()[first:last] and 0 < chunk["tokens"] <= 16
            if not late:
                alone = good(post(server, "/embed", {"inputs": text[begin:end], "model": "mean"}))
                assert [chunk["embedding"]] == alone


def test_chunks_where_the_request_says(server):
    body = {"inputs": [TEXT, TEXT], "spans": [CHARS, CHARS[:1]], "model": "mean", "late_chunking": True}
    first, second = good(post(server, "/embed_chunks", body))
    assert near([chunk["embedding"] for chunk in first], WANT) and near([chunk["embedding"] for chunk in second], WANT[:1])
    assert [chunk["chars"] for chunk in first] == CHARS and [chunk["bytes"] for chunk in first] == SPANS["spans"]
    octets = post(server, "/embed_chunks", body, accept="application/octet-stream")
    assert octets.headers["x-fletch-rows"] == "6" and len(octets.body) == 6 * 32 * 4


def test_a_document_of_many_windows(server):
    """Code points are found far behind others, and a span may go on in many windows."""
    text = "caf\u00e9 \U0001F600 " * 3000
    spans = [[0, len(text)], [len(text) - 7, len(text)], [0, 4], [8191, 8203]]
    body = {"inputs": text, "spans": [spans], "model": "mean", "late_chunking": True}
    (chunks,) = good(post(server, "/embed_chunks", body))
    for (begin, end), chunk in zip(spans, chunks, strict=True):
        assert chunk["bytes"] == [len(text[:begin].encode()), len(text[:end].encode())]


BAD = [({"spans": [[[5, 0]]]}, 422, "runs backwards"), ({"spans": [[[0, 12]]]}, 422, "after the end of the document"),
       ({"spans": [[[-1, 2]]]}, 422, "begins before"), ({"spans": [[[3, 3]]]}, 422, "is empty"),
       ({"spans": [[[0]]]}, 422, "[begin, end]"), ({"spans": [[[0, 1, 2]]]}, 422, "[begin, end]"),
       ({"spans": [[]]}, 422, "has no spans"), ({"spans": []}, 422, "0 lists of spans, and 1 documents"),
       ({"spans": [[[0, 1]], [[0, 1]]]}, 422, "more lists of spans"), ({"spans": [["a"]]}, 422, "expected an array"),
       ({"spans": [[[5, 6]]], "late_chunking": True}, 422, "contains no token"), ({"spans": [[[0, 5]]], "size": 9}, 422, "exclude by"),
       ({"size": 8, "overlap": 8}, 422, "nothing new"), ({"size": 10**6}, 422, "too long for the model"),
       ({"by": "lines"}, 422, "unknown variant"), ({"inputs": ""}, 400, "cannot be empty"), ({"inputs": [101]}, 422, "expected a string"),
       ({"model": "static", "size": 8, "late_chunking": True}, 424, "static"), ({"model": "rank"}, 424, "scores, not vectors")]


@pytest.mark.parametrize("wrong, status, words", BAD, ids=[case[2] for case in BAD])
def test_bad_chunks_are_named(server, wrong, status, words):
    reply = post(server, "/embed_chunks", {"inputs": "hello world", "model": "mean"} | wrong)
    assert reply.status == status and words in reply.body.decode(), reply


def test_bad_documents_are_named_in_the_dialects_words(server):
    for inputs, words in (([], "non-empty"), ([[]], "non-empty"), ([["a", ""]], "non-empty chunks"), (["a"], "inputs[0]: invalid type"),
                          ([["a", 3]], "inputs[0][1]: invalid type"), ([["a", "  ", "b"]], "span 1 of document 0")):
        reply = post(server, "/v1/contextualizedembeddings", {"inputs": inputs, "model": "mean"})
        assert reply.status == 400 and words in reply.json()["detail"], reply
    for body, words in (({"input": [101, 102]}, "not token ids"), ({"input": ["a", ""]}, "is invalid"),
                        ({"input": ["a"], "model": "cls"}, "mean")):
        reply = post(server, "/v1/embeddings", {"model": "mean", "late_chunking": True} | body)
        assert reply.status == 400 and words in reply.json()["error"]["message"], reply


def test_memory_and_time_are_bounded(start):
    server = start("--server-max-body-memory", "8MiB")
    body = {"inputs": "word " * 40000, "spans": [[[0, 200000]]], "late_chunking": True}
    reply = post(server, "/embed_chunks", body)
    assert reply.status == 413 and reply.headers["x-fletch-limit"] == "server.max_body_memory"
    body["inputs"], body["spans"] = "word " * 8000, [[[0, 40000]] * 20000]  # each in 312 windows: 20 GB of rows
    assert post(server, "/embed_chunks", body).status == 413
    large = start()
    late = post(large, "/embed_chunks", {"inputs": "word " * 400000, "size": 64, "late_chunking": True}, x_fletch_deadline_ms="1")
    assert late.status == 504, late
