# SPDX-License-Identifier: Apache-2.0
"""CrossEncoder: a score, or one for each label, for each pair of texts."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._encoder import Encoder
from ._tensors import as_tensor, contain

_ACTIVATIONS = {"Identity": "none", "Sigmoid": "sigmoid"}  # torch.nn's; what else there is runs on raw scores


class CrossEncoder(Encoder):
    """sentence_transformers.CrossEncoder for inference. `model` is the fletch.Model under it."""

    ORIGINAL = "CrossEncoder"

    def __init__(self, model_name_or_path: str | os.PathLike[str] | None = None, *, modules: Any = None,
                 device: Any = None, prompts: dict[str, str] | None = None, default_prompt_name: str | None = None,
                 cache_folder: str | None = None, trust_remote_code: bool = False, revision: str | None = None,
                 local_files_only: bool = False, token: bool | str | None = None, model_kwargs: Any = None,
                 processor_kwargs: Any = None, tokenizer_kwargs: Any = None, config_kwargs: Any = None,
                 model_card_data: Any = None, backend: str = "torch", num_labels: int | None = None,
                 max_length: int | None = None, activation_fn: Any = None,
                 fletch_config: Mapping[str, object] | None = None) -> None:
        self._open(model_name_or_path, fletch_config or {}, modules=modules, device=device,
                   trust_remote_code=trust_remote_code, backend=backend, model_card_data=model_card_data,
                   kwargs={"model_kwargs": model_kwargs, "processor_kwargs": processor_kwargs,
                           "tokenizer_kwargs": tokenizer_kwargs, "config_kwargs": config_kwargs},
                   revision=revision, cache_folder=cache_folder, local_files_only=local_files_only, token=token)
        if not self.model.labels:
            self._refuse(f"scores of {self.model.id}", "it is not a reranker or a classifier; SentenceTransformer, SparseEncoder "
                         "and MultiVectorEncoder are for the other kinds")
        if num_labels not in (None, self.num_labels):
            self._refuse(f"num_labels={num_labels}", f"the model has {self.num_labels}; another number needs training")
        self._set_prompts(prompts, default_prompt_name, {})
        self.activation_fn = activation_fn
        if max_length is not None:
            self.max_seq_length = max_length

    @property
    def num_labels(self) -> int:
        return len(self.model.labels)

    # ---- scores -------------------------------------------------------------------------------------------------

    @staticmethod
    def _is_pair(inputs: Any) -> bool:
        """Whether it is one pair: a list that holds no lists."""
        if isinstance(inputs, (list, tuple)):
            return len(inputs) > 0 and not isinstance(inputs[0], (list, tuple, np.ndarray))
        return isinstance(inputs, np.ndarray) and inputs.ndim < 2 and inputs.size > 0 or isinstance(inputs, str)

    def predict(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None, batch_size: int = 32,
                show_progress_bar: bool | None = None, activation_fn: Any = None, apply_softmax: bool | None = False,
                convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None, pool: Any = None,
                chunk_size: int | None = None, *, sentences: Any = None, **kwargs: Any) -> Any:
        """As sentence_transformers' predict: (n,) of one label, else (n, labels); of one pair without the n."""
        inputs = sentences if inputs is None else inputs
        self._check_call("predict", batch_size, kwargs)
        single = self._is_pair(inputs)
        pairs = [list(pair) if isinstance(pair, np.ndarray) else pair for pair in ([inputs] if single else inputs)]
        for pair in pairs:
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise ValueError(f"predict takes pairs of texts, not {pair!r}")
        text = self._prompt(prompt, prompt_name)
        scores = self._scores([pair[0] for pair in pairs], [pair[1] for pair in pairs], text, activation_fn,
                              apply_softmax, self._bar(show_progress_bar))
        return contain(scores, single, convert_to_numpy, convert_to_tensor)

    def _scores(self, first: list[Any], second: list[Any], prompt: str | None, given: Any, softmax: bool | None,
                bar: bool) -> NDArray[Any]:
        chosen = self.activation_fn if given is None else given
        name = None if chosen is None else _ACTIVATIONS.get(type(chosen).__name__, "none")
        scores = self.model.classify(first, second, prompt=prompt or None, max_length=self._limit(),
                                     truncate="right", activation=name, progress=bar)
        if chosen is not None and type(chosen).__name__ not in _ACTIVATIONS and len(scores):
            made = chosen(as_tensor(scores))
            scores = made.numpy() if hasattr(made, "numpy") else np.asarray(made)
        if self.num_labels == 1:
            return scores.reshape(-1) if scores.ndim > 1 else scores
        if softmax and len(scores):
            raised = np.exp(scores - scores.max(1, keepdims=True))
            scores = raised / raised.sum(1, keepdims=True)
        return scores

    def rank(self, query: str, documents: Sequence[str], top_k: int | None = None, return_documents: bool = False,
             prompt_name: str | None = None, prompt: str | None = None, batch_size: int = 32,
             show_progress_bar: bool | None = None, activation_fn: Any = None, device: Any = None, pool: Any = None,
             chunk_size: int | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        """As sentence_transformers' rank: the documents' numbers and scores, the best first."""
        if self.num_labels != 1:
            raise ValueError("CrossEncoder.rank() only works for models with num_labels=1. Consider using "
                             "CrossEncoder.predict() with input pairs instead.")
        scores = self.predict([(query, document) for document in documents], prompt_name, prompt, batch_size,
                              show_progress_bar, activation_fn, **kwargs).tolist()
        found: list[dict[str, Any]] = [{"corpus_id": i, "score": score} for i, score in enumerate(scores)]
        if return_documents:
            found = [{**one, "text": documents[i]} for i, one in enumerate(found)]
        return sorted(found, key=lambda one: float(one["score"]), reverse=True)[:top_k]
