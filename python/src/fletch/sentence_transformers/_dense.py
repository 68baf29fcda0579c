# SPDX-License-Identifier: Apache-2.0
"""SentenceTransformer: a vector for each text."""
from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from .. import _similarity
from ._encoder import Encoder, log
from ._tensors import as_array, as_tensor, contain

if TYPE_CHECKING:
    import torch

Precision: TypeAlias = Literal["float32", "int8", "uint8", "binary", "ubinary"]
PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")


def quantize(rows: NDArray[Any], precision: str) -> NDArray[Any]:
    """As sentence_transformers.util.quantize_embeddings without ranges: int8 and uint8 calibrate on these rows."""
    if precision == "float32":
        return rows
    if precision in ("binary", "ubinary"):
        bits = np.packbits(rows > 0, axis=-1)
        return bits if precision == "ubinary" else np.asarray(bits - 128, np.int8)
    if len(rows) == 1:
        raise ValueError(f"Cannot compute {precision} quantization ranges from a single embedding. "
                         "fletch.Model.embed(dtype=...) has fixed ranges.")
    if len(rows) < 100:
        log.warning("Computing %s quantization buckets based on %d embeddings; fletch.Model.embed(dtype=...) has "
                    "fixed ranges.", precision, len(rows))
    low, high = rows.min(0), rows.max(0)
    steps = (high - low) / 255
    steps = np.where(steps == 0, 1, steps)
    values = np.clip(np.floor((rows - low) / steps), 0, 255)
    return np.asarray(values, np.uint8) if precision == "uint8" else np.asarray(values - 128, np.int8)


