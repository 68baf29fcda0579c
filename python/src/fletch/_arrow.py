# SPDX-License-Identifier: Apache-2.0
"""Rows as an Arrow column, without pyarrow: FixedSizeList<float|int8|uint8>[d] over the memory they lie in."""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _fletch


class ArrowRows:
    """Rows of vectors that any Arrow library takes: pyarrow.array(rows), polars.Series(rows), duckdb."""

    def __init__(self, rows: NDArray[Any], nulls: NDArray[np.bool_] | None):
        self._rows, self._nulls = rows, nulls

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def null_count(self) -> int:
        return 0 if self._nulls is None else int(self._nulls.sum())

    def to_numpy(self) -> NDArray[Any]:
        """The same memory as a matrix; null rows are zeros or NaN."""
        return self._rows

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        valid = None if self._nulls is None else np.packbits(~self._nulls, bitorder="little").tobytes()
        return _fletch.export_rows(self._rows, valid, self.null_count)

    def __arrow_c_schema__(self) -> object:
        return _fletch.export_rows(self._rows[:0], None, 0)[0]
