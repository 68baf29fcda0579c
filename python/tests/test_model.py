# SPDX-License-Identifier: Apache-2.0
"""Model: rows, options, facts and refusals.

Must never break: the bytes are those of the program `fletch embed`; a str gives a row and a sequence a matrix; what is
wrong is told with the index of the text and the class that Python programs catch; `out` is written where it lies."""
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import threading

import numpy as np
import pytest
from conftest import MODEL, PROGRAM, ROOT, TEXTS

import fletch
from fletch import _similarity


def program(texts, *flags):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run([PROGRAM, "embed", "--model", MODEL, "--input-format", "jsonl", "--format", "npy", "--quiet",
                           "--output", "-", *flags], input=lines.encode(), capture_output=True, check=True)
    return np.load(io.BytesIO(done.stdout))


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("dimensions", [None, 128, 129])
def test_bytes_are_those_of_the_program(model, dtype, dimensions):
    flags = ["--dtype", dtype] + (["--dimensions", str(dimensions)] if dimensions else [])
    rows, expected = model.embed(TEXTS, dtype=dtype, dimensions=dimensions), program(TEXTS, *flags)
    assert rows.dtype == expected.dtype and rows.shape == expected.shape and (rows == expected).all()


def test_many_texts_pass_windows_and_keep_their_bytes(model, vectors):
    rows = model.embed(["x", "spaces"] * 4200)  # three windows
    assert (rows[0::2] == vectors[5]).all() and (rows[1::2] == vectors[7]).all()
    rows = model.embed(TEXTS * 7)  # more than goes without a window
    assert (rows.reshape(7, len(TEXTS), -1) == vectors).all()


def test_shapes(model, vectors):
    assert model.embed("x").shape == (384,) and (model.embed("x") == vectors[5]).all()
    assert model.embed(["x"]).shape == (1, 384)
    assert model.embed([]).shape == (0, 384) and model.embed([]).dtype == np.float32
    assert model.embed([], dtype="binary").shape == (0, 48)
    assert model.embed("x", dtype="ubinary").shape == (48,)


def test_options_reach_the_library(model):
    raw = model.embed("a cat", normalize=False)
    assert abs(np.linalg.norm(raw) - 1) > 0.1
    assert np.allclose(raw / np.linalg.norm(raw), model.embed("a cat"), atol=1e-6)
    cut = model.embed("a cat", dimensions=100)
    assert cut.shape == (100,) and abs(np.linalg.norm(cut) - 1) < 1e-6
    assert (model.embed("cat", prompt="a ") == model.embed("a cat")).all()
    assert (model.embed("a b c", max_length=3, truncate="right") == model.embed("a")).all()
    assert (model.embed("a b c", max_length=3, truncate="left") == model.embed("c")).all()


@pytest.mark.parametrize("wrong, kind, words", [
    (dict(dimensions=385), ValueError, "385"), (dict(dimensions=0), ValueError, "positive"),
    (dict(dimensions=-1), ValueError, "positive"), (dict(dimensions=1.5), TypeError, "int"),
    (dict(dimensions=True), TypeError, "int"), (dict(max_length=0), ValueError, "positive"),
    (dict(dtype="float64"), ValueError, "float32, float16, int8"), (dict(dtype=object()), ValueError, "dtype"),
    (dict(truncate="middle"), ValueError, "warn, right"), (dict(truncate=[]), ValueError, "truncate"),
    (dict(prompt=3), TypeError, "prompt"), (dict(prompt="a\0b"), ValueError, "NUL"),
    (dict(prompt_name="nobody"), Exception, "nobody"), (dict(prompt="\ud800"), UnicodeError, "surrogate"),
    (dict(on_error="ignore"), ValueError, "null"), (dict(nonsense=1), TypeError, "nonsense")])
def test_wrong_arguments(model, wrong, kind, words):
    with pytest.raises(kind, match=words):
        model.embed("a", **wrong)
    assert model.embed("a").shape == (384,), "and nothing else is the worse for it"


