# SPDX-License-Identifier: Apache-2.0
"""Whether the vectors of Parquet files are still those of a model: `fletch verify` (docs/cli.md) with pyarrow.

    python -m fletch.verify vectors/ --column text        # texts beside the vectors
    python -m fletch.verify vectors/ -m ./my-model        # a job of fletch.job, which names its inputs

Every row is looked at; of many a sample is embedded again, the first rows and as many spread over the rest."""
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from . import _canary, errors
from ._model import Model
from .job import _files

__all__ = ["Damaged", "Stored", "read"]

_VECTORS = ("embedding", "vector", "embeddings", "vectors")
_BATCH = 4096


class Damaged(ValueError):
    """The files cannot be read, or hold vectors that cannot be compared with each other."""


@dataclass
class Stored:
    """A sample of texts with their vectors."""

    most: int  #: rows that are kept; 0: all
    texts: list[str] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    seen: int = 0  #: rows of all files
    left_out: int = 0  #: of them, those without a text or a vector
    width: int = 0
    vector_id: str | None = None  #: as the files have it
    _stride: int = 1

    def take(self, texts: Any, rows: Any) -> None:
        """More rows, all with both: as stored.c keeps them."""
        first, at = self.most - self.most // 2, self.seen - self.left_out
        for i in range(len(texts)):
            rest = at + i - first
            if self.most and rest >= 0:
                if len(self.rows) == self.most > first and rest % self._stride == 0:
                    self.texts[first:], self.rows[first:] = self.texts[first::2], self.rows[first::2]
                    self._stride *= 2
                if len(self.rows) == self.most or rest % self._stride:
                    continue
            self.texts.append(texts[i].as_py())
            self.rows.append(rows[i])


def _paths(place: str) -> list[str]:
    filesystem, found = _files(place, None)
    found = [path for path in sorted(found) if path.endswith(".parquet") or path == place]
    if filesystem is not None or not found:
        raise Damaged(f"no Parquet file found at {place}")
    return found


def _open(path: str) -> Any:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise Damaged(f"{path} is not a valid Parquet file: {error}") from None


def _texts(paths: Sequence[str], column: str) -> Iterator[Any]:
    """The texts of other files, one after the other."""
    for path in paths:
        file = _open(path)
        if column not in file.schema_arrow.names:
            raise Damaged(f'{path} has no column "{column}"; it has {", ".join(file.schema_arrow.names)}')
        for batch in file.iter_batches(_BATCH, columns=[column]):
            yield from batch.column(0)


def _inputs(place: str, column: str) -> tuple[list[str], str]:
    """Where the texts of a job are, and in which column."""
    try:
        with open(os.path.join(place, "job.json"), encoding="utf-8") as file:
            job = json.load(file)
        paths = [os.fsdecode(bytes.fromhex(one["path_hex"])) if "path_hex" in one else one["path"] for one in job["inputs"]]
        return paths, job["options"].get("column", column)
    except (OSError, ValueError, KeyError):
        raise Damaged(f'{place} has no column "{column}" and is not a job whose inputs have the texts; '
                      "name them with --column or --texts") from None


def _name(schema: Any, path: str, wanted: str | None) -> str:
    found = next((name for name in ([wanted] if wanted else _VECTORS) if name in schema.names), None)
    if found is None:
        raise Damaged(f"{path} has no vector column ({wanted or ' or '.join(_VECTORS)}); name it with --vectors")
    kind = schema.field(found).type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or kind.value_type not in (pa.float32(), pa.float64()):
        raise Damaged(f'the column "{found}" of {path} is {kind}; lists of float32 or float64 can be compared')
    return found


def _look(stored: Stored, path: str, batch: Any, texts: Any) -> None:
    """One batch of vectors, and their texts, into the sample."""
    both = pc.and_(pc.is_valid(batch), pc.is_valid(texts))
    vectors, kept = batch.filter(both), texts.filter(both)
    numbers = np.flatnonzero(both.to_numpy(zero_copy_only=False)) + stored.seen + 1
    lengths = pc.list_value_length(vectors).to_numpy(zero_copy_only=False)
    stored.width = stored.width or (int(lengths[0]) if len(lengths) else 0)
    if (off := np.flatnonzero(lengths != stored.width)).size:
        raise Damaged(f"{path}: row {numbers[off[0]]} has {lengths[off[0]]} numbers where earlier rows "
                      f"have {stored.width}")
    rows = vectors.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, max(stored.width, 1))
    if (off := np.flatnonzero(~np.isfinite(rows).all(1))).size:
        raise Damaged(f"{path}: row {numbers[off[0]]} holds a value that is not a float32 number")
    stored.take(kept, rows)
    stored.seen += len(batch)
    stored.left_out += len(batch) - len(kept)


def _take_id(stored: Stored, path: str, metadata: dict[bytes, bytes] | None) -> None:
    if b"fletch.chunk" in (metadata or {}):
        raise Damaged(f"{path} holds vectors of chunks without their texts: they cannot be compared")
    told = (metadata or {}).get(b"fletch.vector_id", b"").decode(errors="replace") or None
    if told and stored.vector_id and told != stored.vector_id:
        raise Damaged(f"{path} has vector id {told:.12}, but an earlier file has {stored.vector_id:.12}: "
                      "vectors of two kinds cannot be compared together")
    stored.vector_id = stored.vector_id or told


