# SPDX-License-Identifier: Apache-2.0
"""SparseEncoder: weights of the vocabulary for each text."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import _similarity
from .._heads import Sparse
from ._encoder import RetrievalEncoder
from ._tensors import as_array, as_tensor, find_torch


def _tensors(found: Sparse, sparse: bool) -> Any:
    """Rows as a tensor, in coordinates or dense; a dense array where torch is not installed."""
    torch = find_torch()
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    if torch is not None and sparse:
        return torch.sparse_coo_tensor(torch.from_numpy(np.stack([rows, found.indices.astype(np.int64)])),
                                       torch.from_numpy(found.data), found.shape, is_coalesced=True, check_invariants=False)
    dense = np.zeros(found.shape, np.float32)
    dense[rows, found.indices] = found.data
    return as_tensor(dense)


class SparseEncoder(RetrievalEncoder):
    """sentence_transformers.SparseEncoder for inference. `model` is the fletch.Model under it."""

    ORIGINAL = "SparseEncoder"

    def __init__(self, model_name_or_path: str | os.PathLike[str] | None = None, *, modules: Any = None,
                 device: Any = None, prompts: dict[str, str] | None = None, default_prompt_name: str | None = None,
                 cache_folder: str | None = None, trust_remote_code: bool = False, revision: str | None = None,
                 local_files_only: bool = False, token: bool | str | None = None, model_kwargs: Any = None,
                 processor_kwargs: Any = None, tokenizer_kwargs: Any = None, config_kwargs: Any = None,
                 model_card_data: Any = None, backend: str = "torch", similarity_fn_name: Any = None,
                 max_active_dims: int | None = None, fletch_config: Mapping[str, object] | None = None) -> None:
        self._open(model_name_or_path, fletch_config or {}, modules=modules, device=device,
                   trust_remote_code=trust_remote_code, backend=backend, model_card_data=model_card_data,
                   kwargs={"model_kwargs": model_kwargs, "processor_kwargs": processor_kwargs,
                           "tokenizer_kwargs": tokenizer_kwargs, "config_kwargs": config_kwargs},
                   revision=revision, cache_folder=cache_folder, local_files_only=local_files_only, token=token)
        if self.model.properties["head"] != "sparse":
            self._refuse(f"sparse vectors of {self.model.id}", "SentenceTransformer, CrossEncoder and MultiVectorEncoder "
                         "are for the other kinds; fletch.Model.embed_sparse serves bge-m3")
        if max_active_dims is not None and (isinstance(max_active_dims, bool) or not isinstance(max_active_dims, int) or
                                            max_active_dims <= 0):
            raise ValueError(f"max_active_dims must be a positive integer, got {max_active_dims}.")
        self._set_prompts(prompts, default_prompt_name, {"query": "", "document": ""})
        self.max_active_dims = max_active_dims
        self._similarity_name = "dot"
        self.similarity_fn_name = self.model.similarity_fn_name if similarity_fn_name is None else similarity_fn_name

    def encode(self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, batch_size: int = 32,
               show_progress_bar: bool | None = None, convert_to_tensor: bool = True, convert_to_sparse_tensor: bool = True,
               save_to_cpu: bool = False, device: Any = None, max_active_dims: int | None = None, pool: Any = None,
               chunk_size: int | None = None, *, task: str | None = None, **kwargs: Any) -> Any:
        """As sentence_transformers' encode: one tensor, sparse unless that is not wanted, or a list of its rows."""
        self._check_call("encode", batch_size, kwargs)
        single = self._is_single(inputs)
        top = self.max_active_dims if max_active_dims is None else max_active_dims
        found = self.model.embed_sparse([inputs] if single else inputs, prompt=self._prompt(prompt, prompt_name) or "",
                                        prompt_name=task, max_length=self._limit(), truncate="right",
                                        top_k=top or 0, progress=self._bar(show_progress_bar))
        if not found.shape[0] and convert_to_tensor:
            torch = find_torch()
            return np.array([], np.float32) if torch is None else \
                torch.tensor([]).to_sparse() if convert_to_sparse_tensor else torch.tensor([])
        rows = _tensors(found, convert_to_sparse_tensor)
        if single:
            return rows[0]
        return rows if convert_to_tensor else list(rows)

    # ---- what a vector says -------------------------------------------------------------------------------------

    @property
    def similarity_fn_name(self) -> str:
        return self._similarity_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, value: Any) -> None:
        name = getattr(value, "value", value)
        if name is not None and name not in _similarity.NAMES:
            raise ValueError(f"SparseEncoder only supports similarity_fn_name in {list(_similarity.NAMES)}, got {name!r}.")
        self._similarity_name = "dot" if name is None else name

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        return as_tensor(_similarity.similarity(self._similarity_name, as_array(embeddings1), as_array(embeddings2)))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        return as_tensor(_similarity.similarity_pairwise(self._similarity_name, as_array(embeddings1),
                                                         as_array(embeddings2)))

    def get_embedding_dimension(self) -> int:
        return self.model._usable().sparse

    @staticmethod
    def sparsity(embeddings: Any) -> dict[str, float]:
        """How many weights a vector has (the mean), and what share of its dimensions is empty."""
        rows = np.atleast_2d(as_array(embeddings))
        active = float((rows != 0).sum(1).mean()) if rows.size else 0.0
        return {"active_dims": active, "sparsity_ratio": 1.0 - active / rows.shape[1] if rows.size else 1.0}

    def decode(self, embeddings: Any, top_k: int | None = None) -> Any:
        """The tokens of a vector and their weights, the heaviest first; of a matrix a list of these."""
        if top_k is not None and top_k <= 0:
            raise ValueError(f"top_k must be a positive integer, got {top_k}.")
        rows = np.asarray(as_array(embeddings))
        if rows.ndim not in (1, 2):
            raise ValueError(f"Input tensor must be 1D or 2D, got {rows.ndim}D.")
        found = []
        for row in np.atleast_2d(rows):
            heavy = np.argsort(-row, kind="stable")[:np.count_nonzero(row)][:top_k]
            found.append(list(zip(self.tokenizer.convert_ids_to_tokens(heavy), row[heavy].tolist())))
        return found[0] if rows.ndim == 1 else found
