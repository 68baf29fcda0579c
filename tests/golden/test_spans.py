# SPDX-License-Identifier: Apache-2.0
"""Late chunking through the C API: the vectors of spans are those of the published pooling in torch (spans.json, by
make_spans.py), one span over a whole text is the plain vector byte for byte, and bad spans are named."""
import ctypes
import json
import os

import numpy
import pytest

import golden

EXPECTED = json.loads((golden.HERE / "spans.json").read_text())
TEXT = EXPECTED["text"].encode()
EINVAL, EUNSUPPORTED, EUTF8 = -1, -6, -8


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("where", ctypes.c_size_t), ("message", ctypes.c_char * 496)]


class Texts(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("bytes", ctypes.c_void_p), ("offsets64", ctypes.c_void_p),
                ("offsets32", ctypes.c_void_p), ("pointers", ctypes.c_void_p), ("lengths", ctypes.c_void_p)]


class Matrix(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("rows", ctypes.c_size_t), ("cols", ctypes.c_size_t),
                ("stride", ctypes.c_size_t), ("dtype", ctypes.c_int)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("prompt", ctypes.c_char_p), ("prompt_name", ctypes.c_char_p),
                ("dimensions", ctypes.c_uint32), ("max_length", ctypes.c_uint32), ("normalize", ctypes.c_int),
                ("truncate", ctypes.c_int), ("tokens", ctypes.c_void_p), ("truncated", ctypes.c_void_p),
                ("status", ctypes.c_void_p), ("top_k", ctypes.c_uint32), ("threshold", ctypes.c_float),
                ("list_bytes", ctypes.c_uint64), ("activation", ctypes.c_int), ("no_cache", ctypes.c_int),
                ("overlap", ctypes.c_int32)]


def options(**fields) -> Options:
    return Options(size=ctypes.sizeof(Options), **fields)


class Model:
    def __init__(self, folder, config=None):
        self.library = ctypes.CDLL(str(golden.BUILD / "libfletch.so"))
        self.library.fletch_dimensions.restype = ctypes.c_size_t
        self.handle, self.error = ctypes.c_void_p(), Error()
        status = self.library.fletch_open(ctypes.byref(self.handle), os.fsencode(folder), config, ctypes.byref(self.error))
        assert status == 0, self.error.message
        self.columns = self.library.fletch_dimensions(self.handle)

    def close(self):
        self.library.fletch_close(self.handle)

    def call(self, documents, rows, settings, spans=None):
        """Rows of the documents, or of each one's spans; or the status, with self.error."""
        keep = [ctypes.create_string_buffer(text, len(text) + 1) for text in documents]
        pointers = (ctypes.c_void_p * len(keep))(*map(ctypes.addressof, keep))
        lengths = (ctypes.c_size_t * len(keep))(*map(len, documents))
        texts = Texts(len(keep), None, None, None, ctypes.cast(pointers, ctypes.c_void_p).value,
                      ctypes.cast(lengths, ctypes.c_void_p).value)
        result = numpy.zeros((rows, self.columns), numpy.float32)
        matrix = Matrix(result.ctypes.data, rows, self.columns, self.columns * 4, 0)
        ends = (ctypes.byref(settings), ctypes.byref(matrix), ctypes.byref(self.error))
        if spans is None:
            status = self.library.fletch_embed(self.handle, ctypes.byref(texts), *ends)
        else:
            flat = [bound for each in spans for span in each for bound in span]
            status = self.library.fletch_embed_spans(
                self.handle, ctypes.byref(texts), (ctypes.c_size_t * max(1, len(flat)))(*flat),
                (ctypes.c_size_t * len(spans))(*map(len, spans)), *ends)
        return result if status == 0 else status

    def spans(self, documents, spans, **fields):
        return self.call(documents, sum(map(len, spans)), options(**fields), spans)


@pytest.fixture
def model(request):
    opened = Model(golden.HERE / "folders" / getattr(request, "param", "family-distilbert"))
    yield opened
    opened.close()


