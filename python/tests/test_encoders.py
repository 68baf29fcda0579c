# SPDX-License-Identifier: Apache-2.0
"""fletch's CrossEncoder, SparseEncoder and MultiVectorEncoder against the originals, call by call.

Must never break: for every call of a table both give the same container, dtype, shape and values (1e-5), or both raise.
Oracle: sentence-transformers 6.2.0; skipped where it is not installed (`make python` has it). The refusals need it not."""
import json
import pickle

import numpy as np
import pytest
from conftest import MODEL, PEERS_MAY_WARN, ROOT

import fletch

GOLDEN = ROOT / "tests/golden"
TOLERANCE = 1e-5
PAIRS = [tuple(pair) for pair in json.loads((GOLDEN / "scores/pairs.json").read_text(encoding="utf-8"))]
TEXTS = json.loads((GOLDEN / "folders/texts.json").read_text(encoding="utf-8"))[:12]
LATE = json.loads((GOLDEN / "late/texts.json").read_text(encoding="utf-8"))[:12]
Q, D = LATE[:3], LATE[3:8]


def nn(name, **arguments):
    import torch
    return getattr(torch.nn, name)(**arguments)


CROSS = {
    "pairs": lambda m: m.predict(PAIRS), "pair": lambda m: m.predict(PAIRS[0]), "list of one": lambda m: m.predict(PAIRS[:1]),
    "lists": lambda m: m.predict([list(pair) for pair in PAIRS]), "array": lambda m: m.predict(np.array(PAIRS[:3])),
    "array of a pair": lambda m: m.predict(np.array(PAIRS[0])), "none": lambda m: m.predict([]),
    "none as tensor": lambda m: m.predict([], convert_to_tensor=True), "many": lambda m: m.predict(PAIRS * 30),
    "tensor": lambda m: m.predict(PAIRS, convert_to_tensor=True), "tensors": lambda m: m.predict(PAIRS, convert_to_numpy=False),
    "tensor of a pair": lambda m: m.predict(PAIRS[0], convert_to_tensor=True),
    "identity": lambda m: m.predict(PAIRS, activation_fn=nn("Identity")),
    "sigmoid": lambda m: m.predict(PAIRS, activation_fn=nn("Sigmoid")), "tanh": lambda m: m.predict(PAIRS, activation_fn=nn("Tanh")),
    "softmax": lambda m: m.predict(PAIRS, activation_fn=nn("Softmax", dim=-1)),
    "apply_softmax": lambda m: m.predict(PAIRS, apply_softmax=True), "prompt": lambda m: m.predict(PAIRS, prompt="the road "),
    "batch_size 0": lambda m: m.predict(PAIRS, batch_size=0), "unknown prompt": lambda m: m.predict(PAIRS, prompt_name="x"),
    "numbers": lambda m: m.predict([(1, 2)]),
    "rank": lambda m: m.rank("the cat", TEXTS), "rank top_k": lambda m: m.rank("the cat", TEXTS, top_k=3, return_documents=True),
    "rank none": lambda m: m.rank("the cat", []), "num_labels": lambda m: m.num_labels, "prompts": lambda m: m.prompts,
    "max_seq_length": lambda m: m.max_seq_length}
SPARSE = {
    "texts": lambda m: m.encode(TEXTS), "text": lambda m: m.encode(TEXTS[0]), "none": lambda m: m.encode([]),
    "dense": lambda m: m.encode(TEXTS, convert_to_sparse_tensor=False), "list": lambda m: m.encode(TEXTS, convert_to_tensor=False),
    "dense text": lambda m: m.encode(TEXTS[0], convert_to_sparse_tensor=False),
    "queries": lambda m: m.encode_query(TEXTS), "documents": lambda m: m.encode_document(TEXTS),
    "query": lambda m: m.encode_query(TEXTS[1]), "prompt": lambda m: m.encode_query(TEXTS, prompt="the road "),
    "active": lambda m: m.encode(TEXTS, max_active_dims=3), "batch_size 0": lambda m: m.encode(TEXTS, batch_size=0),
    "keyword": lambda m: m.encode(TEXTS, nonsense=1), "unknown prompt": lambda m: m.encode(TEXTS, prompt_name="x"),
    "similarity": lambda m: m.similarity(m.encode_query(TEXTS), m.encode_document(TEXTS[:5])),
    "pairwise": lambda m: m.similarity_pairwise(m.encode_query(TEXTS), m.encode_document(TEXTS)),
    "measure": lambda m: m.similarity_fn_name, "dimension": lambda m: m.get_embedding_dimension(),
    "sparsity": lambda m: m.sparsity(m.encode_document(TEXTS)), "sparsity of one": lambda m: m.sparsity(m.encode(TEXTS[0])),
    "decode": lambda m: m.decode(m.encode_document(TEXTS), top_k=4), "decode one": lambda m: m.decode(m.encode_document(TEXTS[0]), top_k=2),
    "decode top_k 0": lambda m: m.decode(m.encode(TEXTS), top_k=0), "prompts": lambda m: m.prompts,
    "max_seq_length": lambda m: m.max_seq_length}
