# SPDX-License-Identifier: Apache-2.0
"""Arrays as tensors, where torch is installed, and back."""
from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray


def find_torch() -> Any:
    """torch, or None. Imported only by what returns tensors: it takes seconds."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    return torch


def as_tensor(rows: NDArray[Any]) -> Any:
    torch = find_torch()
    return rows if torch is None else torch.from_numpy(rows)


def as_array(vectors: Any) -> Any:
    """Rows as numpy takes them: of a tensor, also a sparse one, of a list of these, of anything else as it is."""
    if isinstance(vectors, (list, tuple)):
        return [as_array(one) for one in vectors] if len(vectors) and hasattr(vectors[0], "detach") else vectors
    if not hasattr(vectors, "detach"):
        return vectors
    return (vectors.to_dense() if vectors.is_sparse else vectors).detach().cpu().numpy()


def contain(rows: NDArray[Any], single: bool, numpy: bool, tensor: bool) -> Any:
    """Rows in the container that a call asks for; of no rows the original's, to the dtype."""
    if not len(rows):
        return as_tensor(np.array([], np.float32)) if tensor else np.array([]) if numpy else []
    if tensor:
        made = as_tensor(rows)
        return made[0] if single else made
    if numpy:
        return rows[0] if single else rows
    rows_as_list = list(as_tensor(rows))
    return rows_as_list[0] if single else rows_as_list