class SentenceTransformer(Encoder):
    """sentence_transformers.SentenceTransformer for inference. `model` is the fletch.Model under it."""

    ORIGINAL = "SentenceTransformer"

    def __init__(self, model_name_or_path: str | os.PathLike[str] | None = None, *, modules: Any = None,
                 device: Any = None, prompts: dict[str, str] | None = None, default_prompt_name: str | None = None,
                 cache_folder: str | None = None, trust_remote_code: bool = False, revision: str | None = None,
                 local_files_only: bool = False, token: bool | str | None = None, model_kwargs: Any = None,
                 processor_kwargs: Any = None, tokenizer_kwargs: Any = None, config_kwargs: Any = None,
                 model_card_data: Any = None, backend: str = "torch", similarity_fn_name: Any = None,
                 truncate_dim: int | None = None, fletch_config: Mapping[str, object] | None = None) -> None:
        self._open(model_name_or_path, fletch_config or {}, modules=modules, device=device,
                   trust_remote_code=trust_remote_code, backend=backend, model_card_data=model_card_data,
                   kwargs={"model_kwargs": model_kwargs, "processor_kwargs": processor_kwargs,
                           "tokenizer_kwargs": tokenizer_kwargs, "config_kwargs": config_kwargs},
                   revision=revision, cache_folder=cache_folder, local_files_only=local_files_only, token=token)
        self._set_prompts(prompts, default_prompt_name, {"query": "", "document": ""})
        self.truncate_dim = truncate_dim
        self._similarity_name = self.model.similarity_fn_name
        if similarity_fn_name is not None:
            self.similarity_fn_name = similarity_fn_name

    # ---- encoding: overloads in the original's order, of which the first that fits counts -------------------------

    @overload
    def encode(self, inputs: Any = ..., prompt_name: str | None = ..., prompt: str | None = ..., batch_size: int = ...,
               show_progress_bar: bool | None = ..., output_value: Literal["sentence_embedding"] = ...,
               precision: Precision | None = ..., convert_to_numpy: Literal[True] = ...,
               convert_to_tensor: Literal[False] = ..., device: Any = ..., normalize_embeddings: bool = ...,
               truncate_dim: int | None = ..., pool: Any = ..., chunk_size: int | None = ..., *, sentences: Any = ...,
               **kwargs: Any) -> NDArray[Any]: ...
    @overload
    def encode(self, inputs: Any = ..., prompt_name: str | None = ..., prompt: str | None = ..., batch_size: int = ...,
               show_progress_bar: bool | None = ..., output_value: Literal["sentence_embedding"] = ...,
               precision: Precision | None = ..., convert_to_numpy: bool = ..., *, convert_to_tensor: Literal[True],
               device: Any = ..., normalize_embeddings: bool = ..., truncate_dim: int | None = ..., pool: Any = ...,
               chunk_size: int | None = ..., sentences: Any = ..., **kwargs: Any) -> torch.Tensor: ...
    @overload
    def encode(self, inputs: str, prompt_name: str | None = ..., prompt: str | None = ..., batch_size: int = ...,
               show_progress_bar: bool | None = ..., output_value: Literal["sentence_embedding"] = ...,
               precision: Precision | None = ..., *, convert_to_numpy: Literal[False],
               convert_to_tensor: Literal[False] = ..., device: Any = ..., normalize_embeddings: bool = ...,
               truncate_dim: int | None = ..., pool: Any = ..., chunk_size: int | None = ...,
               **kwargs: Any) -> torch.Tensor: ...
    @overload
    def encode(self, inputs: list[str] | tuple[str, ...] | NDArray[Any], prompt_name: str | None = ...,
               prompt: str | None = ..., batch_size: int = ...,
               show_progress_bar: bool | None = ..., output_value: Literal["sentence_embedding"] = ...,
               precision: Precision | None = ..., *, convert_to_numpy: Literal[False],
               convert_to_tensor: Literal[False] = ..., device: Any = ..., normalize_embeddings: bool = ...,
               truncate_dim: int | None = ..., pool: Any = ..., chunk_size: int | None = ...,
               **kwargs: Any) -> list[torch.Tensor]: ...
    @overload
    def encode(self, inputs: Any = ..., prompt_name: str | None = ..., prompt: str | None = ..., batch_size: int = ...,
               show_progress_bar: bool | None = ..., output_value: str | None = ...,
               precision: Precision | None = ..., convert_to_numpy: bool = ..., convert_to_tensor: bool = ...,
               device: Any = ..., normalize_embeddings: bool = ..., truncate_dim: int | None = ..., pool: Any = ...,
               chunk_size: int | None = ..., *, sentences: Any = ..., **kwargs: Any) -> Any: ...

    def encode(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int = 32, show_progress_bar: bool | None = None,
               output_value: str | None = "sentence_embedding", precision: Precision | None = "float32",
               convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
               normalize_embeddings: bool = False, truncate_dim: int | None = None, pool: Any = None,
               chunk_size: int | None = None, *, sentences: Any = None, **kwargs: Any) -> Any:
        """As sentence_transformers' encode. batch_size, pool and chunk_size change nothing: fletch batches itself."""
        if inputs is None and sentences is not None:
            inputs = sentences
        self._check_call("encode", batch_size, kwargs)
        if precision is not None and precision not in PRECISIONS:
            raise ValueError(f"Precision {precision!r} is not supported, must be one of {PRECISIONS}")
        single = self._is_single(inputs)
        texts, text = [inputs] if single else inputs, self._prompt(prompt, prompt_name)
        if output_value != "sentence_embedding":
            return self._token_vectors(texts, text, single, output_value, precision)
        rows = self._rows(texts, text, self._bar(show_progress_bar))
        dim = truncate_dim if truncate_dim is not None else self.truncate_dim
        if dim is not None:
            rows = np.ascontiguousarray(rows[:, :dim])
        if normalize_embeddings and len(rows):
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        if len(rows) and precision:
            rows = quantize(rows, precision)
        return contain(rows, single, convert_to_numpy, convert_to_tensor)

    def _rows(self, inputs: Any, prompt: str | None, bar: bool) -> NDArray[Any]:
        found = self.model.embed(inputs, prompt=prompt or None, max_length=self._limit(), truncate="right",
                                 info=True, progress=bar)
        self._say_truncation(int(found.truncated.sum()), len(found.truncated))
        return found.vectors

    def _token_vectors(self, inputs: Any, prompt: str | None, single: bool, value: str | None, precision: str | None) -> Any:
        """A tensor (tokens, d) for each text, whatever container, length or unit length is asked for, as the original."""
        if value != "token_embeddings":
            self._refuse(f"output_value={value!r}", "it has 'sentence_embedding' and 'token_embeddings'; tokenize gives ids")
        if precision not in (None, "float32"):
            self._refuse(f"precision={precision!r} of token_embeddings", "quantize its result")
        rows = self.model.embed_tokens(inputs, prompt=prompt or None, max_length=self._limit(), truncate="right")
        return as_tensor(rows[0]) if single else [as_tensor(one) for one in rows]

    def encode_query(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None,
                     *args: Any, **kwargs: Any) -> Any:
        """As encode, with the prompt "query" where there is one."""
        return self.encode(inputs, self._role(("query",), prompt_name, prompt), prompt, *args, **kwargs)

    def encode_document(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None,
                        *args: Any, **kwargs: Any) -> Any:
        """As encode, with the first prompt of "document", "passage", "corpus"."""
        name = self._role(("document", "passage", "corpus"), prompt_name, prompt)
        return self.encode(inputs, name, prompt, *args, **kwargs)

    def encode_multi_process(self, sentences: Any, pool: Any, prompt_name: str | None = None, prompt: str | None = None,
                             batch_size: int = 32, chunk_size: int | None = None, **kwargs: Any) -> Any:
        """Deprecated by the original: encode does it."""
        warnings.warn("The `encode_multi_process` method has been deprecated; call `encode`.", DeprecationWarning, 2)
        return self.encode(sentences, prompt_name, prompt, batch_size, **kwargs)

    # ---- similarity ---------------------------------------------------------------------------------------------

    @property
    def similarity_fn_name(self) -> str:
        return self._similarity_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, value: Any) -> None:
        name = getattr(value, "value", value)  # the original's enum has the name as its value
        if name is not None and name not in _similarity.NAMES:
            raise ValueError(f"SentenceTransformer only supports similarity_fn_name in {list(_similarity.NAMES)}, "
                             f"got {name!r}.")
        self._similarity_name = "cosine" if name is None else name

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Every row of the one with every row of the other: a tensor where torch is installed."""
        return as_tensor(_similarity.similarity(self._similarity_name, as_array(embeddings1), as_array(embeddings2)))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Each row of the one with the row of the other at its place."""
        return as_tensor(_similarity.similarity_pairwise(self._similarity_name, as_array(embeddings1),
                                                         as_array(embeddings2)))

    # ---- shorter vectors ----------------------------------------------------------------------------------------

    def get_embedding_dimension(self) -> int:
        dimensions = self.model.dimensions
        return dimensions if self.truncate_dim is None else min(dimensions, self.truncate_dim)

    @contextmanager
    def truncate_embeddings(self, truncate_dim: int | None) -> Iterator[None]:
        before, self.truncate_dim = self.truncate_dim, truncate_dim
        try:
            yield
        finally:
            self.truncate_dim = before

    @contextmanager
    def truncate_sentence_embeddings(self, truncate_dim: int | None) -> Iterator[None]:
        warnings.warn("The `truncate_sentence_embeddings` method has been renamed to `truncate_embeddings`.",
                      FutureWarning, 3)
        with self.truncate_embeddings(truncate_dim):
            yield
