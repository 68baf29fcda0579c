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
from ._model import Embeddings, Model, Tokens, shared
from .errors import (Busy, Cancelled, ChecksumError, ConfigError, DeadlineExceeded, Denied, Error, ForkError,
                     InputOutputError, InvalidArgument, ModelError, NetworkError, NotFound, OutOfMemory, ProviderError,
                     TextError, TooLong, TruncationWarning, Unsupported)

if TYPE_CHECKING:
    from .sentence_transformer import SentenceTransformer

__all__ = [
    "ArrowRows", "Busy", "Cancelled", "ChecksumError", "ConfigError", "DeadlineExceeded", "Denied", "Embeddings",
    "Error", "ForkError", "InputOutputError", "InvalidArgument", "Model", "ModelError", "NetworkError", "NotFound",
    "OutOfMemory", "ProviderError", "SentenceTransformer", "Sparse", "TextError", "Tokens", "TooLong", "TruncationWarning",
    "Unsupported", "__version__", "shared"]


def __getattr__(name: str) -> Any:
    if name == "SentenceTransformer":  # imported when asked for: most programs need Model alone
        from .sentence_transformer import SentenceTransformer
        return SentenceTransformer
    raise AttributeError(f"module 'fletch' has no attribute {name!r}")
