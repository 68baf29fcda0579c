# SPDX-License-Identifier: Apache-2.0
"""Model.rerank, classify, embed_tokens, embed_sparse give what the program gives: the references' values of tests/golden."""
import asyncio
import json
import warnings

import numpy as np
import pytest
from conftest import ROOT

import fletch

pytestmark = pytest.mark.filterwarnings("ignore::fletch.errors.TruncationWarning")  # some texts are too long on purpose

GOLDEN = ROOT / "tests/golden"
PAIRS = json.loads((GOLDEN / "scores/pairs.json").read_text(encoding="utf-8"))
TEXTS = json.loads((GOLDEN / "folders/texts.json").read_text(encoding="utf-8"))[:12]
LATE = json.loads((GOLDEN / "late/texts.json").read_text(encoding="utf-8"))


def close(rows, wanted):
    return rows.shape == np.shape(wanted) and bool((abs(rows - wanted) <= 1e-5 * np.maximum(1, np.abs(wanted))).all())


def expected(name):
    return json.loads((GOLDEN / "scores" / name / "expected.json").read_text(encoding="utf-8"))


def test_scores():
    want = expected("bert-three")
    with fletch.Model(GOLDEN / "scores/bert-three") as model:
        assert model.labels == want["labels"]
        first, second = [pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS]
        rows = model.classify(first, second)
        assert close(rows, want["pairs"]) and rows.dtype == np.float32
        assert close(model.classify(first, activation="none"), want["texts"])
        assert model.classify(first[0], second[0]).tolist() == rows[0].tolist()
        assert close(model.classify(first, second, activation="softmax").sum(axis=1), [1] * len(PAIRS))
        many = model.classify(first * 50, second * 50)
        assert (many.reshape(50, *rows.shape) == rows).all()
        with pytest.raises(ValueError, match="12 texts, but 1"):
            model.classify(first, ["a"])
        with pytest.raises(TypeError):
            model.classify("a", ["b"])
        with pytest.raises(ValueError, match="activation"):
            model.classify("a", activation="tanh")
        with pytest.raises(fletch.Unsupported, match="3 labels"):
            model.rerank("a", ["b"])
        with pytest.raises(fletch.Unsupported, match="classify"):
            model.embed("a")


def test_labels_of_ones_own():
    told = json.loads((GOLDEN / "scores/zero-shot.json").read_text(encoding="utf-8"))
    with fletch.Model(GOLDEN / "scores/bert-three") as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", fletch.TruncationWarning)
        for case in told["cases"]:
            arguments = {"labels": case["labels"], "hypothesis": case["template"], "multi_label": case["multi"]}
            rows = model.zero_shot(told["texts"], **arguments)
            assert rows.dtype == np.float32 and np.abs(rows - case["scores"]).max() <= 1e-6
            assert model.zero_shot(told["texts"][0], **arguments).tolist() == rows[0].tolist()
            assert asyncio.run(model.azero_shot(told["texts"], **arguments)).tolist() == rows.tolist()
            assert model.zero_shot([], **arguments).shape == (0, len(case["labels"]))
        for labels, hypothesis in ("a", "{}"), ([], "{}"), (["a"], "this"):
            with pytest.raises(ValueError):
                model.zero_shot("a", labels, hypothesis=hypothesis)
    with fletch.Model(GOLDEN / "scores/bert") as model, pytest.raises(fletch.Unsupported, match="entailment"):
        model.zero_shot("a", ["b"])


def test_rerank():
    with fletch.Model(GOLDEN / "scores/bert") as model:
        documents = [second for first, second in PAIRS if first == "the cat"]
        assert close(model.rerank("the cat", documents), [score for score, in expected("bert")["pairs"][:2]])
        assert model.rerank("the cat", documents[0]).shape == (1,) and model.rerank("the cat", []).shape == (0,)
        with pytest.raises(fletch.TooLong) as told:
            model.rerank("the cat", ["a"] * 300 + ["the road " * 90], truncate="error")
        assert told.value.where == 300 and "text 300 " in str(told.value)
        with pytest.raises(TypeError):
            model.rerank(["the cat"], documents)


def test_late_interaction():
    want = np.load(GOLDEN / "late/bert/expected.npz")
    with fletch.Model(GOLDEN / "late/bert") as model:
        assert close(model.rerank(LATE[5], LATE), want["scores"][5]) and model.labels == []
        for side, prompt in (("query", "query"), ("document", "document"), ("plain", None)):
            rows = model.embed_tokens(LATE, prompt_name=prompt)
            assert np.cumsum([0] + [len(row) for row in rows]).tolist() == want[side + "_offsets"].tolist()
            assert close(np.concatenate(rows), want[side])
        assert model.embed_tokens(LATE[5]).tobytes() == rows[5].tobytes()


def test_sparse():
    want = np.load(GOLDEN / "folders/sparse-bert/sparse.npz")["rows"]
    with fletch.Model(GOLDEN / "folders/sparse-bert") as model:
        found = model.embed_sparse(TEXTS)
        assert found.shape == want.shape
        rows = np.zeros(found.shape, np.float32)
        for i, (first, last) in enumerate(zip(found.indptr, found.indptr[1:])):
            rows[i, found.indices[first:last]] = found.data[first:last]
        assert close(rows, want)
        assert np.diff(model.embed_sparse(TEXTS, top_k=3).indptr).tolist() == [3] * len(TEXTS)
        assert model.embed_sparse([]).shape == (0, want.shape[1])


