# SPDX-License-Identifier: Apache-2.0
"""A resumable job over Parquet, the contract of `fletch run` (docs/job.md) for tables and object stores.

    python -m fletch.job texts/ vectors/ --column text --id id --shard 3/16
    fletch.job.run("s3://bucket/texts", "s3://bucket/vectors", column="text", id="id", dtype="int8")

Parts are ranges of row groups. Each appears when it is whole, with a manifest; the same call again does what is
missing. `fletch run --check` reads a local folder of this too, fletch.job.check any."""
from __future__ import annotations

import argparse
import contextlib
import glob
import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.fs as pafs  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

if sys.platform == "win32":
    raise ImportError("fletch.job writes files that others may hold open, which Windows refuses: use `fletch run` there, "
                      "or a job on Linux or macOS")

from . import _fletch, errors
from ._chunk_rows import Cut, Document, embed_column
from ._columns import REFUSABLE
from ._folder import Folder, open_folder
from ._model import ChunkBy, Dtype, Model

__all__ = ["JobError", "check", "run"]

_SAMPLE = 4096
_BATCH = 8192  # rows that are embedded, and make a row group of the result
_NUMPY = {"float32": "<f4", "int8": "|i1", "uint8": "|u1", "binary": "|i1", "ubinary": "|u1"}


class JobError(ValueError):
    """The arguments make no job, or the folder holds another one."""


@dataclass
class _Input:
    """One Parquet file, and the row groups that each of its parts has."""

    path: str
    size: int
    rows: int
    sample: str
    parts: list[tuple[int, int, list[int]]]  # first row, end, row groups


# ---- The list of parts ---------------------------------------------------------------------------------------------


def _files(place: str, filesystem: Any) -> tuple[Any, list[str]]:
    """The file system, None for the local one, and the files of one input."""
    if filesystem is None and "://" in place:
        filesystem, place = pafs.FileSystem.from_uri(place)
    if filesystem is not None and not isinstance(filesystem, pafs.LocalFileSystem):
        info = filesystem.get_file_info(place.rstrip("/"))
        if info.type == pafs.FileType.File:
            return filesystem, [info.path]
        found = filesystem.get_file_info(pafs.FileSelector(place, recursive=True, allow_not_found=True))
        skip = re.compile(r"/[._]")
        return filesystem, [one.path for one in found if one.type == pafs.FileType.File and
                            not skip.search(one.path[len(place.rstrip("/")):])]
    if os.path.isdir(place):
        below = [os.path.join(folder, name) for folder, _, names in os.walk(place, followlinks=True) for name in names]
        return None, [path for path in below if not re.search(r"(^|/)[._]", os.path.relpath(path, place))]
    return None, [place] if os.path.exists(place) else glob.glob(place)


def _open(filesystem: Any, path: str) -> Any:
    return open(path, "rb") if filesystem is None else filesystem.open_input_file(path)


