# SPDX-License-Identifier: Apache-2.0
"""fletch.SentenceTransformer against the original, call by call.

Must never break: for every call of the table both give the same container, dtype, shape and values (1e-5), or both
raise, ours a class that the original's handler catches. Oracle: sentence-transformers 6.2.0 with torch 2.15.0; skipped
where they are not installed (`make python` has them). The refusals need neither."""
import os

import numpy as np
import pytest
from conftest import MODEL, PEERS_MAY_WARN, TEXTS

import fletch

PROMPTS = {"query": "query: ", "passage": "passage: ", "code": "code: "}
TOLERANCE = 1e-5
HIGH = os.environ.get("FLETCH_MODEL_HIGH")
S = ["A cat sits on the mat.", "A feline rests on a rug.", "Grüße aus Köln", "", "x", "naïve café 🙂 猫"]
MANY = [f"sentence number {i} of a longer list, with words {'word ' * (i % 40)}" for i in range(120)]

# name: a call on a model. Every one is made on both.
CALLS = {
    "str": lambda m: m.encode(S[0]),
    "empty str": lambda m: m.encode(""),
    "list": lambda m: m.encode(S),
    "list of one": lambda m: m.encode(S[:1]),
    "empty list": lambda m: m.encode([]),
    "empty list as tensor": lambda m: m.encode([], convert_to_tensor=True),
    "empty list as list": lambda m: m.encode([], convert_to_numpy=False),
    "empty list int8": lambda m: m.encode([], precision="int8"),
    "tuple": lambda m: m.encode(tuple(S)),
    "numpy U": lambda m: m.encode(np.array(S)),
    "numpy object": lambda m: m.encode(np.array(S, object)),
    "many": lambda m: m.encode(MANY),
    "long": lambda m: m.encode("word " * 1000),
    "white space": lambda m: m.encode(["  a  b\n\tc ", "a b c"]),
    "every text": lambda m: m.encode(TEXTS),
    "batch_size 1": lambda m: m.encode(S, batch_size=1),
    "batch_size 0": lambda m: m.encode(S, batch_size=0),
    "batch_size -3": lambda m: m.encode(S, batch_size=-3),
    "positional": lambda m: m.encode(S, "query"),
    "prompt": lambda m: m.encode(S, prompt="find: "),
    "prompt, one text": lambda m: m.encode(S[0], prompt="find: "),
    "empty prompt": lambda m: m.encode(S, prompt=""),
    "prompt_name": lambda m: m.encode(S, prompt_name="code"),
    "prompt and prompt_name": lambda m: m.encode(S, prompt="find: ", prompt_name="code"),
    "unknown prompt_name": lambda m: m.encode(S, prompt_name="nobody"),
    "encode_query": lambda m: m.encode_query(S),
    "encode_query one": lambda m: m.encode_query(S[0]),
    "encode_query prompt": lambda m: m.encode_query(S, prompt="q "),
    "encode_query prompt_name": lambda m: m.encode_query(S, prompt_name="code"),
    "encode_document": lambda m: m.encode_document(S),
    "encode_document prompt": lambda m: m.encode_document(S, prompt=""),
    "encode_document dims": lambda m: m.encode_document(S, truncate_dim=64, normalize_embeddings=True),
    "normalize": lambda m: m.encode(S, normalize_embeddings=True),
    "normalize one": lambda m: m.encode(S[0], normalize_embeddings=True),
    "truncate_dim": lambda m: m.encode(S, truncate_dim=100),
    "truncate_dim one": lambda m: m.encode(S[0], truncate_dim=100),
    "truncate_dim normalize": lambda m: m.encode(S, truncate_dim=100, normalize_embeddings=True),
    "truncate_dim 1": lambda m: m.encode(S, truncate_dim=1),
    "truncate_dim more": lambda m: m.encode(S, truncate_dim=5000),
    "truncate_embeddings": lambda m: within(m, 32),
    "binary": lambda m: m.encode(S, precision="binary"),
    "binary one": lambda m: m.encode(S[0], precision="binary"),
    "ubinary": lambda m: m.encode(S, precision="ubinary"),
    "ubinary dims": lambda m: m.encode(S, precision="ubinary", truncate_dim=20),
    "int8": lambda m: m.encode(MANY, precision="int8"),
    "int8 few": lambda m: m.encode(S, precision="int8"),
    "int8 one": lambda m: m.encode(S[0], precision="int8"),
    "int8 normalize": lambda m: m.encode(MANY, precision="int8", normalize_embeddings=True, truncate_dim=64),
    "uint8": lambda m: m.encode(MANY, precision="uint8"),
    "uint8 list of one": lambda m: m.encode(S[:1], precision="uint8"),
    "precision float32": lambda m: m.encode(S, precision="float32"),
    "precision None": lambda m: m.encode(S, precision=None),
    "precision unknown": lambda m: m.encode(S, precision="float16"),
    "tensor": lambda m: m.encode(S, convert_to_tensor=True),
    "tensor one": lambda m: m.encode(S[0], convert_to_tensor=True),
    "tensor normalize": lambda m: m.encode(S, convert_to_tensor=True, normalize_embeddings=True),
    "tensor int8": lambda m: m.encode(MANY, convert_to_tensor=True, precision="int8"),
    "list of tensors": lambda m: m.encode(S, convert_to_numpy=False),
    "one of list of tensors": lambda m: m.encode(S[0], convert_to_numpy=False),
    "tensor and numpy": lambda m: m.encode(S, convert_to_numpy=True, convert_to_tensor=True),
    "progress bar": lambda m: m.encode(S, show_progress_bar=True),
    "device cpu": lambda m: m.encode(S, device="cpu"),
    "unknown keyword": lambda m: m.encode(S, nonsense=1),
    "None": lambda m: m.encode(None),
    "int": lambda m: m.encode(3),
    "float": lambda m: m.encode(0.5),
    "list of None": lambda m: m.encode([None]),
    "list of int": lambda m: m.encode([1, 2]),
    "list with None": lambda m: m.encode(["a", None]),
    "generator": lambda m: m.encode(text for text in S),
    "bytes": lambda m: m.encode(b"x"),
    "lone surrogate": lambda m: m.encode(["a", "\ud800"]),
    "dimension": lambda m: m.get_embedding_dimension(),
    "max_seq_length": lambda m: m.max_seq_length,
    "get_max_seq_length": lambda m: m.get_max_seq_length(),
    "shorter": lambda m: shorter(m, 8),
    "similarity_fn_name": lambda m: m.similarity_fn_name,
    "similarity": lambda m: m.similarity(m.encode(S), m.encode(S[::-1])),
    "similarity of one": lambda m: m.similarity(m.encode(S[0]), m.encode(S)),
    "similarity tensors": lambda m: m.similarity(m.encode(S, convert_to_tensor=True), m.encode(S, convert_to_tensor=True)),
    "similarity lists": lambda m: m.similarity(list(m.encode(S)), m.encode(S, convert_to_numpy=False)),
    "similarity_pairwise": lambda m: m.similarity_pairwise(m.encode(S), m.encode(S[::-1])),
    "similarity dot": lambda m: other_measure(m, "dot"),
    "similarity euclidean": lambda m: other_measure(m, "euclidean"),
    "similarity manhattan": lambda m: other_measure(m, "manhattan"),
    "similarity unknown": lambda m: other_measure(m, "hamming"),
    "tokenize": lambda m: m.tokenize(S)["input_ids"],
    "tokenize mask": lambda m: m.tokenize(S)["attention_mask"],
    "token_embeddings": lambda m: m.encode(S, output_value="token_embeddings"),
    "token_embeddings one": lambda m: m.encode(S[0], output_value="token_embeddings"),
    "token_embeddings none": lambda m: m.encode([], output_value="token_embeddings"),
    "token_embeddings prompt": lambda m: m.encode(S, prompt_name="code", output_value="token_embeddings"),
    "token_embeddings cut": lambda m: m.encode(S, output_value="token_embeddings", truncate_dim=8, normalize_embeddings=True),
    "token_embeddings tensor": lambda m: m.encode(S, output_value="token_embeddings", convert_to_tensor=True),
    "tokenizer": lambda m: dict(m.tokenizer(S)),
    "tokenizer one": lambda m: dict(m.tokenizer(S[0])),
    "tokenizer padding": lambda m: dict(m.tokenizer(S, padding=True)),
    "tokenizer padding longest": lambda m: dict(m.tokenizer(S, padding="longest", return_tensors="pt")),
    "tokenizer padding max_length": lambda m: dict(m.tokenizer(S, padding="max_length", max_length=40)),
    "tokenizer cut": lambda m: dict(m.tokenizer(MANY, truncation=True, max_length=9, padding=True, return_tensors="np")),
    "tokenizer bare": lambda m: dict(m.tokenizer(S[0], add_special_tokens=False)),
    "tokenizer padding unknown": lambda m: m.tokenizer(S, padding="nonsense"),
    "tokenizer vocabulary": lambda m: (len(m.tokenizer), m.tokenizer.vocab_size, dict(m.tokenizer.vocab)),
    "tokenizer ids": lambda m: (m.tokenizer.pad_token_id, m.tokenizer.convert_ids_to_tokens([2, 9]),
                                m.tokenizer.convert_ids_to_tokens(5)),
    "modalities": lambda m: m.modalities,
    "truth": lambda m: bool(m),
    "backend": lambda m: m.get_backend(),
    "device": lambda m: m.device,
    "prompts": lambda m: dict(m.prompts),
    "eval": lambda m: m.eval().encode(S[0]),
    "to": lambda m: m.to("cpu").encode(S[0]),
}


