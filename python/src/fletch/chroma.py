# SPDX-License-Identifier: Apache-2.0
"""Chroma: fletch.chroma.FletchEmbeddingFunction. A collection stores its configuration and opens with it again."""
from __future__ import annotations

from typing import Any, cast

from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
from chromadb.utils.embedding_functions import register_embedding_function

from ._model import shared


@register_embedding_function
class FletchEmbeddingFunction(EmbeddingFunction[Documents]):
    """Documents and queries, each with the model's own prompt; `options` are fletch.Model's arguments."""

    def __init__(self, model: str = "medium", dimensions: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._config: dict[str, Any] = {"model": model, "dimensions": dimensions, "options": options or {}}

    def _embed(self, method: str, texts: Documents) -> Embeddings:
        model = shared(self._config["model"], **self._config["options"])
        rows = getattr(model, method)(list(texts), dimensions=self._config["dimensions"], truncate="right")
        return cast(Embeddings, list(rows))

    def __call__(self, input: Documents) -> Embeddings:
        return self._embed("embed_document", input)

    def embed_query(self, input: Documents) -> Embeddings:
        return self._embed("embed_query", input)

    @staticmethod
    def name() -> str:
        return "fletch"

    def default_space(self) -> Space:
        return "cosine"

    def supported_spaces(self) -> list[Space]:
        return ["cosine", "l2", "ip"]

    def get_config(self) -> dict[str, Any]:
        return dict(self._config)

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> FletchEmbeddingFunction:
        return FletchEmbeddingFunction(**config)

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        if old_config["model"] != new_config["model"] or old_config["dimensions"] != new_config["dimensions"]:
            raise ValueError("vectors of another model or of other dimensions cannot be compared with the collection's")
