# SPDX-License-Identifier: Apache-2.0
"""`fletch bench` measures what it says: texts of those tokens, and the arithmetic that they take. No test asserts a speed."""
import json
import pathlib

import pytest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "folders"


SMALL = ("-m", GOLDEN / "family-ernie", "--max-length", "256")  # BERT's layers; rows of a larger model take a minute of processor


def test_json_has_rows_and_their_arithmetic(fletch):
    result = fletch("bench", *SMALL, "--seconds", "0", "--format", "json", model=False)
    assert result.returncode == 0, result.stderr
    told, config = json.loads(result.stdout), json.loads((GOLDEN / "family-ernie/config.json").read_text())
    assert told["provider"] == "cpu" and told["threads"] >= 1 and told["latency_ms"]["p95"] >= told["latency_ms"]["p50"] > 0
    assert [row["tokens"] for row in told["rows"]] == [16, 64, 256]
    layers, wide, middle = (config[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size"))
    for row in told["rows"]:
        n = row["tokens"]
        assert row["text_flops"] == layers * (2 * n * (4 * wide * wide + 2 * wide * middle) + 4 * wide * n * n)
        assert row["rounds"] == 3 and row["highest"] >= row["texts_per_second"] >= row["lowest"] > 0
        assert ("peak_share" in row) == (told["peak_flops"] > 0)


def test_the_table_is_for_a_person(fletch):
    result = fletch("bench", *SMALL, "--seconds", "0", "--threads", "1", model=False)
    says = result.stdout.decode()
    assert result.returncode == 0 and "1 thread," in says and "one text of 16 tokens" in says
    assert [line.split()[0] for line in says.splitlines() if line.startswith("  ")] == ["tokens", "16", "64", "256"]


@pytest.mark.parametrize("length", [3, 8, 15])
def test_short_models_and_a_cache_are_measured_as_they_are(fletch, length):
    """Answered from a cache the share of the peak is 16 and more every time; who takes the cores between peak and call makes it 2 now and then."""
    for _ in range(5):
        result = fletch("bench", "-m", GOLDEN / "plain-bert", "--max-length", str(length), "--seconds", "0", "--format", "json",
                        "--cache-max-bytes", "64MiB", model=False)
        assert result.returncode == 0, result.stderr
        rows = json.loads(result.stdout)["rows"]
        assert [row["tokens"] for row in rows] == [length]
        if rows[0].get("peak_share", 0) < 2:
            return
    pytest.fail(f"answered from a cache: {rows}")


@pytest.mark.parametrize("arguments", [("text",), ("--seconds", "x"), ("--seconds", "-1"), ("--seconds", "nan"), ("--seconds", "0x2")])
def test_wrong_usage_is_2(fletch, arguments):
    assert fletch("bench", *arguments).returncode == 2


def test_a_model_without_vectors_is_3_and_says_what_it_is(fletch):
    result = fletch("bench", "-m", GOLDEN / "sparse-bert", "--seconds", "0", model=False)
    assert result.returncode == 3 and b"sparse" in result.stderr
