# SPDX-License-Identifier: Apache-2.0
"""MTEB: mteb.evaluate(fletch.mteb.FletchEncoder("medium"), tasks)."""
from __future__ import annotations

from typing import Any

from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta
from mteb.types import PromptType

from ._model import Model, shared
from ._similarity import similarity, similarity_pairwise


class FletchEncoder(AbsEncoder):
    """A fletch model as MTEB wants its encoders: by name, or a Model."""

    def __init__(self, model_name: str | Model = "medium", revision: str | None = None, *, device: str | None = None,
                 **options: Any) -> None:
        self.model: Any = model_name if isinstance(model_name, Model) else shared(model_name, revision=revision, **options)
        self.model_prompts = self.model.prompts or None
        self.mteb_model_meta = ModelMeta.create_empty({"name": "fletch/" + self.model.path.rstrip("/").rpartition("/")[2],
                                                       "revision": self.model.fingerprint[:40],
                                                       "embed_dim": self.model.dimensions,
                                                       "max_tokens": self.model.max_length})

    def encode(self, inputs: Any, *, task_metadata: Any, hf_split: str, hf_subset: str,
               prompt_type: PromptType | None = None, **kwargs: Any) -> Any:
        texts = [text for batch in inputs for text in batch["text"]]
        prompt = self.get_prompt(task_metadata, prompt_type) if self.model_prompts else None
        return self.model.embed(texts, prompt=prompt, truncate="right", progress=kwargs.get("show_progress_bar"))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        return similarity(self.model.similarity_fn_name, embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        return similarity_pairwise(self.model.similarity_fn_name, embeddings1, embeddings2)
