# SPDX-License-Identifier: Apache-2.0
"""Every family of encoders through the server: its vectors are sentence-transformers', and /info names family and switches.

The small folders of tests/golden that end in no dialect, as many to a server as one holds; the vectors expected are those of the golden tests.
"""
import json

import pytest
import serving

numpy = pytest.importorskip("numpy", reason="the package numpy is not installed")

FOLDERS = serving.ROOT / "tests/golden/folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
KEPT = [index for index, text in enumerate(TEXTS) if text]  # this route refuses the empty one
FAMILIES = sorted(path.name for path in FOLDERS.glob("family-*")  # models with tasks need one each
                  if not path.name.endswith(("-hub", "-names", "-tasks")) and not path.name.startswith("family-jina5"))
SWITCHES = {"family-nomic-moe": "mixtures of experts", "family-modernbert": "attention in a window", "family-qwen3": "causal",
            "family-gemma3": "further norms", "family-jina-qk": "over all heads", "family-gte": "rotary", "family-jina": "ALiBi"}


SHARE = 24  # a server holds 32


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """The server of each family."""
    out, started = {}, []
    for first in range(0, len(FAMILIES), SHARE):
        names = FAMILIES[first:first + SHARE]
        words = [word for name in names for word in ("--model", f"{name}={FOLDERS / name}")]
        started.append(serving.Server(tmp_path_factory.mktemp("families"), *words, model=False))
        out |= dict.fromkeys(names, started[-1])
    yield out
    for running in started:
        assert running.process.poll() is None, running.log()
        assert running.end() == 0, running.log()


@pytest.mark.parametrize("name", FAMILIES)
def test_vectors(servers, name):
    body = json.dumps({"model": name, "input": [TEXTS[index] for index in KEPT]}).encode()
    reply = servers[name].ask("POST", "/v1/embeddings", body)
    assert reply.status == 200, reply
    rows = numpy.array([row["embedding"] for row in reply.json()["data"]], numpy.float32)
    expected = numpy.load(FOLDERS / name / json.loads((FOLDERS / name / "expected.json").read_text())[0]["vectors"])[KEPT]
    scale = numpy.linalg.norm(expected, axis=1, keepdims=True)  # this route answers with unit rows
    assert numpy.abs(rows - expected / numpy.where(scale > 0, scale, 1)).max() <= 1e-5


def test_what_info_says(tmp_path):
    for name, says in SWITCHES.items():
        running = serving.Server(tmp_path, "--model", str(FOLDERS / name), model=False)
        encoder = running.ask("GET", "/info").json()["encoder"]
        assert says in encoder["features"] and encoder["family"] and encoder["max_positions"] > 0, (name, encoder)
        assert running.end() == 0, running.log()