def within(model, dimensions):
    with model.truncate_embeddings(dimensions):
        return model.encode(S)


def shorter(model, length):
    before = model.max_seq_length
    model.max_seq_length = length
    try:
        return model.encode(MANY[:50])
    finally:
        model.max_seq_length = before


def other_measure(model, name):
    before = model.similarity_fn_name
    model.similarity_fn_name = name
    try:
        return model.similarity(model.encode(S), model.encode(S)), model.similarity_pairwise(model.encode(S), model.encode(S))
    finally:
        model.similarity_fn_name = before


def folders():
    return [("medium", MODEL)] + ([("high", HIGH)] if HIGH else [])


@pytest.fixture(scope="module", params=folders(), ids=lambda pair: pair[0])
def both(request):
    original = pytest.importorskip("sentence_transformers", reason="the oracle is not installed")
    folder = request.param[1]
    return fletch.SentenceTransformer(folder, prompts=PROMPTS), original.SentenceTransformer(folder, prompts=PROMPTS, device="cpu")


def outcome(call, model):
    try:
        return call(model), None
    except Exception as error:  # noqa: BLE001
        return None, error


def same(ours, theirs, what):
    assert type(ours) is type(theirs), f"{what}: {type(ours)} is not {type(theirs)}"
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), what
        theirs, ours = ([made[key] for key in sorted(made)] for made in (theirs, ours))
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            same(one, other, what)
    elif hasattr(theirs, "shape"):
        assert ours.dtype == theirs.dtype and tuple(ours.shape) == tuple(theirs.shape), what
        a, b = np.asarray(ours).astype(np.float64), np.asarray(theirs).astype(np.float64)
        if np.asarray(theirs).dtype.kind == "f":
            assert a.size == 0 or np.abs(a - b).max() <= TOLERANCE * max(1, np.abs(b).max()), (what, np.abs(a - b).max())
        elif np.asarray(theirs).dtype == np.int64:
            assert (a == b).all(), what
        else:  # a value at the edge of a bucket falls to either side
            assert (a != b).mean() < 0.02, what
    else:
        assert ours == theirs, what


