# SPDX-License-Identifier: Apache-2.0
"""Late chunking and vectors of chunks from Python.

Must never break: spans count code points, and their rows are those of the published pooling in torch; one span over all is
the plain vector, byte for byte; plain chunks have the bytes of embed; asyncio gives the same; what is wrong is named."""
import asyncio
import json

import numpy as np
import pytest
from conftest import ROOT

import fletch

EXPECTED = json.loads((ROOT / "tests/golden/spans.json").read_text(encoding="utf-8"))
TEXT, RAW = EXPECTED["text"], EXPECTED["text"].encode()
SPANS = [(len(RAW[:begin].decode()), len(RAW[:end].decode())) for begin, end in EXPECTED["spans"]]
CASES = [case for case in EXPECTED["cases"] if case["folder"] in ("family-distilbert", "family-modernbert")]
LONG = "Gr\u00fc\u00dfe aus K\u00f6ln! \u732b\u306f\u7573\u306e\u4e0a\u306b\u5ea7\u308b\u3002 \U0001f642 It purrs. " * 24


def folder(name):
    return str(ROOT / "tests/golden/folders" / name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['folder']}-{case['window']}")
def test_spans_are_pooled_as_published(case):
    with fletch.Model(folder(case["folder"])) as small:
        window = {"max_length": case["window"], "window_overlap": case["overlap"]} if case["window"] else {}
        rows = small.embed_spans(TEXT, SPANS, normalize=True, **window)
    assert np.abs(rows - np.array(case["vectors"], np.float32)).max() <= 1e-5


def test_one_span_over_all_is_the_plain_vector(model):
    texts = [TEXT, "x", "Gr\u00fc\u00dfe aus K\u00f6ln"]
    found = model.embed_spans(texts, [[(0, len(text))] for text in texts])
    assert [rows.shape for rows in found] == [(1, model.dimensions)] * 3
    assert np.concatenate(found).tobytes() == model.embed(texts).tobytes()
    small = model.embed_spans(TEXT, np.array([[0, len(TEXT)]]), dimensions=64, dtype="int8", prompt="p: ")
    assert small.dtype == np.int8 and small.shape == (1, 64)
    assert model.embed_spans([], []) == []


def test_windows_have_an_overlap_or_none(model):
    spans = [(0, 500), (500, len(LONG))]
    usual, half, none = (model.embed_spans(LONG, spans, window_overlap=overlap) for overlap in (None, 128, 0))
    assert usual.tobytes() == half.tobytes() != none.tobytes()


def test_asyncio_gives_the_same(model):
    async def main():
        rows = await asyncio.gather(*(model.aembed_spans(TEXT, SPANS) for _ in range(8)))
        task = asyncio.ensure_future(model.aembed_spans([LONG] * 12, [SPANS] * 12))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(fletch.InvalidArgument, match="no token"):
            await model.aembed_spans("a b", [(1, 2)])
        return rows, await model.aembed_chunks([LONG, ""], size=40, late=True), await model.aembed_chunks(LONG, size=40)
    rows, (late, empty), plain = asyncio.run(main())
    assert all(own.tobytes() == model.embed_spans(TEXT, SPANS).tobytes() for own in rows)
    assert late.vectors.tobytes() == model.embed_chunks(LONG, size=40, late=True).vectors.tobytes()
    assert plain.vectors.tobytes() == model.embed_chunks(LONG, size=40).vectors.tobytes() and empty.chunks == []


@pytest.mark.parametrize("late", [False, True])
def test_chunks_and_a_row_for_each(model, late):
    documents = [LONG, "", " \n ", "It purrs."]
    found = model.embed_chunks(documents, size=40, overlap=8, late=late)
    assert [len(one.chunks) for one in found][1:] == [0, 0, 1] and len(found[0].chunks) > 10
    for text, (chunks, vectors) in zip(documents, found):
        assert chunks == [chunk for chunk in model.chunk(text, size=40, overlap=8) if chunk.tokens]
        assert vectors.shape == (len(chunks), model.dimensions)
    chunks, vectors = found[0]
    if late:
        want = model.embed_spans(LONG, [(chunk.start, chunk.end) for chunk in chunks])
    else:
        want = model.embed([LONG[chunk.start:chunk.end] for chunk in chunks])
    assert vectors.tobytes() == want.tobytes()
    assert model.embed_chunks([" "], late=late)[0].vectors.shape == (0, model.dimensions)
    assert model.embed_chunks([], late=late) == []


def test_bad_spans_are_named(model):
    for spans, words in (([(5, 2)], "runs backwards"), ([(0, 12)], "after the end of the document"), ([(-1, 2)], "begins before"),
                         ([(3, 3)], "is empty"), ([], "no spans"), ([(5, 6)], "contains no token")):
        with pytest.raises(fletch.InvalidArgument, match=words) as caught:
            model.embed_spans(["first", "hello world"], [[(0, 5)], spans])
        assert caught.value.where == 1
    for wrong in ([3], [(1, 2, 3)], ["ab"], [(0.0, 1.0)], None, [(0, 1), (2,)]):
        with pytest.raises(TypeError, match="pairs of int"):
            model.embed_spans("hello world", wrong)
    with pytest.raises(ValueError, match="2 documents, but 1 lists"):
        model.embed_spans(["a", "b"], [[(0, 1)]])
    with pytest.raises(TypeError, match="document 1 is int"):
        model.embed_spans(["a", 3], [[(0, 1)], [(0, 1)]])
    with pytest.raises(fletch.TextError, match="surrogate"):
        model.embed_spans("a\ud800", [(0, 2)])
    with pytest.raises(fletch.InvalidArgument, match="overlap"):
        model.embed_spans("hello", [(0, 5)], max_length=8, window_overlap=8)
    with pytest.raises(ValueError, match="positive"):
        model.embed_spans("hello", [(0, 5)], window_overlap=-2)
    with pytest.raises(TypeError):
        model.embed_chunks("hello", window_overlap=4)
    with pytest.raises(ValueError, match="overlap of 8"):
        model.embed_chunks("hello", size=8, overlap=8)
    with fletch.Model(folder("family-static")) as static, pytest.raises(fletch.Unsupported, match="static"):
        static.embed_spans("hello world", [(0, 5)])
