# SPDX-License-Identifier: Apache-2.0
"""A column of documents as rows for their chunks, and why a document has none: jobs with chunks (docs/job.md).

The bytes, and what is refused, are those of `fletch run --chunk`: a document is refused as a whole."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _fletch, errors
from ._columns import REFUSABLE
from ._model import Chunk, ChunkBy, Model, _flat_chunks
from ._spans import apart

_MOST = 4096  # chunks of a call, but for those of its last document
_NO_TOKEN = ("a chunk contains no complete token of its document; a larger chunk_size "
             "helps")


@dataclass(frozen=True)
class Cut:
    """How documents are cut, and whether a chunk's vector is pooled from the pass over its document."""

    by: ChunkBy
    size: int | None
    overlap: int
    late: bool

    def options(self) -> dict[str, str]:
        """What job.json says of it: what was asked for, as `fletch run` has it."""
        told = {"chunk": self.by, "chunk_size": self.size or "", "chunk_overlap": self.overlap or "",
                "late_chunking": "true" if self.late else ""}
        return {name: str(value) for name, value in told.items() if value != ""}

    def check(self, model: Model, arguments: dict[str, Any]) -> None:
        """Raises what no document could mend."""
        model.chunk("", by=self.by, size=self.size, overlap=self.overlap)
        if self.late:
            model.embed_spans([], [], **self.arguments(arguments))

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Those of the call that embeds: late chunking cuts no text."""
        return {name: value for name, value in given.items() if not (self.late and name == "truncate")}


@dataclass
class Document:
    """One text of the column and its rows; none where it is refused, empty or white space alone."""

    index: int
    text: str
    chunks: list[Chunk]
    numbers: list[int]  # of the chunks, those without a token counted
    why: str | None = None
    vectors: Any = None
    truncated: Any = None
    read: int = 0  # tokens that the model read

    def refuse(self, why: str) -> None:
        self.why, self.chunks, self.numbers = why, [], []

    def take(self, vectors: Any, truncated: Any, read: int) -> None:
        self.vectors, self.truncated, self.read = vectors, truncated, read


def _text(column: Any, index: int) -> str | int:
    """The text at this place, or what is wrong with it."""
    try:
        text: str | None = column[index].as_py()
    except UnicodeDecodeError:
        return _fletch.codes["EUTF8"]
    return _fletch.codes["EINVAL"] if text is None else text


def _documents(model: Model, column: Any, cut: Cut) -> Iterator[Document]:
    for index in range(len(column)):
        text = _text(column, index)
        if isinstance(text, int):
            yield Document(index, "", [], [], REFUSABLE[text])
            continue
        found = [(number, chunk) for number, chunk in enumerate(model.chunk(text, by=cut.by, size=cut.size, overlap=cut.overlap))
                 if chunk.tokens > 0]
        yield Document(index, text, [chunk for _, chunk in found], [number for number, _ in found])


def _embed_plain(model: Model, documents: list[Document], arguments: dict[str, Any]) -> None:
    found = model.embed([chunk.text for one in documents for chunk in one.chunks], info=True, on_error="null", **arguments)
    at = 0
    for one in documents:
        mine = slice(at, at + len(one.chunks))
        at, status = mine.stop, found.status[mine]
        if status.any():
            code = int(status[status != 0][0])
            if code not in REFUSABLE:
                raise errors.Error(f"a chunk could not be embedded: status {code}")
            one.refuse(REFUSABLE[code])
        else:
            one.take(found.vectors[mine], found.truncated[mine], int(found.tokens[mine].sum()))


def _embed_late(model: Model, documents: list[Document], arguments: dict[str, Any]) -> None:
    """Documents together; where one is to blame, those before it first."""
    first, most = 0, len(documents)
    while first < len(documents):
        some = documents[first:first + most]
        try:
            found = model._late_rows(_flat_chunks([one.text for one in some], [one.chunks for one in some]), arguments)
        except errors.Error as error:
            code = _fletch.codes[error.code]
            if error.where is None or code not in REFUSABLE:
                raise
            most = error.where
            if most == 0:
                some[0].refuse(_NO_TOKEN if error.code == "EINVAL" else REFUSABLE[code])
                first, most = first + 1, len(documents)
            continue
        for one, rows, read in zip(some, apart(found.vectors, [len(one.chunks) for one in some]), found.tokens):
            one.take(rows, np.zeros(len(rows), np.bool_), int(read))
        first, most = first + len(some), len(documents)


def embed_column(model: Model, column: Any, cut: Cut, arguments: dict[str, Any]) -> Iterator[list[Document]]:
    """The documents of the column, all of them, some at a time, with their rows."""
    def embed(some: list[Document]) -> list[Document]:
        whole = [one for one in some if one.chunks]
        if whole:
            (_embed_late if cut.late else _embed_plain)(model, whole, arguments)
        return some

    group: list[Document] = []
    count = 0
    for document in _documents(model, column, cut):
        group.append(document)
        count += len(document.chunks)
        if count >= _MOST:
            yield embed(group)
            group, count = [], 0
    if group:
        yield embed(group)
