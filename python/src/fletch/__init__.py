# SPDX-License-Identifier: Apache-2.0
"""fletch: text in, vectors out, without torch.

    import fletch
    model = fletch.Model("all-MiniLM-L6-v2")
    vectors = model.embed(["A cat sits on the mat.", "A feline rests on a rug."])
    print(model.similarity(vectors, vectors))
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arrow import ArrowRows
from ._fletch import version as __version__
from ._heads import Sparse
from ._canary import Verdict
from ._model import Chunk, ChunkVectors, Embeddings, Model, Tokens, shared
from .errors import (Busy, Cancelled, ChecksumError, ConfigError, DeadlineExceeded, Denied, Error, ForkError,
                     InputOutputError, InvalidArgument, ModelError, NetworkError, NotFound, OutOfMemory, ProviderError,
                     TextError, TooLong, TruncationWarning, Unsupported)

if TYPE_CHECKING:
    from .sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder

__all__ = [
    "ArrowRows", "Busy", "Cancelled", "ChecksumError", "Chunk", "ChunkVectors", "ConfigError", "CrossEncoder", "DeadlineExceeded", "Denied",
    "Embeddings", "Error", "ForkError", "InputOutputError", "InvalidArgument", "Model", "ModelError", "MultiVectorEncoder",
    "NetworkError", "NotFound", "OutOfMemory", "ProviderError", "SentenceTransformer", "Sparse", "SparseEncoder",
    "TextError", "Tokens", "TooLong", "TruncationWarning", "Unsupported", "Verdict", "__version__", "shared"]
_LATE = ("CrossEncoder", "MultiVectorEncoder", "SentenceTransformer", "SparseEncoder")


def __getattr__(name: str) -> Any:
    if name in _LATE:  # imported when asked for: most programs need Model alone
        from . import sentence_transformers
        return getattr(sentence_transformers, name)
    raise AttributeError(f"module 'fletch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
