# SPDX-License-Identifier: Apache-2.0
"""Columns in and out: numpy, pandas, polars, pyarrow, and hand-made capsules.

Must never break: every layout gives the bytes of a list; text bytes are not copied where they lie in one piece; a null
is refused by its row, or is a null row; a capsule is used once; memory is released once."""
import gc

import numpy as np
import pytest
from conftest import TEXTS

import fletch

pa = pytest.importorskip("pyarrow")


def columns():
    half = len(TEXTS) // 2
    yield "u", pa.array(TEXTS, pa.string())
    yield "U", pa.array(TEXTS, pa.large_string())
    yield "vu", pa.array(TEXTS, pa.string_view())
    yield "dictionary", pa.array(TEXTS, pa.string()).dictionary_encode()
    for index in (pa.int8(), pa.uint16(), pa.int64(), pa.uint64()):
        values = pa.array(TEXTS[::-1], pa.large_string())
        yield f"dictionary of {index}", pa.DictionaryArray.from_arrays(
            pa.array(range(len(TEXTS) - 1, -1, -1), index), values)
    yield "dictionary of views", pa.DictionaryArray.from_arrays(pa.array(range(len(TEXTS)), pa.int32()),
                                                                pa.array(TEXTS, pa.string_view()))
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        yield f"sliced {kind}", pa.array(["before"] + TEXTS + ["after"], kind).slice(1, len(TEXTS))
    yield "sliced dictionary", pa.array(["before"] + TEXTS).dictionary_encode().slice(1)
    yield "chunked", pa.chunked_array([TEXTS[:half], [], TEXTS[half:]])
    yield "chunked dictionary", pa.chunked_array([pa.array(TEXTS[:half]).dictionary_encode(),
                                                  pa.array(TEXTS[half:]).dictionary_encode()])
    yield "numpy U", np.array(TEXTS)
    yield "numpy object", np.array(TEXTS, object)
    if hasattr(np.dtypes, "StringDType"):
        yield "numpy StringDType", np.array(TEXTS, np.dtypes.StringDType())
    yield "tuple", tuple(TEXTS)
    try:
        import polars
        yield "polars", polars.Series(TEXTS)
        yield "polars categorical", polars.Series(TEXTS, dtype=polars.Categorical)
        yield "polars sliced", polars.Series(["before"] + TEXTS)[1:]
    except ImportError:
        pass
    try:
        import pandas
        yield "pandas", pandas.Series(TEXTS)
        yield "pandas object", pandas.Series(TEXTS, dtype=object)
        yield "pandas arrow", pandas.Series(TEXTS, dtype=pandas.ArrowDtype(pa.string()))
        yield "pandas index", pandas.Index(TEXTS)
        yield "pandas categorical", pandas.Series(TEXTS).astype("category")
    except ImportError:
        pass


@pytest.mark.parametrize("name, column", list(columns()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_layout_gives_the_same_bytes(model, vectors, name, column):
    if name == "numpy U":  # numpy itself drops what ends in NUL; ours does not, and inside it stays
        assert column.tolist() == TEXTS
    assert (model.embed(column) == vectors).all()
    assert (np.array(pa.array(model.embed_arrow(column)).flatten()).reshape(len(TEXTS), -1) == vectors).all()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_empty_columns(model, kind):
    assert model.embed(pa.array([], kind)).shape == (0, 384)
    assert model.embed(pa.chunked_array([], kind)).shape == (0, 384)
    assert len(model.embed_arrow(pa.array([], kind))) == 0
    assert model.embed(pa.array(["", ""], kind)).shape == (2, 384)


@pytest.mark.parametrize("column", [
    pa.array(["a", None, "b"]), pa.array(["a", None, "b"], pa.large_string()), pa.array(["a", None, "b"], pa.string_view()),
    pa.array(["a", None, "b"]).dictionary_encode(), pa.chunked_array([["a"], [None, "b"]]),
    pa.array(["x", "a", None, "b"]).slice(1),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(["a", None, "b"]))])
def test_nulls(model, column):
    with pytest.raises(ValueError, match="text 1 is null"):
        model.embed(column)
    rows = pa.array(model.embed_arrow(column))
    assert rows.null_count == 1 and rows[1].as_py() is None
    assert rows[0].as_py() == model.embed("a").tolist() and rows[2].as_py() == model.embed("b").tolist()
    found = model.embed(column, on_error="null", info=True)
    assert np.isnan(found.vectors[1]).all() and list(found.status != 0) == [False, True, False]


@pytest.mark.parametrize("column, words", [
    (pa.array([1, 2]), "not text"), (pa.array([b"a"]), "not text"), (pa.array([["a"]]), "not text"),
    (pa.table({"a": ["x"]}), "one column"), (pa.record_batch({"a": ["x"]}), "one column"),
    (pa.array([1, 2]).dictionary_encode(), "not text"), (pa.array([None, None]), "not text")])
def test_columns_that_are_not_text(model, column, words):
    with pytest.raises(TypeError, match=words):
        model.embed(column)


def test_text_bytes_are_not_copied(model):
    """The library counts texts that it tokenised where they lie, and whose ids it did not gather: those of one chunk."""
    plain, umlauts = [f"plain ascii {i}" for i in range(60)], [f"grüße {i}" for i in range(60)]  # equal ones are one text
    for texts in (plain, pa.array(plain), pa.array(umlauts, pa.string_view())):
        before = model.stats()
        model.embed(texts)
        after = model.stats()
        counts = [{**stats, **stats.get("counters", {})} for stats in (before, after)]
        assert counts[1]["zero_copy_inputs"] - counts[0]["zero_copy_inputs"] == 60
        assert counts[1]["copied_inputs"] == counts[0]["copied_inputs"]


def test_capsules_are_used_once(model, vectors):
    class Once:
        def __init__(self, array):
            self.pair = array.__arrow_c_array__()

        def __arrow_c_array__(self, schema=None):
            return self.pair
    once = Once(pa.array(TEXTS))
    assert (model.embed(once) == vectors).all()
    with pytest.raises(ValueError, match="consumed"):
        model.embed(once)

    class Stream:
        def __init__(self, column):
            self.capsule = column.__arrow_c_stream__()

        def __arrow_c_stream__(self, schema=None):
            return self.capsule
    stream = Stream(pa.chunked_array([TEXTS]))
    assert (model.embed(stream) == vectors).all()
    with pytest.raises((ValueError, TypeError)):
        model.embed(stream)


@pytest.mark.parametrize("pair", [None, (), (1, 2), "ab", (None, None, None)])
def test_capsules_that_are_none(model, pair):
    class Liar:
        def __arrow_c_array__(self, schema=None):
            return pair

    class Streamer:
        def __arrow_c_stream__(self, schema=None):
            return pair
    for liar in (Liar(), Streamer()):
        with pytest.raises((TypeError, ValueError)):
            model.embed(liar)


def test_a_stream_that_fails_says_why(model):
    def batches():
        yield pa.record_batch({"a": ["x"]})
        raise RuntimeError("the source broke")

    class Column:
        def __arrow_c_stream__(self, schema=None):
            reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.string())]), batches())
            return reader.__arrow_c_stream__()
    with pytest.raises(ValueError, match="the source broke"):
        model.embed(Column())


