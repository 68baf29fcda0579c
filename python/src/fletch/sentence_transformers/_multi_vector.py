# SPDX-License-Identifier: Apache-2.0
"""MultiVectorEncoder: a vector for each token of a text, compared by late interaction (ColBERT)."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._encoder import RetrievalEncoder
from ._tensors import as_array, as_tensor

_MEASURES = ("maxsim", "meanmaxsim")


class MultiVectorEncoder(RetrievalEncoder):
    """sentence_transformers.MultiVectorEncoder for inference. `model` is the fletch.Model under it."""

    ORIGINAL = "MultiVectorEncoder"

    def __init__(self, model_name_or_path: str | os.PathLike[str] | None = None, *, modules: Any = None,
                 device: Any = None, prompts: dict[str, str] | None = None, default_prompt_name: str | None = None,
                 cache_folder: str | None = None, trust_remote_code: bool = False, revision: str | None = None,
                 local_files_only: bool = False, token: bool | str | None = None, model_kwargs: Any = None,
                 processor_kwargs: Any = None, tokenizer_kwargs: Any = None, config_kwargs: Any = None,
                 model_card_data: Any = None, backend: str = "torch", similarity_fn_name: Any = None,
                 fletch_config: Mapping[str, object] | None = None) -> None:
        self._open(model_name_or_path, fletch_config or {}, modules=modules, device=device,
                   trust_remote_code=trust_remote_code, backend=backend, model_card_data=model_card_data,
                   kwargs={"model_kwargs": model_kwargs, "processor_kwargs": processor_kwargs,
                           "tokenizer_kwargs": tokenizer_kwargs, "config_kwargs": config_kwargs},
                   revision=revision, cache_folder=cache_folder, local_files_only=local_files_only, token=token)
        if self.model.properties["head"] != "late":
            self._refuse(f"vectors of tokens of {self.model.id}", "it is not a late-interaction model; SentenceTransformer, "
                         "CrossEncoder and SparseEncoder are for the other kinds")
        self._set_prompts(prompts, default_prompt_name, {"query": "", "document": ""})
        self.similarity_fn_name = self.model.properties["similarity"] if similarity_fn_name is None else similarity_fn_name

    def encode(self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, batch_size: int = 32,
               show_progress_bar: bool | None = None, output_value: str | None = "token_embeddings",
               convert_to_numpy: bool = False, device: Any = None, normalize_embeddings: bool = False, pool: Any = None,
               chunk_size: int | None = None, token_pooling: Any = None, *, task: str | None = None, **kwargs: Any) -> Any:
        """As sentence_transformers' encode: a tensor (tokens, d) for each text, or an array."""
        if output_value is None or token_pooling is not None:
            self._refuse("output_value=None" if output_value is None else "token_pooling=", "pool the result of encode")
        if output_value != "token_embeddings":
            raise ValueError(f'output_value must be "token_embeddings" or None, got {output_value!r}.')
        if "convert_to_tensor" in kwargs:
            raise ValueError("MultiVectorEncoder.encode() has no `convert_to_tensor`: texts of different lengths do not "
                             "form one tensor. It returns a list of tensors, or of arrays with convert_to_numpy=True.")
        self._check_call("encode", batch_size, kwargs)
        single = self._is_single(inputs)
        rows = self.model.embed_tokens([inputs] if single else inputs, prompt=self._prompt(prompt, prompt_name) or "",
                                       prompt_name=task, max_length=self._limit(), truncate="right",
                                       progress=self._bar(show_progress_bar))
        if normalize_embeddings:
            rows = [row / np.maximum(np.linalg.norm(row, axis=1, keepdims=True), 1e-12) for row in rows]
        found = rows if convert_to_numpy else [as_tensor(row) for row in rows]
        return found[0] if single else found

    # ---- scores -------------------------------------------------------------------------------------------------

    @property
    def similarity_fn_name(self) -> str:
        return self._similarity_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, value: Any) -> None:
        name = getattr(value, "value", value)
        if name is not None and name not in _MEASURES:
            raise ValueError(f"MultiVectorEncoder only supports {list(_MEASURES)}, got {name!r}. "
                             "Cosine, dot, euclidean and manhattan compare single vectors.")
        self._similarity_name = "maxsim" if name is None else name

    def _texts(self, vectors: Any) -> list[NDArray[Any]]:
        """The matrix of each text: a matrix alone is one text."""
        rows = as_array(vectors)
        if isinstance(rows, np.ndarray) and rows.ndim == 3:
            self._refuse("similarity of padded tensors", "pass the list that encode returns")
        return [rows] if isinstance(rows, np.ndarray) and rows.ndim == 2 else [np.asarray(row) for row in rows]

    def _score(self, query: NDArray[Any], document: NDArray[Any]) -> float:
        best = (query @ document.T).max(1)
        return float(best.sum() if self._similarity_name == "maxsim" else best.mean())

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """The score of every query with every document."""
        documents = self._texts(embeddings2)
        return as_tensor(np.array([[self._score(query, one) for one in documents] for query in self._texts(embeddings1)],
                                  np.float32))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """The score of each query with the document at its place."""
        return as_tensor(np.array([self._score(query, one) for query, one in
                                   zip(self._texts(embeddings1), self._texts(embeddings2))], np.float32))
