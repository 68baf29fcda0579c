# SPDX-License-Identifier: Apache-2.0
"""/openapi.json is true: schemathesis sends what it allows and what it forbids, and finds no deviation."""
import os
import subprocess

import clients
import pytest

# Per operation in the phases that draw by chance; the phase "coverage" has the same cases always.
EXAMPLES = os.environ.get("FLETCH_SCHEMATHESIS_EXAMPLES", "10" if "FLETCH_TEST_FULL" in os.environ else "4")

# A head that the served model has not is refused by 424 or 400 whatever the body says.
CONFIG = """
[[operations]]
include-path-regex = "^/(embed_sparse|predict|zero-shot-classification|rerank|v1/rerank|v2/rerank|score|v1/score)$"
checks.positive_data_acceptance.enabled = false
checks.negative_data_rejection.enabled = false

# JSON Schema cannot say "as many ids and metadata as texts", nor that a vector has a direction.
[[operations]]
include-path-regex = "^/(add|search)$"
checks.positive_data_acceptance.enabled = false

# Nor that each chunk has a token, which is the tokenizer's to say, nor as many lists of spans as documents.
[[operations]]
include-path-regex = "^/(embed_chunks|v1/contextualizedembeddings|v1/embeddings|embeddings)$"
checks.positive_data_acceptance.enabled = false
"""


@pytest.fixture(scope="module")
def document(server):
    reply = server.ask("GET", "/openapi.json")
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    return reply.json()


def test_every_route_is_described(document):
    found = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert len(found) >= 25
    hidden = [(m, p) for p, methods in document["paths"].items() for m, op in methods.items() if "x-undescribed" in op]
    assert not hidden
    for path in ("/v1/embeddings", "/embed", "/", "/api/embed", "/v2/embed"):
        assert "application/octet-stream" in document["paths"][path]["post"]["responses"]["200"]["content"]


def test_bounds_are_those_of_the_model(document):
    schema = document["paths"]["/v1/embeddings"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["input"]
    assert schema["properties"]["dimensions"]["maximum"] == 384
    assert {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 30521}, "minItems": 1} in \
        schema["properties"]["input"]["anyOf"]


def check(server, tmp_path, *flags):
    host, port = server.where
    program = os.path.join(os.path.dirname(clients.python()), "schemathesis")
    if not os.path.exists(program):
        pytest.skip("schemathesis is not installed")
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    done = subprocess.run([program, "--config-file", tmp_path / "schemathesis.toml", "run",
                           f"http://{host}:{port}/openapi.json", "-n", EXAMPLES, *flags,
                           "--continue-on-failure", "--seed", "1", "--no-color", "--suppress-health-check", "all"],
                          env=clients.environment() | {"HOME": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True,
                          timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_schemathesis(server, tmp_path):
    check(server, tmp_path, "--phases", "examples,coverage,fuzzing")


def test_schemathesis_with_batches(start, tmp_path):
    server = start("--server-batches", tmp_path / "kept")
    check(server, tmp_path, "--phases", "examples,fuzzing", "-n", "4", "--include-path-regex", "^/v1/(files|batches)")
    assert server.metrics()['fletch_requests_total{route="/v1/files",method="POST",code="200"}'] > 0


def test_schemathesis_with_a_store(start, tmp_path):
    """The document's links lead from what was added to /items/{id}: the chains must reach it."""
    server = start("--server-store", tmp_path / "store.db")
    check(server, tmp_path, "--phases", "examples,coverage,fuzzing,stateful", "--include-path-regex", "^/(add|search|items)")
    seen = server.metrics()
    for method in ("GET", "DELETE"):
        assert seen[f'fletch_requests_total{{route="/items/",method="{method}",code="200"}}'] > 0
    assert seen['fletch_requests_total{route="/search",method="POST",code="200"}'] > 0
