# SPDX-License-Identifier: Apache-2.0
"""fletch run --chunk: a row for each chunk, byte for byte that of `fletch embed --chunk`, whatever kills the job."""
import json
import signal

import commandline
import jobs
import numpy
import pytest
from jobs import Job

FLAGS = ("--chunk", "sentences", "--chunk-size", "9", "--chunk-overlap", "3")
LATE = (*FLAGS, "--late-chunking")
PLACES = ("chunk", "bytes", "chars", "tokens", "truncated")


def make(place, *flags, out="out", count=300) -> Job:
    """Documents of up to four sentences, some empty, one of white space; a record that is none; one in two scripts."""
    words = jobs.lines(4 * count, 7)
    texts = [". ".join(words[4 * i:4 * i + i % 5]) for i in range(count)]
    texts[3:5] = ["  \n", "né 日本語。 It purrs. " * 3]
    records = [json.dumps({"body": text, "key": f"k{i}"}, ensure_ascii=False) for i, text in enumerate(texts)]
    records[8] = "{bad"
    (place / "in.jsonl").write_text("\n".join(records) + "\n", encoding="utf-8")
    job = Job(place, place / "in.jsonl", out)
    job.command += ["--field", "body", "--id-field", "key", *flags]
    return job


def embed(job, name, *flags):
    """The same by `fletch embed`: a file, or rows."""
    arguments = ("embed", "-q", "-m", jobs.TOY, "-i", job.place / "in.jsonl", "--field", "body", "--on-error", "skip", *flags)
    done = commandline.Fletch(job.place)(*arguments, "-o", name, check=False)
    assert done.returncode == 4, done.stderr
    return (job.place / name).read_bytes()


@pytest.mark.parametrize("flags", [FLAGS, LATE], ids=["plain", "late"])
def test_rows_are_those_of_embed(tmp_path, flags):
    job = make(tmp_path, *flags, "--keep-text")
    summary = job.run(code=4)
    vectors, rows = job.merged()
    assert vectors == embed(job, "all.npy", *flags) and summary["made"] > 3
    want = [json.loads(line) for line in embed(job, "all.jsonl", *flags, "--keep-fields", "--keep-text").splitlines()]
    told = [json.loads(line) for line in rows.splitlines()]
    done = [row for row in told if "refused" not in row]
    assert [[row[name] for name in (*PLACES, "text")] for row in done] == [[row[name] for name in (*PLACES, "text")] for row in want]
    assert [row["id"] for row in done] == [row["key"] for row in want] and len(done) == summary["rows"] == len(want)
    assert len(told) == len(done) + 1 and summary["refused"] == 1
    lines = [json.loads(line) for line in embed(job, "lines.jsonl", *flags).splitlines()]
    parts = [json.loads(path.read_text()) for path in sorted(job.out.glob("part-*.json"))]
    assert sum(part["rows"] for part in parts) == len(lines) and parts[0]["rows"] > 0
    first = job.out / f"{parts[0]['part']}.jsonl"  # the index is the record's in its part
    assert [json.loads(line).get("index") for line in first.read_text().splitlines() if "refused" not in line] == [
        row["index"] for row in lines[:parts[0]["rows"]]]
    assert job.ask("--check", "--finish")["rows"] == summary["rows"]


def test_killed_sharded_and_again(tmp_path):
    calm, storm, shards = (make(tmp_path, *LATE, out=name, count=1200) for name in ("calm", "storm", "shards"))
    calm.run()
    assert jobs.storm(storm, 3, signal.SIGKILL, 5) > 0
    storm.run()
    for shard in ("2/3", "0/3", "1/3"):
        shards.run("--shard", shard)
    assert storm.content() == calm.content() == shards.content() and storm.is_clean()
    again = calm.run()
    assert again["made"] == 0 and again["done_before"] == again["parts"]


def test_formats_and_types(tmp_path):
    lines = make(tmp_path, *FLAGS, "--format", "jsonl", out="lines")
    lines.run(code=4)
    told = [json.loads(line) for path in sorted(lines.out.glob("*.jsonl")) for line in path.read_text().splitlines()]
    rows = numpy.array([row["embedding"] for row in told if "refused" not in row], numpy.float32)
    embed(lines, "all.npy", *FLAGS)
    assert rows.tobytes() == numpy.load(tmp_path / "all.npy").tobytes() and list(told[0])[:4] == ["index", "chunk", "bytes", "chars"]
    raw = make(tmp_path, *FLAGS, "--format", "raw", "--dtype", "int8", out="raw")
    raw.run(code=4)
    assert b"".join(path.read_bytes() for path in sorted(raw.out.glob("*.raw"))) == embed(raw, "all.raw", *FLAGS, "--dtype", "int8")