LATE_CALLS = {
    "texts": lambda m: m.encode(LATE), "text": lambda m: m.encode(LATE[0]), "none": lambda m: m.encode([]),
    "queries": lambda m: m.encode_query(Q), "documents": lambda m: m.encode_document(D), "query": lambda m: m.encode_query(Q[0]),
    "arrays": lambda m: m.encode_document(D, convert_to_numpy=True), "array": lambda m: m.encode_query(Q[0], convert_to_numpy=True),
    "normalize": lambda m: m.encode_document(D, normalize_embeddings=True), "prompt": lambda m: m.encode_query(Q, prompt="the "),
    "convert_to_tensor": lambda m: m.encode(D, convert_to_tensor=True), "batch_size 0": lambda m: m.encode(D, batch_size=0),
    "output_value": lambda m: m.encode(D, output_value="x"), "measure": lambda m: m.similarity_fn_name,
    "similarity": lambda m: m.similarity(m.encode_query(Q), m.encode_document(D)),
    "similarity of one": lambda m: m.similarity(m.encode_query(Q[0]), m.encode_document(D, convert_to_numpy=True)),
    "pairwise": lambda m: m.similarity_pairwise(m.encode_query(Q), m.encode_document(D[:3])),
    "meanmaxsim": lambda m: (setattr(m, "similarity_fn_name", "meanmaxsim"), m.similarity(m.encode_query(Q), m.encode_document(D)),
                             setattr(m, "similarity_fn_name", "maxsim"))[1],
    "cosine": lambda m: setattr(m, "similarity_fn_name", "cosine"), "dimension": lambda m: m.get_embedding_dimension(),
    "prompts": lambda m: m.prompts, "max_seq_length": lambda m: m.max_seq_length}
FOLDERS = {"CrossEncoder": ("scores/bert", "scores/bert-three", "scores/bert-relu", "scores/xlm-roberta"),
           "SparseEncoder": ("folders/sparse-bert", "folders/router-tensor"),
           "MultiVectorEncoder": ("late/bert", "late/pylate")}
TABLES = {"CrossEncoder": CROSS, "SparseEncoder": SPARSE, "MultiVectorEncoder": LATE_CALLS}


@pytest.fixture(scope="module", params=[(kind, folder) for kind, folders in FOLDERS.items() for folder in folders], ids="-".join)
def both(request):
    original = pytest.importorskip("sentence_transformers", reason="the oracle is not installed")
    kind, folder = request.param
    return kind, getattr(fletch, kind)(GOLDEN / folder), getattr(original, kind)(str(GOLDEN / folder), device="cpu")


def outcome(call, model):
    try:
        return call(model), None
    except Exception as error:  # noqa: BLE001
        return None, error


def same(ours, theirs, what):
    assert type(ours) is type(theirs), (what, type(ours), type(theirs))
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), what
        ours, theirs = ([made[key] for key in sorted(made)] for made in (ours, theirs))
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), what
        for one, other in zip(ours, theirs):
            same(one, other, what)
    elif hasattr(theirs, "shape"):
        assert ours.dtype == theirs.dtype and tuple(ours.shape) == tuple(theirs.shape), (what, ours, theirs)
        if getattr(theirs, "is_sparse", False):
            assert ours.is_sparse, what
            ours, theirs = ours.to_dense(), theirs.to_dense()
        a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
        assert (np.abs(a - b) <= TOLERANCE * np.maximum(1, np.abs(b))).all(), (what, a, b)
    elif isinstance(theirs, float):
        assert abs(ours - theirs) <= TOLERANCE * max(1, abs(theirs)), (what, ours, theirs)
    else:
        assert ours == theirs, what


@PEERS_MAY_WARN
def test_calls_are_the_original_s(both):
    kind, ours, theirs = both
    for name, call in TABLES[kind].items():
        (found, our_error), (wanted, their_error) = outcome(call, ours), outcome(call, theirs)
        if their_error is None:
            assert our_error is None, f"{name}: only ours raises {our_error!r}"
            same(found, wanted, name)
        else:
            assert isinstance(our_error, (type(their_error), TypeError, ValueError)), (name, our_error, their_error)


@PEERS_MAY_WARN
def test_it_stands_for_the_original(both):
    kind, ours, theirs = both
    assert isinstance(ours, type(theirs)) and type(pickle.loads(pickle.dumps(ours))) is getattr(fletch, kind)