def _sample(filesystem: Any, path: str) -> tuple[int, str]:
    """Size, and SHA-256 of the head and the tail, where the footer is."""
    with _open(filesystem, path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(_SAMPLE)
        file.seek(max(0, size - _SAMPLE))
        return size, hashlib.sha256(head + file.read(_SAMPLE)).hexdigest()


def _look(filesystem: Any, path: str, split_rows: int) -> _Input:
    size, sample = _sample(filesystem, path)
    with _open(filesystem, path) as file:
        try:
            footer = pq.ParquetFile(file).metadata
        except pa.ArrowInvalid as error:
            raise errors.InputOutputError(f"{path} is not a valid Parquet file: {error}") from None
    parts: list[tuple[int, int, list[int]]] = []
    begin = end = 0
    groups: list[int] = []
    for group in range(footer.num_row_groups):
        groups.append(group)
        end += footer.row_group(group).num_rows
        if end - begin >= split_rows:
            parts.append((begin, end, groups))
            begin, groups = end, []
    if groups or not parts:
        parts.append((begin, end, groups))
    return _Input(path, size, footer.num_rows, sample, parts)


def _list(inputs: Sequence[str], filesystem: Any, split_rows: int) -> tuple[Any, list[_Input]]:
    kinds: list[Any] = []
    paths: set[str] = set()
    for place in inputs:
        kind, found = _files(place, filesystem)
        kinds.append(kind)
        paths.update(os.path.normpath(path) if kind is None else path for path in found)
        if not found:
            raise errors.NotFound(f"no file found at {place}; names that begin with '.' or '_' are ignored")
    if any((kind is None) != (kinds[0] is None) for kind in kinds):
        raise JobError("all inputs of a job must be on one file system")
    return kinds[0], [_look(kinds[0], path, split_rows) for path in sorted(paths, key=os.fsencode)]


# ---- What the job is -----------------------------------------------------------------------------------------------


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _describe(inputs: list[_Input], model: Model, options: dict[str, str], split_rows: int) -> bytes:
    parts = model.vector_parts
    members = {"job": 1, "fletch": _fletch.version, "model": parts.pop("model"), "options": parts | options,
               "split_rows": split_rows, "parts": sum(len(one.parts) for one in inputs), "inputs": []}
    lines = []
    for one in inputs:
        try:
            path = {"path": os.fsencode(one.path).decode()}
        except UnicodeDecodeError:
            path = {"path_hex": os.fsencode(one.path).hex()}
        lines.append("\n" + _dumps(path | {"size": one.size, "extent": one.rows, "sample": one.sample,
                                            "parts": len(one.parts)}))
    return (_dumps(members)[:-2] + ",".join(lines) + "]}\n").encode()


def _flat(job: dict[str, Any], paths: list[str]) -> Iterator[tuple[str, Any]]:
    """Every member by a name that says where it is, from the general to the special. An input has any path, here and on
    other machines; `paths` are those that we know it by."""
    yield from ((key, job.get(key)) for key in ("job", "fletch", "split_rows", "split_bytes"))
    yield from (("option " + key, value) for key, value in job.get("options", {}).items())
    yield "model", job.get("model")
    for i, one in enumerate(job.get("inputs", [])):
        path = paths[i] if i < len(paths) else one.get("path")
        yield from ((f"{key} of input {i + 1}, {path}", one.get(key)) for key in ("size", "extent", "sample", "parts"))


def _join(folder: Folder, ours: bytes, mixed_isa: bool) -> str:
    """Begin the job, or find that it is the one that is there. Its digest."""
    if folder.read("job.json") is None:
        folder.put("job.json", ours, first=True)
    theirs = folder.read("job.json") or b""
    if theirs != ours:
        try:
            mine = json.loads(ours)
            paths = [one.get("path", "") for one in mine["inputs"]]
            here, there = dict(_flat(mine, paths)), dict(_flat(json.loads(theirs), paths))
        except (ValueError, AttributeError, TypeError) as error:
            raise JobError(f"job.json is damaged: {error}") from None
        for key in here | there:
            free = mixed_isa and key == "option cpu.numerics"
            if not free and here.get(key) != there.get(key):
                raise JobError(f"job.json belongs to another job: {key} is {_dumps(there.get(key))} there and "
                               f"{_dumps(here.get(key))} here; continue with the options and inputs the job began with, "
                               "or write to another folder")
    return hashlib.sha256(theirs).hexdigest()


# ---- Manifests -----------------------------------------------------------------------------------------------------


def _seal(members: dict[str, Any]) -> bytes:
    text = _dumps(members)[:-1]
    return f'{text},"manifest":"{hashlib.sha256(text.encode()).hexdigest()}"}}\n'.encode()


def _manifest(folder: Folder, name: str, job: str) -> dict[str, Any] | str | None:
    """The manifest of a part that is done; None where there is none; else what is wrong with it."""
    content = folder.read(f"{name}.json")
    if content is None:
        return None
    text, _, rest = content.rpartition(b',"manifest":"')
    if rest != f'{hashlib.sha256(text).hexdigest()}"}}\n'.encode():
        return f"{name}.json is truncated or was modified"
    found: dict[str, Any] = json.loads(content)
    if found["job"] != job or found["part"] != name:
        return f"{name}.json belongs to another job or part"
    for file in found["files"]:
        if folder.size(file["name"]) != file["bytes"]:
            return f"{file['name']} does not have the {file['bytes']} bytes that its manifest states"
    return found


# ---- One part ------------------------------------------------------------------------------------------------------


@dataclass
class _Work:
    """What all parts of a run share."""

    folder: Folder
    filesystem: Any
    model: Model
    job: str
    column: str
    id: str | None
    keep: list[str]
    dtype: Dtype
    format: str
    on_error: str
    arguments: dict[str, Any]
    cut: Cut | None  # None: a row is of a whole text

    def columns(self) -> list[str]:
        return list(dict.fromkeys([self.column, *([self.id] if self.id else []), *self.keep]))


def _read(work: _Work, one: _Input, groups: list[int]) -> Iterator[Any]:
    """The batches of the part. A page that is damaged is an OSError under some codecs; what the caller does with a
    batch is not in here, so a disk that is full stays one."""
    with _open(work.filesystem, one.path) as file:
        try:
            yield from pq.ParquetFile(file).iter_batches(_BATCH, row_groups=groups, columns=work.columns())
        except OSError as error:
            raise pa.ArrowInvalid(str(error)) from error


@dataclass
class _Rows:
    """Some rows of the result."""

    batch: Any  # what the texts' rows have beside them
    vectors: Any
    tokens: Any
    truncated: Any
    bad: Any  # which have no vector
    why: list[str | None]
    read: int  # tokens that the model read
    cut: int  # texts that lost some
    places: Any = None  # of chunks: [rows, 6], the text's number in the part, the chunk's, bytes, code points


def _texts(work: _Work, one: _Input, groups: list[int]) -> Iterator[_Rows]:
    """A row for each text."""
    for batch in _read(work, one, groups):
        found = work.model.embed(batch.column(work.column), info=True, on_error="null", dtype=work.dtype,
                                 **work.arguments)
        why: list[str | None] = [None] * len(found.status)
        for i in np.flatnonzero(found.status):
            status = int(found.status[i])
            if status not in REFUSABLE or work.on_error == "stop":
                raise errors.Error(f"{one.path}: a text could not be embedded: {REFUSABLE.get(status, status)}")
            why[i] = REFUSABLE[status]
        bad = found.status != 0
        yield _Rows(batch, found.vectors, found.tokens, found.truncated, bad, why, int(found.tokens[~bad].sum()),
                    int(found.truncated[~bad].sum()))


def _chunk_rows(work: _Work, batch: Any, first: int, some: list[Document]) -> _Rows:
    """The rows of some documents of a batch, a refused one having one; `first`: the batch's first in the part."""
    told = [one for one in some if one.why or one.chunks]
    counts = [len(one.chunks) or 1 for one in told]
    bad = np.repeat([one.why is not None for one in told], counts).astype(np.bool_)
    vectors = np.zeros((len(bad), _width(work)), _NUMPY[work.dtype])
    truncated, places = np.zeros(len(bad), np.bool_), np.zeros((len(bad), 6), np.int64)
    places[:, 0] = np.repeat([first + one.index for one in told], counts)
    good = [one for one in told if not one.why]
    if good:
        vectors[~bad] = np.concatenate([one.vectors for one in good])
        truncated[~bad] = np.concatenate([one.truncated for one in good])
        places[~bad, 1:] = [(number, chunk.byte_start, chunk.byte_end, chunk.start, chunk.end)
                            for one in good for number, chunk in zip(one.numbers, one.chunks)]
    tokens = np.zeros(len(bad), np.uint32)
    tokens[~bad] = [chunk.tokens for one in good for chunk in one.chunks]
    return _Rows(batch.take(pa.array(places[:, 0] - first)), vectors, tokens, truncated, bad,
                 [one.why for one, count in zip(told, counts) for _ in range(count)],
                 sum(one.read for one in good), sum(bool(one.truncated.any()) for one in good), places)


def _chunks(work: _Work, one: _Input, groups: list[int], cut: Cut) -> Iterator[_Rows]:
    """A row for each chunk of the texts."""
    first = 0
    arguments = cut.arguments({"dtype": work.dtype} | work.arguments)
    for batch in _read(work, one, groups):
        for some in embed_column(work.model, batch.column(work.column), cut, arguments):
            if work.on_error == "stop" and (why := next((one.why for one in some if one.why), None)):
                raise errors.Error(f"{one.path}: a text could not be embedded: {why}")
            yield _chunk_rows(work, batch, first, some)
        first += batch.num_rows


def _batches(work: _Work, one: _Input, groups: list[int]) -> Iterator[_Rows]:
    return _chunks(work, one, groups, work.cut) if work.cut else _texts(work, one, groups)


def _schema(work: _Work, one: _Input) -> tuple[Any, Any]:
    """The columns that are passed on, and the schema of the result."""
    with _open(work.filesystem, one.path) as file:
        schema = pq.ParquetFile(file).schema_arrow
    for name in work.columns():
        if name not in schema.names:
            raise JobError(f'{one.path} has no column "{name}"; it has {", ".join(schema.names)}')
    kind = schema.field(work.column).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)):
        raise JobError(f'the column "{work.column}" of {one.path} is {kind}, not text')
    number = pa.from_numpy_dtype(np.dtype(_NUMPY[work.dtype]))
    passed = [pa.field(name, schema.field(name).type) for name in work.columns()
              if name != work.column or name in work.keep]
    pair = pa.list_(pa.field("element", pa.uint64()), 2)
    where = [pa.field("index", pa.uint64()), pa.field("chunk", pa.uint32()), pa.field("bytes", pair), pa.field("chars", pair)]
    made = [*(where if work.cut else []), pa.field("embedding", pa.list_(pa.field("element", number), _width(work))), pa.field("tokens", pa.uint32()),
            pa.field("truncated", pa.bool_()), pa.field("refused", pa.string())]
    for field in made:
        if field.name in (one.name for one in passed):
            raise JobError(f'the column "{field.name}" would collide with a result column of the same name')
    facts = {"fletch.version": _fletch.version, "fletch.model": work.model.fingerprint, "fletch.vector_id": work.model.vector_id, "fletch.job": work.job}
    facts |= {"fletch.chunk": work.cut.by} if work.cut else {}
    return passed, pa.schema(passed + made, facts)