@PEERS_MAY_WARN
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_the_original_s(both, name):
    ours, our_error = outcome(CALLS[name], both[0])
    theirs, their_error = outcome(CALLS[name], both[1])
    if their_error is None:
        assert our_error is None, f"only ours raises {our_error!r}"
        same(ours, theirs, name)
    else:
        assert our_error is not None, f"only the original raises {their_error!r}"
        assert isinstance(our_error, type(their_error)) or isinstance(our_error, (TypeError, ValueError)), \
            (our_error, their_error)


def test_the_table_is_long_enough():
    assert len(CALLS) >= 60


@pytest.fixture(scope="module")
def ours():
    return fletch.SentenceTransformer(MODEL)


@pytest.mark.parametrize("call, words", [
    (lambda m: m.encode("x", output_value="token_embeddings", precision="binary"), "quantize"), (lambda m: m.fit(), "train with"),
    (lambda m: m.encode("x", output_value=None), "token_embeddings"), (lambda m: len(m), r"len\(\): .*properties"),
    (lambda m: list(m), "torch modules"), (lambda m: m.tokenizer("x", text_pair="y"), "AutoTokenizer"), (lambda m: m.save("x"), "path"),
    (lambda m: m[0], "torch modules"), (lambda m: m({}), "torch modules"), (lambda m: m.half(), "bf16"),
    (lambda m: m.to("cuda"), "device='cuda'"), (lambda m: m.push_to_hub("x"), "path"),
    (lambda m: fletch.SentenceTransformer(modules=[]), "hub id"), (lambda m: fletch.SentenceTransformer(), "hub id"),
    (lambda m: fletch.SentenceTransformer(MODEL, device="mps"), "mps"),
    (lambda m: fletch.SentenceTransformer(MODEL, backend="openvino"), "openvino"),
    (lambda m: fletch.SentenceTransformer(MODEL, model_kwargs={"dtype": "float16"}), "provider.precision"),
    (lambda m: fletch.SentenceTransformer(MODEL, tokenizer_kwargs={"padding_side": "left"}), "padding_side")])