@pytest.mark.parametrize("flags, words", [
    (("--chunk", "tokens"), 'option chunk is "sentences" there and "tokens" here'),
    (("--chunk-size", "8"), 'chunk_size is "9" there and "8" here'),
    (("--chunk-overlap", "2"), 'chunk_overlap is "3" there and "2" here'),
    (("--late-chunking",), "late_chunking is nothing there"),
])
def test_a_job_with_other_chunks(tmp_path, flags, words):
    job = make(tmp_path, *FLAGS, count=20)
    job.run()
    before = job.content()
    assert words in job.run(*flags, code=2)["stderr"] and job.content() == before
    assert "for making parts" in job.ask("--check", *flags, code=2)["stderr"]


@pytest.mark.parametrize("flags, code, words", [
    (("--chunk", "tokens", "--chunk-size", "100000"), 2, "too long for the model"),
    (("--chunk", "tokens", "--chunk-size", "8", "--chunk-overlap", "8"), 2, "an overlap of 8 tokens"),
    (("--chunk-size", "8"), 2, "need --chunk"),
    (("--chunk", "sentences", "--late-chunking", "--pooling", "cls"), 3, "late chunking takes the mean"),
])
def test_what_no_document_can_mend_begins_no_job(tmp_path, flags, code, words):
    job = make(tmp_path, *flags, count=20)
    assert words in job.run(code=code)["stderr"] and not job.out.exists()


def test_a_document_that_cannot_be_cut_costs_its_rows(fletch, embed, tmp_path):
    """Each piece of a word is a chunk here, and one of them begins inside of a token of the whole word."""
    flags = ("--chunk", "tokens", "--chunk-size", "1", "--late-chunking")
    (tmp_path / "in.txt").write_bytes(b"one\nunbelievably\n\xff\ntwo\n")
    assert fletch("run", "-q", "-i", "in.txt", "-o", "out", *flags).returncode == 4
    rows = [json.loads(line) for line in (tmp_path / "out/part-00000-00000.jsonl").read_text().splitlines()]
    assert [row.get("index") for row in rows] == [0, None, None, 3] and [row.get("line") for row in rows] == [None, 2, 3, None]
    assert "no complete token" in rows[1]["refused"] and len(numpy.load(tmp_path / "out/part-00000-00000.npy")) == 2
    assert fletch("run", "-q", "-i", "in.txt", "-o", "out", *flags, "--on-error", "accept").returncode == 0
    stopped = fletch("run", "-q", "-i", "in.txt", "-o", "stopped", *flags, "--on-error", "stop")
    assert stopped.returncode == 1 and not list((tmp_path / "stopped").glob("part-*"))


def test_embedded_again_and_compared(tmp_path):
    plain, late = make(tmp_path, *FLAGS, "--keep-text", count=60), make(tmp_path, *LATE, "--keep-text", out="late", count=60)
    bare = make(tmp_path, *FLAGS, out="bare", count=60)
    for job in (plain, late, bare):
        job.run()
    other = commandline.ROOT / "tests/golden/folders/family-distilbert"
    fresh = Job(tmp_path, tmp_path / "in.jsonl", "fresh", other)
    fresh.command += ["--field", "body", "--id-field", "key", *LATE, "--keep-text"]
    fresh.run()
    again = Job(tmp_path, "", "again", other)
    again.command[again.command.index("-i"):] = ["--re-embed", str(late.out), "-o", str(again.out)]
    again.run()
    assert again.content() == fresh.content()
    assert '"chunk"' in again.run("--chunk", "tokens", code=2)["stderr"]
    fletch = commandline.Fletch(tmp_path)
    for job, code, words in ((plain, 0, b"same bytes"), (late, 3, b"depend on the rest"), (bare, 3, b"--keep-text")):
        done = fletch("verify", "-m", jobs.TOY, job.out, check=False)
        assert done.returncode == code and words in done.stdout + done.stderr, done
    (tmp_path / "in.jsonl").unlink()
    again.command[again.command.index(str(again.out))] = str(tmp_path / "third")
    assert "no documents, only chunks" in again.run(code=1)["stderr"]