@pytest.mark.parametrize("texts, kind, where, words", [
    (None, TypeError, None, "NoneType"), (3, TypeError, None, "int"), (b"x", TypeError, None, "bytes"),
    (bytearray(b"x"), TypeError, None, "bytearray"), ({"a": 1}, TypeError, None, "dict"), ({"a"}, TypeError, None, "set"),
    ((text for text in "ab"), TypeError, None, "embed_iter"), (["a", None], TypeError, None, "text 1 is NoneType"),
    (["a", "b", 3], TypeError, None, "text 2 is int"), ([["a"]], TypeError, None, "text 0 is list"),
    (["a", b"b"], TypeError, None, "text 1 is bytes"), ("\ud800", fletch.TextError, 0, "surrogate"),
    (["a", "b\udfff"], UnicodeError, 1, "text 1"), (np.array([1.0]), TypeError, None, "float64"),
    (np.array([["a"]]), ValueError, None, "shape"), (np.array([b"a"]), TypeError, None, "S1")])
def test_wrong_texts(model, texts, kind, where, words):
    with pytest.raises(kind, match=words) as caught:
        model.embed(texts)
    assert getattr(caught.value, "where", None) == where


def test_too_long_is_told_refused_or_silent(model):
    long = ["short", "word " * 600, "word " * 600]
    with pytest.warns(fletch.TruncationWarning, match="2 of 3 texts .* index 1"):
        told = model.embed(long)
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (model.embed(long, truncate="right") == told).all()
        model.embed(["short"])
    with pytest.raises(ValueError) as caught:
        model.embed(long, truncate="error")
    assert isinstance(caught.value, fletch.TooLong) and caught.value.where == 1 and caught.value.code == "ETOOLONG"
    many = ["x"] * 4200 + long
    with pytest.raises(fletch.TooLong) as caught:
        model.embed(many, truncate="error")
    assert caught.value.where == 4201 and str(caught.value).startswith("text 4201 has more than"), "of the call, not of a window"


def test_info_and_null_rows(model, vectors):
    found = model.embed(["x", "word " * 600, None, "x"], info=True, on_error="null", truncate="error")
    assert list(found.status) == [0, -9, -1, 0] and list(found.truncated[[0, 3]]) == [False, False]
    assert (found.vectors[[0, 3]] == vectors[5]).all() and np.isnan(found.vectors[[1, 2]]).all()
    assert found.tokens[0] == 3 and found.tokens.dtype == np.uint32
    whole = model.embed(["x", None], dtype="int8", on_error="null")
    assert (whole[1] == 0).all() and (whole[0] != 0).any()
    one = model.embed("x", info=True)
    assert one.vectors.shape == (384,) and list(one.tokens) == [3]


def test_out_is_written_where_it_lies(model, vectors, tmp_path):
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(len(TEXTS), 384))
    assert model.embed(TEXTS, out=mapped) is mapped and (np.asarray(mapped) == vectors).all()
    wide = np.zeros((len(TEXTS), 500), np.float32)
    model.embed(TEXTS, out=wide[:, :384])
    assert (wide[:, :384] == vectors).all() and (wide[:, 384:] == 0).all()
    line = np.zeros(384, np.float32)
    model.embed("x", out=line)
    assert (line == vectors[5]).all()
    packed = memoryview(bytearray(48))
    model.embed("x", dtype="ubinary", out=packed)
    assert bytes(packed) == model.embed("x", dtype="ubinary").tobytes()


@pytest.mark.parametrize("out, words", [
    (np.zeros((2, 384), np.float32), "shape"), (np.zeros((1, 383), np.float32), "shape"),
    (np.zeros((1, 385), np.float32), "shape"), (np.zeros((1, 384), np.float64), "format"),
    (np.zeros((1, 384), np.int32), "format"), (np.zeros((1, 768), np.float32)[:, ::2], "C-contiguous"),
    (np.zeros((1, 384), np.float32)[:, ::-1], "C-contiguous"), (np.zeros((384, 1), np.float32).T, None),
    (np.zeros((1, 1, 384), np.float32), "shape"), (np.float32(1), "read-only|shape")])
def test_out_that_does_not_fit(model, out, words):
    if words is None:
        model.embed(["x"], out=out)
        return
    with pytest.raises(ValueError, match=words):
        model.embed(["x"], out=out)