def test_what_is_not_there_is_refused_by_name(ours, call, words):
    with pytest.raises(NotImplementedError, match=words):
        call(ours)


def test_constructor(ours):
    assert (fletch.SentenceTransformer(MODEL, device="cpu", model_kwargs={"attn_implementation": "sdpa"}, trust_remote_code=True,
                                       fletch_config={"cpu.intra_op_threads": 1}).encode("x") == ours.encode("x")).all()
    named = fletch.SentenceTransformer(MODEL, prompts={"q": "query: "}, default_prompt_name="q", truncate_dim=16,
                                       similarity_fn_name="dot")
    assert named.encode("x").shape == (16,) and named.similarity_fn_name == "dot" and named.get_embedding_dimension() == 16
    assert (named.encode("x", truncate_dim=384) == ours.encode("query: x")).all()
    with pytest.raises(ValueError, match="nobody"):
        fletch.SentenceTransformer(MODEL, default_prompt_name="nobody")


def test_pools_and_old_names_are_accepted(ours):
    pool = ours.start_multi_process_pool(["cpu"] * 4)
    rows = ours.encode(S, pool=pool, chunk_size=2)
    ours.stop_multi_process_pool(pool)
    assert (rows == ours.encode(sentences=S)).all() and (rows == ours.encode(inputs=S, device=["cpu", "cpu"])).all()
    with pytest.warns(DeprecationWarning):
        assert (ours.encode_multi_process(S, pool) == rows).all()
    with pytest.warns(FutureWarning):
        assert ours.get_sentence_embedding_dimension() == 384
    with pytest.warns(FutureWarning), ours.truncate_sentence_embeddings(8):
        assert ours.encode("x").shape == (8,)
    assert ours.tokenizer.encode("hello") == [101, 7592, 102] and ours.tokenizer.tokenize("hello") == ["hello"]
    assert ours.tokenizer.decode([101, 7592, 102], skip_special_tokens=True) == "hello"
    with pytest.raises(AttributeError, match="transformers.AutoTokenizer"):
        ours.tokenizer.apply_chat_template()
    assert ours.evaluate(lambda model, path: len(model.encode("x"))) == 384


def test_truncation_is_said_once(ours, caplog):
    fresh = fletch.SentenceTransformer(MODEL)
    fresh.encode(["word " * 600, "x"])
    fresh.encode(["word " * 600])
    assert sum("were truncated" in record.message for record in caplog.records) == 1


def test_pickles(ours):
    import pickle
    assert (pickle.loads(pickle.dumps(ours)).encode("x") == ours.encode("x")).all()


def test_backend_onnx_is_onnx_runtime(ours):
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    made = fletch.SentenceTransformer(MODEL, backend="onnx", device="cpu")
    assert made.get_backend() == "onnx" and made.model.properties["onnxruntime.provider"] == "cpu"
    assert np.abs(made.encode(S) - ours.encode(S)).max() <= TOLERANCE