@PEERS_MAY_WARN
def test_evaluators_give_the_original_s_figures(both):
    kind, ours, theirs = both
    if kind == "CrossEncoder":
        from sentence_transformers.cross_encoder import evaluation as kinds
        labels = [i % max(2, ours.num_labels) for i in range(len(PAIRS))]
        evaluator = kinds.CrossEncoderClassificationEvaluator(PAIRS, labels, show_progress_bar=False)
    elif kind == "SparseEncoder":
        from sentence_transformers.sparse_encoder import evaluation as kinds
        evaluator = kinds.SparseEmbeddingSimilarityEvaluator(TEXTS[:6], TEXTS[6:12], [0.1, 0.3, 0.2, 0.6, 0.5, 0.4])
    else:
        from sentence_transformers.multi_vector_encoder import evaluation as kinds
        evaluator = kinds.MultiVectorTripletEvaluator(LATE[:4], LATE[4:8], LATE[8:12])
    found, wanted = ours.evaluate(evaluator), theirs.evaluate(evaluator)
    assert found.keys() == wanted.keys() and ours.model_card_data.eval_results_dict[evaluator] == found
    assert all(abs(found[key] - wanted[key]) <= TOLERANCE for key in wanted), (found, wanted)


@pytest.mark.parametrize("call, words", [
    (lambda: fletch.CrossEncoder(MODEL), "not a reranker"), (lambda: fletch.SparseEncoder(MODEL), "sparse vectors"),
    (lambda: fletch.MultiVectorEncoder(MODEL), "not a late-interaction model"),
    (lambda: fletch.CrossEncoder(GOLDEN / "scores/bert", num_labels=3), "num_labels=3"),
    (lambda: fletch.CrossEncoder(GOLDEN / "scores/bert", model_kwargs={"dtype": "float16"}), "provider.precision"),
    (lambda: fletch.CrossEncoder(GOLDEN / "scores/bert").fit(), "train with"),
    (lambda: fletch.SparseEncoder(GOLDEN / "folders/sparse-bert").save("x"), "path"),
    (lambda: fletch.SparseEncoder(GOLDEN / "folders/sparse-bert").intersection(1, 2), "element-wise"),
    (lambda: fletch.MultiVectorEncoder(GOLDEN / "late/bert").encode("a", output_value=None), "output_value=None"),
    (lambda: fletch.MultiVectorEncoder(GOLDEN / "late/bert").encode("a", token_pooling=1), "token_pooling="),
    (lambda: fletch.MultiVectorEncoder(GOLDEN / "late/bert").similarity(np.zeros((1, 2, 3)), np.zeros((1, 2, 3))), "padded")])
def test_what_is_not_there_is_refused_by_name(call, words):
    with pytest.raises(NotImplementedError, match=words):
        call()


def test_an_attribute_that_is_not_there_is_named():
    model = fletch.CrossEncoder(GOLDEN / "scores/bert")
    assert not hasattr(model, "config")
    with pytest.raises(AttributeError, match="fletch.CrossEncoder has no 'config': .*model.properties"):
        model.config


def test_an_argument_that_changes_nothing_is_an_error():
    """The original hands what it does not know to its modules, where it changes nothing."""
    with pytest.raises(ValueError, match="nonsense"):
        fletch.CrossEncoder(GOLDEN / "scores/bert").predict(PAIRS, nonsense=1)


def test_rows_are_heard_of_as_they_are_done():
    for call, count in ((lambda heard: fletch.Model(GOLDEN / "scores/bert").rerank("a", ["b"] * 70, progress=heard), 70),
                        (lambda heard: fletch.Model(GOLDEN / "scores/bert").classify(["b"], progress=heard), 1),
                        (lambda heard: fletch.Model(GOLDEN / "late/bert").embed_tokens(["b"] * 70, progress=heard), 70),
                        (lambda heard: fletch.Model(GOLDEN / "folders/sparse-bert").embed_sparse(["b"] * 70, progress=heard), 70)):
        heard = []
        call(heard.append)
        assert sum(heard) == count and len(heard) == -(-count // 32)


def test_a_route_that_is_not_open_encodes_nothing():
    """A Router's queries and documents have a network each, and one is open: the original would take the other."""
    folder = GOLDEN / "folders/router-dense"
    texts = json.loads((GOLDEN / "folders/texts.json").read_text(encoding="utf-8"))
    for index, (task, other) in enumerate((("query", "document"), ("document", "query"))):
        model = fletch.SentenceTransformer(str(folder), fletch_config={"model.task": task})
        rows = getattr(model, f"encode_{task}")(texts)
        assert np.abs(rows - np.load(folder / f"expected-{index}.npy")).max() <= TOLERANCE
        with pytest.raises(NotImplementedError, match=f"model.task={task}; open it once more with {other}"):
            getattr(model, f"encode_{other}")(texts)
