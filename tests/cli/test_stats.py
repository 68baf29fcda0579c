# SPDX-License-Identifier: Apache-2.0
"""What embed --stats, --stats-json and --profile-file say is what happened."""
import collections
import json
import pathlib
import shutil

import commandline
import pytest

TEXTS = "".join(f"text number {i} of the run\n" for i in range(300))


def spans(path):
    """The complete events of a trace by name, after checking what every viewer relies on."""
    trace = json.loads(path.read_text())
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    lines, found = collections.defaultdict(list), collections.defaultdict(list)
    for event in trace["traceEvents"]:
        assert event["ph"] in "MX"
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            line = event["pid"], event["tid"]
            assert names[line]
            lines[line].append((event["ts"], -event["dur"]))
            found[event["name"]].append(event)
    for line in lines.values():  # on one line spans follow each other or lie inside each other
        ends = []
        for begin, negative in sorted(line):
            while ends and ends[-1] <= begin + 1e-6:
                ends.pop()
            assert not ends or begin - negative <= ends[-1] + 0.0011, "spans overlap"
            ends.append(begin - negative)
    return found, names, trace["otherData"]


def test_stats_json_counts_the_run(embed, tmp_path):
    result = embed("embed", "--stats-json", "stats.json", "--max-length", "6", input=TEXTS)
    assert result.returncode == 0, result.stderr
    stats = json.loads((tmp_path / "stats.json").read_text())
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert stats["texts"] == len(rows) == 300
    assert stats["tokens"] == sum(row["tokens"] for row in rows)
    assert stats["truncated_texts"] == sum(row["truncated"] for row in rows) == 300
    assert stats["failed_texts"] == stats["queued_texts"] == stats["running_texts"] == 0
    assert stats["forward"]["count"] == stats["batches"] >= 1
    assert stats["total"]["count"] == stats["requests"] >= 1
    assert stats["provider"] == "cpu" and stats["replicas"] >= 1 and stats["slots"] >= 1
    assert stats["busy_ns"] <= stats["uptime_ns"] * stats["slots"]
    assert stats["tokenized_bytes"] == sum(len(line.encode() if isinstance(line, str) else line) for line in TEXTS.splitlines())
    assert 0 < stats["tokenize_ns"] < stats["uptime_ns"] * 64
    ratios = stats["ratios"]
    assert ratios["mean_batch_texts"] == pytest.approx(300 / stats["batches"], abs=1e-4)
    assert 0 < ratios["utilisation"] <= 1
    for name in ("tokenize", "queue", "forward", "total"):
        h = stats[name]
        assert h["p50_ns"] <= h["p90_ns"] <= h["p95_ns"] <= h["p99_ns"] <= h["max_ns"]
        assert sum(count for _, count in h["buckets"]) == h["count"]


def test_stats_are_a_table_for_a_person(embed):
    result = embed("embed", "--stats", input=TEXTS)
    table = {line[:13].strip(): line[13:] for line in result.stderr.decode().splitlines() if line[:7] != "fletch:"}
    assert table["texts"] == "300" and table["engine"].startswith("cpu ")
    assert " MB/s per thread, " in table["tokenizer"]
    assert table["forward"].startswith("p50 ") and table["forward"].endswith(" ms")
    assert "zero copy" in table and "failed" not in table
    assert result.stdout.count(b"\n") == 300


def test_memory_is_looked_at_while_batches_run(embed):
    """With a threshold of 0 memory is always scarce: buffers and pages of files are given back, and that is counted."""
    result = embed("embed", "--memory-limit", "4GiB", "--pool-pressure-threshold", "0", "--stats", "hello")
    assert result.returncode == 0 and any(line.split()[0] == b"pressure" for line in result.stderr.splitlines() if line.strip())
    result = embed("embed", "--pool-pressure-detection=false", "--stats", "hello")
    assert b"pressure" not in result.stderr


