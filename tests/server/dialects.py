# SPDX-License-Identifier: Apache-2.0
"""dialects.py - what the tests of the dialects share: reference vectors from the command line, and comparisons.

The command line's vectors are held to sentence-transformers' in tests/golden; here the server must give the very same
numbers, whatever the dialect, the element type and the batch.
"""
import base64
import functools
import json
import os
import struct
import subprocess

import serving

TEXTS = ("A cat sits on the mat.", "Ein Kätzchen schläft – 猫が眠る 😀", "stock markets fell")
LONG = "word " * 400


@functools.cache
def embedded(texts, flags):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FLETCH_")}
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run([serving.BIN, "embed", "--model", serving.MODEL, "--offline", "--input", "-", "--input-format",
                           "jsonl", "--format", "jsonl", *flags], input=lines.encode(), env=clean, capture_output=True,
                          check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def vectors(texts, *flags):
    """What `fletch embed` gives, as lists of numbers that are float32."""
    return [f32(line["embedding"]) for line in embedded(tuple(texts), flags)]


def tokens(texts):
    return [line["tokens"] for line in embedded(tuple(texts), ())]


def f32(row):
    """The nearest float32 of each number: two texts of one float32 compare equal."""
    return list(struct.unpack(f"<{len(row)}f", struct.pack(f"<{len(row)}f", *row)))


def unbase64(text, kind="f"):
    data = base64.b64decode(text, validate=True)
    size = struct.calcsize(kind)
    return list(struct.unpack(f"<{len(data) // size}{kind}", data))


def post(server, path, body, **headers):
    """POST a JSON body (or bytes as they are); headers with _ for -."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return server.ask("POST", path, data, {k.replace("_", "-"): v for k, v in headers.items()})


def good(reply):
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "application/json", reply
    return reply.json()
