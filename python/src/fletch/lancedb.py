# SPDX-License-Identifier: Apache-2.0
"""LanceDB: import fletch.lancedb, then get_registry().get("fletch").create(name="medium")."""
from __future__ import annotations

from typing import Any

import numpy as np
from lancedb.embeddings import TextEmbeddingFunction, register

from ._model import Model, shared


@register("fletch")  # type: ignore[no-untyped-call]
class FletchEmbeddings(TextEmbeddingFunction):
    """name: what fletch.Model takes; options: more of its arguments."""

    name: str = "medium"
    dimensions: int | None = None
    options: dict[str, Any] = {}

    @property
    def _client(self) -> Model:
        return shared(self.name, **self.options)

    def ndims(self) -> int:
        return self.dimensions or self._client.dimensions

    def _rows(self, method: str, texts: Any) -> list[Any]:
        model = self._client
        return list(getattr(model, method)(self.sanitize_input(texts), dimensions=self.dimensions, truncate="right"))

    def generate_embeddings(self, texts: list[str] | np.ndarray[Any, Any], *args: Any, **kwargs: Any) -> list[Any]:
        return self._rows("embed_document", texts)

    def compute_query_embeddings(self, query: str, *args: Any, **kwargs: Any) -> list[Any]:
        return self._rows("embed_query", query)
