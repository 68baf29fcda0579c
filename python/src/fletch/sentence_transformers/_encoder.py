# SPDX-License-Identifier: Apache-2.0
"""What the four classes share: how a model is opened, prompts, tokens, and what is refused."""
from __future__ import annotations

import glob
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from .._model import Model
from ._tensors import find_torch
from ._tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing import Self

log = logging.getLogger("fletch.sentence_transformers")
_INSIDE = "fletch has no torch modules inside; .model.properties says what the model is made of"
_INERT = {"attn_implementation", "low_cpu_mem_usage", "use_safetensors", "device_map"}  # change no vector


class ModelCard:
    """What evaluators write to and benchmarks name a model by; a model's own card is in its folder."""

    def __init__(self, model: Model) -> None:
        hub = model.id if not os.path.isdir(model.id) else None
        folder = os.path.basename(os.path.dirname(os.path.join(model.path, "")))
        self.model_id: str | None = None
        self.model_name = hub or f"fletch/{folder}"
        self.base_model = hub
        self.eval_results_dict: dict[Any, dict[str, Any]] = {}
        self._model = model

    @property
    def base_model_revision(self) -> str:
        """The hub's revision; a folder's fingerprint, by which its results are told from those of its namesakes."""
        return self._model.properties["revision"] or self._model.fingerprint[:40]

    def set_evaluation_metrics(self, evaluator: Any, metrics: dict[str, Any], epoch: int = 0, step: int = 0) -> None:
        self.eval_results_dict[evaluator] = dict(metrics)


def _device_options(device: Any) -> dict[str, object]:
    if device is None:
        return {}
    name = str(device)
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return {"provider.order": "cpu"}
    if kind == "cuda":
        return {"provider.order": "cuda", **({"provider.devices": index} if index else {})}
    raise NotImplementedError(f"fletch has no device={name!r}: it computes on cpu and cuda")


def _onnx_options() -> dict[str, object]:
    """ONNX Runtime, and this interpreter's own where it has one: the library looks into virtual environments alone."""
    package = importlib.util.find_spec("onnxruntime")
    places = [] if package is None else list(package.submodule_search_locations or [])
    found = sorted(file for place in places for file in glob.glob(os.path.join(glob.escape(place), "capi", "libonnxruntime.so*")))
    return {"provider.engine": "onnxruntime", **({"onnxruntime.library": found[0]} if found else {})}


