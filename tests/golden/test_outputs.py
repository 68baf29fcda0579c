# SPDX-License-Identifier: Apache-2.0
"""Several outputs of one pass, through the C API: those of bge-m3 are FlagEmbedding's (make_token_heads.py), each has the bytes of a
call for it alone, whatever stands beside it, and a text passes the model once."""
import contextlib
import ctypes
import itertools
import json
import shutil
import threading

import numpy
import pytest

import golden
from test_spans import EINVAL, EUNSUPPORTED, Error, Matrix, Model, Texts, options

FOLDER = golden.HERE / "token_heads/bge-m3"
TEXTS = [text.encode() for text in json.loads((FOLDER.parent / "texts.json").read_text(encoding="utf-8"))]
WANT = numpy.load(FOLDER / "expected.npz")
DENSE, TOKENS, SPARSE, COLBERT = 0, 1, 3, 5
DTYPES = {"float32": 0, "int8": 1, "uint8": 2, "binary": 3, "ubinary": 4}
EUTF8, ETOOLONG, ECANCELLED, EDEADLINE, ENOSPC = -8, -9, -14, -15, -17


class List(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("ids", ctypes.c_void_p), ("values", ctypes.c_void_p)]


class Lists(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("columns", ctypes.c_size_t), ("list", ctypes.POINTER(List))]


class Output(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int), ("normalize", ctypes.c_int), ("out", Matrix),
                ("lists", ctypes.POINTER(Lists))]


class Request(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("texts", Texts), ("ids", ctypes.c_void_p), ("options", ctypes.c_void_p), ("out", Matrix),
                ("lane", ctypes.c_int), ("deadline_ms", ctypes.c_uint32), ("inline_us", ctypes.c_uint32), ("kind", ctypes.c_int),
                ("query", ctypes.c_char_p), ("query_size", ctypes.c_size_t), ("second", ctypes.c_void_p), ("are_ids", ctypes.c_void_p),
                ("stop", ctypes.c_void_p), ("stop_user", ctypes.c_void_p), ("spans", ctypes.c_void_p),
                ("span_counts", ctypes.c_void_p), ("outputs", ctypes.c_void_p), ("output_count", ctypes.c_size_t)]


