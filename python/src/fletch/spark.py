# SPDX-License-Identifier: Apache-2.0
"""Spark: a column of texts becomes a column of vectors, batch by batch in Arrow (mapInArrow).

    frame = fletch.spark.embed(spark.read.parquet(source), column="text", dtype="int8")
    frame.write.parquet(target)

Each Python worker opens the model once and keeps it while Spark keeps the worker; it has spark.task.cpus threads. So
an executor of 16 cores with spark.task.cpus=4 holds four models. What a text is refused for becomes a null and a word
beside it, never an exception. A row depends on nothing but its text: a task that is tried again, or twice at once by
speculation, gives the same bytes."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.types import (ArrayType, BinaryType, ByteType, DataType, FloatType, ShortType, StringType, StructField,
                               StructType)

from . import _fletch
from ._columns import check_version, embed_column, lists
from ._model import Dtype, shared

#: Spark has no unsigned bytes: uint8 is widened, packed bits are a binary value.
_KINDS: dict[str, DataType] = {
    "float32": ArrayType(FloatType(), False), "int8": ArrayType(ByteType(), False),
    "uint8": ArrayType(ShortType(), False), "binary": ArrayType(ByteType(), False), "ubinary": BinaryType()}


def _rows(vectors: Any, bad: Any, dtype: str) -> Any:
    if dtype == "ubinary":
        return pa.array([None if gone else row.tobytes() for row, gone in zip(vectors, bad)], pa.binary())
    return lists(vectors.astype("int16") if dtype == "uint8" else vectors, bad)


def _mapper(model: str | None, column: str, output: str, options: dict[str, Any],
            arguments: dict[str, Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    driver = _fletch.version

    def embed_batches(batches: Iterator[Any]) -> Iterator[Any]:
        check_version(driver)
        opened = shared(model, **options)
        for batch in batches:
            found, bad, why = embed_column(opened, batch.column(column), arguments)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, _rows(found.vectors, bad, arguments["dtype"]), why],
                [*batch.schema.names, output, f"{output}_refused"])
    return embed_batches


def embed(frame: DataFrame, *, column: str = "text", output: str = "embedding", model: str | None = None,
          dtype: Dtype = "float32", options: dict[str, Any] | None = None, **arguments: Any) -> DataFrame:
    """The frame with the columns `output` and `output`_refused, why a text has none.

    `output` is array<float>, array<tinyint> (int8, binary), array<smallint> (uint8) or binary (ubinary). options:
    arguments of fletch.Model; other arguments are those of Model.embed."""
    if dtype not in _KINDS:
        raise ValueError(f"dtype must be one of {', '.join(_KINDS)}, not {dtype!r}")
    if column not in frame.columns:
        raise ValueError(f'no column "{column}"; the columns are {", ".join(frame.columns)}')
    for name in (output, f"{output}_refused"):
        if name in frame.columns:
            raise ValueError(f'the frame already has a column "{name}"; choose another with output=')
    if not isinstance(frame.schema[column].dataType, StringType):
        raise TypeError(f'the column "{column}" is {frame.schema[column].dataType.simpleString()}, not string')
    threads = int(frame.sparkSession.conf.get("spark.task.cpus", "1") or 1)
    schema = StructType([*frame.schema.fields, StructField(output, _KINDS[dtype]),
                         StructField(f"{output}_refused", StringType())])
    return frame.mapInArrow(
        _mapper(model, column, output, {"threads": threads} | (options or {}), {"dtype": dtype} | arguments), schema)