class Encoder:
    """One of sentence-transformers' classes for inference. `model` is the fletch.Model under it."""

    ORIGINAL: ClassVar[str]  #: the name of the class that it stands for
    model: Model

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The original, once a program has loaded it: libraries that ask isinstance(model, SentenceTransformer) take this
        one, too. type(model) says what it is."""
        original = getattr(sys.modules.get("sentence_transformers"), type(self).ORIGINAL, None)
        return original if isinstance(original, type) else type(self)

    def __reduce__(self) -> tuple[Any, ...]:  # pickle's own way asks for __class__
        return _restore, (type(self), self.__dict__)

    if not TYPE_CHECKING:  # who reads types shall hear of an attribute that is not there
        def __getattr__(self, name):
            raise AttributeError(f"fletch.{type(self).ORIGINAL} has no {name!r}: {_INSIDE}")

    def _open(self, name: str | os.PathLike[str] | None, options: Mapping[str, object], *, modules: Any, device: Any,
              trust_remote_code: bool, backend: str, model_card_data: Any, kwargs: dict[str, Any], **places: Any) -> None:
        if modules is not None or name is None:
            self._refuse("modules=", "name a folder or a hub id; sentence-transformers saves folders with model.save()")
        for argument, given in kwargs.items():
            for key, value in (given or {}).items():
                if key not in _INERT and not (key in ("dtype", "torch_dtype") and str(value).endswith("float32")):
                    self._refuse(f"{argument}={{{key!r}: …}}", "fletch_config= takes fletch's own options, "
                                 "provider.precision among them")
        if backend not in ("torch", "onnx"):
            self._refuse(f"backend={backend!r}", "fletch's own engine is the default, 'onnx' is ONNX Runtime")
        self.trust_remote_code = trust_remote_code  # a folder that needs code is refused when it is opened
        chosen = _device_options(device) | (_onnx_options() if backend == "onnx" else {})
        self.model = Model(name, config=chosen | dict(options), **places)
        self._backend = backend
        self._max_seq_length = self.model.max_length
        self._said_truncation = False
        self.model_card_data: Any = model_card_data if model_card_data is not None else ModelCard(self.model)

    @classmethod
    def _refuse(cls, what: str, instead: str) -> NoReturn:
        raise NotImplementedError(f"fletch.{cls.ORIGINAL} has no {what}: {instead}")

    # ---- what every call asks -----------------------------------------------------------------------------------

    def _set_prompts(self, prompts: dict[str, str] | None, default: str | None, own: dict[str, str]) -> None:
        self.prompts = own | self.model.prompts | (prompts or {})
        folder_default = self.model.properties.get("default_prompt_name") or None
        self.default_prompt_name = default if default is not None else folder_default
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            raise ValueError(f"Default prompt name '{self.default_prompt_name}' not found in the configured prompts "
                             f"dictionary with keys {list(self.prompts)!r}.")

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

    def _role(self, names: tuple[str, ...], prompt_name: str | None, prompt: str | None) -> str | None:
        """The prompt's name for a query or a document."""
        opened = self.model.properties.get("task", "").partition(",")[0]  # of a Router one route is open
        if opened in ("query", "document") and opened != names[0]:
            self._refuse(f"encode_{names[0]} here", f"this model was opened with model.task={opened}; open it once more with {names[0]}")
        if prompt_name is not None or prompt is not None:
            return prompt_name
        return next((name for name in names if name in self.prompts), None)

    def _check_call(self, method: str, batch_size: int, kwargs: Mapping[str, Any]) -> None:
        if batch_size <= 0:
            raise ValueError(f"batch_size must be a positive integer, got {batch_size}.")
        if unknown := set(kwargs) - {"task"}:
            raise ValueError(f"{self.ORIGINAL}.{method}() has been called with additional keyword arguments that "
                             f"this model does not use: {sorted(unknown)}.")

    @staticmethod
    def _bar(wanted: bool | None) -> bool:
        return log.getEffectiveLevel() in (logging.INFO, logging.DEBUG) if wanted is None else bool(wanted)

    @staticmethod
    def _is_column(inputs: Any) -> bool:
        if isinstance(inputs, np.ndarray):
            return inputs.ndim >= 1 and inputs.dtype.kind in "UOT"
        return hasattr(inputs, "__arrow_c_stream__") or hasattr(inputs, "__arrow_c_array__") or \
            type(inputs).__module__.partition(".")[0] in ("pandas", "datasets")

    def _is_single(self, inputs: Any) -> bool:
        return not isinstance(inputs, (list, tuple)) and not self._is_column(inputs)

    def _say_truncation(self, cut: int, count: int) -> None:
        if cut and not self._said_truncation:
            self._said_truncation = True
            log.warning("%d of %d texts are longer than max_seq_length (%d) and were truncated; "
                        "reported once per model",
                        cut, count, self._max_seq_length)

    # ---- processes ----------------------------------------------------------------------------------------------

    def start_multi_process_pool(self, target_devices: Any = None) -> dict[str, Any]:
        """A pool that is this process: fletch uses every core it may from one."""
        return {"input": None, "output": None, "processes": []}

    @staticmethod
    def stop_multi_process_pool(pool: Any) -> None:
        """Nothing to stop."""

    # ---- what programs ask of a model ---------------------------------------------------------------------------

    @property
    def max_seq_length(self) -> int:
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self._max_seq_length = int(value)

    def get_max_seq_length(self) -> int:
        return self._max_seq_length

    def _limit(self) -> int | None:
        """None unless it was set: a folder may have a length for queries and one for documents."""
        return None if self._max_seq_length == self.model.max_length else self._max_seq_length

    @property
    def modalities(self) -> list[str]:
        return ["text"]

    def get_embedding_dimension(self) -> int:
        return self.model.dimensions

    def get_sentence_embedding_dimension(self) -> int:
        warnings.warn("The `get_sentence_embedding_dimension` method has been renamed to `get_embedding_dimension`.",
                      FutureWarning, 2)
        return self.get_embedding_dimension()

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.model, self.get_max_seq_length)

    def tokenize(self, texts: list[str], **kwargs: Any) -> dict[str, Any]:
        """input_ids and attention_mask of texts, padded: tensors where torch is installed."""
        if kwargs:
            self._refuse(f"tokenize({next(iter(kwargs))}=)", "set max_seq_length, or call the tokenizer")
        return self.tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")

    @property
    def device(self) -> Any:
        provider = self.model.properties["provider"]
        torch = find_torch()
        name = "cuda" if provider == "cuda" else "cpu"
        return name if torch is None else torch.device(name)

    def get_backend(self) -> str:
        return self._backend

    def to(self, device: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Where a model computes is fixed when it is opened: the same device is fine, another one is refused."""
        if device is not None and str(device).partition(":")[0] != str(self.device).partition(":")[0]:
            self._refuse(f"to({str(device)!r})", f"open it there: {self.ORIGINAL}(…, device={str(device)!r})")
        return self

    def cpu(self) -> Self:
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Self:
        return self.to("cuda")

    def eval(self) -> Self:
        return self

    def evaluate(self, evaluator: Callable[..., Any], output_path: str | None = None) -> Any:
        return evaluator(self, output_path)

    def __bool__(self) -> bool:  # not len() != 0
        return True

    def __repr__(self) -> str:
        return f"<fletch.{self.ORIGINAL} {self.model.id}: {self.model.dimensions} dimensions>"


class RetrievalEncoder(Encoder):
    """One that encodes queries and documents differently, by more than a prompt."""

    encode: Callable[..., Any]

    def encode_query(self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, *args: Any,
                     **kwargs: Any) -> Any:
        """As encode, as queries: the prompt "query", their length, the query's half of a model that has two."""
        return self.encode(inputs, self._role(("query",), prompt_name, prompt), prompt, *args, task="query", **kwargs)

    def encode_document(self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, *args: Any,
                        **kwargs: Any) -> Any:
        """As encode, as documents: the first prompt of "document", "passage", "corpus", the document's half, without
        the tokens that the model skips."""
        name = self._role(("document", "passage", "corpus"), prompt_name, prompt)
        return self.encode(inputs, name, prompt, *args, task="document", **kwargs)


def _restore(kind: type[Encoder], state: dict[str, Any]) -> Encoder:
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


def _refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    def refused(self: Encoder, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("len()" if name == "__len__" else f"{name}()", instead)
    refused.__name__ = name
    refused.__doc__ = f"Not here: {instead}."
    return refused


_TRAIN = "train with sentence-transformers, save the folder, open it here"
_FILES = "the folder is at .model.path, unchanged"
for _name, _instead in {
        "fit": _TRAIN, "old_fit": _TRAIN, "train": _TRAIN, "smart_batching_collate": _TRAIN, "add_adapter": _TRAIN,
        "load_adapter": _TRAIN, "gradient_checkpointing_enable": _TRAIN, "save": _FILES, "save_pretrained": _FILES,
        "save_to_hub": _FILES, "push_to_hub": _FILES, "forward": _INSIDE, "preprocess": "tokenize gives ids",
        "compile": "it is already compiled", "half": "fletch_config={'provider.precision': 'bf16'}",
        "bfloat16": "fletch_config={'provider.precision': 'bf16'}", "__call__": _INSIDE, "__getitem__": _INSIDE,
        "__len__": _INSIDE, "__iter__": _INSIDE, "parameters": _INSIDE, "named_parameters": _INSIDE, "modules": _INSIDE,
        "children": _INSIDE, "state_dict": _INSIDE, "set_pooling_include_prompt":
        "include_prompt of 1_Pooling/config.json is followed",
        "intersection": "multiply the result of encode element-wise"}.items():
    setattr(Encoder, _name, _refusal(_name, _instead))