@pytest.mark.parametrize("dtype, item", [("float32", pa.float32()), ("int8", pa.int8()), ("uint8", pa.uint8()),
                                         ("binary", pa.int8()), ("ubinary", pa.uint8())])
def test_rows_leave_as_fixed_size_lists(model, dtype, item):
    rows = model.embed_arrow(TEXTS, dtype=dtype, dimensions=64)
    array = pa.array(rows)
    array.validate(full=True)
    expected = model.embed(TEXTS, dtype=dtype, dimensions=64)
    assert array.type == pa.list_(pa.field("item", item), expected.shape[1])
    assert (array.flatten().to_numpy() == expected.reshape(-1)).all()
    assert array.flatten().to_numpy().__array_interface__["data"][0] == \
        rows.to_numpy().__array_interface__["data"][0], "the same memory"
    assert pa.field("v", pa.list_(item, 1)) is not None and len(rows) == len(TEXTS)


def test_rows_outlive_what_they_came_from(model):
    arrays = []
    for _ in range(10):
        arrays.append(pa.array(model.embed_arrow(pa.array(["a", None]))))
    gc.collect()
    assert all(array[0].as_py() == arrays[0][0].as_py() for array in arrays)
    for _ in range(10):
        model.embed_arrow(["a"]).__arrow_c_array__()  # capsules that nobody takes free themselves
        model.embed_arrow(["a"]).__arrow_c_schema__()


def test_polars_takes_rows(model):
    polars = pytest.importorskip("polars")
    series = polars.Series("v", model.embed_arrow(polars.Series(["a", None, "b"])))
    assert series.dtype == polars.Array(polars.Float32, 384) and series.null_count() == 1
    assert np.allclose(series[0].to_numpy(), model.embed("a"))


def test_errors_in_columns_carry_the_row(model):
    bad = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xff\xfe")])
    with pytest.raises(fletch.TextError) as caught:
        model.embed(bad)
    assert caught.value.where == 1


def test_a_missing_text_is_said_alike_of_every_column(model):
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    columns = [polars.Series(["a", None]), pandas.Series(["a", None]), pandas.Series(["a", float("nan")], dtype=object),
               pandas.Series(["a", None], dtype="string"), pandas.Index(["a", None])]
    said = set()
    for column in columns:
        with pytest.raises(ValueError, match="text 1 is null") as told:
            model.embed(column)
        said.add(str(told.value))
        assert model.embed_arrow(column).null_count == 1
    assert len(said) == 1


def test_float16_columns(model):
    pa = pytest.importorskip("pyarrow")
    column = pa.array(model.embed_arrow(pa.array(["a", None, "b"]), dtype="float16"))
    assert column.type == pa.list_(pa.float16(), model.dimensions) and column.null_count == 1
    assert (np.array(column[2].as_py(), np.float16) == model.embed("b").astype(np.float16)).all()
