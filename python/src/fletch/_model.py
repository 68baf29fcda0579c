# SPDX-License-Identifier: Apache-2.0
"""Model: an open model, for any number of threads, loops and forked processes."""
from __future__ import annotations

import atexit
import json
import logging
import math
import os
import select
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _canary, _fletch, _hub, _similarity
from ._arrow import ArrowRows
from ._canary import Verdict
from ._heads import Heads
from ._inputs import make_texts, positive
from ._progress import Progress, rows_heard
from ._spans import FlatSpans, Spans, apart, listed
from .errors import DeadlineExceeded, Error, ForkError, InvalidArgument, TextError, TruncationWarning, move

log = logging.getLogger("fletch")
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

Dtype: TypeAlias = Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
Truncate: TypeAlias = Literal["warn", "right", "left", "error"]
ChunkBy: TypeAlias = Literal["sentences", "tokens", "paragraphs", "markdown"]
OnError: TypeAlias = Literal["raise", "null"]
Rows: TypeAlias = NDArray[Any]

_DTYPES: dict[str, tuple[int, Any, int]] = {  # name: the library's number, numpy's type, dimensions in an item
    "float32": (0, np.dtype(np.float32), 1), "float16": (0, np.dtype(np.float32), 1), "int8": (1, np.dtype(np.int8), 1), "uint8": (2, np.dtype(np.uint8), 1),
    "binary": (3, np.dtype(np.int8), 8), "ubinary": (4, np.dtype(np.uint8), 8)}
_TRUNCATE = {"warn": 0, "right": 1, "left": 2, "error": 3}
_CHUNK_BY = {"sentences": 0, "tokens": 1, "paragraphs": 2, "markdown": 3}
_LANES = {"interactive": 0, "bulk": 1}
DtypeLike: TypeAlias = Dtype | type[np.generic] | np.dtype[Any]


class Tokens(NamedTuple):
    """The tokens of one text. Offsets count bytes of its UTF-8; tokens that the model adds have 0, 0."""

    ids: NDArray[np.int32]
    tokens: list[str]
    offsets: NDArray[np.uint32]
    special: NDArray[np.bool_]
    truncated: bool


class Chunk(NamedTuple):
    """A piece of a document: document[start:end] is its text."""

    text: str
    start: int
    end: int
    byte_start: int  #: the same place in bytes of the document's UTF-8
    byte_end: int
    tokens: int  #: of the text alone, special tokens not counted


class ChunkVectors(NamedTuple):
    """What embed_chunks gives of a document: its chunks, and a row for each."""

    chunks: list[Chunk]
    vectors: Rows


@dataclass(frozen=True)
class Embeddings:
    """What embed(…, info=True) gives: the rows, and what became of each text."""

    vectors: Rows
    tokens: NDArray[np.uint32]  #: used per text, special tokens counted
    truncated: NDArray[np.bool_]  #: the text was cut
    status: NDArray[np.int32]  #: 0, or why the text has no row (on_error="null")