def _width(work: _Work) -> int:
    columns: int = work.arguments.get("dimensions") or work.model.dimensions
    return -(-columns // 8) if work.dtype in ("binary", "ubinary") else columns


def _write_parquet(work: _Work, name: str, one: _Input, groups: list[int], tally: dict[str, Any]) -> None:
    passed, schema = _schema(work, one)
    floats: dict[str, Any] = {"use_byte_stream_split": ["embedding.list.element"]} if work.dtype == "float32" else {}
    plain: Any = [field.name for field in passed]
    with work.folder.create(f"{name}.parquet") as out:
        file = pa.PythonFile(out, "w")
        with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=plain, **floats) as writer:
            for found in _batches(work, one, groups):
                found.vectors[found.bad] = 0
                columns = [found.batch.column(field.name) for field in passed]
                writer.write_table(pa.Table.from_arrays(
                    [*columns, *_places(found, schema), _lists(found.vectors, schema.field("embedding").type, found.bad),
                     pa.array(found.tokens, mask=found.bad), pa.array(found.truncated, mask=found.bad),
                     pa.array(found.why, pa.string())], schema=schema))
                _count(tally, found)
        _note(tally, f"{name}.parquet", out)


def _lists(rows: Any, kind: Any, bad: Any) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).reshape(-1)), type=kind, mask=pa.array(bad))