def test_eight_families():
    assert len({case["folder"] for case in EXPECTED["cases"]}) >= 8


@pytest.mark.parametrize("model", sorted({case["folder"] for case in EXPECTED["cases"]}), indirect=True)
def test_published_pooling(model, request):
    folder = request.node.callspec.params["model"]
    for case in EXPECTED["cases"]:
        if case["folder"] == folder:
            rows = model.spans([TEXT], [EXPECTED["spans"]], normalize=1, max_length=case["window"],
                               overlap=case["overlap"])
            assert isinstance(rows, numpy.ndarray), model.error.message
            assert golden.difference(rows, numpy.array(case["vectors"], numpy.float32)) <= 1e-5, case["window"]


@pytest.mark.parametrize("model", sorted({case["folder"] for case in EXPECTED["cases"]}), indirect=True)
def test_one_span_over_all_is_the_plain_vector(model):
    texts = [TEXT, b"short", TEXT, b"another text, of middle length"]
    plain = model.call(texts, len(texts), options())
    assert model.spans(texts, [[(0, len(text))] for text in texts]).tobytes() == plain.tobytes()


def test_a_span_does_not_depend_on_company(model):
    spans = [tuple(span) for span in EXPECTED["spans"]]
    for window, overlap in ((0, 0), (12, 3), (7, -1)):
        fields = {"max_length": window, "overlap": overlap}
        alone = numpy.concatenate([model.spans([TEXT], [[span]], **fields) for span in spans])
        together = model.spans([TEXT, b"another", TEXT], [spans[::-1], [(0, 7)], spans], **fields)
        assert together[len(spans) + 1:].tobytes() == alone.tobytes()
        assert together[:len(spans)][::-1].tobytes() == alone.tobytes()


def test_a_prompt_is_seen_and_not_pooled(model):
    spans = [[(0, 10), (0, len(TEXT))]]
    plain, behind = model.spans([TEXT], spans), model.spans([TEXT], spans, prompt=b"query: ")
    assert not numpy.allclose(plain, behind, atol=1e-4)
    longer = model.spans([b"query: " + TEXT], [[(7, 17), (7, 7 + len(TEXT))]])
    assert longer.tobytes() == behind.tobytes()


BAD = [([b"hello world"], [[(5, 2)]], "runs backwards"),
       ([b"hello world"], [[(0, 12)]], "after the end of the document"),
       (["caf\u00e9 au lait".encode()], [[(0, 4)]], "splits a character"),
       ([b"hello world"], [[(3, 3)]], "is empty"),
       ([b"hello world"], [[(5, 6)]], "contains no token"),
       ([b""], [[(0, 0)]], "is empty; omit it"),
       ([b"hello world"], [[]], "has no spans")]


@pytest.mark.parametrize("documents, spans, words", BAD, ids=[case[2] for case in BAD])
def test_bad_spans_are_named(model, documents, spans, words):
    status = model.spans([b"first", *documents], [[(0, 5)], *spans])
    assert isinstance(status, int) and status == EINVAL
    assert words in model.error.message.decode() and model.error.where == 1


def test_bad_documents_and_settings(model):
    assert isinstance(model.spans([b"hello"], [[(0, 5)]]), numpy.ndarray)
    assert model.spans([b"a \xff b"], [[(0, 1)]]) == EUTF8
    assert model.spans([TEXT], [[(0, 9)]], max_length=8, overlap=8) == EINVAL
    assert b"overlap" in model.error.message
    status = (ctypes.c_int32 * 1)()
    assert model.spans([TEXT], [[(0, 9)]], status=ctypes.addressof(status)) == EINVAL


@pytest.mark.parametrize("model", ["family-static"], indirect=True)
def test_models_that_cannot_are_refused(model):
    assert model.spans([b"hello world"], [[(0, 5)]]) == EUNSUPPORTED
    assert b"static" in model.error.message
