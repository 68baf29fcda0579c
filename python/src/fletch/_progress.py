# SPDX-License-Identifier: Apache-2.0
"""Who hears of rows as they are done: a function, or a tqdm bar."""
from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TypeAlias, Union

Progress: TypeAlias = Union[bool, Callable[[int], object], None]


@contextlib.contextmanager
def rows_heard(progress: Progress, total: int) -> Iterator[Callable[[int], object]]:
    """The function to call with rows that are done."""
    if progress is None or progress is False:
        yield lambda rows: None
        return
    if callable(progress):
        yield progress
        return
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        logging.getLogger("fletch").info("no progress bar: tqdm is not installed")
        yield lambda rows: None
        return
    with tqdm(total=total, unit="text", desc="Embedding") as bar:
        yield bar.update