def _places(found: _Rows, schema: Any) -> list[Any]:
    if found.places is None:
        return []
    places, pair = found.places.astype(np.uint64), schema.field("bytes").type
    return [pa.array(places[:, 0]), pa.array(places[:, 1].astype(np.uint32), mask=found.bad),
            _lists(places[:, 2:4], pair, found.bad), _lists(places[:, 4:6], pair, found.bad)]


def _write_numpy(work: _Work, name: str, one: _Input, groups: list[int], tally: dict[str, Any]) -> None:
    passed, _ = _schema(work, one)
    blocks = []
    with work.folder.create(f"{name}.npy") as out, work.folder.create(f"{name}.jsonl") as told:
        line = 0
        for found in _batches(work, one, groups):
            blocks.append(np.ascontiguousarray(found.vectors[~found.bad]))
            for i, fields in enumerate(found.batch.select([field.name for field in passed]).to_pylist()):
                place = {} if found.places is None else _place(found.places[i].tolist())
                line = place.get("index", line) + 1
                if work.id:
                    fields = {"id": fields.pop(work.id)} | fields
                row = {"refused": found.why[i], "line": line} if found.why[i] else {
                    **place, "tokens": int(found.tokens[i]), "truncated": bool(found.truncated[i]), **fields}
                told.write((_dumps(row) + "\n").encode())
            _count(tally, found)
        shape = (f"{{'descr': '{_NUMPY[work.dtype]}', 'fortran_order': False, "
                 f"'shape': ({tally['rows']}, {_width(work)}), }}")
        out.write(b"\x93NUMPY\1\0v\0" + shape.ljust(117).encode() + b"\n")
        for block in blocks:
            out.write(block.reshape(-1).view(np.uint8))
        _note(tally, f"{name}.npy", out)
        _note(tally, f"{name}.jsonl", told)


