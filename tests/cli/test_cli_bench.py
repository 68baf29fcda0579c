# SPDX-License-Identifier: Apache-2.0
"""`fletch bench` measures what it says: texts of those tokens, and the arithmetic that they take. No test asserts a speed."""
import json
import pathlib

import pytest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "folders"


def test_json_has_rows_and_their_arithmetic(embed):
    result = embed("bench", "--seconds", "0", "--format", "json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["provider"] == "cpu" and told["threads"] >= 1 and told["latency_ms"]["p95"] >= told["latency_ms"]["p50"] > 0
    assert [row["tokens"] for row in told["rows"]] == [16, 64, 256]
    for row in told["rows"]:  # MiniLM-L6: six layers of 384, the MLP of 1536
        n = row["tokens"]
        assert row["text_flops"] == 6 * (2 * n * (4 * 384 * 384 + 2 * 384 * 1536) + 4 * 384 * n * n)
        assert row["rounds"] == 3 and row["highest"] >= row["texts_per_second"] >= row["lowest"] > 0
        assert ("peak_share" in row) == (told["peak_flops"] > 0)


def test_the_table_is_for_a_person(embed):
    result = embed("bench", "--seconds", "0", "--threads", "1")
    says = result.stdout.decode()
    assert result.returncode == 0 and "1 thread," in says and "one text of 16 tokens" in says
    assert [line.split()[0] for line in says.splitlines() if line.startswith("  ")] == ["tokens", "16", "64", "256"]


@pytest.mark.parametrize("length", [3, 8, 15])
def test_short_models_and_a_cache_are_measured_as_they_are(fletch, length):
    result = fletch("bench", "-m", GOLDEN / "plain-bert", "--max-length", str(length), "--seconds", "0", "--format", "json",
                    "--cache-max-bytes", "64MiB", model=False)
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert [row["tokens"] for row in rows] == [length]
    assert rows[0].get("peak_share", 0) < 2  # answered from a cache it is 16 and more


@pytest.mark.parametrize("arguments", [("text",), ("--seconds", "x"), ("--seconds", "-1"), ("--seconds", "nan"), ("--seconds", "0x2")])
def test_wrong_usage_is_2(fletch, arguments):
    assert fletch("bench", *arguments).returncode == 2


def test_a_model_without_vectors_is_3_and_says_what_it_is(fletch):
    result = fletch("bench", "-m", GOLDEN / "sparse-bert", "--seconds", "0", model=False)
    assert result.returncode == 3 and b"sparse" in result.stderr
