# SPDX-License-Identifier: Apache-2.0
"""What models give besides one vector a text: scores, vectors of tokens, weights of the vocabulary."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import _fletch
from ._inputs import make_texts, positive
from ._progress import Progress, rows_heard
from .errors import TruncationWarning, Unsupported

if TYPE_CHECKING:
    from ._fletch import Handle, Texts

_T = TypeVar("_T")
_ACTIVATIONS = {None: 0, "none": 1, "sigmoid": 2, "softmax": 3}
_TRUNCATE = {None: 0, "warn": 0, "right": 1, "left": 2, "error": 3}
_DENSE, _TOKENS, _SPARSE = 0, 1, 3
_ITEMS = ((np.float32, 1), (np.int8, 1), (np.uint8, 1), (np.int8, 8), (np.uint8, 8))  # of the library's dtypes: dimensions in one
_STEP = 256  # texts of one call of the library: between two of them an interrupt is heard
_STEP_HEARD = 32  # where somebody hears of rows


class Sparse(NamedTuple):
    """Rows of a sparse matrix; scipy.sparse.csr_matrix((s.data, s.indices, s.indptr), s.shape) takes them as they are."""

    data: NDArray[np.float32]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    shape: tuple[int, int]


def _choice(table: dict[str | None, int], name: str, value: str | None) -> int:
    if value is not None and not isinstance(value, str) or value not in table:
        raise ValueError(f"{name} must be one of {', '.join(str(key) for key in table)}, not {value!r}")
    return table[value]


def _c_string(value: str | None, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if value is not None and "\0" in value:
        raise ValueError(f"a NUL character cannot be part of {name}")
    return value


def _list_options(prompt: str | None, prompt_name: str | None, max_length: int | None, truncate: str | None, normalize: bool | None,
                  top_k: int, threshold: float) -> tuple[str | None, str | None, int, int, int, int, float]:
    return (_c_string(prompt, "prompt"), _c_string(prompt_name, "prompt_name"),
            0 if max_length is None else positive(max_length, "max_length"), _choice(_TRUNCATE, "truncate", truncate),
            0 if normalize is None else 1 if normalize else -1, positive(top_k, "top_k") if top_k else 0, threshold)


class Heads:
    """The part of Model for models that are no plain embedding models. A model that cannot do what is asked for raises
    Unsupported and says what it can do."""

    def _usable(self) -> Handle:
        raise NotImplementedError

    @property
    def labels(self) -> list[str]:
        """The labels of a reranker or classifier, in the order of its scores; of other models none."""
        return self._usable().labels()

    def _tell(self, truncate: str | None, cut: bytearray) -> None:
        """As embed does."""
        if truncate in (None, "warn") and 1 in cut:
            warnings.warn(f"{cut.count(1)} of {len(cut)} texts were truncated to the model's length, the first at index "
                          f"{cut.find(1)}; truncate='right' silences this warning, 'error' makes it an error",
                          TruncationWarning, 4)

    def _scores(self, texts: Texts, query: str | None, second: Texts | None, columns: int, prompt: str | None,
                prompt_name: str | None, max_length: int | None, truncate: str | None, activation: str | None,
                progress: Progress) -> NDArray[np.float32]:
        rest = (columns, _c_string(prompt, "prompt"), _c_string(prompt_name, "prompt_name"),
                0 if max_length is None else positive(max_length, "max_length"),
                _choice(_TRUNCATE, "truncate", truncate), _choice(_ACTIVATIONS, "activation", activation))
        rows, cut = np.empty((len(texts), columns), np.float32), bytearray()
        for first, count in _steps(len(texts), progress):
            raw, marks = self._usable().scores(texts, first, count, query, second, *rest)
            rows[first:first + count] = np.frombuffer(raw, np.float32).reshape(count, columns)
            cut += marks
        self._tell(truncate, cut)
        return rows

    def rerank(self, query: str, documents: Any, *, prompt: str | None = None, prompt_name: str | None = None,
               max_length: int | None = None, truncate: str | None = None, activation: str | None = None,
               progress: Progress = None) -> NDArray[np.float32]:
        """The score of every document (n,), the higher the better: by a reranker, as CrossEncoder.predict gives them, or by
        late interaction. activation: None (the model's own), "none", "sigmoid"."""
        if not isinstance(query, str):
            raise TypeError(f"a query must be a str, not {type(query).__name__}")
        texts = make_texts([documents] if isinstance(documents, str) else documents, False)
        return self._scores(texts, query, None, 1, prompt, prompt_name, max_length, truncate, activation,
                            progress)[:, 0]

    def classify(self, texts: Any, second: Any = None, *, prompt: str | None = None, prompt_name: str | None = None,
                 max_length: int | None = None, truncate: str | None = None, activation: str | None = None,
                 progress: Progress = None) -> NDArray[np.float32]:
        """The scores of every label (n, labels), of texts or of pairs with `second`; (labels,) for a str. activation: None
        (the model's own), "none", "sigmoid", "softmax"."""
        single = isinstance(texts, str)
        if second is not None and isinstance(second, str) != single:
            raise TypeError("texts and second must be two str, or two sequences")
        made = make_texts([texts] if single else texts, False)
        pairs = None if second is None else make_texts([second] if single else second, False)
        if pairs is not None and len(pairs) != len(made):
            raise ValueError(f"there are {len(made)} texts, but {len(pairs)} second texts")
        rows = self._scores(made, None, pairs, max(1, len(self.labels)), prompt, prompt_name, max_length, truncate, activation,
                            progress)
        return rows[0] if single else rows

    def zero_shot(self, texts: Any, labels: Iterable[str], *, hypothesis: str = "This example is {}.",
                  multi_label: bool = False, max_length: int | None = None, truncate: str | None = None,
                  progress: Progress = None) -> NDArray[np.float32]:
        """The scores of labels of one's own (n, labels), by a model that was trained on inference (NLI), as transformers'
        zero-shot-classification pipeline gives them, in the order of `labels`; (labels,) for a str. {} in `hypothesis` stands
        for the label; multi_label: each label is judged by itself, else they share 1. progress hears of pairs."""
        names = list(labels)
        if isinstance(labels, str) or not names:
            raise ValueError("labels must be a non-empty list of str")
        if "{}" not in hypothesis:
            raise ValueError(f"hypothesis has no {{}} for the label: {hypothesis!r}")
        entailment = next((i for i, name in enumerate(self.labels) if name.lower().startswith("entail")), None)
        if entailment is None:
            raise Unsupported("zero_shot needs a model trained on NLI: none of this model's "
                              f'{len(self.labels)} labels is "entailment"')
        single = isinstance(texts, str)
        made = [texts] if single else list(texts)
        pairs = [(text, hypothesis.replace("{}", name, 1)) for text in made for name in names]
        logits = self.classify([text for text, _ in pairs], [sentence for _, sentence in pairs], max_length=max_length,
                               truncate=truncate, activation="none", progress=progress)
        both = logits[:, [entailment, -1 if entailment == 0 else 0]].reshape(len(made), len(names), 2)
        if multi_label or len(names) == 1:
            rows: NDArray[np.float32] = 1 / (1 + np.exp(both[..., 1] - both[..., 0]))
        else:
            rows = np.exp(both[..., 0] - both[..., 0].max(axis=1, keepdims=True))
            rows /= rows.sum(axis=1, keepdims=True)
        return rows[0] if single else rows

    def _lists(self, kind: int, texts: Texts, prompt: str | None, prompt_name: str | None, max_length: int | None,
               truncate: str | None, normalize: bool | None, top_k: int, threshold: float,
               progress: Progress) -> list[tuple[int, bytes, bytes]]:
        rest = _list_options(prompt, prompt_name, max_length, truncate, normalize, top_k, threshold)
        lists, cut = [], bytearray()
        for first, count in _steps(len(texts), progress):
            columns, found, marks = self._usable().lists(kind, texts, first, count, *rest)
            lists += [(columns, ids, values) for ids, values in found]
            cut += marks
        self._tell(truncate, cut)
        return lists

    def embed_tokens(self, texts: Any, *, prompt: str | None = None, prompt_name: str | None = None,
                     max_length: int | None = None, truncate: str | None = None, normalize: bool | None = None,
                     progress: Progress = None) -> Any:
        """A vector for every token: an array (tokens, d) for each text, one array for a str. A late-interaction model
        (ColBERT) gives those that it compares, with prompt_name "query" or "document" for the side."""
        single = isinstance(texts, str)
        made = make_texts([texts] if single else texts, False)
        rows = [np.frombuffer(values, np.float32).reshape(-1, columns).copy() for columns, _, values in
                self._lists(_TOKENS, made, prompt, prompt_name, max_length, truncate, normalize, 0, 0.0, progress)]
        return rows[0] if single else rows

    def embed_sparse(self, texts: Any, *, prompt: str | None = None, prompt_name: str | None = None,
                     max_length: int | None = None, truncate: str | None = None, top_k: int = 0,
                     threshold: float = 0.0, progress: Progress = None) -> Sparse:
        """Weights of vocabulary entries, by a sparse model (SPLADE) or bge-m3, as rows of a Sparse. top_k keeps the heaviest of a text,
        threshold those of at least that weight; prompt_name "query" or "document" names the side where a model has two."""
        made = make_texts([texts] if isinstance(texts, str) else texts, False)
        return self._sparse([(ids, values) for _, ids, values in self._lists(
            _SPARSE, made, prompt, prompt_name, max_length, truncate, None, top_k, threshold, progress)])

    def _sparse(self, lists: list[tuple[bytes, bytes]]) -> Sparse:
        ends = np.cumsum([0, *(len(ids) // 4 for ids, _ in lists)], dtype=np.int64)
        return Sparse(np.frombuffer(bytearray().join(values for _, values in lists), np.float32),
                      np.frombuffer(bytearray().join(ids for ids, _ in lists), np.int32), ends, (len(lists), self._usable().sparse))

    def embed_outputs(self, texts: Any, outputs: Iterable[str], *, prompt: str | None = None,
                      prompt_name: str | None = None, max_length: int | None = None, truncate: str | None = None,
                      normalize: bool | None = None, top_k: int = 0, threshold: float = 0.0,
                      progress: Progress = None) -> dict[str, Any]:
        """Several outputs of one pass through the model, by their names: "dense", cut and of another type as "dense:256",
        "dense:int8", "dense:256:int8" (arrays as embed gives them); "sparse" (as embed_sparse); "tokens" (as embed_tokens);
        "colbert" (the same for late interaction: bge-m3's colbert_vecs). Each is what the call for it alone gives."""
        single = isinstance(texts, str)
        names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"outputs must be str names, not {names!r}")
        if len(set(names)) < len(names):
            raise ValueError(f"an output is named twice: {', '.join(map(str, names))}")
        made = make_texts([texts] if single else texts, False)
        rest = _list_options(prompt, prompt_name, max_length, truncate, normalize, top_k, threshold)
        said = tuple(name.encode("utf-8", "replace") for name in names)
        parts: list[list[Any]] = [[] for _ in names]
        kinds, cut = [(0, 0, 0)] * len(names), bytearray()
        for first, count in _steps(len(made), progress) if len(made) else [(0, 0)]:  # no texts: their shapes and types
            found, marks = self._usable().outputs(said, made, first, count, *rest)
            for i, (kind, columns, dtype, part) in enumerate(found):
                kinds[i] = kind, columns, dtype
                parts[i].append(part)
            cut += marks
        self._tell(truncate, cut)
        return {name: self._output(*kinds[i], parts[i], single) for i, name in enumerate(names)}

    def _output(self, kind: int, columns: int, dtype: int, parts: list[Any], single: bool) -> Any:
        if kind == _DENSE:
            item, packed = _ITEMS[dtype]
            rows = np.frombuffer(bytearray().join(parts), item).reshape(-1, -(-columns // packed))
            return rows[0] if single else rows
        lists = [pair for part in parts for pair in part]
        if kind == _SPARSE:
            return self._sparse(lists)
        vectors = [np.frombuffer(values, np.float32).reshape(-1, columns).copy() for _, values in lists]
        return vectors[0] if single else vectors

    # ---- asyncio: each in a thread of the loop's, where the library waits without holding the interpreter ----------

    async def arerank(self, query: str, documents: Any, **arguments: Any) -> NDArray[np.float32]:
        """As rerank, without holding up the loop."""
        return await _elsewhere(self.rerank, query, documents, **arguments)

    async def aclassify(self, texts: Any, second: Any = None, **arguments: Any) -> NDArray[np.float32]:
        """As classify, without holding up the loop."""
        return await _elsewhere(self.classify, texts, second, **arguments)

    async def azero_shot(self, texts: Any, labels: Iterable[str], **arguments: Any) -> NDArray[np.float32]:
        """As zero_shot, without holding up the loop."""
        return await _elsewhere(self.zero_shot, texts, labels, **arguments)

    async def aembed_tokens(self, texts: Any, **arguments: Any) -> Any:
        """As embed_tokens, without holding up the loop."""
        return await _elsewhere(self.embed_tokens, texts, **arguments)

    async def aembed_sparse(self, texts: Any, **arguments: Any) -> Sparse:
        """As embed_sparse, without holding up the loop."""
        return await _elsewhere(self.embed_sparse, texts, **arguments)

    async def aembed_outputs(self, texts: Any, *arguments: Any, **named: Any) -> dict[str, Any]:
        """As embed_outputs, without holding up the loop."""
        return await _elsewhere(self.embed_outputs, texts, *arguments, **named)


async def _elsewhere(call: Callable[..., _T], *texts: Any, **arguments: Any) -> _T:
    import asyncio  # here: most programs need it not
    return await asyncio.to_thread(call, *texts, **arguments)


def _steps(count: int, progress: Progress) -> Iterator[tuple[int, int]]:
    step = _STEP if progress is None or progress is False else _STEP_HEARD
    with rows_heard(progress, count) as update:
        for first in range(0, count, step):
            yield first, min(step, count - first)
            update(min(step, count - first))