def _place(numbers: list[int]) -> dict[str, Any]:
    return {"index": numbers[0], "chunk": numbers[1], "bytes": numbers[2:4], "chars": numbers[4:6]}


def _count(tally: dict[str, Any], found: _Rows) -> None:
    tally["rows"] += int((~found.bad).sum())
    tally["refused"] += int(found.bad.sum())
    tally["tokens"] += found.read
    tally["truncated"] += found.cut


def _note(tally: dict[str, Any], name: str, out: Any) -> None:
    tally["files"].append({"name": name, "bytes": out.bytes, "sha256": out.sha256})


def _make(work: _Work, name: str, one: _Input, part: tuple[int, int, list[int]]) -> dict[str, Any]:
    begin, end, groups = part
    start = time.monotonic()
    tally: dict[str, Any] = {"part": name, "job": work.job, "begin": begin, "end": end, "input_sha256": "", "rows": 0,
                             "refused": 0, "tokens": 0, "truncated": 0, "seconds": 0.0, "files": []}
    (_write_parquet if work.format == "parquet" else _write_numpy)(work, name, one, groups, tally)
    tally["seconds"] = round(time.monotonic() - start, 3)
    work.folder.put(f"{name}.json", _seal(tally))
    return tally


# ---- The job -------------------------------------------------------------------------------------------------------


def _shard(shard: tuple[int, int] | str) -> tuple[int, int]:
    if isinstance(shard, str):
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", shard, re.ASCII)
        shard = (int(found[1]), int(found[2])) if found else (0, 0)
    index, count = shard
    if not 0 <= index < count:
        raise JobError(f"shard must be I/N, from 0/N to (N-1)/N, not {shard}")
    return index, count


def _refuse_inside(inputs: Sequence[str], output: str) -> None:
    """A job that read its own parts would never end."""
    there = os.path.realpath(output)
    for place in inputs:
        here = os.path.realpath(place)
        common = os.path.commonpath([here, there])
        if "://" not in place and (common == there or (common == here and os.path.isdir(here))):
            raise JobError(f"the output folder and the input {place} must not contain each other; write elsewhere")


