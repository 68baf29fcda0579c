# SPDX-License-Identifier: Apache-2.0
"""LlamaIndex: fletch.llama_index.FletchEmbedding. Survives its ingestion pipeline's forked and spawned workers."""
from __future__ import annotations

from typing import Any, cast

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import Field, PrivateAttr

from ._model import Model, shared


class FletchEmbedding(BaseEmbedding):
    """Embeddings by a fletch model; model_name and options are fletch.Model's arguments."""

    model_name: str = Field(default="medium", description="A folder, a hub id, or low, medium, high.")
    embed_batch_size: int = Field(default=2048, gt=0, description="Texts per call; fletch batches within a call.")
    options: dict[str, Any] = Field(default_factory=dict, description="Further arguments of fletch.Model.")
    _client: Model | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        return "FletchEmbedding"

    @property
    def client(self) -> Model:
        """The model, opened when it is needed first."""
        if self._client is None:
            self._client = shared(self.model_name, **self.options)
        return self._client

    def _get_query_embedding(self, query: str) -> list[float]:
        return cast("list[float]", self.client.embed_query(query, truncate="right").tolist())

    def _get_text_embedding(self, text: str) -> list[float]:
        return cast("list[float]", self.client.embed_document(text, truncate="right").tolist())

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return cast("list[list[float]]", self.client.embed_document(texts, truncate="right").tolist())

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return cast("list[float]", (await self.client.aembed_query(query, truncate="right")).tolist())

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return cast("list[float]", (await self.client.aembed_document(text, truncate="right")).tolist())

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows = await self.client.aembed_document(texts, truncate="right", lane="bulk")
        return cast("list[list[float]]", rows.tolist())
