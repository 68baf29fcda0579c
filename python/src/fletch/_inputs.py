# SPDX-License-Identifier: Apache-2.0
"""What a caller may pass as texts, brought to one form: a _fletch.Texts, which copies nothing it need not."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _fletch


def make_texts(texts: Any, nulls: bool = False) -> _fletch.Texts:
    """A str, a list, tuple or other sequence of str, a numpy array or pandas column of them, or an Arrow column.

    `nulls`: rows without a text (None, Arrow null) are taken and marked, else they are refused by their index."""
    if isinstance(texts, (str, list, tuple)):
        return _fletch.make_texts(texts, nulls, False)
    if isinstance(texts, np.ndarray):
        return _fletch.make_texts(_from_numpy(texts), nulls, False)
    kind = type(texts)
    if kind.__module__.partition(".")[0] == "pandas" and hasattr(texts, "to_numpy"):
        return _fletch.make_texts(_from_pandas(texts, nulls), nulls, False)
    if hasattr(texts, "__arrow_c_stream__"):  # chunked columns have both; their chunks need no joining
        return _fletch.make_texts(texts.__arrow_c_stream__(), nulls, True)
    if hasattr(texts, "__arrow_c_array__"):
        return _fletch.make_texts(texts.__arrow_c_array__(), nulls, True)
    if isinstance(texts, Sequence) and not isinstance(texts, (bytes, bytearray, memoryview)):
        return _fletch.make_texts(tuple(texts), nulls, False)
    hint = "; embed_iter takes iterators, list(…) makes a list" if hasattr(texts, "__next__") else ""
    raise TypeError(f"texts must be a str, a sequence of str, or a column of them, not {kind.__name__}{hint}")


def _from_numpy(array: np.ndarray[Any, Any]) -> list[Any]:
    if array.ndim > 1:
        raise ValueError(f"texts must be one column, not an array of shape {array.shape}")
    if array.dtype.kind not in "UOT":
        raise TypeError(f"texts must be str, not an array of {array.dtype}")
    return array.reshape(-1).tolist()


def _from_pandas(column: Any, nulls: bool) -> list[Any]:
    if column.ndim != 1:
        raise TypeError("texts must be one column, not a table: pass frame['name']")
    missing = np.asarray(column.isna())
    values: list[Any] = column.tolist()
    if missing.any():  # NaN, NaT and pandas.NA are the same nothing
        if not nulls:  # in the words for an Arrow column's
            raise ValueError(f"text {missing.argmax()} is null; fill the nulls, drop them, or ask for on_error='null'")
        values = [None if gone else value for value, gone in zip(values, missing)]
    return values


def positive(number: Any, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(number).__name__}")
    if not 0 < number < 2**31:
        raise ValueError(f"{name} must be positive, not {number}")
    return int(number)
