# SPDX-License-Identifier: Apache-2.0
"""What type checkers say of calls: read by mypy (tools/python.sh), never run."""
from typing import Any, assert_type

import numpy as np
import torch
from fletch import Chunk, CrossEncoder, Embeddings, Model, SentenceTransformer, Sparse
from numpy.typing import NDArray

model, encoder = Model("medium"), SentenceTransformer("medium")
assert_type(model.embed(["a"]), NDArray[Any])
assert_type(model.embed(["a"], dtype="float16"), NDArray[Any])
assert_type(model.embed(["a"], dtype=np.int8, info=True), Embeddings)
assert_type(model.embed_sparse(["a"]), Sparse)
assert_type(model.embed_outputs(["a"], ["dense", "sparse"]), dict[str, Any])
assert_type(model.chunk("a"), list[Chunk])
assert_type(model.chunk(["a"], by="markdown"), list[list[Chunk]])
assert_type(encoder.encode(["a"]), NDArray[Any])
assert_type(encoder.encode("a", normalize_embeddings=True), NDArray[Any])
assert_type(encoder.encode(["a"], convert_to_tensor=True), torch.Tensor)
assert_type(encoder.encode("a", convert_to_numpy=False), torch.Tensor)
assert_type(encoder.encode(["a"], convert_to_numpy=False), list[torch.Tensor])
assert_type(encoder.eval(), SentenceTransformer)
assert_type(CrossEncoder("medium").rank("a", ["b"]), list[dict[str, Any]])
model.embed(["a"], dtype="float8")  # type: ignore[call-overload]
encoder.encode(["a"], precision="int4")  # type: ignore[call-overload]
encoder.config  # type: ignore[attr-defined]