def run(inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], output: str | os.PathLike[str], *,
        column: str = "text", id: str | None = None, keep: Sequence[str] = (), shard: tuple[int, int] | str = (0, 1),
        model: Model | str | os.PathLike[str] | None = None, dtype: Dtype = "float32", format: str = "parquet",
        split_rows: int = 100_000, on_error: str = "skip", mixed_isa: bool = False, filesystem: Any = None,
        output_filesystem: Any = None, progress: Callable[[int, int], object] | None = None,
        chunk: ChunkBy | None = None, chunk_size: int | None = None, chunk_overlap: int = 0, late_chunking: bool = False,
        **arguments: Any) -> dict[str, Any]:
    """Embed a column of Parquet files into `output`, part by part; what is done already is not done again.

    inputs: files, folders or patterns, or URIs that pyarrow.fs knows; filesystem: another pyarrow file system.
    column, id, keep: the texts, what names them, and columns that are passed on. format: "parquet" or "npy".
    shard: (i, n), every n-th part from i on. split_rows: row groups are put together to parts of at least as many rows.
    on_error: "skip" leaves a text that cannot be embedded without a vector and says why, "stop" raises.
    progress: hears of parts done and of all. chunk: "sentences", "tokens", "paragraphs" or "markdown", a row for each chunk
    of chunk_size tokens, chunk_overlap of them repeated; late_chunking: pooled from one pass over the text. Other arguments are those of Model.embed: prompt, dimensions, max_length …
    Gives the summary that `fletch run` prints; "failed" counts parts whose input could not be read.
    """
    names = [os.fspath(one) for one in ([inputs] if isinstance(inputs, (str, os.PathLike)) else inputs)]
    index, count = _shard(shard)
    place = os.fspath(output)
    if dtype not in _NUMPY or format not in ("parquet", "npy") or on_error not in ("skip", "stop") or split_rows < 1:
        raise JobError(f"dtype must be one of {', '.join(_NUMPY)}, format parquet or npy, "
                       "on_error skip or stop, split_rows at least 1")
    if filesystem is None and output_filesystem is None and "://" not in place:
        _refuse_inside(names, place)
    cut = Cut(chunk, chunk_size, chunk_overlap, late_chunking) if chunk is not None else None
    if cut is None and (chunk_size is not None or chunk_overlap or late_chunking):
        raise JobError("chunk_size, chunk_overlap and late_chunking need chunk: sentences, tokens, paragraphs or "
                       "markdown")
    start = time.monotonic()
    source, files = _list(names, filesystem, split_rows)
    arguments = {"truncate": "right"} | {key: value for key, value in arguments.items() if value is not None}
    with contextlib.ExitStack() as stack:
        opened = model if isinstance(model, Model) else stack.enter_context(Model(model))
        options = {"dtype": dtype, "format": format, "column": column, "id": id or "", "keep": ",".join(keep),
                   "pyarrow": pa.__version__ if format == "parquet" else ""}
        if cut is not None:
            cut.check(opened, arguments)
            options |= cut.options()
        options |= {f"embed.{key}": str(value) for key, value in sorted(arguments.items())}
        work = _Work(open_folder(place, output_filesystem), source, opened, "", column, id, list(keep), dtype, format,
                     on_error, arguments, cut)
        text = _describe(files, opened, options | {"dimensions": str(arguments.get("dimensions") or opened.dimensions)},
                         split_rows)
        for one in files:
            _schema(work, one)
        work.job = _join(work.folder, text, mixed_isa)
        work.folder.sweep(False)
        return _do(work, files, index, count, start, progress)


def _do(work: _Work, files: list[_Input], index: int, count: int, start: float,
        progress: Callable[[int, int], object] | None) -> dict[str, Any]:
    parts = [(f"part-{i:05}-{k:05}", one, part) for i, one in enumerate(files) for k, part in enumerate(one.parts)]
    mine = parts[index::count]
    summary = {"shard": index, "shards": count, "parts": len(mine), "done_before": 0, "made": 0, "failed": 0, "rows": 0,
               "refused": 0, "tokens": 0, "truncated": 0, "seconds": 0.0}
    for number, (name, one, part) in enumerate(mine):
        found = _manifest(work.folder, name, work.job)
        if isinstance(found, dict):
            summary["done_before"] += 1
        else:
            if isinstance(found, str):
                print(f"fletch: note: redoing {name}: {found}", file=sys.stderr)
            work.folder.remove("_SUCCESS")
            try:
                found = _make(work, name, one, part)
                summary["made"] += 1
            except pa.ArrowInvalid as error:  # pages that cannot be read: the other parts are done
                print(f"fletch: {one.path}: {error}", file=sys.stderr)
                summary["failed"] += 1
                continue
        for key in ("rows", "refused", "tokens", "truncated"):
            summary[key] += found[key]
        if progress:
            progress(number + 1, len(mine))
    summary["seconds"] = round(time.monotonic() - start, 3)
    return summary