class Outputs(Model):
    """A model, and what texts become: bytes of rows, or a pair of bytes (ids, values) for each text."""

    def texts(self, texts):
        self.keep = [ctypes.create_string_buffer(text, len(text) + 1) for text in texts]
        self.pointers = (ctypes.c_void_p * len(texts))(*map(ctypes.addressof, self.keep))
        self.lengths = (ctypes.c_size_t * len(texts))(*map(len, texts))
        return Texts(count=len(texts), pointers=ctypes.addressof(self.pointers), lengths=ctypes.addressof(self.lengths))

    def parse(self, name):
        output = Output(size=ctypes.sizeof(Output))
        status = self.library.fletch_output_parse(ctypes.byref(output), name.encode(), ctypes.c_size_t(len(name.encode())), ctypes.byref(self.error))
        return output if status == 0 else status

    def array(self, texts, names):
        """Outputs with memory for their rows, and that memory."""
        outputs, rows = (Output * len(names))(), []
        for i, name in enumerate(names):
            outputs[i] = self.parse(name)
            out = outputs[i].out
            if outputs[i].kind == DENSE:
                out.cols = out.cols or self.columns  # where the name has none
                width = {0: 4 * out.cols, 1: out.cols, 2: out.cols}.get(out.dtype, (out.cols + 7) // 8)
                rows.append(numpy.zeros((len(texts), width), numpy.uint8))
                out.data, out.rows, out.stride = rows[-1].ctypes.data, len(texts), width
            else:
                rows.append(None)
        return outputs, rows

    def take(self, output, rows):
        if output.kind == DENSE:
            assert not output.lists
            return rows.tobytes()
        lists = output.lists.contents
        found = [(ctypes.string_at(one.ids, 4 * one.count) if one.count else b"",
                  ctypes.string_at(one.values, 4 * one.count * lists.columns) if one.count else b"") for one in lists.list[:lists.count]]
        self.library.fletch_lists_free(output.lists)
        return found

    def several(self, texts, names, **settings):
        outputs, rows = self.array(texts, names)
        status = self.library.fletch_embed_outputs(self.handle, ctypes.byref(self.texts(texts)), ctypes.byref(options(**settings)), outputs,
                                                   ctypes.c_size_t(len(names)), ctypes.byref(self.error))
        if status < 0:
            assert not any(output.lists for output in outputs)
            return status
        return [self.take(output, one) for output, one in zip(outputs, rows)]

    def alone(self, texts, name, **settings):
        """The same by the call that gives this alone."""
        outputs, rows = self.array(texts, [name])
        output, given = outputs[0], self.texts(texts)
        if output.kind == DENSE:
            cut = 0 if output.out.cols == self.columns else output.out.cols
            status = self.library.fletch_embed(self.handle, ctypes.byref(given), ctypes.byref(options(dimensions=cut, **settings)),
                                               ctypes.byref(output.out), ctypes.byref(self.error))
        else:
            call = {TOKENS: self.library.fletch_embed_tokens, SPARSE: self.library.fletch_embed_sparse}[output.kind]
            status = call(self.handle, ctypes.byref(given), ctypes.byref(options(**settings)), ctypes.byref(output, Output.lists.offset),
                          ctypes.byref(self.error))
        assert status == 0, self.error.message
        return self.take(output, rows[0])

    def submit(self, texts, outputs, cancel=False, **fields):
        """The status that a request ends with, or is refused with."""
        over = threading.Event()

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Error))
        def done(_, outcome):
            self.error = Error.from_buffer_copy(outcome.contents)
            over.set()
        request = Request(**{"size": ctypes.sizeof(Request), "kind": 6, "outputs": ctypes.addressof(outputs),
                             "output_count": len(outputs), "texts": fields.pop("of_ids", None) or self.texts(texts), **fields})
        ticket = ctypes.c_uint64()
        status = self.library.fletch_submit(self.handle, ctypes.byref(request), done, None, ctypes.byref(ticket), ctypes.byref(self.error))
        if cancel:
            self.library.fletch_cancel(self.handle, ticket)
        assert status < 0 or over.wait(60)
        return status or self.error.code

    def counters(self):
        self.library.fletch_stats_json.restype = ctypes.c_int64
        text = ctypes.create_string_buffer(65536)
        assert self.library.fletch_stats_json(self.handle, text, ctypes.c_size_t(len(text)), None) < len(text)
        return json.loads(text.value)


@contextlib.contextmanager
def opened(folder, **keys):
    """With a configuration that has these keys."""
    library = ctypes.CDLL(str(golden.BUILD / "libfletch.so"))
    library.fletch_config_new.restype = ctypes.c_void_p
    config, error = ctypes.c_void_p(library.fletch_config_new()), Error()
    for key, value in keys.items():
        assert library.fletch_config_set(config, key.replace("__", ".").encode(), value.encode(), ctypes.byref(error)) == 0, error.message
    model = Outputs(folder, config)
    library.fletch_config_free(config)
    yield model
    model.close()


@pytest.fixture(scope="module", name="m3")
def m3_():
    with opened(FOLDER) as model:
        yield model