def test_sparse_besides_dense():
    want = np.load(GOLDEN / "token_heads/bge-m3/expected.npz")
    texts = json.loads((GOLDEN / "token_heads/texts.json").read_text(encoding="utf-8"))
    with fletch.Model(GOLDEN / "token_heads/bge-m3") as model:
        found = model.embed_sparse(texts)
        assert found.indices.tolist() == want["ids"].tolist() and found.indptr.tolist() == want["sparse_offsets"].tolist()
        assert close(found.data, want["weights"]) and close(model.embed(texts), want["rows"])
        assert found.shape == (len(texts), json.loads((GOLDEN / "token_heads/bge-m3/config.json").read_text())["vocab_size"])


OUTPUTS = ("dense", "sparse", "colbert", "dense:8:int8", "dense:ubinary", "tokens")


def test_several_outputs_of_one_pass():
    want = np.load(GOLDEN / "token_heads/bge-m3/expected.npz")
    texts = json.loads((GOLDEN / "token_heads/texts.json").read_text(encoding="utf-8"))
    with fletch.Model(GOLDEN / "token_heads/bge-m3") as model:
        found = model.embed_outputs(texts, OUTPUTS)
        assert tuple(found) == OUTPUTS
        assert close(found["dense"], want["rows"]) and close(found["sparse"].data, want["weights"])
        assert close(np.concatenate(found["colbert"]), want["vectors"])
        passed = model.stats()["texts"]
        for name, alone in (("dense", model.embed(texts)), ("dense:8:int8", model.embed(texts, dimensions=8, dtype="int8")),
                            ("dense:ubinary", model.embed(texts, dtype="ubinary")), ("sparse", model.embed_sparse(texts)),
                            ("tokens", model.embed_tokens(texts))):
            assert len(found[name]) == len(alone) and all(np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype
                                                          for a, b in zip(found[name], alone)), name
        assert model.stats()["texts"] == passed + 5 * len(texts)
        one = model.embed_outputs(texts[1], OUTPUTS)
        assert one["dense"].shape == (32,) and (one["dense"] == found["dense"][1]).all() and one["sparse"].shape[0] == 1
        assert (one["tokens"] == found["tokens"][1]).all() and (one["colbert"] == found["colbert"][1]).all()
        many = model.embed_outputs(texts * 70, ["dense:8:int8", "sparse"], top_k=2, truncate="right")
        assert (many["dense:8:int8"] == np.tile(found["dense:8:int8"], (70, 1))).all() and np.diff(many["sparse"].indptr).max() == 2
        none = model.embed_outputs([], OUTPUTS)
        assert none["dense:8:int8"].shape == (0, 8) and none["dense:ubinary"].dtype == np.uint8 and none["tokens"] == []
        assert (asyncio.run(model.aembed_outputs(texts, ["dense"]))["dense"] == found["dense"]).all()
        for outputs, error, words in (((), ValueError, "1 to 16"), (["dense", "dense"], ValueError, "named twice"), ([3], TypeError, "names"),
                                      (["dence"], fletch.InvalidArgument, "unknown output \"dence\""), (["dense:33"], ValueError, "32 dimensions"),
                                      (["\ud800"], fletch.InvalidArgument, "unknown output")):
            with pytest.raises(error, match=words):
                model.embed_outputs(texts, outputs)
        with pytest.raises(fletch.TooLong, match="text 7 "):
            model.embed_outputs(texts, ["dense", "sparse"], truncate="error")
        with pytest.raises(TypeError):
            model.embed_outputs([None], ["dense"])
    with fletch.Model(GOLDEN / "folders/plain-bert") as model, pytest.raises(fletch.Unsupported, match="no sparse vectors"):
        model.embed_outputs(texts, ["dense", "sparse"])


def test_sparse_queries_and_documents():
    want = np.load(GOLDEN / "folders/router-idf/router.npz")
    with fletch.Model(GOLDEN / "folders/router-idf") as model:
        for side in ("query", "document"):
            found = model.embed_sparse(TEXTS, prompt_name=side)
            rows = np.zeros(found.shape, np.float32)
            for i, (first, last) in enumerate(zip(found.indptr, found.indptr[1:])):
                rows[i, found.indices[first:last]] = found.data[first:last]
            assert close(rows, want[side])


def test_a_model_says_what_it_can_do(model):
    for call in (model.embed_sparse, model.classify, lambda text: model.rerank("a", text)):
        with pytest.raises(fletch.Unsupported):
            call(["a"])
    assert model.embed_tokens("a cat").shape[1] == model.dimensions


def test_heads_in_a_loop():
    documents = [second for first, second in PAIRS if first == "the cat"]

    async def both(model):
        return await asyncio.gather(model.arerank("the cat", documents), model.aclassify("the cat", documents[0]))
    with fletch.Model(GOLDEN / "scores/bert") as model:
        scores, one = asyncio.run(both(model))
        assert scores.tolist() == model.rerank("the cat", documents).tolist() and one[0] == scores[0]
    with fletch.Model(GOLDEN / "late/bert") as model:
        rows = asyncio.run(model.aembed_tokens(LATE[:2] if isinstance(LATE, list) else ["the cat"], prompt_name="document"))
        assert all(row.ndim == 2 for row in rows)


def test_what_is_cut_is_told():
    with fletch.Model(GOLDEN / "scores/bert") as model:
        documents = ["a"] * 300 + ["the road " * 90]
        with pytest.warns(fletch.TruncationWarning, match="1 of 301 texts were truncated.*first at index 300") as told:
            model.rerank("the cat", documents)
        assert told[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.rerank("the cat", documents, truncate="right")
            model.rerank("the cat", documents[:300])
