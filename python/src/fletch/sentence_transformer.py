# SPDX-License-Identifier: Apache-2.0
"""SentenceTransformer: the inference half of sentence-transformers' class, on fletch.

Values, shapes, dtypes, containers and exceptions are the original's (python/tests/test_sentence_transformer.py calls
both). What it cannot do is refused by name, and the refusal says what to use. Tensors come where torch is installed,
arrays where it is not."""
from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from . import _similarity
from ._model import Model

log = logging.getLogger("fletch.sentence_transformer")
PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
_INERT = {"attn_implementation", "low_cpu_mem_usage", "use_safetensors", "device_map"}  # change no vector


def _torch() -> Any:
    """torch, or None. Imported only by what returns tensors: it takes seconds."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    return torch


def _as_tensor(rows: NDArray[Any]) -> Any:
    torch = _torch()
    return rows if torch is None else torch.from_numpy(rows)


def _refuse(what: str, instead: str) -> NoReturn:
    raise NotImplementedError(f"fletch.SentenceTransformer has no {what}: {instead}")


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


def _device_options(device: Any) -> dict[str, object]:
    if device is None:
        return {}
    name = str(device)
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return {"provider.order": "cpu"}
    if kind == "cuda":
        return {"provider.order": "cuda", **({"provider.devices": index} if index else {})}
    _refuse(f"device={name!r}", "it computes on cpu and cuda")


class _Tokenizer:
    """What programs ask of a tokenizer: ids, tokens, text."""

    def __init__(self, owner: SentenceTransformer):
        self._owner = owner

    @property
    def model_max_length(self) -> int:
        return self._owner.max_seq_length

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [int(one) for one in self._owner.model.tokenize(text, special_tokens=add_special_tokens).ids]

    def tokenize(self, text: str) -> list[str]:
        return self._owner.model.tokenize(text, special_tokens=False).tokens

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return self._owner.model.decode(ids, skip_special_tokens=skip_special_tokens)

    def __call__(self, text: str | list[str], max_length: int | None = None, truncation: bool = False,
                 add_special_tokens: bool = True) -> dict[str, Any]:
        limit = (max_length or self.model_max_length) if truncation else None
        texts = [text] if isinstance(text, str) else text
        ids = [[int(one) for one in self._owner.model.tokenize(each, max_length=limit,
                                                               special_tokens=add_special_tokens).ids] for each in texts]
        found = {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}
        return {key: rows[0] for key, rows in found.items()} if isinstance(text, str) else found


class SentenceTransformer:
    """sentence_transformers.SentenceTransformer for inference. `model` is the fletch.Model under it."""

    def __init__(self, model_name_or_path: str | os.PathLike[str] | None = None, *, modules: Any = None,
                 device: Any = None, prompts: dict[str, str] | None = None, default_prompt_name: str | None = None,
                 cache_folder: str | None = None, trust_remote_code: bool = False, revision: str | None = None,
                 local_files_only: bool = False, token: bool | str | None = None, model_kwargs: Any = None,
                 processor_kwargs: Any = None, tokenizer_kwargs: Any = None, config_kwargs: Any = None,
                 model_card_data: Any = None, backend: str = "torch", similarity_fn_name: Any = None,
                 truncate_dim: int | None = None, fletch_config: Mapping[str, object] | None = None) -> None:
        if modules is not None or model_name_or_path is None:
            _refuse("modules=", "name a folder or a hub id; sentence-transformers saves folders with model.save()")
        for name, given in (("model_kwargs", model_kwargs), ("processor_kwargs", processor_kwargs),
                            ("tokenizer_kwargs", tokenizer_kwargs), ("config_kwargs", config_kwargs)):
            for key, value in (given or {}).items():
                if key not in _INERT and not (key in ("dtype", "torch_dtype") and str(value).endswith("float32")):
                    _refuse(f"{name}={{{key!r}: …}}", "fletch_config= takes fletch's own options, "
                            "provider.precision among them")
        if backend not in ("torch", "onnx"):
            _refuse(f"backend={backend!r}", "fletch's own engine is the default, 'onnx' is ONNX Runtime")
        self.trust_remote_code = trust_remote_code  # a folder that needs code is refused when it is opened
        options = _device_options(device) | ({"provider.order": "onnxruntime"} if backend == "onnx" else {})
        self.model = Model(model_name_or_path, config=options | dict(fletch_config or {}), revision=revision,
                           cache_folder=cache_folder, local_files_only=local_files_only, token=token)
        self._backend = backend
        self.prompts: dict[str, str] = {"query": "", "document": ""} | self.model.prompts | (prompts or {})
        folder_default = self.model.properties.get("default_prompt_name") or None
        self.default_prompt_name = default_prompt_name if default_prompt_name is not None else folder_default
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            raise ValueError(f"Default prompt name '{self.default_prompt_name}' not found in the configured prompts "
                             f"dictionary with keys {list(self.prompts)!r}.")
        self.truncate_dim = truncate_dim
        self._max_seq_length = self.model.max_length
        self._told_truncation = False
        self._similarity_name = self.model.similarity_fn_name
        if similarity_fn_name is not None:
            self.similarity_fn_name = similarity_fn_name

    # ---- encoding -----------------------------------------------------------------------------------------------

    def encode(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int = 32, show_progress_bar: bool | None = None,
               output_value: str | None = "sentence_embedding", precision: str = "float32",
               convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
               normalize_embeddings: bool = False, truncate_dim: int | None = None, pool: Any = None,
               chunk_size: int | None = None, *, sentences: Any = None, **kwargs: Any) -> Any:
        """As sentence_transformers' encode. batch_size, pool and chunk_size change nothing: fletch batches itself."""
        if inputs is None and sentences is not None:
            inputs = sentences
        if output_value != "sentence_embedding":
            _refuse(f"output_value={output_value!r}", "it gives sentence embeddings alone")
        if batch_size <= 0:
            raise ValueError(f"batch_size must be a positive integer, got {batch_size}.")
        if unknown := set(kwargs) - {"task"}:
            raise ValueError(f"SentenceTransformer.encode() has been called with additional keyword arguments that "
                             f"this model does not use: {sorted(unknown)}.")
        if precision is not None and precision not in PRECISIONS:
            raise ValueError(f"Precision {precision!r} is not supported, must be one of {PRECISIONS}")
        if show_progress_bar is None:
            show_progress_bar = log.getEffectiveLevel() in (logging.INFO, logging.DEBUG)
        single = not isinstance(inputs, (list, tuple)) and not self._is_column(inputs)
        rows = self._rows([inputs] if single else inputs, self._prompt(prompt, prompt_name), bool(show_progress_bar))
        dim = truncate_dim if truncate_dim is not None else self.truncate_dim
        if dim is not None:
            rows = np.ascontiguousarray(rows[:, :dim])
        if normalize_embeddings and len(rows):
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        if len(rows) and precision:
            rows = quantize(rows, precision)
        return self._container(rows, single, convert_to_numpy, convert_to_tensor)

    @staticmethod
    def _is_column(inputs: Any) -> bool:
        if isinstance(inputs, np.ndarray):
            return inputs.ndim >= 1 and inputs.dtype.kind in "UOT"
        return hasattr(inputs, "__arrow_c_stream__") or hasattr(inputs, "__arrow_c_array__") or \
            type(inputs).__module__.partition(".")[0] in ("pandas", "datasets")

    @staticmethod
    def _container(rows: NDArray[Any], single: bool, numpy: bool, tensor: bool) -> Any:
        if not len(rows):  # the original's, to the dtype
            return _as_tensor(np.array([], np.float32)) if tensor else np.array([]) if numpy else []
        if tensor:
            return _as_tensor(rows[0] if single else rows)
        if numpy:
            return rows[0] if single else rows
        rows_as_list = list(_as_tensor(rows))
        return rows_as_list[0] if single else rows_as_list

    def _rows(self, inputs: Any, prompt: str | None, bar: bool) -> NDArray[Any]:
        found = self.model.embed(inputs, prompt=prompt or None, max_length=self._max_seq_length, truncate="right",
                                 info=True, progress=bar)
        if not self._told_truncation and found.truncated.any():
            self._told_truncation = True
            log.warning("%d of %d texts are longer than max_seq_length (%d) and were cut; said once per model",
                        found.truncated.sum(), len(found.truncated), self._max_seq_length)
        return found.vectors

    def _prompt(self, prompt: str | None, name: str | None) -> str | None:
        if prompt is not None:
            if name is not None:
                log.warning("Provide either a `prompt`, a `prompt_name`, or neither, but not both. "
                            "Ignoring the `prompt_name` in favor of `prompt`.")
            return prompt
        if name is not None:
            if name not in self.prompts:
                raise ValueError(f"Prompt name '{name}' not found in the configured prompts dictionary with keys "
                                 f"{list(self.prompts)!r}.")
            return self.prompts[name]
        return None if self.default_prompt_name is None else self.prompts.get(self.default_prompt_name)

    def encode_query(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None,
                     *args: Any, **kwargs: Any) -> Any:
        """As encode, with the prompt "query" where there is one."""
        if prompt_name is None and prompt is None and "query" in self.prompts:
            prompt_name = "query"
        return self.encode(inputs, prompt_name, prompt, *args, **kwargs)

    def encode_document(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None,
                        *args: Any, **kwargs: Any) -> Any:
        """As encode, with the first prompt of "document", "passage", "corpus"."""
        if prompt_name is None and prompt is None:
            prompt_name = next((name for name in ("document", "passage", "corpus") if name in self.prompts), None)
        return self.encode(inputs, prompt_name, prompt, *args, **kwargs)

    def encode_multi_process(self, sentences: Any, pool: Any, prompt_name: str | None = None, prompt: str | None = None,
                             batch_size: int = 32, chunk_size: int | None = None, **kwargs: Any) -> Any:
        """Deprecated by the original: encode does it."""
        warnings.warn("The `encode_multi_process` method has been deprecated; call `encode`.", DeprecationWarning, 2)
        return self.encode(sentences, prompt_name, prompt, batch_size, **kwargs)

    def start_multi_process_pool(self, target_devices: Any = None) -> dict[str, Any]:
        """A pool that is this process: fletch uses every core it may from one."""
        return {"input": None, "output": None, "processes": []}

    @staticmethod
    def stop_multi_process_pool(pool: Any) -> None:
        """Nothing to stop."""

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

    @staticmethod
    def _matrix(vectors: Any) -> Any:
        if isinstance(vectors, (list, tuple)):
            return [one.numpy() for one in vectors] if len(vectors) and hasattr(vectors[0], "numpy") else vectors
        return vectors.detach().cpu().numpy() if hasattr(vectors, "detach") else vectors

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Every row of the one with every row of the other: a tensor where torch is installed."""
        return _as_tensor(_similarity.similarity(self._similarity_name, self._matrix(embeddings1),
                                                 self._matrix(embeddings2)))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Each row of the one with the row of the other at its place."""
        return _as_tensor(_similarity.similarity_pairwise(self._similarity_name, self._matrix(embeddings1),
                                                          self._matrix(embeddings2)))

    # ---- what programs ask of a model ---------------------------------------------------------------------------

    @property
    def max_seq_length(self) -> int:
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self._max_seq_length = int(value)

    def get_max_seq_length(self) -> int:
        return self._max_seq_length

    def get_embedding_dimension(self) -> int:
        dimensions = self.model.dimensions
        return dimensions if self.truncate_dim is None else min(dimensions, self.truncate_dim)

    def get_sentence_embedding_dimension(self) -> int:
        warnings.warn("The `get_sentence_embedding_dimension` method has been renamed to `get_embedding_dimension`.",
                      FutureWarning, 2)
        return self.get_embedding_dimension()

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

    @property
    def tokenizer(self) -> _Tokenizer:
        return _Tokenizer(self)

    def tokenize(self, texts: list[str], **kwargs: Any) -> dict[str, Any]:
        """input_ids and attention_mask of texts, padded: tensors where torch is installed."""
        if kwargs:
            _refuse(f"tokenize({next(iter(kwargs))}=)", "set max_seq_length")
        ids = self.tokenizer(list(texts), truncation=True)["input_ids"]
        width = max((len(row) for row in ids), default=0)
        found = {"input_ids": np.zeros((len(ids), width), np.int64), "attention_mask": np.zeros((len(ids), width), np.int64)}
        pad = self.model.tokenize("").ids.size and self._pad_id()
        found["input_ids"][:] = pad
        for row, one in enumerate(ids):
            found["input_ids"][row, :len(one)] = one
            found["attention_mask"][row, :len(one)] = 1
        if self.model.properties["architecture"].startswith("bert"):
            found["token_type_ids"] = np.zeros((len(ids), width), np.int64)
        return {key: _as_tensor(value) for key, value in found.items()}

    def _pad_id(self) -> int:
        handle = self.model._usable()
        return next((one for one in range(4) if handle.token_text(one) in ("[PAD]", "<pad>")), 0)

    @property
    def device(self) -> Any:
        provider = self.model.properties["provider"]
        torch = _torch()
        name = "cuda" if provider == "cuda" else "cpu"
        return name if torch is None else torch.device(name)

    def get_backend(self) -> str:
        return self._backend

    def to(self, device: Any = None, *args: Any, **kwargs: Any) -> SentenceTransformer:
        """Where a model computes is fixed when it is opened: the same device is fine, another one is refused."""
        if device is not None and str(device).partition(":")[0] != str(self.device).partition(":")[0]:
            _refuse(f"to({str(device)!r})", f"open it there: SentenceTransformer(…, device={str(device)!r})")
        return self

    def cpu(self) -> SentenceTransformer:
        return self.to("cpu")

    def cuda(self, device: Any = None) -> SentenceTransformer:
        return self.to("cuda")

    def eval(self) -> SentenceTransformer:
        return self

    def evaluate(self, evaluator: Callable[..., Any], output_path: str | None = None) -> Any:
        return evaluator(self, output_path)

    def __repr__(self) -> str:
        return f"<fletch.SentenceTransformer {self.model.id}: {self.model.dimensions} dimensions>"