def read(place: str | os.PathLike[str], *, column: str = "text", vectors: str | None = None,
         texts: str | os.PathLike[str] | None = None, sample: int = 1000) -> Stored:
    """A sample of the Parquet file or folder `place`: the texts of `column`, else of the files at `texts`, else of the job's
    inputs, in the order of the rows. Damaged where it cannot be read, or its rows differ in width or vector id."""
    where, stored, others = os.fspath(place), Stored(sample), None
    for path in _paths(where):
        file = _open(path)
        _take_id(stored, path, file.schema_arrow.metadata)
        name, inside = _name(file.schema_arrow, path, vectors), texts is None and column in file.schema_arrow.names
        if not inside and others is None:
            others = _texts(_paths(os.fspath(texts)), column) if texts is not None else _texts(*_inputs(where, column))
        try:
            for batch in file.iter_batches(_BATCH, columns=[name, *([column] if inside else [])]):
                if others is not None:
                    beside = [one.as_py() for _, one in zip(range(len(batch)), others)]
                    if len(beside) < len(batch):
                        raise Damaged(f"{path} has more vectors than there are texts ({stored.seen + len(beside)})")
                _look(stored, path, batch.column(name), batch.column(column) if inside else pa.array(beside, pa.string()))
        except (pa.ArrowInvalid, OSError) as error:
            raise Damaged(f"{path} is damaged: {error}") from None
    if others is not None and next(others, None) is not None:
        raise Damaged(f"{where} has {stored.seen} vectors, but there are more texts")
    if not stored.rows:
        raise Damaged(f"{where} has no rows with both a text and a vector")
    return stored


# ---- python -m fletch.verify ---------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fletch.verify", allow_abbrev=False,
        description="Check whether the vectors of Parquet files are still those of a model.",
        epilog="Exit codes: 0 same bytes or same space; 1 another space, or with --exact other bytes; "
               "2 wrong usage; 3 the files or the model cannot be read.")
    parser.add_argument("place", metavar="FILE|FOLDER")
    parser.add_argument("--column", default="text", help="the texts (default: text)")
    parser.add_argument("--vectors", help="the vectors (default: embedding, vector, embeddings or vectors)")
    parser.add_argument("--texts", metavar="FILE|FOLDER", help="other Parquet files that have the texts, in the same order")
    parser.add_argument("--sample", type=int, default=1000, help="rows to compare; 0: all (default: 1000)")
    parser.add_argument("-m", "--model")
    parser.add_argument("--prompt-name")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--exact", action="store_true", help="require identical bytes")
    parser.add_argument("--format", default="text", choices=["text", "json"])
    return parser


def _tell(stored: Stored, verdict: _canary.Verdict, differs: dict[str, tuple[str | None, str | None]], as_json: bool) -> None:
    if as_json:
        whole = {"verdict": verdict.verdict, "vectors": verdict.vectors, "same_bytes": verdict.same_bytes, "rows": stored.seen,
                 "left_out": stored.left_out, "largest_difference": verdict.largest_difference,
                 "least_cosine": verdict.least_cosine,
                 "differs": [{"name": name, "there": there, "here": here} for name, (there, here) in differs.items()]}
        finite = {key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in whole.items()}
        print(json.dumps(finite, ensure_ascii=False))
        return
    print(f"{verdict.verdict}: {verdict.vectors} vectors, a sample of {stored.seen - stored.left_out}; {verdict.same_bytes} "
          f"have the same bytes, the largest difference is {verdict.largest_difference:.2g}, the lowest cosine "
          f"{verdict.least_cosine:.6f}; {stored.left_out} without a text or a vector were skipped")
    for name, (there, here) in differs.items():
        print(f"  {name}: {there} there, {here} here")


def _work(given: argparse.Namespace) -> int:
    if given.sample < 0:
        raise errors.InvalidArgument("--sample takes a number of rows, 0 for all")
    stored = read(given.place, column=given.column, vectors=given.vectors, texts=given.texts, sample=given.sample)
    with Model(given.model, threads=given.threads, env=True) as model:
        verdict = model.verify(texts=stored.texts, vectors=np.stack(stored.rows), prompt_name=given.prompt_name)
        differs = dict(verdict.differs)
        if stored.vector_id and stored.vector_id != model.vector_id:
            differs["vector_id"] = (stored.vector_id, model.vector_id)
    _tell(stored, verdict, differs, given.format == "json")
    good = verdict.verdict == "same bytes" or (verdict.verdict == "same space" and not given.exact)
    return 0 if good else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    given = _parser().parse_args(arguments)
    try:
        return _work(given)
    except (errors.ConfigError, errors.InvalidArgument) as error:
        print(f"fletch: {error}", file=sys.stderr)
        return 2
    except (Damaged, errors.Error, OSError, MemoryError) as error:
        print(f"fletch: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
