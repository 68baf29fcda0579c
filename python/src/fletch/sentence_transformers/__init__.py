# SPDX-License-Identifier: Apache-2.0
"""sentence-transformers' four classes, their inference half, on fletch.

Values, shapes, dtypes, containers and exceptions are the original's (python/tests calls both). What a class cannot do
is refused by name, and the refusal says what to use. Tensors come where torch is installed, arrays where it is not.

The package has its name so that programs which look for "sentence_transformers" in the name of a model's type (KeyBERT,
BERTopic) find it: those that do not find it take another model, and say nothing."""
from ._cross import CrossEncoder
from ._dense import SentenceTransformer
from ._multi_vector import MultiVectorEncoder
from ._sparse import SparseEncoder

__all__ = ["CrossEncoder", "MultiVectorEncoder", "SentenceTransformer", "SparseEncoder"]