def _compare(one: dict[str, Any]) -> str | None:
    """What is wrong with an input that is still there; "" nothing, None it is gone."""
    path = os.fsdecode(bytes.fromhex(one["path_hex"])) if "path_hex" in one else one["path"]
    if not os.path.isfile(path):
        return None
    return "" if _sample(None, path) == (one["size"], one["sample"]) else f"{path} has changed since the job began"


def check(output: str | os.PathLike[str], *, quick: bool = False, finish: bool = False,
          filesystem: Any = None) -> dict[str, Any]:
    """What `fletch run --check` says of a folder, and the faults as "wrong"; with `finish` _SUCCESS is written."""
    folder = open_folder(os.fspath(output), filesystem)
    text = folder.read("job.json")
    if text is None:
        raise JobError(f"{os.fspath(output)} is not a job folder: it has no job.json")
    job, totals = hashlib.sha256(text).hexdigest(), {"parts": 0, "done": 0, "missing": 0, "damaged": 0, "rows": 0,
                                                     "refused": 0, "tokens": 0, "truncated": 0, "bytes": 0}
    wrong, digests, expected = [], [], {"job.json", "_SUCCESS"}
    inputs = json.loads(text)["inputs"]
    changed = [_compare(one) for one in inputs]
    if gone := changed.count(None):
        print(f"fletch: note: {gone} of {len(inputs)} inputs are missing or in an object store and were not compared",
              file=sys.stderr)
    wrong += [fault for fault in changed if fault]
    totals["damaged"] += len(wrong)
    for i, one in enumerate(inputs):
        covered: int | None = 0
        for name in (f"part-{i:05}-{k:05}" for k in range(one["parts"])):
            found = _manifest(folder, name, job)
            totals["parts"] += 1
            if isinstance(found, dict) and not quick:
                found = next((f"{file['name']} was modified after it was written: its SHA-256 differs"
                              for file in found["files"]
                              if hashlib.sha256(folder.read(file["name"]) or b"").hexdigest() != file["sha256"]), found)
            if isinstance(found, dict) and covered is not None and (found["begin"], found["end"]) != (0, 0):
                if found["begin"] == covered:
                    covered = found["end"]
                else:
                    found = f"{name} begins at {found['begin']} of its input, where {covered} follows"
            if not isinstance(found, dict):
                totals["missing" if found is None else "damaged"] += 1
                wrong.append(found or f"{name} is not done")
                covered = None
                continue
            expected |= {f"{name}.json", *(file["name"] for file in found["files"])}
            digests += [file["sha256"] for file in found["files"]]
            totals["done"] += 1
            totals["bytes"] += sum(file["bytes"] for file in found["files"])
            for key in ("rows", "refused", "tokens", "truncated"):
                totals[key] += found[key]
        if covered is not None and covered != one["extent"]:
            totals["damaged"] += 1
            wrong.append(f"the parts of {one.get('path')} end at {covered} of {one['extent']}")
    parts = [] if wrong else [name for name in folder.names() if name.startswith("part-")]
    strangers = sorted(set(parts) - expected)
    totals["damaged"] += len(strangers)
    wrong += [f"{name} is not part of this job" for name in strangers]
    result = totals | {"sha256": None if wrong else hashlib.sha256("".join(digests).encode()).hexdigest()}
    if wrong:
        with contextlib.suppress(OSError):  # of an earlier check; a folder may be read-only
            folder.remove("_SUCCESS")
    elif finish and totals["refused"] and not totals["rows"]:
        raise JobError(f"none of the {totals['refused']} rows has a vector: _SUCCESS is not written; the column "
                       "\"refused\" says why; begin another job in another folder")
    elif finish:
        folder.sweep(True)
        folder.put("_SUCCESS", (_dumps(result) + "\n").encode())
    return result | {"wrong": wrong}