def test_resident_memory_stays_under_the_limit(embed, tmp_path):
    """Packed weights take 41 MiB and all word vectors 45 more, which are read without becoming resident. A file
    written in large pieces is cached in large pieces, and Linux from 6.18 on maps such a piece for one byte of it."""
    shutil.copytree(commandline.MODEL, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors", "onnx"))
    weights = pathlib.Path(commandline.MODEL, "model.safetensors").read_bytes()
    (tmp_path / "model" / "model.safetensors").write_bytes(weights)
    vocabulary = json.loads((tmp_path / "model" / "tokenizer.json").read_text())["model"]["vocab"]
    words = [word for word in vocabulary if word.isalpha()][::2]
    texts = "\n".join(" ".join(words[i::600]) for i in range(600))
    args = ["--model", "model", "--threads", "1", "--stats", "--output", "rows.npy"]
    result = embed("embed", "--memory-limit", "68MiB", *args, input=texts)
    assert result.returncode == 0, result.stderr.decode()
    assert commandline.peak_mb(result.stderr) < 68 * 1.048576
    narrow = (tmp_path / "rows.npy").read_bytes()
    assert embed("embed", *args, input=texts).returncode == 0
    assert (tmp_path / "rows.npy").read_bytes() == narrow, "the same bytes however they were read"


def test_stats_json_to_standard_output(embed, tmp_path):
    result = embed("embed", "--stats-json", "-", "--output", "rows.npy", input=TEXTS)
    assert result.returncode == 0 and json.loads(result.stdout)["texts"] == 300
    assert [path.name for path in tmp_path.iterdir() if path.name == "-"] == []
    both = embed("embed", "--stats-json", "-", "--format", "jsonl", "hello").stdout.splitlines()
    assert len(both) > 1 and json.loads(b"".join(both[1:]))["texts"] == 1, "behind the results"


def test_stats_json_that_cannot_be_written_is_1_and_leaves_nothing(embed, tmp_path):
    result = embed("embed", "--stats-json", "no/such/stats.json", "hello")
    assert result.returncode == 1 and "no/such" in result.stderr.decode()
    assert not (tmp_path / "no").exists()


def test_a_trace_names_every_phase(embed, tmp_path):
    plain = embed("embed", "--format", "raw", input=TEXTS)
    result = embed("embed", "--format", "raw", "--profile-file", "trace.json", input=TEXTS)
    assert result.returncode == 0 and result.stdout == plain.stdout
    found, names, other = spans(tmp_path / "trace.json")
    assert {"tokenise", "wait", "stage", "forward", "output", "block", "layer"} <= found.keys()
    assert len(found["layer"]) % len(found["block"]) == 0
    assert {e["args"]["number"] for e in found["layer"]} == set(range(len(found["layer"]) // len(found["block"])))
    assert other["dropped_spans"] == "0"
    assert {"queue", "housekeeping"} <= set(names.values())
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_a_trace_goes_where_the_environment_says(embed, tmp_path):
    result = embed("embed", "hello", env={"FLETCH_PROFILE_FILE": str(tmp_path / "here.json")})
    assert result.returncode == 0
    assert sum(e["args"]["tokens"] for e in spans(tmp_path / "here.json")[0]["forward"]) == 3


def test_a_trace_that_cannot_be_written_is_told_before_the_work(embed, tmp_path):
    result = embed("embed", "--profile-file", "no/such/trace.json", "hello")
    assert result.returncode != 0 and result.stdout == b""
    assert "no/such/trace.json" in result.stderr.decode()


def test_options_that_contradict_each_other_are_2_and_name_both(embed, tmp_path):
    (tmp_path / "my.toml").write_text("[batch]\nmin_texts = 32\n")
    result = embed("embed", "--config", "my.toml", "--batch-max-texts", "16", "hello")
    says = result.stderr.decode()
    assert result.returncode == 2 and result.stdout == b""
    assert "batch.min_texts" in says and "my.toml:2" in says and "batch.max_texts" in says and "flag" in says


def test_a_default_gives_way_to_a_flag(embed):
    result = embed("embed", "-v", "--batch-max-texts", "2", "hello", "cat", "dog")
    assert result.returncode == 0 and result.stdout.count(b"\n") == 3
    assert "batch.min_texts" in result.stderr.decode()