class _Call:
    """One embedding: the texts, where rows and facts go, and the arguments as the library wants them."""

    __slots__ = ("texts", "rows", "truncated", "tokens", "status", "arguments", "warn", "single", "half")

    def __init__(self, model: Model, texts: Any, prompt: str | None, prompt_name: str | None, dimensions: int | None,
                 dtype: Any, normalize: bool | None, max_length: int | None, truncate: str | None, out: Any,
                 info: bool, on_error: str, rows: int | None = None) -> None:
        self.single = isinstance(texts, str)
        self.texts = make_texts(texts, on_error == "null")
        count = len(self.texts)
        name = "float32" if dtype == "float32" else _name_of(dtype)
        number, kind, packed = _DTYPES[name]
        self.half = name == "float16"  # of float32 rows, when they are done
        columns = model.dimensions if dimensions is None else positive(dimensions, "dimensions")
        shape = count if rows is None else rows, -(-columns // packed)
        if self.half and out is not None:
            _check_half(out, shape, self.single)
        self.rows = np.empty(shape, kind) if out is None or self.half else out
        self.warn = truncate is None or truncate == "warn"
        if on_error != "raise" and on_error != "null":
            raise ValueError(f'on_error must be "raise" or "null", not {on_error!r}')
        try:
            cut = 0 if truncate is None else _TRUNCATE[truncate]
        except (KeyError, TypeError):
            raise ValueError(f"truncate must be one of {', '.join(_TRUNCATE)}, not {truncate!r}") from None
        self.truncated = bytearray(count) if self.warn or info else None
        self.tokens = np.zeros(count, np.uint32) if info else None
        self.status = np.zeros(count, np.int32) if info or on_error == "null" else None
        self.arguments = (self.texts, self.rows, number, columns, _text(prompt, "prompt"),
                          _text(prompt_name, "prompt_name"), 0 if dimensions is None else columns,
                          0 if max_length is None else positive(max_length, "max_length"),
                          0 if normalize is None else 1 if normalize else -1, cut, self.tokens, self.truncated,
                          self.status if on_error == "null" else None)

    def finish(self, info: bool, out: Any, depth: int) -> Any:
        if self.status is not None and self.arguments[-1] is not None:
            self._blank_failed()
        if self.half:
            with np.errstate(over="ignore"):  # what is too large becomes infinite
                self.rows = self.rows.astype(np.float16)
            if out is not None:
                np.copyto(np.asarray(out), self.rows.reshape(np.asarray(out).shape))
        rows = self.rows
        if self.warn and self.truncated is not None and 1 in self.truncated:
            count, first = self.truncated.count(1), self.truncated.find(1)
            warnings.warn(f"{count} of {len(self.truncated)} texts were truncated to the model's length, the first at index "
                          f"{first}; truncate='right' silences this warning, 'error' makes it an error",
                          TruncationWarning, depth)
        if out is not None:
            rows = out
        elif self.single:
            rows = rows[0]
        if not info:
            return rows
        assert self.tokens is not None and self.status is not None and self.truncated is not None
        return Embeddings(rows, self.tokens, np.frombuffer(self.truncated, np.bool_), self.status)

    def _blank_failed(self) -> None:
        """Rows without a vector are NaN, or 0 where a type has none; null texts have the status EINVAL."""
        assert self.status is not None
        nulls = self.texts.nulls
        if nulls is not None:
            self.status[np.frombuffer(nulls, np.bool_)] = _fletch.codes["EINVAL"]
        bad = self.status != 0
        if bad.any():
            rows = np.asarray(self.rows)
            rows[bad] = np.nan if rows.dtype.kind == "f" else 0


def _name_of(dtype: Any) -> str:
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, not {dtype!r}")
    return name


def _check_half(out: Any, shape: tuple[int, int], single: bool) -> None:
    rows = np.asarray(out)
    if rows.dtype != np.float16 or not rows.flags.writeable:
        raise ValueError(f"out must be a writable array of float16, not of {rows.dtype}")
    if rows.shape != shape and not (single and rows.shape == shape[1:]):
        raise ValueError(f"out must have the shape {shape}")


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return value


def _option(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(_option(item) for item in value)
    return str(value)


def _say_log() -> None:
    """Hand what the library said meanwhile to logging."""
    for level, text in _fletch.take_log():
        log.log(_LEVELS[min(level, 3)], "%s", text)


def _flat_chunks(texts: list[str], found: list[list[Chunk]]) -> FlatSpans:
    """Of the documents that have chunks; the library takes no others."""
    own = [(text, [(chunk.start, chunk.end) for chunk in chunks]) for text, chunks in zip(texts, found) if chunks]
    return FlatSpans([text for text, _ in own], [spans for _, spans in own])


def _chunk_vectors(documents: Any, found: list[list[Chunk]], rows: Rows) -> Any:
    each = [ChunkVectors(chunks, own) for chunks, own in zip(found, apart(rows, [len(chunks) for chunks in found]))]
    return each[0] if isinstance(documents, str) else each


_open_models: weakref.WeakSet[Model] = weakref.WeakSet()
_open_lock = threading.Lock()


def _after_fork() -> None:
    global _open_lock
    _open_lock = threading.Lock()
    _fletch.fork_child()
    if "fletch._loop" in sys.modules:
        sys.modules["fletch._loop"].forget_channels()
    _shared.clear()


def _waiter(channel: _fletch.Channel) -> Callable[[], object]:
    """A call that waits until a request of the channel has ended, or for a moment."""
    if sys.platform == "win32":  # no poll, and nothing that Ctrl-C ends
        return lambda: select.select([channel.fileno()], [], [], 0.1)
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    return poll.poll


def _close_all() -> None:
    for model in list(_open_models):
        model.close()


class Model(Heads):
    """A model that turns texts into vectors. Any thread may use it; it may be pickled; a forked child opens its own.

    model: a folder, a Hugging Face id, "low", "medium" or "high"; None: the configuration's.
    preset, threads, precision, config: how to compute; config takes the keys of the option table ("batch.max_tokens").
    env: also read FLETCH_* variables. revision, cache_folder, local_files_only, token: as sentence-transformers has them.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, *, preset: str | None = None,
                 threads: int | None = None, precision: str | None = None, config: Mapping[str, object] | None = None,
                 env: bool = False, revision: str | None = None, cache_folder: str | os.PathLike[str] | None = None,
                 local_files_only: bool = False, token: str | bool | None = None) -> None:
        options: list[tuple[str, str]] = []
        if env:
            options.append(("env", ""))
        if preset is not None:
            options.append(("preset", preset))
        cache = cache_folder if cache_folder is not None else os.environ.get("SENTENCE_TRANSFORMERS_HOME")
        named = {"cpu.intra_op_threads": threads, "provider.precision": precision, "model.revision": revision,
                 "model.cache_dir": None if cache is None else os.fspath(cache),
                 "model.offline": True if local_files_only else None}
        options += [(key, _option(value)) for key, value in named.items() if value is not None]
        for key, value in (config or {}).items():
            if not isinstance(key, str):
                raise TypeError(f"a key of config must be a str, not {type(key).__name__}")
            if value is not None:
                options.append((key, _option(value)))
        name = None if model is None else os.fspath(model)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the model must be a str, not {type(name).__name__}")
        self._options = tuple(options)
        if name is not None:
            path = _hub.resolve(name, self._options, token)
            name = path if os.path.isdir(name) else name
        self._name = name
        self._open(name)

    def _open(self, name: str | None) -> None:
        try:
            self._handle = _fletch.open_model(name, self._options, False)
        finally:
            _say_log()
        facts = self._handle.describe()
        self._facts = {key: value for key, (value, _) in facts.items()}
        self._origins = {key: origin for key, (_, origin) in facts.items()}
        self._path = os.path.abspath(self._facts["path"])
        self._closed = False
        #: dimensions of a vector
        self.dimensions = self._handle.dimensions
        _open_models.add(self)

    # ---- a process and its children -----------------------------------------------------------------------------

    def _usable(self) -> _fletch.Handle:
        handle = self._handle
        if handle.usable:
            return handle
        with _open_lock:  # in a forked child, the first thread that comes by
            if not self._handle.usable:
                if self._facts["provider"] != "cpu":
                    raise ForkError(f"{self.id} runs on {self._facts['provider']}, which does not survive a fork: "
                                    "use multiprocessing's start method 'spawn', or open the model in each worker")
                if self._closed:
                    raise Error("the model is closed")
                self._open(self._path)
        return self._handle

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._path, self._options)

    def close(self) -> None:
        """Free the model. Calls under way end with their rows or with Cancelled. Closing twice is no harm."""
        self._closed = True
        self._handle.close()
        _open_models.discard(self)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.dimensions} dimensions, {self._facts['provider']}"
        return f"<fletch.Model {self.id}: {state}>"

    # ---- embedding ----------------------------------------------------------------------------------------------

    @overload
    def embed(self, texts: Any, *, prompt: str | None = None, prompt_name: str | None = None,
              dimensions: int | None = None, dtype: DtypeLike = "float32", normalize: bool | None = None,
              max_length: int | None = None, truncate: Truncate | None = None, out: None = None,
              info: Literal[False] = False, on_error: OnError = "raise", progress: Progress = None) -> Rows: ...
    @overload
    def embed(self, texts: Any, *, prompt: str | None = None, prompt_name: str | None = None,
              dimensions: int | None = None, dtype: DtypeLike = "float32", normalize: bool | None = None,
              max_length: int | None = None, truncate: Truncate | None = None, out: Any = None,
              info: Literal[True], on_error: OnError = "raise", progress: Progress = None) -> Embeddings: ...
    @overload
    def embed(self, texts: Any, *, prompt: str | None = None, prompt_name: str | None = None,
              dimensions: int | None = None, dtype: DtypeLike = "float32", normalize: bool | None = None,
              max_length: int | None = None, truncate: Truncate | None = None, out: Any,
              info: Literal[False] = False, on_error: OnError = "raise", progress: Progress = None) -> Any: ...

    def embed(self, texts: Any, *, prompt: str | None = None, prompt_name: str | None = None,
              dimensions: int | None = None, dtype: DtypeLike = "float32", normalize: bool | None = None,
              max_length: int | None = None, truncate: Truncate | None = None, out: Any = None, info: bool = False,
              on_error: OnError = "raise", progress: Progress = None) -> Any:
        """The vectors of texts: (n, d) for a sequence or column, (d,) for a str.

        texts: str, list, tuple, numpy or pandas column, or any Arrow column.
        prompt, prompt_name: put in front of every text. dimensions: cut to as many, of unit length again.
        dtype: float32; float16: the nearest; int8, uint8: round(127 x); binary, ubinary: a bit per dimension.
        truncate: "warn" (the default) cuts and warns, "right" and "left" cut in silence, "error" raises TooLong.
        out: a writable array (n, d), a memmap for instance. info: give an Embeddings with tokens, truncated, status.
        on_error: "raise", or "null": a text that cannot be embedded has NaN (0 for whole numbers) for a row.
        progress: True for a tqdm bar, or a function that hears of rows done.
        """
        call = _Call(self, texts, prompt, prompt_name, dimensions, dtype, normalize, max_length, truncate, out, info,
                     on_error)
        if progress is None or progress is False:
            self._usable().embed(*call.arguments)
        else:
            with rows_heard(progress, len(call.texts)) as update:
                self._usable().embed(*call.arguments, update)
        if _fletch.log_waits():
            _say_log()
        return call.finish(info, out, 3)

    def _role(self, names: tuple[str, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("prompt") is None and arguments.get("prompt_name") is None:
            prompts = self.prompts
            arguments["prompt_name"] = next((name for name in names if name in prompts), None)
        return arguments

    def embed_query(self, texts: Any, **arguments: Any) -> Any:
        """As embed, with the model's prompt for queries where it has one."""
        return self.embed(texts, **self._role(("query",), arguments))

    def embed_document(self, texts: Any, **arguments: Any) -> Any:
        """As embed, with the model's prompt for documents: the first of "document", "passage", "corpus"."""
        return self.embed(texts, **self._role(("document", "passage", "corpus"), arguments))

    def embed_arrow(self, texts: Any, *, prompt: str | None = None, prompt_name: str | None = None,
                    dimensions: int | None = None, dtype: DtypeLike = "float32", normalize: bool | None = None,
                    max_length: int | None = None, truncate: Truncate | None = None) -> ArrowRows:
        """As embed, as an Arrow column; a null text gives a null row."""
        call = _Call(self, texts, prompt, prompt_name, dimensions, dtype, normalize, max_length, truncate, None, False,
                     "null")
        call.arguments = (*call.arguments[:-1], None)  # what is wrong with a text that is there is an error
        self._usable().embed(*call.arguments)
        call.finish(False, None, 3)
        nulls = None if call.texts.nulls is None else np.frombuffer(call.texts.nulls, np.bool_)
        if nulls is not None:
            call.rows[nulls] = 0
        return ArrowRows(call.rows, nulls)

    def embed_iter(self, texts: Iterable[str], *, window: int = 4096, **arguments: Any) -> Iterator[Rows]:
        """The vectors of an iterable of any length, one by one, in flat memory: `window` texts are read ahead
        while the window before them is computed."""
        window = positive(window, "window")
        if isinstance(texts, (str, bytes)):
            raise TypeError("embed_iter takes an iterable of str; use embed for one text")
        return self._iterate(iter(texts), window, arguments)

    def _iterate(self, texts: Iterator[str], window: int, arguments: dict[str, Any]) -> Iterator[Rows]:
        channel = _fletch.make_channel()
        wait = _waiter(channel)
        flying: list[tuple[_fletch.Job, _Call]] = []
        done: dict[int, Exception | None] = {}
        first, given, process = 0, 0, os.getpid()
        try:
            while True:
                if os.getpid() != process:
                    raise ForkError("this iterator belongs to the parent process: call embed_iter again")
                chunk = list(islice(texts, window))
                if chunk:
                    call = self._prepare(chunk, first, arguments)
                    flying.append((self._usable().submit(channel, first, 1, 0, *call.arguments), call))
                    first += len(chunk)
                if len(flying) == 2 or (flying and not chunk):
                    job, call = flying[0]
                    while given not in done:
                        wait()
                        done.update(channel.take_done())
                    del flying[0]
                    error = done.pop(given)
                    if error is not None:
                        raise move(error, given)
                    given += len(call.texts)
                    yield from call.finish(False, None, 3)
                elif not chunk:
                    return
        finally:
            for job, _ in flying:
                job.cancel()

    def _prepare(self, texts: Any, first: int, arguments: dict[str, Any]) -> _Call:
        given = {"prompt": None, "prompt_name": None, "dimensions": None, "dtype": "float32", "normalize": None,
                 "max_length": None, "truncate": None}
        unknown = set(arguments) - set(given)
        if unknown:
            raise TypeError(f"embed_iter() got an unexpected argument {sorted(unknown)[0]!r}")
        try:
            return _Call(self, texts, **(given | arguments), out=None, info=False, on_error="raise")
        except (TextError, TypeError) as error:
            raise move(error, first) from None

    # ---- asyncio ------------------------------------------------------------------------------------------------

    async def aembed(self, texts: Any, *, prompt: str | None = None, prompt_name: str | None = None,
                     dimensions: int | None = None, dtype: DtypeLike = "float32", normalize: bool | None = None,
                     max_length: int | None = None, truncate: Truncate | None = None, out: Any = None,
                     info: bool = False, on_error: OnError = "raise",
                     lane: Literal["interactive", "bulk"] = "interactive", deadline: float | None = None) -> Any:
        """As embed, without holding up the loop or taking a thread. Cancelling the task takes the texts back.

        lane: who goes first where both wait. deadline: seconds from now; late texts raise DeadlineExceeded.
        """
        import asyncio  # here: half of what importing fletch would cost, and most programs need it not

        from . import _loop
        if deadline is not None and not deadline > 0:
            raise DeadlineExceeded("the deadline had passed before the texts were sent")
        if lane not in _LANES:
            raise ValueError(f"lane must be one of {', '.join(_LANES)}, not {lane!r}")
        call = _Call(self, texts, prompt, prompt_name, dimensions, dtype, normalize, max_length, truncate, out, info,
                     on_error)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        limit = 0 if deadline is None else min(max(1, math.ceil(deadline * 1000)), 2**32 - 1)
        job = self._usable().submit(_loop.channel_of(loop), future, _LANES[lane], limit, *call.arguments)
        _loop.await_done(loop, future)
        try:
            await future
        except asyncio.CancelledError:
            job.cancel()
            raise
        if _fletch.log_waits():
            _say_log()
        return call.finish(info, out, 3)

    async def aembed_query(self, texts: Any, **arguments: Any) -> Any:
        """As aembed, with the model's prompt for queries."""
        return await self.aembed(texts, **self._role(("query",), arguments))

    async def aembed_document(self, texts: Any, **arguments: Any) -> Any:
        """As aembed, with the model's prompt for documents."""
        return await self.aembed(texts, **self._role(("document", "passage", "corpus"), arguments))

    # ---- documents ----------------------------------------------------------------------------------------------

    @overload
    def embed_spans(self, documents: str, spans: Spans, *, prompt: str | None = ..., prompt_name: str | None = ...,
                    dimensions: int | None = ..., dtype: DtypeLike = ..., normalize: bool | None = ...,
                    max_length: int | None = ..., window_overlap: int | None = ...) -> Rows: ...
    @overload
    def embed_spans(self, documents: Iterable[str], spans: Iterable[Spans], *, prompt: str | None = ...,
                    prompt_name: str | None = ..., dimensions: int | None = ..., dtype: DtypeLike = ...,
                    normalize: bool | None = ..., max_length: int | None = ...,
                    window_overlap: int | None = ...) -> list[Rows]: ...

    def embed_spans(self, documents: Any, spans: Any, **arguments: Any) -> Any:
        """Late chunking: each document passes the model once, as a whole, and a row is the mean of a span's tokens.

        spans: (begin, end) in code points, so that document[begin:end] is meant; of several documents a list for each. They
        may overlap and stand in any order. prompt, prompt_name: in the pass, and in no span. What is longer than max_length,
        or the model's, goes in windows of that many tokens, which have window_overlap in common (None: 256, or half a window
        where that is less). The rest is as in embed. (n, d) for a str, else a list of such arrays, one a document.
        """
        flat = FlatSpans(documents, spans)
        return flat.apart(self._span_rows(flat, arguments))

    async def aembed_spans(self, documents: Any, spans: Any, **arguments: Any) -> Any:
        """As embed_spans, without holding up the loop. Cancelling the task takes the documents back."""
        flat = FlatSpans(documents, spans)
        return flat.apart(await self._aspan_rows(flat, arguments))

    def _span_call(self, flat: FlatSpans, *, prompt: str | None = None, prompt_name: str | None = None,
                   dimensions: int | None = None, dtype: Any = "float32", normalize: bool | None = None,
                   max_length: int | None = None, window_overlap: int | None = None,
                   info: bool = False) -> tuple[_Call, tuple[Any, ...]]:
        call = _Call(self, flat.documents, prompt, prompt_name, dimensions, dtype, normalize, max_length, "right", None,
                     info, "raise", flat.rows)
        none = not isinstance(window_overlap, bool) and window_overlap == 0
        overlap = 0 if window_overlap is None else -1 if none else positive(window_overlap, "window_overlap")
        return call, (*call.arguments, flat.places, flat.counts, overlap)

    def _span_rows(self, flat: FlatSpans, arguments: dict[str, Any]) -> Rows:
        rows: Rows = self._wait_spans(flat, arguments, False)
        return rows

    def _late_rows(self, flat: FlatSpans, arguments: dict[str, Any]) -> Embeddings:
        """The rows of all spans, and of each document the tokens."""
        found: Embeddings = self._wait_spans(flat, arguments, True)
        return found

    def _wait_spans(self, flat: FlatSpans, arguments: dict[str, Any], info: bool) -> Any:
        call, rest = self._span_call(flat, **arguments, info=info)
        channel = _fletch.make_channel()
        wait = _waiter(channel)
        job = self._usable().submit(channel, None, 0, 0, *rest)
        try:
            while not (done := channel.take_done()):
                wait()
        except BaseException:
            job.cancel()
            raise
        if done[0][1] is not None:
            raise done[0][1]
        return self._finish_spans(call, info)

    async def _aspan_rows(self, flat: FlatSpans, arguments: dict[str, Any]) -> Rows:
        import asyncio

        from . import _loop
        call, rest = self._span_call(flat, **arguments)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        # a thread: documents are tokenised before submit returns
        sent = loop.run_in_executor(None, self._usable().submit, _loop.channel_of(loop), future, 0, 0, *rest)
        try:
            await asyncio.shield(sent)
            _loop.await_done(loop, future)
            await future
        except asyncio.CancelledError:
            sent.add_done_callback(lambda sent: sent.cancelled() or sent.exception() or sent.result().cancel())
            raise
        rows: Rows = self._finish_spans(call)
        return rows

    @staticmethod
    def _finish_spans(call: _Call, info: bool = False) -> Any:
        if _fletch.log_waits():
            _say_log()
        return call.finish(info, None, 3)

    @overload
    def embed_chunks(self, documents: str, *, by: ChunkBy = ..., size: int | None = ..., overlap: int = ...,
                     late: bool = ..., prompt: str | None = ..., prompt_name: str | None = ..., dimensions: int | None = ...,
                     dtype: DtypeLike = ..., normalize: bool | None = ..., max_length: int | None = ...,
                     window_overlap: int | None = ...) -> ChunkVectors: ...
    @overload
    def embed_chunks(self, documents: Iterable[str], *, by: ChunkBy = ..., size: int | None = ..., overlap: int = ...,
                     late: bool = ..., prompt: str | None = ..., prompt_name: str | None = ..., dimensions: int | None = ...,
                     dtype: DtypeLike = ..., normalize: bool | None = ..., max_length: int | None = ...,
                     window_overlap: int | None = ...) -> list[ChunkVectors]: ...

    def embed_chunks(self, documents: Any, *, by: ChunkBy = "sentences", size: int | None = None, overlap: int = 0,
                     late: bool = False, **arguments: Any) -> Any:
        """The chunks of a document, or of each of several, as chunk makes them, and a row for each.

        late: pooled from one pass over the document, as embed_spans does it; else each chunk is a text of its own. Chunks
        without a token, of white space alone, are left out. The rest is as in embed and, with late, in embed_spans.
        """
        texts, found = self._cut(documents, by, size, overlap)
        if late and any(found):
            rows = self._span_rows(_flat_chunks(texts, found), arguments)
        else:
            rows = self.embed([chunk.text for chunks in found for chunk in chunks], **arguments)
        return _chunk_vectors(documents, found, rows)

    async def aembed_chunks(self, documents: Any, *, by: ChunkBy = "sentences", size: int | None = None, overlap: int = 0,
                            late: bool = False, **arguments: Any) -> Any:
        """As embed_chunks, without holding up the loop."""
        import asyncio
        texts, found = await asyncio.to_thread(self._cut, documents, by, size, overlap)
        if late and any(found):
            rows = await self._aspan_rows(_flat_chunks(texts, found), arguments)
        else:
            rows = await self.aembed([chunk.text for chunks in found for chunk in chunks], **arguments)
        return _chunk_vectors(documents, found, rows)

    def _cut(self, documents: Any, by: ChunkBy, size: int | None, overlap: int) -> tuple[list[str], list[list[Chunk]]]:
        texts = listed(documents)
        return texts, [[chunk for chunk in chunks if chunk.tokens > 0]
                       for chunks in self.chunk(texts, by=by, size=size, overlap=overlap)]

    # ---- tokens and similarity ----------------------------------------------------------------------------------

    def tokenize(self, text: str, *, max_length: int | None = None, special_tokens: bool = True) -> Tokens:
        """The tokens of a text as the model sees them, uncut unless max_length says so."""
        if not isinstance(text, str):
            raise TypeError(f"a text must be a str, not {type(text).__name__}")
        handle = self._usable()
        limit = 0 if max_length is None else positive(max_length, "max_length")
        raw, places, special, truncated = handle.tokenize(text, limit, 0, special_tokens)
        ids = np.frombuffer(raw, np.int32)
        return Tokens(ids, [handle.token_text(int(token)) or "" for token in ids],
                      np.frombuffer(places, np.uint32).reshape(-1, 2), np.frombuffer(special, np.bool_), truncated)

    @overload
    def chunk(self, texts: str, *, by: ChunkBy = ..., size: int | None = ..., overlap: int = ...) -> list[Chunk]: ...

    @overload
    def chunk(self, texts: Iterable[str], *, by: ChunkBy = ..., size: int | None = ...,
              overlap: int = ...) -> list[list[Chunk]]: ...

    def chunk(self, texts: Any, *, by: ChunkBy = "sentences", size: int | None = None, overlap: int = 0) -> Any:
        """Cut a document, or each of several, into chunks of as many sentences (or what `by` says) as fit.

        size: tokens of a chunk, special tokens not counted; None: as many as the model takes. overlap: tokens of whole
        sentences that a chunk may repeat of the one before it; with 0 the chunks' texts joined are the document.
        """
        if by not in _CHUNK_BY:
            raise ValueError(f"by must be one of {', '.join(_CHUNK_BY)}, not {by!r}")
        limit = 0 if size is None else positive(size, "size")
        repeated = 0 if not isinstance(overlap, bool) and overlap == 0 else positive(overlap, "overlap")
        if isinstance(texts, str):
            return self._chunk(texts, 0, _CHUNK_BY[by], limit, repeated)
        return [self._chunk(text, index, _CHUNK_BY[by], limit, repeated) for index, text in enumerate(texts)]

    def _chunk(self, text: Any, index: int, by: int, size: int, overlap: int) -> list[Chunk]:
        if not isinstance(text, str):
            raise TypeError(f"text {index} is {type(text).__name__}, not a str")
        chars, places, tokens = (np.frombuffer(raw, kind).tolist() for raw, kind in zip(
            self._usable().chunk(text, index, by, size, overlap), (np.uintp, np.uintp, np.uint32)))
        return [Chunk(text[chars[2 * i]:chars[2 * i + 1]], chars[2 * i], chars[2 * i + 1], places[2 * i],
                      places[2 * i + 1], count) for i, count in enumerate(tokens)]

    def decode(self, ids: ArrayLike, *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        array = np.asarray(ids)
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"ids must be whole numbers, not {array.dtype}")
        if array.size and (array.min() < 0 or array.max() >= 2**31):
            raise InvalidArgument("an id is outside the vocabulary")
        return self._usable().decode(np.ascontiguousarray(array, np.int32).tobytes(), skip_special_tokens)

    @property
    def similarity_fn_name(self) -> str:
        """The measure that the model was made for."""
        name = self._facts.get("similarity", "cosine")
        return name if name in _similarity.NAMES else "cosine"

    def similarity(self, a: ArrayLike, b: ArrayLike) -> Rows:
        """Every row of a with every row of b, by the model's own measure."""
        return _similarity.similarity(self.similarity_fn_name, a, b)

    def similarity_pairwise(self, a: ArrayLike, b: ArrayLike) -> Rows:
        """Each row of a with the row of b at its place."""
        return _similarity.similarity_pairwise(self.similarity_fn_name, a, b)

    # ---- what the model says of itself --------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The hub's id, or the folder."""
        return self._facts.get("id") or self._path

    @property
    def path(self) -> str:
        """The folder that it was read from."""
        return self._path

    @property
    def max_length(self) -> int:
        """Tokens of a text that count, special tokens among them."""
        return int(self._facts["max_length"])

    @property
    def prompts(self) -> dict[str, str]:
        """The folder's prompts by name."""
        return {key[len("prompt."):]: json.loads(value) if value.startswith('"') else value
                for key, value in self._facts.items() if key.startswith("prompt.")}

    @property
    def fingerprint(self) -> str:
        """64 digits that tell the model's files from any others. Reads them all, once."""
        if not hasattr(self, "_fingerprint"):
            self._fingerprint = self._usable().fingerprint()
        return self._fingerprint

    @property
    def vector_id(self) -> str:
        """64 digits over all that decides the bytes of a vector that encode() gives without arguments: the model's files,
        pooling, prompt, precision, instruction set, and so on. Equal ids: equal bytes for equal texts."""
        return self._usable().vector_id()

    @property
    def vector_parts(self) -> dict[str, str]:
        """What vector_id is made of, by name."""
        handle = self._usable()
        handle.vector_id()  # reads the files, where other threads may go on
        return {name: value for name, (value, _) in handle.vector_parts().items()}

    def canary(self) -> dict[str, Any]:
        """A few texts with their vectors, vector_id and its parts, to keep beside an index; json.dump() of it is the file that
        `fletch canary` writes, and `fletch verify` reads it."""
        return _canary.make(self)

    def verify(self, canary: Mapping[str, Any] | str | os.PathLike[str] | None = None, *, texts: Sequence[str] | None = None,
               vectors: ArrayLike | None = None, prompt_name: str | None = None) -> Verdict:
        """Whether stored vectors are those that this model gives: "same bytes", "same space" (within 1e-5) or "another space".

        canary: what canary() gave, or the path of such a file; then Verdict.differs says which parts of the id are others.
        texts, vectors: or what an index holds of any kind, a sample of it; prompt_name: as they were embedded with.
        """
        return _canary.verify(self, canary, texts, vectors, prompt_name)

    @property
    def properties(self) -> dict[str, str]:
        """What the model says of itself: pooling, provider, precision, threads, and so on."""
        return dict(self._facts)

    @property
    def origins(self) -> dict[str, str]:
        """Where each property came from: a file of the folder, an option, a default."""
        return dict(self._origins)

    def stats(self) -> dict[str, Any]:
        """Counters and timings since the model was opened."""
        found: dict[str, Any] = json.loads(self._usable().stats())
        return found


def _rebuild(kind: type[Model], path: str, options: tuple[tuple[str, str], ...]) -> Model:
    model = kind.__new__(kind)
    model._options, model._name = options, path
    model._open(path)
    return model


_shared: dict[tuple[str | None, str], Model] = {}


def shared(model: str | os.PathLike[str] | None = None, **config: Any) -> Model:
    """The one model of this process for these arguments (those of Model): what functions that run anywhere call."""
    key = (None if model is None else os.fspath(model), repr(sorted(config.items(), key=lambda item: item[0])))
    found = _shared.get(key)
    if found is None or found._closed:
        with _shared_lock:
            found = _shared.get(key)
            if found is None or found._closed:
                found = _shared[key] = Model(model, **config)
    return found


_shared_lock = threading.Lock()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
