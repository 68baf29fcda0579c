# SPDX-License-Identifier: Apache-2.0
"""Documents with spans as the library wants them (bytes, one document's behind the other's), and rows back apart."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidArgument

Spans: TypeAlias = Iterable[tuple[int, int]] | NDArray[np.integer[Any]]


def listed(documents: Any) -> list[str]:
    """A document, or several, as a list."""
    if isinstance(documents, str):
        return [documents]
    found = list(documents)
    for index, text in enumerate(found):
        if not isinstance(text, str):
            raise TypeError(f"document {index} is {type(text).__name__}, not a str")
    return found


def _pairs(index: int, text: str, spans: Any) -> NDArray[np.int64]:
    """The spans of a document, checked: code points [begin, end)."""
    try:
        pairs = np.array(list(spans))
    except (TypeError, ValueError):  # no iterable, or of lists of several lengths
        pairs = np.empty((1, 0))
    if pairs.shape != (0,) and (pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu"):
        raise TypeError(f"the spans of document {index} must be pairs of int, (begin, end)")
    if pairs.size == 0:
        raise _blame(index, f"document {index} has no spans; omit it")
    begins, ends = pairs[:, 0], pairs[:, 1]
    for wrong, words in ((begins < 0, "begins before the start of the document"), (begins > ends, "runs backwards"),
                         (ends > len(text), "ends after the end of the document"),
                         (begins == ends, "is empty; omit it")):
        if wrong.any():
            at = int(wrong.argmax())
            raise _blame(index, f"span {at} of document {index}, [{begins[at]}, {ends[at]}) of {len(text)}, {words}")
    return pairs.astype(np.int64)


def _blame(index: int, message: str) -> InvalidArgument:
    error = InvalidArgument(message)
    error.where = index
    return error


def _in_bytes(text: str, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    if text.isascii():
        return pairs
    raw = np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)  # whoever makes Texts of it refuses these
    begins = np.append(np.flatnonzero((raw & 0xC0) != 0x80), raw.size)  # of each code point, and the end
    return begins[pairs]


class FlatSpans:
    """Documents and the spans of all of them, as Handle.submit takes them."""

    def __init__(self, documents: Any, spans: Any) -> None:
        self.single = isinstance(documents, str)
        texts = listed(documents)
        lists = [spans] if self.single else list(spans)
        if len(lists) != len(texts):
            raise ValueError(f"there are {len(texts)} documents, but {len(lists)} lists of spans")
        self.documents = texts
        found = [_in_bytes(text, _pairs(i, text, own)) for i, (text, own) in enumerate(zip(texts, lists))]
        self.sizes = [len(pairs) for pairs in found]
        self.rows = sum(self.sizes)
        self.places = b"".join(pairs.astype(np.uintp).tobytes() for pairs in found)
        self.counts = np.array(self.sizes, np.uintp).tobytes()

    def apart(self, rows: NDArray[Any]) -> Any:
        return rows if self.single else apart(rows, self.sizes)


def apart(rows: NDArray[Any], sizes: Sequence[int]) -> list[NDArray[Any]]:
    """Rows of several documents, which follow each other, one array a document."""
    return np.split(rows, np.cumsum(sizes)[:-1]) if sizes else []