def _refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    def refused(self: SentenceTransformer, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(f"{name}()", instead)
    refused.__name__ = name
    refused.__doc__ = f"Not here: {instead}."
    return refused


_TRAIN = "train with sentence-transformers, save the folder, open it here"
_FILES = "the folder is at .model.path, as it was"
_INSIDE = "fletch has no torch modules inside"
for _name, _instead in {
        "fit": _TRAIN, "old_fit": _TRAIN, "train": _TRAIN, "smart_batching_collate": _TRAIN, "add_adapter": _TRAIN,
        "load_adapter": _TRAIN, "gradient_checkpointing_enable": _TRAIN, "save": _FILES, "save_pretrained": _FILES,
        "save_to_hub": _FILES, "push_to_hub": _FILES, "forward": _INSIDE, "preprocess": "tokenize gives ids",
        "compile": "it is compiled already", "half": "fletch_config={'provider.precision': 'bf16'}",
        "bfloat16": "fletch_config={'provider.precision': 'bf16'}", "__call__": _INSIDE, "__getitem__": _INSIDE,
        "parameters": _INSIDE, "named_parameters": _INSIDE, "modules": _INSIDE, "state_dict": _INSIDE,
        "set_pooling_include_prompt": "include_prompt of 1_Pooling/config.json is followed"}.items():
    setattr(SentenceTransformer, _name, _refusal(_name, _instead))
