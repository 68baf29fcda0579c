# SPDX-License-Identifier: Apache-2.0
"""What programs ask of a model's tokenizer: ids, tokens, text, padding. The original's is a transformers tokenizer."""
from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .._model import Model
from ._tensors import find_torch

_NAMES = ("[PAD]", "<pad>")  # what transformers' classes pad with where the folder does not say


def _refuse(what: str, instead: str) -> NoReturn:
    raise NotImplementedError(f"fletch's tokenizer has no {what}: {instead}")


class Tokenizer:
    def __init__(self, model: Model, limit: Callable[[], int]) -> None:
        self._model, self._limit = model, limit

    if not TYPE_CHECKING:  # who reads types shall hear of an attribute that is not there
        def __getattr__(self, name):
            raise AttributeError(f"fletch's tokenizer has no {name!r}; the original is "
                                 f"transformers.AutoTokenizer.from_pretrained({self.__dict__['_model'].path!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._model, self._limit)

    @property
    def model_max_length(self) -> int:
        return self._limit()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._ids(text, None, add_special_tokens)

    def tokenize(self, text: str) -> list[str]:
        return self._model.tokenize(text, special_tokens=False).tokens

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return self._model.decode(ids, skip_special_tokens=skip_special_tokens)

    def _ids(self, text: str, limit: int | None, special: bool) -> list[int]:
        return [int(one) for one in self._model.tokenize(text, max_length=limit, special_tokens=special).ids]

    # ---- the vocabulary -----------------------------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        return int(self._model.properties["tokenizer"].rpartition(", ")[2].split()[0])

    def __len__(self) -> int:
        return self.vocab_size

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        name = self._model._usable().token_text
        return name(int(ids)) if np.ndim(ids) == 0 else [name(int(one)) for one in ids]

    def get_vocab(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.convert_ids_to_tokens(range(len(self)))) if token is not None}

    vocab = property(get_vocab)

    def _said(self, key: str) -> Any:
        try:
            with open(os.path.join(self._model.path, "tokenizer_config.json"), encoding="utf-8") as file:
                return json.load(file).get(key)
        except FileNotFoundError:
            return None

    @property
    def pad_token_id(self) -> int | None:
        said = self._said("pad_token")
        names = _NAMES if said is None else (said["content"] if isinstance(said, dict) else said,)
        found = [self._ids(name, None, False) for name in names]
        return next((ids[0] for ids, name in zip(found, names) if self.convert_ids_to_tokens(ids) == [name]), None)

    # ---- a call -------------------------------------------------------------------------------------------------

    def __call__(self, text: str | list[str], padding: bool | str = False, truncation: bool = False,
                 max_length: int | None = None, add_special_tokens: bool = True, return_tensors: str | None = None,
                 **kwargs: Any) -> dict[str, Any]:
        """input_ids, attention_mask and, of BERT, token_type_ids: lists, or with return_tensors arrays or tensors."""
        if kwargs:
            _refuse(f"argument {next(iter(kwargs))}=", "transformers.AutoTokenizer.from_pretrained(model.model.path) has it")
        if padding not in (False, True, "longest", "max_length", "do_not_pad"):
            raise ValueError(f"{padding!r} is not a valid padding: True, 'longest', 'max_length', False")
        if return_tensors not in (None, "np", "pt"):
            _refuse(f"return_tensors={return_tensors!r}", "it makes 'np' and 'pt'")
        limit = self._limit() if max_length is None else max_length
        single = isinstance(text, str) and return_tensors is None
        ids = [self._ids(one, limit if truncation else None, add_special_tokens)
               for one in ([text] if isinstance(text, str) else text)]
        masks = [[1] * len(row) for row in ids]
        if padding not in (False, "do_not_pad"):
            self._pad(ids, masks, limit if padding == "max_length" else max(map(len, ids), default=0))
        found: dict[str, Any] = {"input_ids": ids, "attention_mask": masks}
        if self._model.properties["architecture"].startswith("bert"):
            found["token_type_ids"] = [[0] * len(row) for row in ids]
        if return_tensors is not None:
            found = {key: np.array(rows, np.int64) for key, rows in found.items()}
            torch = find_torch() if return_tensors == "pt" else None
            return {key: rows if torch is None else torch.from_numpy(rows) for key, rows in found.items()}
        return {key: rows[0] for key, rows in found.items()} if single else found

    def _pad(self, ids: list[list[int]], masks: list[list[int]], width: int) -> None:
        pad = self.pad_token_id
        if pad is None and any(len(row) < width for row in ids):
            raise ValueError("the tokenizer has no padding token")
        left = self._said("padding_side") == "left"
        for rows, filler in ((ids, pad), (masks, 0)):
            for row in rows:
                fill = [filler or 0] * (width - len(row))
                row[:] = fill + row if left else row + fill
