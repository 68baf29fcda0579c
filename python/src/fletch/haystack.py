# SPDX-License-Identifier: Apache-2.0
"""Haystack: components for texts and documents in fletch.haystack."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from ._model import Model, shared


class _Embedder:
    def __init__(self, model: str = "medium", *, dimensions: int | None = None, options: dict[str, Any] | None = None,
                 prompt: str | None = None) -> None:
        self.model, self.dimensions, self.options, self.prompt = model, dimensions, options or {}, prompt
        self._client: Model | None = None

    def warm_up(self) -> None:
        """Open the model. A pipeline calls it once; a component that is run alone needs no call."""
        if self._client is None:
            self._client = shared(self.model, **self.options)

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, model=self.model, dimensions=self.dimensions, options=self.options, prompt=self.prompt)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        return default_from_dict(cls, data)

    def _ready(self) -> tuple[Model, dict[str, Any]]:
        self.warm_up()
        assert self._client is not None
        return self._client, {"prompt": self.prompt, "dimensions": self.dimensions, "truncate": "right"}


@component
class FletchTextEmbedder(_Embedder):
    """A text, a query for instance, to its vector."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        if not isinstance(text, str):
            raise TypeError("FletchTextEmbedder expects a str; FletchDocumentEmbedder takes documents")
        model, arguments = self._ready()
        return {"embedding": model.embed_query(text, **arguments).tolist()}

    @component.output_types(embedding=list[float])
    async def run_async(self, text: str) -> dict[str, Any]:
        model, arguments = self._ready()
        return {"embedding": (await model.aembed_query(text, **arguments)).tolist()}


@component
class FletchDocumentEmbedder(_Embedder):
    """Documents to copies of them with a vector."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        if not isinstance(documents, list) or any(not isinstance(one, Document) for one in documents):
            raise TypeError("FletchDocumentEmbedder expects a list of documents; FletchTextEmbedder takes a text")
        model, arguments = self._ready()
        rows = model.embed_document([one.content or "" for one in documents], **arguments)
        return {"documents": [replace(one, embedding=row.tolist()) for one, row in zip(documents, rows)]}

    @component.output_types(documents=list[Document])
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        model, arguments = self._ready()
        rows = await model.aembed_document([one.content or "" for one in documents], lane="bulk", **arguments)
        return {"documents": [replace(one, embedding=row.tolist()) for one, row in zip(documents, rows)]}