def test_outputs_are_those_of_the_reference(m3):
    rows, weights, vectors = m3.several(TEXTS, ["dense", "sparse", "colbert"])
    assert golden.difference(numpy.frombuffer(rows, "<f4").reshape(len(TEXTS), -1), WANT["rows"]) <= 1e-5
    assert b"".join(ids for ids, _ in weights) == WANT["ids"].tobytes()
    assert numpy.cumsum([0] + [len(ids) // 4 for ids, _ in weights]).tolist() == WANT["sparse_offsets"].tolist()
    assert abs(numpy.frombuffer(b"".join(values for _, values in weights), "<f4") - WANT["weights"]).max() <= 1e-5
    assert numpy.cumsum([0] + [len(ids) // 4 for ids, _ in vectors]).tolist() == WANT["offsets"].tolist()
    assert golden.difference(numpy.frombuffer(b"".join(values for _, values in vectors), "<f4").reshape(-1, 32), WANT["vectors"]) <= 1e-5


NAMES = ["dense", "dense:7", "dense:ubinary", "dense:16:int8", "sparse", "tokens"]
FOLDERS = ["token_heads/bge-m3", "late/bert", *(f"folders/{name}" for name in (
    "plain-bert", "dense-tanh", "normalize-dense", "truncate-dim", "pooling-concat-new", "pooling-lasttoken", "prompts-left-out-mean",
    "prompts-left-out-cls", "family-gemma3", "family-qwen3", "family-static", "sparse-bert", "router-idf"))]
SETTINGS = {"plain": {}, "unit": {"normalize": 1, "max_length": 9, "truncate": 2}, "raw": {"normalize": -1, "prompt": b"the cat: "}}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_each_output_has_the_bytes_of_its_own_call(folder, settings):
    with opened(golden.HERE / folder) as model:
        names = [name for name in NAMES if model.several(TEXTS[:1], [name]) != EUNSUPPORTED]
        want = {name: model.alone(TEXTS, name, **settings) for name in names}
        assert names
        for start, step, size in itertools.product(range(len(names)), (1, -1), (1, 2, len(names))):
            some = [names[(start + step * i) % len(names)] for i in range(min(size, len(names)))]
            assert model.several(TEXTS, some, **settings) == [want[name] for name in some], some


def test_options_of_one_output_alone(m3):
    outputs, rows = m3.array(TEXTS, ["dense", "tokens", "colbert"])
    for output, normalize in zip(outputs, (-1, 1, -1)):
        output.normalize = normalize
    assert m3.submit(TEXTS, outputs) == 0
    found = [m3.take(output, one) for output, one in zip(outputs, rows)]
    assert found[:2] == [m3.alone(TEXTS, "dense", normalize=-1), m3.alone(TEXTS, "tokens", normalize=1)]
    lengths = numpy.linalg.norm(numpy.frombuffer(found[2][0][1], "<f4").reshape(-1, 32), axis=1)
    assert abs(lengths - 1).max() > 1e-3
    assert m3.several(TEXTS, ["dense:8", "dense:8"]) == [m3.alone(TEXTS, "dense:8")] * 2
    assert m3.several(TEXTS, ["sparse", "dense"], top_k=2)[0] == m3.alone(TEXTS, "sparse", top_k=2)


def test_colbert_is_that_of_the_folder_opened_for_it(m3):
    with opened(FOLDER, model__pooling="colbert") as late:
        want = late.alone(TEXTS, "tokens")
        assert late.several(TEXTS, ["colbert"]) == [want]
        assert late.several(TEXTS, ["tokens", "dense"]) == EUNSUPPORTED
    for names in (["colbert"], ["colbert", "tokens", "dense"], ["dense", "sparse", "colbert"]):
        assert m3.several(TEXTS, names)[names.index("colbert")] == want


@pytest.mark.parametrize("folder", ["late/bert", "late/pylate"])
@pytest.mark.parametrize("side", [b"query", b"document"])
def test_sides_of_late_interaction(folder, side):
    with opened(golden.HERE / folder) as model:
        want = model.alone(TEXTS, "tokens", prompt_name=side)
        assert model.several(TEXTS, ["colbert"], prompt_name=side) == [want]
        assert model.several(TEXTS, ["tokens", "colbert"], prompt_name=side) == [want, want]


def test_a_layer_that_cannot_be_read_is_told_to_who_asks(tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    (folder / "colbert_linear.pt").write_bytes(b"PK\x03\x04 and no archive, but long enough for one")
    with opened(folder) as model:
        assert model.several(TEXTS, ["dense", "colbert"]) == EUNSUPPORTED and b"colbert_linear" in model.error.message
        assert not isinstance(model.several(TEXTS, ["dense", "sparse"]), int)


def test_a_text_passes_once():
    with opened(FOLDER) as model:
        model.several(TEXTS + TEXTS[:3], ["dense", "dense:8", "sparse", "tokens", "colbert"])
        once = model.counters()
        assert once["texts"] == len(TEXTS) and once["repeated_texts"] == 3
        assert once["sparse_texts"] == len(TEXTS) and once["token_texts"] == 2 * len(TEXTS)
        model.alone(TEXTS, "dense")
        assert model.counters()["tokens"] == 2 * once["tokens"]


def test_repeats_have_the_same(m3):
    names = ["sparse", "dense:binary", "tokens"]
    once = m3.several(TEXTS, names)
    both = m3.several(TEXTS + TEXTS[::-1], names)
    for one, two, name in zip(once, both, names):
        assert two == (one + one[::-1] if isinstance(one, list) else m3.alone(TEXTS + TEXTS[::-1], name))


def test_the_cache_is_that_of_single_calls():
    with opened(FOLDER, cache__max_bytes="4MB") as model:
        names = ["tokens", "dense:16", "sparse", "colbert"]
        want = model.several(TEXTS, names, prompt=b"the cat ")
        passed = model.counters()["texts"]
        assert model.several(TEXTS, names, prompt=b"the cat ") == want
        assert model.alone(TEXTS, "dense:16", prompt=b"the cat ") == want[1]
        assert model.alone(TEXTS, "sparse", prompt=b"the cat ") == want[2]
        assert model.several(TEXTS, ["dense:16", "colbert"], prompt=b"the cat ") == [want[1], want[3]]
        assert model.counters()["texts"] == passed
        assert model.several(TEXTS, ["dense:16", "dense:4"], prompt=b"the cat ")[0] == want[1]  # one of two is not there
        assert model.counters()["texts"] == 2 * passed
        assert model.several(TEXTS, names, no_cache=1) != want and model.counters()["texts"] == 3 * passed


def test_the_cache_tells_what_a_prompt_is_left_out_of():
    with opened(golden.HERE / "folders/prompts-left-out-mean", cache__max_bytes="4MB") as model:
        want = [model.alone(TEXTS, name, prompt=b"the cat ") for name in ("tokens", "dense:16")]
        passed = model.counters()["texts"]
        assert model.several(TEXTS, ["tokens", "dense:16"], prompt=b"the cat ") == want
        assert model.counters()["texts"] == passed


def test_bad_texts_have_no_result_and_the_others_do(m3):
    texts, status = [TEXTS[0], b"\xff", TEXTS[1]], (ctypes.c_int32 * 3)()
    names = ["dense", "sparse", "tokens"]
    assert m3.several(texts, names) == EUTF8 and m3.error.where == 1
    found = m3.several(texts, names, status=ctypes.addressof(status))
    good = m3.several(texts[::2], names)
    assert list(status) == [0, EUTF8, 0]
    assert found[1:] == [[one[0], (b"", b""), one[1]] for one in good[1:]]
    assert m3.several(TEXTS, names, truncate=3, max_length=9) == ETOOLONG


def test_all_lists_are_in_one_limit(m3):
    names = ["tokens", "sparse", "colbert"]
    size = sum(len(ids) + len(values) for output in m3.several(TEXTS, names) for ids, values in output)
    assert not isinstance(m3.several(TEXTS, names, list_bytes=size), int)
    assert m3.several(TEXTS, names, list_bytes=size - 4) == ENOSPC


@pytest.mark.parametrize("count", [0, 1, 300])
def test_submitted(m3, count):
    texts = (TEXTS * 40)[:count]
    outputs, rows = m3.array(texts, ["dense:5:uint8", "sparse", "colbert"])
    assert m3.submit(texts, outputs) == 0
    want = m3.several(texts, ["dense:5:uint8", "sparse", "colbert"])
    assert [m3.take(output, one) for output, one in zip(outputs, rows)] == want


@pytest.mark.parametrize("how, code", [({"cancel": True}, ECANCELLED), ({"deadline_ms": 1}, EDEADLINE)], ids=["cancelled", "late"])
def test_given_up(m3, how, code):
    """Lists are there when the request was quicker than that, and only then."""
    texts = [b"the cat sat %d" % i for i in range(20000)]
    outputs, rows = m3.array(texts, ["dense", "tokens"])
    status = m3.submit(texts, outputs, **how)
    assert status in (0, code) and bool(outputs[1].lists) == (status == 0)
    if status == 0:
        m3.take(outputs[1], rows[1])


def test_token_ids_have_outputs_too(m3):
    ids = numpy.frombuffer(b"".join(ids for ids, _ in m3.alone(TEXTS, "tokens")), "<i4")
    ends = numpy.cumsum([0] + [len(ids) // 4 for ids, _ in m3.alone(TEXTS, "tokens")])
    outputs, rows = m3.array(TEXTS, ["dense", "sparse", "tokens"])
    assert m3.submit(TEXTS, outputs, ids=ids.ctypes.data, of_ids=Texts(count=len(TEXTS), offsets64=ends.ctypes.data)) == 0
    assert [m3.take(output, one) for output, one in zip(outputs, rows)] == m3.several(TEXTS, ["dense", "sparse", "tokens"])


@pytest.mark.parametrize("names, words", [
    ([], b"no output"), (["sparse", "dense", "sparse"], b"outputs 0 and 2 are the same"), (["tokens", "tokens"], b"the same"),
    (["dense:33"], b"33 dimensions requested, but the model has only 32"),
    (["sparse", "dense:33"], b"33 dimensions")])
def test_what_cannot_be_is_named(m3, names, words):
    assert m3.several(TEXTS, names) == EINVAL and words in m3.error.message


@pytest.mark.parametrize("folder, names, words", [
    ("folders/plain-bert", ["dense", "sparse"], b"no sparse vectors"), ("folders/plain-bert", ["colbert"], b"colbert_linear"),
    ("folders/family-static", ["dense", "tokens"], b"static"), ("folders/sparse-bert", ["sparse", "dense"], b"SPLADE"),
    ("late/bert", ["tokens", "dense"], b"ColBERT"), ("scores/bert", ["dense", "sparse"], b"scores")])
def test_what_a_model_has_not_is_named(folder, names, words):
    with opened(golden.HERE / folder) as model:
        assert model.several(TEXTS, names) == EUNSUPPORTED and words in model.error.message


def test_fields_that_make_no_sense_are_named(m3):
    for change, words in (({"kind": 2}, b"of kind 2"), ({"kind": 4}, b"of kind 4"), ({"kind": 6}, b"of kind 6"), ({"kind": -1}, b"of kind -1"),
                          ({"size": 0}, b"no size"), ({"size": 8}, b"no size"), ({"out": Matrix()}, b"matrix")):
        outputs, _ = m3.array(TEXTS, ["dense"])
        for name, value in change.items():
            setattr(outputs[0], name, value)
        assert m3.submit(TEXTS, outputs) == EINVAL and words in m3.error.message, change
    outputs, _ = m3.array(TEXTS, ["dense", "sparse"])
    outputs[1].size += 8
    assert m3.submit(TEXTS, outputs) == EINVAL and b"another size" in m3.error.message
    assert m3.several(TEXTS, ["dense", "sparse"], dimensions=8) == EINVAL and b"their own dimensions" in m3.error.message
    assert m3.submit(TEXTS, m3.array(TEXTS, ["dense"])[0], kind=0) == EINVAL and b"FLETCH_KIND_SEVERAL" in m3.error.message


@pytest.mark.parametrize("name", ["", ":", "dens", "Dense", "dense:", "dense:0", "dense:-1", "dense:1x", "dense:float16", "dense:int8:4", "dense:4:int8:",
                                  "dense:4:", "dense::int8", "dense:9999999999", "sparse:4", "tokens:int8", "colbert:", " dense", "dense\u00e9" * 40])
def test_unknown_names(m3, name):
    assert m3.parse(name) == EINVAL
    assert b"unknown output" in m3.error.message and m3.error.message.decode()


def test_names(m3):
    for kind, word in ((SPARSE, "sparse"), (TOKENS, "tokens"), (COLBERT, "colbert")):
        assert m3.parse(word).kind == kind
    for columns, (word, dtype) in itertools.product((0, 1, 256), DTYPES.items()):
        found = m3.parse(":".join(["dense", *([str(columns)] if columns else []), word]))
        assert (found.kind, found.out.cols, found.out.dtype) == (DENSE, columns, dtype)