def test_out_that_cannot_be_written(model):
    frozen = np.zeros((1, 384), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        model.embed(["x"], out=frozen)
    with pytest.raises((ValueError, TypeError)):
        model.embed(["x"], out=bytes(384 * 4))
    with pytest.raises(TypeError):
        model.embed(["x"], out=[0.0] * 384)
    down = np.zeros((4, 384), np.float32)[::-1]
    with pytest.raises(ValueError, match="C-contiguous"):
        model.embed(["a", "b", "c", "d"], out=down)


def test_progress_hears_every_row(model):
    def angry(rows):
        raise RuntimeError("enough")

    heard = []
    model.embed(["x"] * 4200, progress=heard.append)
    assert sum(heard) == 4200 and min(heard) > 0 and len(heard) > 1
    for count in (1, 5, 32, 63):
        heard = []
        model.embed(["x"] * count, progress=heard.append)
        assert sum(heard) == count
    windows = []
    model.embed((["word " * 100] * 400), progress=windows.append)  # some 20 windows of 32, two at a time
    assert sum(windows) == 400 and len(windows) > 4
    model.embed([], progress=angry)
    for count in (1, 4200):
        with pytest.raises(RuntimeError, match="enough"):
            model.embed(["x"] * count, progress=angry)
    assert model.embed("x").shape == (384,)


def test_progress_is_tqdm_s(python):
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    told = python("fletch.Model(MODEL).embed(['x'] * 4200, progress=True)")
    assert "Embedding: 100%" in told and "4200/4200" in told
    told = python("import logging\nlogging.basicConfig(level=logging.INFO)\nsys.modules['tqdm'] = None\n"
                  "print(fletch.Model(MODEL).embed(['x'], progress=True).shape)")
    assert "(1, 384)" in told and "INFO:fletch:no progress bar" in told


def test_iter_is_embed_in_flat_memory(model, vectors):
    rows = list(model.embed_iter((text for text in TEXTS * 20), window=33))
    assert (np.stack(rows).reshape(20, len(TEXTS), -1) == vectors).all()
    assert list(model.embed_iter([])) == []
    for wrong in ("a text", b"x"):
        with pytest.raises(TypeError, match="iterable"):
            model.embed_iter(wrong)
    with pytest.raises(TypeError, match="unexpected argument 'out'"):
        list(model.embed_iter(["a"], out=None))
    source = iter(["a"] * 10 + ["\ud800"])
    with pytest.raises(UnicodeError) as caught:
        list(model.embed_iter(source, window=4))
    assert caught.value.where == 10 and str(caught.value).startswith("text 10 holds a lone surrogate")
    for bad, kind, words in ((None, TypeError, "text 9 is NoneType"), ("x " * 999, fletch.TooLong, "text 9 has more than")):
        with pytest.raises(kind, match=words):
            list(model.embed_iter(["a"] * 9 + [bad], window=4, truncate="error"))
    left = model.embed_iter(iter(["a"] * 1000), window=10)
    next(left)
    left.close()


def test_tokens_and_decode(model):
    found = model.tokenize("Hello wörld")
    assert found.tokens == ["[CLS]", "hello", "world", "[SEP]"] and not found.truncated
    text = "Hello wörld".encode()
    assert [text[a:b].decode() for a, b in found.offsets] == ["", "Hello", "wörld", ""]
    assert model.decode(found.ids) == "hello world"
    assert model.decode(found.ids, skip_special_tokens=False).startswith("[CLS]") and model.decode([]) == ""
    assert model.tokenize("a b c", max_length=3).truncated
    assert model.tokenize("a", special_tokens=False).tokens == ["a"]
    for wrong in ([10**6], [-1], [2**31], [0.5], ["a"]):
        with pytest.raises((ValueError, TypeError)):
            model.decode(wrong)
    with pytest.raises(TypeError):
        model.tokenize(None)


DOCUMENT = "# Cats\n\nA cat sits on the mat. It purrs.\n\n## Names\n\nGr\u00fc\u00dfe aus K\u00f6ln! \u732b\u306f\u7573\u306e\u4e0a\u306b\u5ea7\u308b\u3002 \U0001f642\n"


@pytest.mark.parametrize("by", ["sentences", "tokens", "paragraphs", "markdown"])
def test_chunks_are_the_document(model, by):
    for size in (1, 3, 8, 40, None):
        chunks = model.chunk(DOCUMENT, by=by, size=size)
        assert "".join(chunk.text for chunk in chunks) == DOCUMENT
        for chunk in chunks:
            assert DOCUMENT[chunk.start:chunk.end] == chunk.text
            assert DOCUMENT.encode()[chunk.byte_start:chunk.byte_end].decode() == chunk.text
            assert chunk.tokens == len(model.tokenize(chunk.text, special_tokens=False).ids) <= (size or 254)
    assert len(chunks) == 1 and isinstance(chunks[0], fletch.Chunk)


def test_chunks_overlap_by_whole_sentences(model):
    chunks = model.chunk("One two. Three four. Five six. Seven.", size=6, overlap=3)
    assert [chunk.text for chunk in chunks] == ["One two. Three four. ", "Three four. Five six. ", "Five six. Seven."]
    assert [chunk.tokens for chunk in chunks] == [6, 6, 5]


def test_chunks_of_several_documents_and_of_none(model):
    assert model.chunk(["a b", "", "c"]) == [model.chunk("a b"), [], model.chunk("c")]
    assert model.chunk("") == [] and model.chunk([]) == []
    for wrong, words in (({"size": 255}, "too long for the model: it accepts 254"), ({"size": 4, "overlap": 4}, "overlap of 4"),
                         ({"size": 0}, "positive"), ({"overlap": -1}, "positive"), ({"by": "lines"}, "sentences, tokens")):
        with pytest.raises(ValueError, match=words):
            model.chunk("a", **wrong)
    for wrong in (None, ["a", None], b"a", 3):
        with pytest.raises(TypeError):
            model.chunk(wrong)
    with pytest.raises(fletch.TextError, match="text 1"):
        model.chunk(["a", "\ud800"])


def test_what_a_model_says_of_itself(model):
    assert model.dimensions == 384 and model.max_length == 256 and model.similarity_fn_name == "cosine"
    assert model.properties["pooling"] == "mean" and model.origins["pooling"] == "1_Pooling/config.json"
    before = model.stats()
    model.embed(["a", "b"])
    after = model.stats()
    assert json.dumps(before) and after != before
    assert "384 dimensions" in repr(model)
    listed = ""
    folder = pathlib.Path(MODEL)
    endings = (".json", ".txt", ".safetensors", ".onnx", ".model")
    for name in sorted(path.name for path in folder.iterdir() if path.name.endswith(endings)):
        listed += f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n"
    listed += f"1_Pooling/config.json {hashlib.sha256((folder / '1_Pooling/config.json').read_bytes()).hexdigest()}\n"
    assert model.fingerprint == hashlib.sha256(listed.encode()).hexdigest()


def test_similarity(model):
    a, b = np.random.default_rng(1).normal(size=(2, 5, 8)).astype(np.float32)
    cosine = (a @ b.T) / np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
    assert np.allclose(model.similarity(a, b), cosine, atol=1e-6)
    assert np.allclose(model.similarity_pairwise(a, b), np.diag(cosine), atol=1e-6)
    assert model.similarity(a[0], b).shape == (1, 5)


def test_equal_rows_have_no_distance():
    rows = np.random.default_rng(1).normal(size=(50, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    apart = _similarity.similarity("euclidean", rows, rows)
    assert apart.dtype == np.float32 and np.abs(np.diag(apart)).max() < 1e-6
    assert np.abs(apart + np.linalg.norm(rows[:, None] - rows[None], axis=2)).max() < 1e-6


@pytest.mark.parametrize("arguments, kind, words", [
    (dict(model="/no/such/folder"), FileNotFoundError, "folder"), (dict(model=MODEL, preset="fast"), ValueError, "fast"),
    (dict(model=MODEL, config={"batch.max_token": 1}), ValueError, "batch.max_tokens"),
    (dict(model=MODEL, threads=-1), ValueError, "threads"), (dict(model=MODEL, precision="fp7"), ValueError, "fp7"),
    (dict(model=MODEL, config={3: 4}), TypeError, "int"), (dict(model=b"x"), TypeError, "bytes"),
    (dict(model=3), TypeError, "int"),
    (dict(model="nobody/nothing-here", local_files_only=True), FileNotFoundError, "nobody/nothing-here")])
def test_models_that_do_not_open(arguments, kind, words):
    with pytest.raises(kind, match=words):
        fletch.Model(**arguments)


def test_a_damaged_model_is_named(tmp_path):
    for path in pathlib.Path(MODEL).iterdir():
        if path.name != "model.safetensors":
            (tmp_path / path.name).symlink_to(path.resolve())
    (tmp_path / "model.safetensors").write_bytes((pathlib.Path(MODEL) / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(fletch.ModelError, match="model.safetensors"):
        fletch.Model(tmp_path)


def test_errors_carry_their_code_and_pickle(model):
    import pickle
    with pytest.raises(fletch.InvalidArgument) as caught:
        model.embed("a", dimensions=500)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.code == "EINVAL" and str(again) == str(caught.value) and isinstance(again, ValueError)


def test_options_of_every_type():
    with fletch.Model(MODEL, threads=1, config={"batch.memory_prediction": False, "provider.order": ["cpu"]}) as one:
        assert one.properties["cpu.threads"] == "1"
        assert fletch.shared(MODEL, threads=1) is fletch.shared(MODEL, threads=1)
        assert fletch.shared(MODEL, threads=1) is not fletch.shared(MODEL)


def test_threads_agree(model, vectors):
    wrong = []

    def work(seed):
        order = np.random.default_rng(seed).permutation(len(TEXTS))
        for _ in range(5):
            rows = model.embed([TEXTS[i] for i in order])
            if not (rows == vectors[order]).all():
                wrong.append(seed)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_list_changed_meanwhile_is_the_list_that_was_given(model):
    texts = [f"text {i}" for i in range(200)]
    expected = model.embed(list(texts))
    stop = threading.Event()

    def shuffle():
        while not stop.is_set():
            texts.reverse()
            texts.append("more")
            texts.pop()
    thread = threading.Thread(target=shuffle)
    rows = []
    thread.start()
    for _ in range(5):
        rows.append(model.embed(tuple(sorted(set(texts) - {"more"}, key=lambda text: int(text[5:])))))
        model.embed(texts)  # whatever it holds at that moment: no crash
    stop.set()
    thread.join()
    assert all((found == expected).all() for found in rows)


def test_errors_have_no_words_of_c_or_of_the_command_line(model):
    """Every message of the library, as its sources have it: what names a call or a command is said for Python."""
    import re

    from fletch.errors import _WORDS, _in_python
    foreign = re.compile(r"\bfletch_[a-z_]+\b(?!\.)|`fletch |(?<![\w-])--[a-z]|\bmake (?:cuda|onnxruntime)\b")
    literal = r'"(?:[^"\\\n]|\\.)*"'
    found, used = [], set()
    for path in (path for path in (ROOT / "src").rglob("*.[ch]") if path.parent.name not in ("cli", "server", "store")):
        text = re.sub(r"/\*.*?\*/|^#.*?$", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
        for run in re.findall(rf"{literal}(?:\s*(?:PRI\w+\s*)?{literal})*", text):
            message = "".join(one[1:-1] for one in re.findall(literal, run))
            message = re.sub(r"`hf download [^`]*`", "", message)  # a program of Python's own
            misuse = re.match(r"fletch_\w+: |only the tokenizer", message)  # of the C interface, which the package does not
            if " " in message and foreign.search(message) and not misuse:
                found.append(_in_python(message))
                used |= {said for said, _ in _WORDS if said.search(message)}
    assert len(found) > 15 and used == {said for said, _ in _WORDS}, "a phrase that no message has"
    assert not [message for message in found if foreign.search(message)]
    with pytest.raises(fletch.Unsupported, match=r"use Model\.embed, or a model") as told:
        model.rerank("a", ["b"])
    assert told.value.code == "EUNSUPPORTED" and "fletch_" not in str(told.value)
    with pytest.raises(fletch.NotFound, match=r"fletch\.Model\('nobody/nothing'\)") as told:
        fletch.Model("nobody/nothing", local_files_only=True)
    assert told.value.args == (str(told.value),)


def test_float16_is_the_nearest(model, vectors, tmp_path):
    """As the program writes it: numpy's own rounding of the float32 rows."""
    import subprocess

    from conftest import PROGRAM
    wanted = vectors.astype(np.float16)
    rows = model.embed(TEXTS, dtype="float16")
    assert rows.dtype == np.float16 and (rows == wanted).all() and (model.embed(TEXTS[0], dtype=np.float16) == wanted[0]).all()
    (tmp_path / "texts").write_text("\n".join(TEXTS[3:6]) + "\n", encoding="utf-8")
    subprocess.run([PROGRAM, "embed", "-m", MODEL, "-i", tmp_path / "texts", "-o", tmp_path / "rows.npy", "--dtype", "float16"],
                   check=True, stderr=subprocess.DEVNULL)
    assert (np.load(tmp_path / "rows.npy") == rows[3:6]).all()
    out = np.zeros((len(TEXTS), 2 * 384), np.float16)[:, ::2]
    assert model.embed(TEXTS, dtype="float16", out=out) is out and (out == wanted).all()
    single = np.zeros(384, np.float16)
    model.embed(TEXTS[0], dtype="float16", out=single)
    assert (single == wanted[0]).all() and (np.stack(list(model.embed_iter(TEXTS, dtype="float16"))) == wanted).all()
    found = model.embed(["a", None], dtype="float16", on_error="null", info=True)
    assert found.vectors.dtype == np.float16 and np.isnan(found.vectors[1]).all()
    for wrong in (np.zeros((len(TEXTS), 384), np.float32), np.zeros((len(TEXTS), 383), np.float16)):
        with pytest.raises(ValueError, match="out must"):
            model.embed(TEXTS, dtype="float16", out=wrong)


def test_the_module_shows_what_it_has():
    assert set(fletch.__all__) <= set(dir(fletch)) and all(getattr(fletch, name) is not None for name in fletch.__all__)


def test_the_vector_id_is_over_its_parts():
    folder = ROOT / "tests/golden/folders/pooling-cls"
    with fletch.Model(folder) as model, fletch.Model(folder, config={"model.pooling": "mean"}) as other:
        parts = model.vector_parts
        assert parts["model"] == model.fingerprint == other.fingerprint and parts["numerics"]
        assert parts["dimensions"] == str(model.dimensions) and parts["pooling"] == "cls"
        lines = "".join(f"{name} {value}\n" for name, value in parts.items())
        assert model.vector_id == hashlib.sha256(lines.encode()).hexdigest() != other.vector_id


def test_canaries_of_the_program_and_of_the_package_are_one(tmp_path):
    path = ROOT / "tests/golden/folders/pooling-cls"
    with fletch.Model(path) as model, fletch.Model(path, config={"cpu.isa": "ref"}) as other, \
            fletch.Model(path, config={"model.pooling": "mean"}) as far:
        canary = model.canary()
        assert canary == json.loads(subprocess.run([PROGRAM, "canary", "-m", path], capture_output=True, check=True).stdout)
        kept = tmp_path / "canary.json"
        kept.write_text(json.dumps(canary))
        same = model.verify(kept)
        assert (same.verdict, same.vectors, same.same_bytes, same.largest_difference, same.differs) == ("same bytes", 18, 18, 0, {})
        elsewhere, apart = other.verify(canary), far.verify(canary)
        assert elsewhere.verdict == "same bytes" and elsewhere.differs == {}, "whatever the instruction set"
        assert apart.verdict == "another space" and apart.differs == {"pooling": ("cls", "mean")} and apart.least_cosine < 0.999
        assert subprocess.run([PROGRAM, "verify", "--exact", "-m", path, kept], capture_output=True).stdout.startswith(b"same bytes")


def test_what_an_index_holds_is_verified():
    with fletch.Model(ROOT / "tests/golden/folders/pooling-cls") as model:
        texts = ["a", "b c", ""]
        rows = model.embed(texts)
        assert model.verify(texts=texts, vectors=rows.tolist()).verdict == "same bytes"
        assert model.verify(texts=texts, vectors=rows + np.float32(1e-6)).verdict == "same space"
        assert model.verify(texts=texts, vectors=rows[::-1]).verdict == "another space"
        assert model.verify(texts=texts, vectors=rows * np.nan).verdict == "another space"
        narrow = model.verify(texts=texts, vectors=rows[:, :8])
        assert narrow.verdict == "another space" and narrow.differs["dimensions"] == ("8", str(model.dimensions))
        for wrong in ({}, {"texts": texts}, {"texts": texts, "vectors": rows[:2]}, {"texts": texts, "vectors": [["x"]] * 3}, {"canary": {"rows": []}},
                      {"texts": texts, "vectors": [[1], [1, 2], [3]]}, {"texts": [], "vectors": []}):
            with pytest.raises(fletch.InvalidArgument):
                model.verify(**wrong)


def test_weights_of_torch_count_for_the_fingerprint(tmp_path):
    folders = ROOT / "tests/golden/folders/weights-f16", ROOT / "tests/golden/torch_files/zip.bin"
    path = shutil.copytree(folders[0], tmp_path / "model")
    weights, pickle = path / "model.safetensors", path / "pytorch_model.bin"

    def fingerprint():
        with fletch.Model(path) as model:
            return model.fingerprint
    plain, kept = fingerprint(), weights.read_bytes()
    shutil.copy(folders[1], pickle)
    assert fingerprint() == plain, "not read, not counted"
    weights.unlink()
    torch, data = fingerprint(), bytearray(pickle.read_bytes())
    data[data.index(b"data/0") + 200] ^= 1
    pickle.write_bytes(data)
    assert len({plain, torch, fingerprint()}) == 3
    weights.write_bytes(kept)
    assert fingerprint() == plain
