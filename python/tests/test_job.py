# SPDX-License-Identifier: Apache-2.0
"""fletch.job: the job of `fletch run` over Parquet.

Must never break: killed and run again it ends in the same bytes; shards agree; vectors are those of `fletch run`;
`fletch run --check` reads the folder; nothing of another job is mixed in."""
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import MODEL, PROGRAM, ROOT

import fletch

pa = pytest.importorskip("pyarrow")
import pyarrow.dataset as dataset  # noqa: E402
import pyarrow.fs as pafs  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from fletch import _folder, job, verify  # noqa: E402

TOY = str(ROOT / "tests/golden/folders/plain-bert")
WORDS = "the cat sat on a mat while dogs ran over green hills and some people wrote long notes".split()


def texts(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 20))) for _ in range(count)]


@pytest.fixture(scope="module")
def toy():
    with fletch.Model(TOY) as model:
        yield model


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    for name, count, seed in (("a", 900, 1), ("sub/a", 300, 2)):
        rows = texts(count, seed)
        rows[5] = None
        table = pa.table({"id": range(count), "text": rows, "more": [1.5] * count})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=50)
    return folder


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}


def done(folder):
    return {path.name: path.stat().st_ino for path in folder.glob("part-*.json")}


def program(*arguments, code=0):
    ran = subprocess.run([PROGRAM, "run", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout) if ran.stdout else {}


def start(source, out, *flags):
    return subprocess.Popen([sys.executable, "-X", "dev", "-m", "fletch.job", source, out, "-m", TOY, "--id", "id",
                             "--split-rows", "100", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_rows_are_those_of_the_model_and_of_the_program(toy, source, tmp_path):
    summary = job.run(source, tmp_path / "out", id="id", keep=["more"], model=toy, split_rows=100)
    assert summary["parts"] == summary["made"] == 12 and summary["rows"] == 1198 and summary["refused"] == 2
    parts = sorted((tmp_path / "out").glob("*.parquet"))
    table = pa.concat_tables([pq.read_table(path) for path in parts])
    assert table.column_names == ["id", "more", "embedding", "tokens", "truncated", "refused"]
    assert table["id"].to_pylist() == [*range(900), *range(300)]
    assert table["embedding"].null_count == 2 and table["refused"][5].as_py() == "the text is missing"
    assert dataset.dataset([str(path) for path in parts]).to_table().equals(table)
    wrote = [text for name in ("a", "sub/a") for text in pq.read_table(source / f"{name}.parquet")["text"].to_pylist()
             if text is not None]
    want = toy.embed(wrote, truncate="right")
    got = table["embedding"].combine_chunks().flatten().to_numpy().reshape(want.shape)
    assert got.tobytes() == want.tobytes()
    assert pq.read_schema(parts[0]).metadata[b"fletch.model"].decode() == toy.fingerprint
    # the same through lines and seven of `fletch run`, and both folders through its --check
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(wrote))
    for i in range(7):
        program("-q", "-m", TOY, "-i", lines, "-o", tmp_path / "run", "--split-bytes", "4KiB", "--shard", f"{i}/7")
    program("-o", tmp_path / "run", "--merge", tmp_path / "run.npy")
    job.run(source, tmp_path / "npy", id="id", model=toy, split_rows=100, format="npy")
    program("-o", tmp_path / "npy", "--merge", tmp_path / "npy.npy", code=4)
    assert (tmp_path / "npy.npy").read_bytes() == (tmp_path / "run.npy").read_bytes()
    assert np.load(tmp_path / "npy.npy").tobytes() == want.tobytes()
    rows = [json.loads(line) for line in (tmp_path / "npy.jsonl").read_text().splitlines()]
    assert rows[5] == {"refused": "the text is missing", "line": 6} and rows[6]["id"] == 6
    for folder in ("out", "npy"):
        ours, theirs = job.check(tmp_path / folder), program("-o", tmp_path / folder, "--check", code=4)
        assert ours.pop("wrong") == [] and ours == theirs
    assert job.check(tmp_path / "run")["sha256"] == program("-o", tmp_path / "run", "--check")["sha256"]


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_shards_killed_and_again(toy, source, tmp_path, kind):
    calm = tmp_path / "calm"
    job.run(source, calm, id="id", model=toy, split_rows=100, format=kind)
    again = job.run(source, calm, id="id", model=toy, split_rows=100, format=kind)
    assert again["made"] == 0 and again["done_before"] == 12 and again["rows"] == 1198
    shards = tmp_path / "shards"
    for i in (2, 0, 1):
        job.run(source, shards, id="id", model=toy, split_rows=100, format=kind, shard=f"{i}/3")
    assert content(shards) == content(calm)
    stormy, draw, before = tmp_path / "stormy", random.Random(3), {}
    for number in [signal.SIGKILL] * 3 + [signal.SIGTERM]:
        worker = start(source, stormy, "--format", kind)
        goal = min(len(before) + draw.randint(1, 2), 12)
        while worker.poll() is None and len(done(stormy) if stormy.exists() else {}) < goal:
            time.sleep(0.002)
        worker.send_signal(number)
        _, err = worker.communicate(timeout=300)
        assert worker.returncode in (-number, 128 + number, 4), err
        assert before.items() <= done(stormy).items()
        before = done(stormy)
    out, err = start(source, stormy, "--format", kind).communicate(timeout=300)
    assert json.loads(out)["rows"] == 1198, err
    assert content(stormy) == content(calm)
    assert all(name.startswith(("part-", "job.json")) for name in os.listdir(stormy))
    assert program("-o", stormy, "--finish", code=4)["sha256"] == job.check(calm)["sha256"]


def test_an_object_store(toy, source, tmp_path):
    """A file system that only opens and closes streams."""
    store = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    remote = job.run("in", "out", id="id", model=toy, split_rows=100, filesystem=store, output_filesystem=store)
    assert remote["made"] == 12
    assert job.run("in", "out", id="id", model=toy, split_rows=100, filesystem=store, output_filesystem=store)["made"] == 0
    assert job.check("out", filesystem=store, finish=True)["wrong"] == []
    os.unlink(tmp_path / "out/part-00000-00001.parquet")
    assert job.run("in", "out", id="id", model=toy, split_rows=100, filesystem=store, output_filesystem=store)["made"] == 1


def test_columns_of_every_kind(toy, tmp_path):
    rows = texts(60)
    want = toy.embed(rows, dtype="int8", truncate="right")
    for name, column in [("u", pa.array(rows)), ("large", pa.array(rows, pa.large_string())),
                         ("view", pa.array(rows, pa.string_view())), ("dictionary", pa.array(rows).dictionary_encode())]:
        pq.write_table(pa.table({"body": column}), tmp_path / f"{name}.parquet")
        job.run(tmp_path / f"{name}.parquet", tmp_path / name, column="body", model=toy, dtype="int8")
        got = pq.read_table(tmp_path / name / "part-00000-00000.parquet")["embedding"].combine_chunks()
        assert got.flatten().to_numpy().tobytes() == want.tobytes(), name
    pq.write_table(pa.table({"body": pa.array([], pa.string())}), tmp_path / "none.parquet")
    assert job.run(tmp_path / "none.parquet", tmp_path / "none", column="body", model=toy)["rows"] == 0
    assert job.check(tmp_path / "none")["wrong"] == [] and program("-o", tmp_path / "none", "--check")["done"] == 1
    pq.ParquetWriter(tmp_path / "bare.parquet", pa.schema({"body": pa.string()})).close()
    assert pq.ParquetFile(tmp_path / "bare.parquet").num_row_groups == 0
    assert job.run(tmp_path / "bare.parquet", tmp_path / "bare", column="body", model=toy)["rows"] == 0
    assert job.check(tmp_path / "bare")["wrong"] == []
    twice = pa.table({"id": ["a", "a"], "body": rows[:2]})
    pq.write_table(twice, tmp_path / "twice.parquet")
    job.run(tmp_path / "twice.parquet", tmp_path / "twice", column="body", id="id", model=toy)
    assert pq.read_table(tmp_path / "twice/part-00000-00000.parquet")["id"].to_pylist() == ["a", "a"]


def test_what_is_refused(toy, source, tmp_path):
    def refuse(words, kind=job.JobError, place=source, out=tmp_path / "out", **arguments):
        with pytest.raises(kind, match=words):
            job.run(place, out, **{"model": toy, "split_rows": 100} | arguments)

    refuse("has no column \"body\"; it has id, text, more", column="body")
    refuse("not text", column="more")
    for shard in ("0/0", "7/7", "-1/3", "1", "a/b", "٣/٤", (3, 3)):
        refuse("I/N", shard=shard)
    refuse("contain each other", out=source / "out")
    refuse("contain each other", out=source)
    refuse("no file found at", FileNotFoundError, place=tmp_path / "absent")
    (tmp_path / "torn.parquet").write_bytes((source / "a.parquet").read_bytes()[:-9])
    refuse("not a valid Parquet file", OSError, place=tmp_path / "torn.parquet")
    assert not (tmp_path / "out" / "job.json").exists()
    job.run(source, tmp_path / "out", model=toy, split_rows=100, shard=(0, 2))
    before = content(tmp_path / "out")
    for arguments, words in [({"dtype": "int8"}, "option dtype is \"float32\" there"), ({"format": "npy"}, "option format"),
                             ({"id": "id"}, "option id"), ({"max_length": 8}, "embed.max_length"),
                             ({"split_rows": 200}, "split_rows is 100 there")]:
        refuse(words, **arguments)
    made = tmp_path / "out" / "job.json"
    written = made.read_text()
    made.write_text(written.replace('"fletch":"', '"fletch":"9.'))
    refuse('fletch is "9.')
    made.write_text(written)
    pq.write_table(pa.table({"id": [1], "text": ["x"]}), source / "new.parquet")
    refuse("another job")
    os.unlink(source / "new.parquet")
    rows = pq.read_table(source / "a.parquet")
    pq.write_table(rows.slice(1), source / "a.parquet", row_group_size=50)
    refuse("a.parquet")
    assert content(tmp_path / "out") == before


def test_inputs_are_files_and_not_spellings(toy, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(source)
    shutil.copytree(source, tmp_path / "copy")
    for number, spelled in enumerate(("in", str(source), "link", "copy")):
        job.run(spelled, tmp_path / "out", id="id", model=toy, split_rows=100, shard=(number, 4))
    assert job.check(tmp_path / "out")["missing"] == 0


def test_inputs_that_change_after_the_job(toy, source, tmp_path, capsys):
    """Rewritten ones are a fault, also to the program; of those that are gone the number is said."""
    out = tmp_path / "out"
    job.run(source, out, id="id", model=toy, split_rows=100)
    assert job.check(out)["wrong"] == []
    rows = pq.read_table(source / "a.parquet")
    pq.write_table(rows.set_column(1, "text", rows["text"].take(list(range(899, -1, -1)))), source / "a.parquet",
                   row_group_size=50)
    assert job.check(out, finish=True)["wrong"] == [f"{source}/a.parquet has changed since the job began"]
    program("-o", out, "--check", "--finish", code=1)
    assert not (out / "_SUCCESS").exists()
    (source / "a.parquet").unlink()
    capsys.readouterr()
    assert job.check(out, finish=True)["wrong"] == []
    assert "1 of 2 inputs are missing" in capsys.readouterr().err


def test_nothing_is_not_finished(toy, tmp_path):
    pq.write_table(pa.table({"text": pa.array([None] * 9, pa.string())}), tmp_path / "in.parquet")
    job.run(tmp_path / "in.parquet", tmp_path / "out", model=toy)
    with pytest.raises(job.JobError, match="none of the 9 rows has a vector"):
        job.check(tmp_path / "out", finish=True)
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_a_pipe_is_not_waited_for(tmp_path):
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "job.json")
    with pytest.raises(OSError, match="not a regular file"):
        job.check(tmp_path / "out")


@pytest.mark.parametrize("damage", ["truncate", "edit", "no part", "no manifest"])
def test_damage(toy, source, tmp_path, damage):
    out = tmp_path / "out"
    job.run(source, out, model=toy, split_rows=100)
    want, path = content(out), out / "part-00000-00003.json"
    text = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(text[:-30])
    elif damage == "edit":
        path.write_bytes(text.replace(b'"rows":', b'"rows":1'))
    else:
        os.unlink(path if damage == "no manifest" else out / "part-00000-00003.parquet")
    assert len(job.check(out)["wrong"]) == 1
    program("-o", out, "--check", "--quick", code=1)
    (out / "_SUCCESS").touch()
    assert job.run(source, out, model=toy, split_rows=100)["made"] == 1
    assert content(out) == want and job.check(out)["wrong"] == []
    shutil.copy(out / "part-00000-00003.parquet", out / "part-00007-00000.parquet")
    assert job.check(out)["wrong"] == ["part-00007-00000.parquet is not part of this job"]


def test_a_gap_between_parts(toy, source, tmp_path):
    out = tmp_path / "out"
    job.run(source, out, model=toy, split_rows=100)
    job.check(out, finish=True)
    path = out / "part-00000-00003.json"
    facts = json.loads(path.read_text()) | {"begin": 301}
    facts.pop("check", None)
    path.write_bytes(job._seal(facts))
    assert job.main([str(out), "--check", "--finish"]) == 1
    assert job.check(out, finish=True)["wrong"] == ["part-00000-00003 begins at 301 of its input, where 300 follows"]
    assert not (out / "_SUCCESS").exists(), "of the check before"


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_a_damaged_page_costs_its_part(toy, tmp_path, codec):
    path, out = tmp_path / "in.parquet", tmp_path / "out"
    pq.write_table(pa.table({"text": texts(900)}), path, row_group_size=300, compression=codec, use_dictionary=False)
    found = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    begin = found.data_page_offset + found.total_compressed_size // 4
    data[begin:begin + found.total_compressed_size // 2] = b"\xff" * (found.total_compressed_size // 2)
    path.write_bytes(data)
    summary = job.run(path, out, model=toy, split_rows=300)
    assert (summary["made"], summary["failed"]) == (2, 1)
    (tmp_path / "full").mkdir()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(_folder.Writer, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        job.run(path, tmp_path / "full", model=toy, split_rows=300)


def test_a_temporary_that_a_sweep_took(tmp_path, monkeypatch):
    folder, hold, taken = _folder.LocalFolder(str(tmp_path)), _folder._hold, []

    def late(file):
        if len(taken) < 3:
            taken.append(file.name)
            folder.sweep(False)
        return hold(file)

    monkeypatch.setattr(_folder, "_hold", late)
    folder.put("part", b"content")
    assert len(set(taken)) == 3 and os.listdir(tmp_path) == ["part"]
    monkeypatch.setattr(_folder, "_hold", lambda file: False)
    with pytest.raises(FileExistsError):
        folder.put("more", b"content")
    assert os.listdir(tmp_path) == ["part"]


def test_two_workers_on_the_same_parts(toy, source, tmp_path):
    job.run(source, tmp_path / "calm", id="id", model=toy, split_rows=100)
    for worker in [start(source, tmp_path / "out") for _ in range(2)]:
        out, err = worker.communicate(timeout=300)
        assert worker.returncode == 4 and json.loads(out)["rows"] == 1198, err
    assert content(tmp_path / "out") == content(tmp_path / "calm")
    assert job.check(tmp_path / "out")["sha256"] == job.check(tmp_path / "calm")["sha256"]


def test_a_disk_without_locks_and_links(toy, source, tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOTSUP, "not supported")

    job.run(source, tmp_path / "calm", id="id", model=toy, split_rows=100)
    monkeypatch.setattr(_folder.fcntl, "flock", refused)
    monkeypatch.setattr(_folder.os, "link", refused)
    out = tmp_path / "out"
    job.run(source, out, id="id", model=toy, split_rows=100, shard=(0, 2))
    left = out / f".part-00000-00001.parquet.fletch-{_folder._HOST}01234567.tmp"
    left.touch()
    job.run(source, out, id="id", model=toy, split_rows=100, shard=(1, 2))
    assert left.exists(), "another may be writing it"
    assert job.check(out, finish=True)["wrong"] == [] and not left.exists()
    (out / "_SUCCESS").unlink()
    assert content(out) == content(tmp_path / "calm")


def test_command_line(source, tmp_path, capsys):
    base = [str(source), str(tmp_path / "out"), "-m", TOY]
    assert job.main([*base, "--dtype", "ubinary"]) == 4
    assert json.loads(capsys.readouterr().out)["rows"] == 1198
    assert job.main([*base]) == 2
    assert "another job" in capsys.readouterr().err
    assert job.main([str(tmp_path / "out"), "--check", "--finish"]) == 4
    assert job.main([*base, "--dtype", "ubinary", "--on-error", "accept"]) == 0
    assert (tmp_path / "out/_SUCCESS").exists()
    assert job.main([str(source), str(tmp_path / "x"), "-m", str(tmp_path)]) == 3
    assert job.main([str(tmp_path / "absent"), str(tmp_path / "x"), "-m", TOY]) == 1
    assert job.main([str(tmp_path / "out")]) == 2


# ---- Chunks --------------------------------------------------------------------------------------------------------


CUT = {"chunk": "sentences", "chunk_size": 9, "chunk_overlap": 3}
FLAGS = ["--chunk", "sentences", "--chunk-size", 9, "--chunk-overlap", 3]


@pytest.fixture
def documents(tmp_path):
    """Rows of row groups: of up to four sentences, one without a text, one empty, one of white space, one in two scripts."""
    words = texts(1200, 4)
    rows = [". ".join(words[4 * i:4 * i + 1 + i % 4]) for i in range(300)]
    rows[5:9] = [None, "", "  \n", "né 日本語。 It purrs. " * 3]
    pq.write_table(pa.table({"id": [f"d{i}" for i in range(300)], "text": rows}), tmp_path / "in.parquet", row_group_size=50)
    return rows


@pytest.mark.parametrize("late", [False, True], ids=["plain", "late"])
def test_chunks_are_those_of_the_program(toy, documents, tmp_path, late):
    flags = [*FLAGS, "--late-chunking"] if late else FLAGS
    cut = CUT | {"late_chunking": late}
    (tmp_path / "in.jsonl").write_text("".join(
        json.dumps({"id": f"d{i}"} | ({} if text is None else {"text": text})) + "\n" for i, text in enumerate(documents)))
    want = program("-q", "-m", TOY, "-i", tmp_path / "in.jsonl", "-o", tmp_path / "run", "--id-field", "id", *flags, code=4)
    got = job.run(tmp_path / "in.parquet", tmp_path / "npy", id="id", model=toy, split_rows=1000, format="npy", **cut)
    for key in ("rows", "refused", "tokens", "truncated"):
        assert got[key] == want[key], key
    assert got["rows"] > 300 and got["refused"] == 1

    def lines(folder):
        return [json.loads(line) for line in (tmp_path / folder / "part-00000-00000.jsonl").read_text().splitlines()]
    theirs, ours = lines("run"), lines("npy")
    assert [row for row in ours if "refused" not in row] == [row for row in theirs if "refused" not in row]
    assert next(row for row in ours if "refused" in row) == {"refused": "the text is missing", "line": 6}
    name = "part-00000-00000.npy"
    assert (tmp_path / "npy" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    # Parquet: the same rows; shards in any order make the job of one
    job.run(tmp_path / "in.parquet", tmp_path / "out", id="id", model=toy, split_rows=50, **cut)
    for i in (2, 0, 1):
        job.run(tmp_path / "in.parquet", tmp_path / "shards", id="id", model=toy, split_rows=50, shard=(i, 3), **cut)
    assert content(tmp_path / "shards") == content(tmp_path / "out")
    assert job.run(tmp_path / "in.parquet", tmp_path / "out", id="id", model=toy, split_rows=50, **cut)["made"] == 0
    parts = sorted((tmp_path / "out").glob("*.parquet"))
    table = pa.concat_tables([pq.read_table(path) for path in parts])
    assert table.column_names == ["id", "index", "chunk", "bytes", "chars", "embedding", "tokens", "truncated", "refused"]
    assert table["refused"].null_count == got["rows"] and table["embedding"].null_count == 1
    good = table.filter(table["refused"].is_null()).to_pylist()
    names = ("id", "chunk", "bytes", "chars", "tokens", "truncated")
    assert [[row[name] for name in names] for row in good] == [[row[name] for name in names] for row in theirs if "id" in row]
    assert all(documents[int(row["id"][1:])][slice(*row["chars"])] for row in good)
    assert np.array([row["embedding"] for row in good], np.float32).tobytes() == np.load(tmp_path / "run" / name).tobytes()
    ours, theirs = job.check(tmp_path / "out"), program("-o", tmp_path / "out", "--check", code=4)
    assert ours.pop("wrong") == [] and ours == theirs


def test_what_chunks_refuse(toy, documents, tmp_path):
    def refuse(words, kind, out=tmp_path / "new", **arguments):
        with pytest.raises(kind, match=words):
            job.run(tmp_path / "in.parquet", out, **{"model": toy} | arguments)

    refuse("need chunk", job.JobError, chunk_size=9)
    refuse("by must be one of", ValueError, chunk="lines")
    refuse("too long for the model", fletch.errors.InvalidArgument, chunk="tokens", chunk_size=10_000)
    with fletch.Model(ROOT / "tests/golden/folders/pooling-cls") as other:
        refuse("late chunking takes the mean", fletch.errors.Unsupported, model=other, late_chunking=True, **CUT)
    assert not (tmp_path / "new").exists()
    refuse("the text is missing", fletch.Error, out=tmp_path / "stop", on_error="stop", **CUT)
    job.run(tmp_path / "in.parquet", tmp_path / "out", model=toy, **CUT)
    for arguments, words in [({"chunk": "tokens"}, 'chunk is "sentences" there and "tokens"'), ({"late_chunking": True}, "late_chunking"),
                             ({"chunk_overlap": 0}, "chunk_overlap")]:
        refuse(words, job.JobError, out=tmp_path / "out", **CUT | arguments)
    refuse("option chunk is", job.JobError, out=tmp_path / "out")


def test_a_text_that_cannot_be_cut_costs_its_rows(tmp_path):
    """Each piece of a word is a chunk here, and one of them begins inside of a token of the whole word."""
    rows = [*["two"] * 3, "unbelievably", "one", "unbelievably"]
    pq.write_table(pa.table({"text": rows}), tmp_path / "in.parquet")
    flags = ["--chunk", "tokens", "--chunk-size", "1", "--late-chunking"]
    assert job.main([str(tmp_path / "in.parquet"), str(tmp_path / "out"), "-m", MODEL, *flags]) == 4
    table = pq.read_table(tmp_path / "out/part-00000-00000.parquet")
    assert table["index"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert [bool(why and "no complete token" in why) for why in table["refused"].to_pylist()] == [False] * 3 + [True, False, True]
    with pytest.raises(verify.Damaged, match="holds vectors of chunks"):
        verify.read(tmp_path / "out")
