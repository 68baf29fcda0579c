# SPDX-License-Identifier: Apache-2.0
"""Canaries: whether vectors that were stored are still those that a model gives. The file is that of `fletch canary`."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _fletch
from .errors import InvalidArgument

if TYPE_CHECKING:
    from ._model import Model

_ONE_SPACE = 1e-5  # of a vector of length 1: what another instruction set gives
Judgement = Literal["same bytes", "same space", "another space"]


@dataclass(frozen=True)
class Verdict:
    """What became of vectors that were stored."""

    verdict: Judgement
    vectors: int  #: how many were compared; 0 where the dimensions differ
    same_bytes: int  #: of them
    largest_difference: float  #: of one number, as part of a vector of length 1
    least_cosine: float
    differs: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)  #: part: (there, here)


def make(model: Model) -> dict[str, Any]:
    parts = model.vector_parts
    del parts["dtype"]  # a canary is of float32
    rows = [{"text": text, "vector": [float(str(number)) for number in model.embed(text, truncate="right")]}
            for text in _fletch.canary_texts()]
    return {"canary": 1, "fletch": _fletch.version, "id": model.vector_id, "model": parts.pop("model"), "settings": parts,
            "rows": rows}


def _read(canary: Any) -> tuple[list[str], Any, dict[str, Any]]:
    if isinstance(canary, (str, os.PathLike)):
        with open(canary, encoding="utf-8") as file:
            canary = json.load(file)
    try:
        if canary["canary"] != 1:
            raise KeyError
        texts = [row["text"] for row in canary["rows"]]
        return texts, [row["vector"] for row in canary["rows"]], {"model": canary.get("model"), **canary.get("settings", {})}
    except (KeyError, TypeError):
        raise InvalidArgument("this is not a canary: model.canary() and `fletch canary` make one") from None


def verify(model: Model, canary: Mapping[str, Any] | str | os.PathLike[str] | None, texts: Sequence[str] | None, vectors: Any,
           prompt_name: str | None) -> Verdict:
    if (canary is None) == (texts is None) or (texts is None) != (vectors is None):
        raise InvalidArgument("verify takes a canary, or texts and their stored vectors")
    there: dict[str, Any] = {}
    if canary is not None:
        texts, vectors, there = _read(canary)
    assert texts is not None
    try:
        then = np.asarray(vectors, np.float32)
    except (TypeError, ValueError):
        raise InvalidArgument("the vectors are not numeric, or their dimensions differ") from None
    if then.ndim != 2 or len(then) != len(texts) or len(then) == 0:
        raise InvalidArgument(f"{len(texts)} texts, but vectors of shape {then.shape}: the numbers must match")
    here = model.vector_parts if there else {}
    here.pop("dtype", None)
    differs = {name: (there.get(name), here.get(name)) for name in there | here if there.get(name) != here.get(name)}
    if then.shape[1] != model.dimensions:
        return Verdict("another space", 0, 0, np.inf, np.nan, differs | {"dimensions": (str(then.shape[1]), str(model.dimensions))})
    now = model.embed(list(texts), truncate="right", prompt_name=prompt_name)
    same = int((now.view(np.uint32) == then.view(np.uint32)).all(1).sum())
    wide, before = now.astype(np.float64), then.astype(np.float64)
    length = np.linalg.norm(before, axis=1)
    off = np.abs(wide - before).max(1) / np.where(length > 0, length, 1)
    size = np.linalg.norm(wide, axis=1) * length
    cosine = np.where(off == 0, 1, (wide * before).sum(1) / np.where(size > 0, size, 1))
    largest = float(np.where(np.isfinite(off), off, np.inf).max())
    verdict: Judgement = "same bytes" if same == len(then) else "same space" if largest <= _ONE_SPACE else "another space"
    return Verdict(verdict, len(then), same, largest, float(cosine.min()), differs)
