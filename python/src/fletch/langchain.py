# SPDX-License-Identifier: Apache-2.0
"""LangChain: fletch.langchain.FletchEmbeddings, an Embeddings that needs no server and no thread for its async half."""
from __future__ import annotations

from typing import Any, cast

from langchain_core.embeddings import Embeddings

from ._model import Model, shared


class FletchEmbeddings(Embeddings):
    """Embeddings by a fletch model: documents and queries with the model's own prompts for them.

    model: what fletch.Model takes, or a fletch.Model. The rest are fletch.Model's arguments."""

    def __init__(self, model: str | Model = "medium", *, dimensions: int | None = None, **options: Any) -> None:
        self.client = model if isinstance(model, Model) else shared(model, **options)
        self._arguments: dict[str, Any] = {"dimensions": dimensions, "truncate": "right"}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return cast("list[list[float]]", self.client.embed_document(texts, **self._arguments).tolist())

    def embed_query(self, text: str) -> list[float]:
        return cast("list[float]", self.client.embed_query(text, **self._arguments).tolist())

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        rows = await self.client.aembed_document(texts, lane="bulk", **self._arguments)
        return cast("list[list[float]]", rows.tolist())

    async def aembed_query(self, text: str) -> list[float]:
        row = await self.client.aembed_query(text, **self._arguments)
        return cast("list[float]", row.tolist())
