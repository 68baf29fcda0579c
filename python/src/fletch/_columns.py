# SPDX-License-Identifier: Apache-2.0
"""A column of texts as a column of vectors and one that says why a text has none: what table engines call."""
from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from . import _fletch
from ._model import Embeddings, Model
from .errors import Error

#: What can be wrong with a text. Anything else is no text's fault, so that a second try may help.
REFUSABLE = {_fletch.codes[name]: text for name, text in {
    "EINVAL": "the text is missing", "EUTF8": "text is not valid UTF-8", "ETOOLONG": "text too long for the model",
    "EMODEL": "its vector is not finite"}.items()}


def check_version(driver: str) -> None:
    """Rows of two versions in one table are of no use: a node that has another than the driver says so."""
    if _fletch.version != driver:
        raise Error(f"this node has fletch {_fletch.version} and the driver {driver}: install the same on all")


def embed_column(model: Model, texts: Any, arguments: dict[str, Any]) -> tuple[Embeddings, Any, Any]:
    """The embeddings, with rows of 0 where there are none; which those are; why, as an Arrow column."""
    given: dict[str, Any] = {"truncate": "right"} | arguments
    found = model.embed(texts, info=True, on_error="null", **given)
    unknown = sorted({int(status) for status in found.status} - {0, *REFUSABLE})
    if unknown:
        raise Error(f"a batch could not be embedded: status {unknown[0]}")
    bad = found.status != 0
    found.vectors[bad] = 0
    return found, bad, pa.array([REFUSABLE[int(status)] if status else None for status in found.status], pa.string())


def fixed_lists(vectors: Any, bad: Any) -> Any:
    """Rows as a FixedSizeList column, null where they are bad."""
    kind = pa.list_(pa.from_numpy_dtype(vectors.dtype), vectors.shape[1])
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind, mask=pa.array(bad))


def lists(vectors: Any, bad: Any) -> Any:
    """The same as a List column, for engines that have no lists of a fixed size."""
    ends = np.concatenate([[0], np.cumsum(~bad) * vectors.shape[1]]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(vectors[~bad].reshape(-1)), mask=pa.array(bad))