# ---- python -m fletch.job ------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fletch.job", allow_abbrev=False,
        description="Embed a column of Parquet files part by part; rerun it to do what is missing.",
        epilog="Exit codes: 0 done; 1 retry; 2 wrong usage or another job; 3 no model; 4 done, but "
               "some texts were rejected.")
    parser.add_argument("places", nargs="+", metavar="INPUT ... OUTPUT", help="files, folders or URIs; the last is written")
    parser.add_argument("--column", default="text", help="the texts (default: text)")
    parser.add_argument("--id", help="the column that names them")
    parser.add_argument("--keep", default="", help="columns to copy to the output, comma-separated")
    parser.add_argument("--shard", default="0/1", help="I/N: do every N-th part, starting with part I")
    parser.add_argument("--split-rows", type=int, default=100_000,
                        help="minimum number of rows in a part (default: 100000)")
    parser.add_argument("-m", "--model")
    parser.add_argument("--dtype", default="float32", choices=list(_NUMPY))
    parser.add_argument("--format", default="parquet", choices=["parquet", "npy"])
    parser.add_argument("--prompt")
    parser.add_argument("--prompt-name")
    parser.add_argument("--dimensions", type=int)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--truncate", choices=["right", "left", "error"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--chunk", choices=["sentences", "tokens", "paragraphs", "markdown"],
                        help="split texts into chunks at these boundaries, one row per chunk")
    parser.add_argument("--chunk-size", type=int, help="tokens per chunk (default: as many as the model accepts)")
    parser.add_argument("--chunk-overlap", type=int, default=0,
                        help="tokens that a chunk may repeat from the previous one")
    parser.add_argument("--late-chunking", action="store_true",
                        help="late chunking: pool the chunks from one pass over the text")
    parser.add_argument("--on-error", default="skip", choices=["skip", "accept", "stop"],
                        help="skip texts that cannot be embedded (exit code 4; accept: 0), or stop")
    parser.add_argument("--mixed-isa", action="store_true")
    parser.add_argument("--check", action="store_true", help="check whether OUTPUT is complete")
    parser.add_argument("--quick", action="store_true", help="with --check: sizes only")
    parser.add_argument("--finish", action="store_true", help="check, then write _SUCCESS")
    return parser


def _look_at(given: argparse.Namespace) -> int:
    totals = check(given.places[-1], quick=given.quick, finish=given.finish)
    wrong = totals.pop("wrong")
    for text in wrong[:20]:
        print(f"fletch: {text}", file=sys.stderr)
    if totals["damaged"]:
        print("hint: remove NAME.parquet or NAME.npy, and NAME.json, of each damaged part, and files that do not belong "
              "to this job; then rerun", file=sys.stderr)
    print(_dumps(totals))
    return 1 if wrong else 4 if totals["refused"] and given.on_error != "accept" else 0


def _work(given: argparse.Namespace) -> int:
    if len(given.places) < 2:
        raise JobError("INPUT and OUTPUT are required")
    try:
        model = Model(given.model, threads=given.threads, env=True)
    except (errors.ConfigError, errors.InvalidArgument):
        raise
    except errors.Error as error:
        print(f"fletch: {error}", file=sys.stderr)
        return 3
    with model:
        summary = run(given.places[:-1], given.places[-1], column=given.column, id=given.id,
                      keep=[name for name in given.keep.split(",") if name], shard=given.shard, model=model,
                      dtype=given.dtype, format=given.format, split_rows=given.split_rows,
                      on_error="stop" if given.on_error == "stop" else "skip", mixed_isa=given.mixed_isa,
                      prompt=given.prompt, prompt_name=given.prompt_name, dimensions=given.dimensions,
                      max_length=given.max_length, truncate=given.truncate, chunk=given.chunk,
                      chunk_size=given.chunk_size, chunk_overlap=given.chunk_overlap, late_chunking=given.late_chunking)
    print(_dumps(summary))
    return 1 if summary["failed"] else 4 if summary["refused"] and given.on_error != "accept" else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return _look_at(given) if given.check or given.finish else _work(given)
    except (JobError, errors.ConfigError, errors.InvalidArgument) as error:
        print(f"fletch: {error}", file=sys.stderr)
        return 2
    except (errors.Error, OSError, MemoryError) as error:
        print(f"fletch: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
