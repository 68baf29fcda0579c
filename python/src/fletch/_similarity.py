# SPDX-License-Identifier: Apache-2.0
"""How alike vectors are: the four measures that sentence-transformers models name, on numpy arrays."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[Any]


def rows_of(vectors: ArrayLike) -> Matrix:
    array = np.asarray(vectors)
    if array.dtype.kind not in "fiub":
        array = array.astype(np.float32)
    elif array.dtype.kind != "f":
        array = array.astype(np.float32)
    return array[None, :] if array.ndim == 1 else array


def _unit(rows: Matrix) -> Matrix:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(length, 1e-12))


def _cosine(a: Matrix, b: Matrix) -> Matrix:
    return np.asarray(_unit(a) @ _unit(b).T)


def _dot(a: Matrix, b: Matrix) -> Matrix:
    return np.asarray(a @ b.T)


def _euclidean(a: Matrix, b: Matrix) -> Matrix:
    x, y = a.astype(np.float64), b.astype(np.float64)  # in float32 equal rows would be 3e-4 apart
    square = (x * x).sum(1)[:, None] + (y * y).sum(1)[None, :] - 2 * (x @ y.T)
    return np.asarray(-np.sqrt(np.maximum(square, 0)), a.dtype)


def _manhattan(a: Matrix, b: Matrix) -> Matrix:
    return np.asarray(-np.stack([np.abs(row - b).sum(1) for row in a]))


_PAIR: dict[str, Callable[[Matrix, Matrix], Matrix]] = {
    "cosine": lambda a, b: np.asarray((_unit(a) * _unit(b)).sum(1)),
    "dot": lambda a, b: np.asarray((a * b).sum(1)),
    "euclidean": lambda a, b: np.asarray(-np.linalg.norm(a - b, axis=1)),
    "manhattan": lambda a, b: np.asarray(-np.abs(a - b).sum(1))}
_ALL = {"cosine": _cosine, "dot": _dot, "euclidean": _euclidean, "manhattan": _manhattan}
NAMES = tuple(_ALL)


def similarity(name: str, a: ArrayLike, b: ArrayLike) -> Matrix:
    """Every row of `a` with every row of `b`."""
    return _ALL[name](rows_of(a), rows_of(b))


def similarity_pairwise(name: str, a: ArrayLike, b: ArrayLike) -> Matrix:
    """Each row of `a` with the row of `b` at its place."""
    return _PAIR[name](rows_of(a), rows_of(b))
