# SPDX-License-Identifier: Apache-2.0
"""fletch run: whatever kills a job, running it again ends in the same bytes; what is not that job is refused."""
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import time

import commandline
import faults
import jobs
import numpy
import pytest
from jobs import Job


@pytest.fixture
def source(tmp_path):
    return jobs.make_input(tmp_path / "in")


@pytest.fixture
def job(tmp_path, source):
    return Job(tmp_path, source)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The job of make_input, run once without a disturbance."""
    place = tmp_path_factory.mktemp("calm")
    job = Job(place, jobs.make_input(place / "in"))
    job.summary = job.run(code=4)
    return job


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def embed(job, *inputs):
    """What `fletch embed` makes of the files, as an array."""
    target = job.place / "embed.npy"
    flags = [word for path in inputs for word in ("-i", path)]
    commandline.Fletch(job.place)("embed", "-q", "-m", jobs.TOY, *flags, "-o", target, "--on-error", "skip", check=False)
    return numpy.load(target)


# ---- The job as a whole ----------------------------------------------------------------------------


def test_parts_are_what_embed_makes_in_one_go(calm):
    vectors, rows = calm.merged()
    want = embed(calm, calm.place / "in/a.txt", calm.place / "in/b.jsonl", calm.place / "in/sub/a.txt")
    assert vectors[128:] == want.tobytes() and len(want) == calm.summary["rows"] == 2999
    told = [json.loads(line) for line in rows.splitlines()]
    refused = [row for row in told if "refused" in row]
    assert len(told) == 3000 and len(refused) == 1 and refused[0]["line"] == 8
    assert sum(row.get("tokens", 0) for row in told) == calm.summary["tokens"]
    assert len(calm.done()) == calm.summary["parts"] > 40
    assert calm.is_clean()


def test_run_again_does_nothing(calm):
    before = calm.done()
    again = calm.run(code=4)
    assert again["made"] == 0 and again["done_before"] == again["parts"] and again["refused"] == 1
    assert calm.done() == before


def test_killed_again_and_again(tmp_path):
    source = jobs.make_input(tmp_path / "in", 8000)  # enough that no run is over before its kill
    calm, job = Job(tmp_path, source, "calm"), Job(tmp_path, source)
    calm.run()
    assert jobs.storm(job, 15, signal.SIGKILL, 1) > 0
    job.run()
    assert job.content() == calm.content() and job.is_clean()
    assert job.ask("--check")["sha256"] == calm.ask("--check")["sha256"]


def test_sigterm_ends_at_once_and_leaves_no_temporary(tmp_path):
    job = Job(tmp_path, write(tmp_path / "in.txt", "a cat sat\n" * 4_000_000), split="64KiB")  # never comes to its end
    draw = random.Random(2)
    codes = [job.interrupt(signal.SIGTERM, draw) for _ in range(4)]
    assert 143 in codes and set(codes) <= {143, -signal.SIGTERM}, codes  # the latter: before it could hear
    assert job.is_clean() and job.done()


def test_shards_in_any_order_make_the_same_job(job, calm):
    counts = [job.run("--shard", f"{i}/7")["parts"] for i in (5, 0, 3, 6, 1, 4, 2)]
    assert sum(counts) == calm.summary["parts"] and max(counts) - min(counts) <= 1
    assert job.content() == calm.content()


def test_shards_of_a_file_sorted_by_length_are_even(tmp_path):
    text = sorted(jobs.lines(6000, 4), key=len)
    job = Job(tmp_path, write(tmp_path / "in.txt", "\n".join(text)))
    tokens = [job.run("--shard", f"{i}/4")["tokens"] for i in range(4)]
    assert max(tokens) <= 1.1 * min(tokens), tokens


def test_two_workers_on_the_same_parts(job, calm):
    first, second = job.start(), job.start()
    for worker in (first, second):
        _, err = worker.communicate(timeout=commandline.WAIT)
        assert worker.returncode == 4, err.decode()  # each tells what was refused, whoever made the part
    assert job.content() == calm.content() and job.is_clean()


def test_full_disk(job, calm):
    worker = job.start(preexec_fn=jobs.limit_files(5000))  # room for job.json, none for a part
    out, err = worker.communicate(timeout=commandline.WAIT)
    assert worker.returncode == 1 and b"out/part-00000-00000.npy: larger than" in err
    assert json.loads(out)["made"] == 0 and job.names() == ["job.json"]
    job.run()
    assert job.merged() == calm.merged()


DISK = """
mount -t tmpfs -o size=200k none "$1" || exit 99
shift
"$@" -o disk/out >/dev/null; echo "code $?"
ls -A disk/out
mount -o remount,size=50m disk
"$@" -o disk/out >/dev/null; echo "code $?"
cp -r disk/out saved
"""


def test_a_real_disk_that_is_full(job, calm):
    shutil.which("unshare") or pytest.skip("no unshare on this machine")
    (job.place / "disk").mkdir()
    command = [word for word in job.command if word not in ("-o", str(job.out))]
    done = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", DISK, "sh", "disk", *command], cwd=job.place,
                          env=job.environment, capture_output=True, text=True, timeout=commandline.WAIT)
    if "code" not in done.stdout:
        pytest.skip(f"no file system of one's own here: {done.stderr}")
    first, second = done.stdout.split("code ")[1:]
    assert first.startswith("1\n") and "No space left on device" in done.stderr, (done.stdout, done.stderr)
    assert all(jobs.PART.fullmatch(name) or name == "job.json" for name in first.split()[1:]), first
    assert second.strip() == "4"
    assert {path.name: path.read_bytes() for path in (job.place / "saved").iterdir() if path.suffix != ".json"} == calm.content()


def test_a_disk_without_locks_and_links(job, calm):
    """Nobody can say there whose a temporary is: runs leave it, --finish comes last and takes it."""
    job.environment["LD_PRELOAD"] = str(faults.library(job.place, "bare_disk"))

    def left():
        return [name for name in job.names() if name.endswith(".tmp")]

    while not left():
        shutil.rmtree(job.out, ignore_errors=True)
        worker = job.start()
        while worker.poll() is None and not (left() and job.done()):
            time.sleep(0.0005)
        worker.kill()
        worker.communicate()
    killed = left()
    first, second = job.start(), job.start()
    for worker in (first, second):
        _, err = worker.communicate(timeout=commandline.WAIT)
        assert worker.returncode == 4, err.decode()
    assert left() == killed
    assert job.ask("--check", "--finish")["sha256"] == calm.ask("--check")["sha256"] and job.is_clean()


def test_check_finish(job):
    assert "not a job folder" in job.ask("--check", code=2)["stderr"]
    job.run("--shard", "1/2")
    totals = job.ask("--check", code=1)
    assert totals["missing"] > 0 and totals["sha256"] is None and "is not done" in totals["stderr"]
    job.ask("--finish", code=1)
    assert "_SUCCESS" not in job.names()
    job.run("--shard", "0/2")
    write(job.out / ".part-00000-00001.npy.fletch-0123456789abcdef.tmp", "left by another host")
    job.ask("--check", "--quick", "--finish")
    assert "_SUCCESS" in job.names() and job.is_clean()
    assert json.loads((job.out / "_SUCCESS").read_text())["rows"] == 2999
    assert job.run()["made"] == 0, "a finished job stays finished"


def test_a_live_temporary_is_left_alone(job):
    """Names of another host, and those that a process of this one holds, are not swept."""
    other = write(job.out / ".part-00000-00001.npy.fletch-0123456789abcdef.tmp", "of another host")
    job.run()
    assert other.exists()


# ---- Formats, fields ---------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [("--format", "raw"), ("--format", "fvecs"), ("--format", "jsonl"),
                                   ("--dtype", "int8"), ("--dtype", "float16"), ("--dtype", "ubinary")])
def test_formats(tmp_path, flags):
    source = write(tmp_path / "in.txt", "\n".join(jobs.lines(300, 5)))
    job = Job(tmp_path, source)
    job.run(*flags)
    suffix = flags[1] if flags[0] == "--format" else "npy"
    merged, want = tmp_path / f"all.{suffix}", tmp_path / f"want.{suffix}"
    job.ask("--merge", merged)
    commandline.Fletch(tmp_path)("embed", "-q", "-m", jobs.TOY, "-i", source, "-o", want, *flags, check=True)
    if suffix != "jsonl":
        assert merged.read_bytes() == want.read_bytes()
        return
    got = [json.loads(line) for line in merged.read_text().splitlines()]
    assert got == [{k: v for k, v in json.loads(line).items() if k != "index"}
                   for line in want.read_text().splitlines()]


def test_ids_and_fields(tmp_path):
    write(tmp_path / "in/a.csv", 'key,text,extra\nk1,"a cat",x\nk2,"two\nlines",y\n')
    write(tmp_path / "in/b.jsonl", '{"key":"k3","text":"a dog","extra":1.50}\n{"text":"no key"}\n')
    job = Job(tmp_path, tmp_path / "in")
    job.run("--id-field", "key", code=4)
    rows = [json.loads(line) for line in job.merged()[1].splitlines()]
    assert [row.get("id") for row in rows] == ["k1", "k2", "k3", None]
    assert "extra" not in rows[0] and "--id-field" in rows[3]["refused"]
    more = Job(tmp_path, tmp_path / "in", "more")
    more.run("--id-field", "key", "--keep-fields", "--keep-text", code=4)
    text = more.merged()[1].decode()
    assert '"extra":1.50' in text and '"text":"two\\nlines"' in text and '"key"' not in text
    assert more.content()["part-00000-00000.npy"] == job.content()["part-00000-00000.npy"]
    other = Job(tmp_path, write(tmp_path / "lines.txt", "a\n"), "other")
    assert "--id-field" in other.run("--id-field", "key", code=2)["stderr"]


@pytest.mark.parametrize("content", ["", "\n", "one", "one\n", "one\r\ntwo\r\n", "\ufeffone\ntwo", "\n\n\nx\n\n",
                                     "x" * 9000 + "\nshort\n" + "y" * 3000, "short\n" * 900])
def test_odd_files_have_the_rows_of_embed(tmp_path, content):
    job = Job(tmp_path, write(tmp_path / "in.txt", content), split="1KiB")
    summary = job.run()
    assert summary["rows"] == len(embed(job, tmp_path / "in.txt"))
    assert job.merged()[0][128:] == embed(job, tmp_path / "in.txt").tobytes()
    job.ask("--check", "--finish", code=0)


def test_a_mark_at_the_head_of_each_file(tmp_path):
    write(tmp_path / "in/a.txt", "\ufeffone\ntwo\n")
    write(tmp_path / "in/b.txt", "\ufeffone\ntwo\n".encode("utf-16"))
    job = Job(tmp_path, tmp_path / "in")
    job.run(code=0)
    vectors = numpy.frombuffer(job.merged()[0][128:], "<f4").reshape(4, -1)
    assert (vectors[:2] == vectors[2:]).all()


@pytest.mark.parametrize("packer", [gzip.compress, pytest.param(None, id="zstd")])
def test_packed_files_are_one_part(tmp_path, packer):
    text = "\n".join(jobs.lines(400, 6))
    if packer is None:
        zstd = shutil.which("zstd")
        if zstd is None:
            pytest.skip("no zstd program")
        write(tmp_path / "in/plain.txt", text)
        os.system(f"{zstd} -q {tmp_path}/in/plain.txt -o {tmp_path}/in/a.txt.zst && rm {tmp_path}/in/plain.txt")
    else:
        write(tmp_path / "in/a.txt.gz", packer(text.encode()))
    job = Job(tmp_path, tmp_path / "in")
    assert job.run(code=0)["parts"] == 1
    plain = Job(tmp_path, write(tmp_path / "plain.txt", text), "plain")
    assert plain.run()["parts"] > 1 and plain.merged() == job.merged()
    job.ask("--check", code=0)


def test_a_file_that_is_cut_short_costs_its_part(tmp_path):
    write(tmp_path / "in/a.txt.gz", gzip.compress("\n".join(jobs.lines(400, 6)).encode())[:-20])
    write(tmp_path / "in/b.txt", "good\n")
    write(tmp_path / "in/c.csv", "")
    job = Job(tmp_path, tmp_path / "in")
    process = job.start()
    out, err = process.communicate(timeout=commandline.WAIT)
    assert process.returncode == 1 and b"truncated" in err and b"c.csv is empty" in err
    assert json.loads(out)["made"] == 1 and json.loads(out)["failed"] == 2
    assert job.is_clean() and list(job.done()) == ["part-00001-00000.json"]


def test_a_poison_text_costs_its_row(tmp_path):
    source = write(tmp_path / "in.txt", b"one\n\xff\xfe\xfd bad\ntwo\n" + b"\xff\n" * 9000 + b"three")
    job = Job(tmp_path, source, split="64KiB")
    assert job.run(code=4)["refused"] == 9001
    rows = [json.loads(line) for line in job.merged()[1].splitlines()]
    assert ["refused" in row for row in rows] == [False, True, False] + [True] * 9000 + [False]
    assert [row["line"] for row in rows if "refused" in row][:2] == [2, 4]
    job.ask("--check", code=4)
    job.ask("--check", "--on-error", "accept", code=0)
    assert job.run("--on-error", "accept", code=0)["refused"] == 9001
    stopped = Job(tmp_path, source, "stopped")
    assert stopped.run("--on-error", "stop", code=1).get("made", 0) == 0
    mended = Job(tmp_path, source, "mended")
    assert mended.run("--invalid-utf8", "replace", code=0)["rows"] == 9004


def test_names_of_every_kind(tmp_path):
    write(tmp_path / "in/line\nend.txt", "a")
    write(tmp_path / "in/percent%20 space.txt", "b")
    (tmp_path / "in/b").mkdir()
    os.close(os.open(bytes(tmp_path / "in") + b"/b/\xff\xfe.txt", os.O_CREAT | os.O_WRONLY))
    write(tmp_path / "in/.hidden", "no")
    write(tmp_path / "in/_SUCCESS", "no")
    (tmp_path / "in/again.txt").symlink_to("percent%20 space.txt")
    job = Job(tmp_path, tmp_path / "in")
    assert job.run(code=0)["rows"] == 3
    assert job.run(code=0)["made"] == 0
    job.ask("--check", code=0)
    listed = json.loads((job.out / "job.json").read_text())["inputs"]
    assert [("path_hex" in one) for one in listed] == [False, True, False, False]
    assert bytes.fromhex(listed[1]["path_hex"]).endswith(b"/b/\xff\xfe.txt")


# ---- What is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", ["0/0", "7/7", "8/7", "-1/3", "1", "a/b", "1/2/3", "", "0/", "/1", "0x1/2",
                                   "99999999999999999999/3"])
def test_a_shard_that_is_none(job, shard):
    assert "--shard" in job.run("--shard", shard, code=2)["stderr"]
    assert not job.out.exists()


def test_wrong_usage(job, tmp_path, source):
    run = commandline.Fletch(tmp_path)
    for flags, words in [((), "--output"), (("-o", "x"), "--input"), (("-o", "x", "-i", "-"), "standard input"),
                         (("-o", "x", "-i", source, "--split-bytes", "10"), "--split-bytes"),
                         (("-o", "x", "-i", source, "--quick"), "--check"),
                         (("-o", "x", "-i", source, "--check"), "omit --input"),
                         (("-o", "x", "-i", source, "word"), "unexpected argument"),
                         (("-o", "x", "-i", source, "--delimiter", "ab"), "--delimiter"),
                         (("-o", "x", "-i", source, "--max-line", "0"), "--max-line"),
                         (("-o", "x", "-i", source, "--format", "fvecs", "--dtype", "int8"), "float32"),
                         (("-o", "x", "-i", "/dev/null"), "regular file"),
                         (("-o", source / "out", "-i", source), "inside"),
                         (("-o", source, "-i", source), "inside"),
                         (("-o", source / "sub", "-i", source / "sub/a.txt"), "inside the output")]:
        result = run("run", "-m", jobs.TOY, *flags)
        assert result.returncode == 2 and words in result.stderr.decode(), (flags, result.stderr)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("flags", [("--shard", "0/2"), ("--split-bytes", "4KiB"), ("--dtype", "int8"),
                                   ("-m", "low")])
def test_a_check_takes_no_flag_that_makes_parts(calm, flags):
    name = {"-m": "--model"}.get(flags[0], flags[0])
    assert f"{name} is for making parts" in calm.ask("--check", *flags, code=2)["stderr"]


def test_a_flag_that_is_not_utf8(job):
    assert "not valid UTF-8" in job.run("--join", os.fsdecode(b"\xff"), code=2)["stderr"]
    assert "job.json" not in job.names()


def test_input_that_is_not_there(tmp_path):
    (tmp_path / "empty").mkdir()
    run = commandline.Fletch(tmp_path)
    for source, words in [("empty", "no file found in"), ("absent", "cannot open"), ("*.nothing", "no file matches")]:
        result = run("run", "-m", jobs.TOY, "-i", source, "-o", "out")
        assert result.returncode == 1 and words in result.stderr.decode()


@pytest.mark.parametrize("change, words", [
    (lambda s: (s / "a.txt").open("a").write("more\n"), "a.txt, size is"),
    (lambda s: os.truncate(s / "a.txt", 100), "a.txt, size is"),
    (lambda s: (s / "b.jsonl").unlink(), "b.jsonl"),
    (lambda s: (s / "zzz.txt").write_text("x"), "input files"),
    (lambda s: (s / "a.txt").write_bytes((s / "a.txt").read_bytes()[::-1]), "a.txt, sample is"),
])
def test_input_that_changes_between_runs(job, source, change, words):
    job.run("--shard", "0/2")
    before = job.content()
    change(source)
    told = job.run("--shard", "1/2", code=2)["stderr"]
    assert "job.json belongs to another job" in told and words in told
    assert job.content() == before


def test_inputs_are_files_and_not_spellings(tmp_path, source):
    """Relative, absolute, through a link or copied to another place: what is in the files says whether they are the same."""
    (tmp_path / "link").symlink_to(source)
    shutil.copytree(source, tmp_path / "copy")
    for number, spelled in enumerate(("in", source, "./in/../in", "link", "copy")):
        Job(tmp_path, spelled).run("--shard", f"{number}/5")
    with (tmp_path / "copy" / "a.txt").open("a") as file:
        file.write("more\n")
    assert "copy/a.txt, path is" in Job(tmp_path, "copy").run(code=2)["stderr"]
    job = Job(tmp_path, source)
    assert job.ask("--check")["missing"] == 0


@pytest.mark.parametrize("name, content, told", [
    ("a.jsonl", '{"body": "a"}\n' * 300, 'has no field "text"'), ("a.csv", "body,id\na,1\n", 'has no column "text"')])
def test_a_field_that_is_nowhere_begins_no_job(tmp_path, name, content, told):
    """The folder would refuse the field that is meant."""
    write(tmp_path / "in" / name, content)
    write(tmp_path / "in" / "b.txt", "a line\n")
    job = Job(tmp_path, "in")
    stderr = job.run(code=2)["stderr"]
    assert told in stderr and len(stderr.splitlines()) < 4
    assert not job.out.exists()
    assert job.run("--field", "body", code=0)["rows"] > 1


def test_a_field_that_some_have_is_refused_record_by_record(tmp_path):
    write(tmp_path / "in.jsonl", '{"body": "a"}\n' * 100 + '{"text": "a"}\n')
    assert Job(tmp_path, "in.jsonl").run(code=4)["refused"] == 100


def test_nothing_is_not_finished(tmp_path):
    write(tmp_path / "in.jsonl", "{bad\n" * 9)
    job = Job(tmp_path, "in.jsonl")
    assert job.run("--on-error", "accept", code=0)["rows"] == 0
    assert "none of the 9 records has a vector" in job.ask("--check", "--finish", code=2)["stderr"]
    assert not (job.out / "_SUCCESS").exists()


def test_a_parquet_file_is_sent_where_it_is_read(tmp_path):
    write(tmp_path / "in.parquet", b"PAR1" + bytes(90) + b"PAR1")
    assert "python -m fletch.job" in Job(tmp_path, "in.parquet").run(code=2)["stderr"]


@pytest.mark.parametrize("kind", ["pipe", "endless"])
@pytest.mark.parametrize("flags", [(), ("--check",)])
@pytest.mark.parametrize("name", ["job.json", "part-00000-00000.json", "part-00000-00000.jsonl"])
def test_what_is_no_file_is_not_read(job, name, flags, kind):
    """Opening a pipe waits for who writes it; /dev/zero has no end."""
    job.run()
    (job.out / name).unlink()
    os.mkfifo(job.out / name) if kind == "pipe" else (job.out / name).symlink_to("/dev/zero")
    (job.ask if flags else job.run)(*flags, code=2 if name == "job.json" else 1 if flags else 4)


def test_input_that_changes_after_the_job(job, source):
    job.run()
    text = bytearray((source / "a.txt").read_bytes())
    text[len(text) // 2] ^= 1  # where no sample is taken
    (source / "a.txt").write_bytes(text)
    job.ask("--check", "--quick")
    assert "changed after part-00000" in job.ask("--check", code=1)["stderr"]
    text[0] ^= 1  # in the sample
    (source / "a.txt").write_bytes(text)
    assert "a.txt has changed" in job.ask("--check", "--quick", code=1)["stderr"]
    shutil.rmtree(source)
    assert "3 of 3 inputs are gone" in job.ask("--check", code=4)["stderr"]


@pytest.mark.parametrize("flags, words", [
    (("--dtype", "int8"), 'option dtype is "float32" there and "int8" here'),
    (("--format", "raw"), "option format"),
    (("--max-length", "8"), "option max_length"),
    (("--prompt", "q: "), "option prompt"),
    (("--normalize", "true"), "option normalize"),
    (("--split-bytes", "8KiB"), "split_bytes"),
    (("-m", str(commandline.ROOT / "tests/golden/folders/dense-tanh")), "belongs to another job"),
])
def test_a_job_with_other_options(calm, flags, words):
    before = calm.content()
    run = commandline.Fletch(calm.place)
    base = ["run", "-m", jobs.TOY, "-i", calm.place / "in", "-o", calm.out, "--split-bytes", "4KiB"]
    result = run(*base, *flags)
    told = result.stderr.decode()
    assert result.returncode == 2 and words in told and "hint:" in told
    assert calm.content() == before


def test_another_version_and_instruction_set(tmp_path):
    job = Job(tmp_path, write(tmp_path / "in.txt", "a cat\n" * 400), split="1KiB")
    job.run("--shard", "0/2")
    text = (job.out / "job.json").read_text()
    job.environment["FLETCH_CPU_ISA"] = "ref"  # in fp32 the same bytes
    job.run("--shard", "1/2")
    job.ask("--check")
    rounded = Job(tmp_path, tmp_path / "in.txt", "rounded", split="1KiB")
    rounded.environment |= {"FLETCH_CPU_ISA": "ref", "FLETCH_PROVIDER_PRECISION": "int8", "FLETCH_PROVIDER_NUMERICS": "portable"}
    rounded.run("--shard", "0/2")
    rounded.environment["FLETCH_PROVIDER_NUMERICS"] = "native"
    assert "cpu.numerics" in rounded.run("--shard", "1/2", code=2)["stderr"]
    rounded.run("--shard", "1/2", "--mixed-isa")
    del job.environment["FLETCH_CPU_ISA"]
    for damage, words in [(text.replace('"fletch":"', '"fletch":"9.'), "fletch is"), (text[:50], "damaged"),
                          (text.replace('"job":1', '"job":2'), "job is 2"), ("", "damaged"), ("[]", "another job")]:
        (job.out / "job.json").write_text(damage)
        told = job.run(code=2)["stderr"]
        assert words in told, (words, told)


@pytest.mark.parametrize("damage", ["truncate", "edit", "empty", "garbage", "other"])
def test_a_manifest_that_is_damaged(tmp_path, calm, damage):
    job = Job(calm.place, calm.place / "in", tmp_path.name + damage)
    shutil.copytree(calm.out, job.out)
    path = job.out / "part-00000-00001.json"
    text = path.read_bytes()
    path.write_bytes({"truncate": text[:-40], "edit": text.replace(b'"rows":', b'"rows":1'), "empty": b"",
                      "garbage": os.urandom(300), "other": (job.out / "part-00000-00002.json").read_bytes()}[damage])
    before = job.done()
    assert job.ask("--check", "--quick", code=1)["damaged"] == 1
    assert job.run()["made"] == 1
    assert job.content() == calm.content()
    assert {name for name, inode in job.done().items() if before[name] != inode} <= {path.name}
    job.ask("--check")


@pytest.mark.parametrize("name", ["part-00000-00001.npy", "part-00000-00001.jsonl", "part-00000-00001.json"])
def test_a_part_without_manifest_and_the_reverse(tmp_path, calm, name):
    job = Job(calm.place, calm.place / "in", tmp_path.name)
    shutil.copytree(calm.out, job.out, dirs_exist_ok=True)
    (job.out / name).unlink()
    job.ask("--check", code=1)
    assert job.run()["made"] == 1
    assert job.content() == calm.content()
    content = bytearray((job.out / "part-00001-00000.npy").read_bytes())
    content[-1] ^= 1
    (job.out / "part-00001-00000.npy").write_bytes(content)
    job.ask("--check", "--quick")
    write(job.out / "_SUCCESS", "of an earlier check")
    told = job.ask("--check", code=1)["stderr"]
    assert "SHA-256 differs" in told and "remove NAME.npy and NAME.json" in told
    assert "_SUCCESS" not in job.names()
    (job.out / "part-00001-00000.npy").unlink()
    (job.out / "part-00001-00000.json").unlink()
    write(job.out / "_SUCCESS", "of an earlier check")
    assert job.run()["made"] == 1 and "_SUCCESS" not in job.names()
    job.ask("--check")


def test_strangers_among_the_parts(tmp_path, calm):
    job = Job(calm.place, calm.place / "in", tmp_path.name)
    shutil.copytree(calm.out, job.out)
    write(job.out / "part-00009-00000.npy", "?")
    assert "not part of this job" in job.ask("--check", "--quick", code=1)["stderr"]


def test_merge_refuses(job, tmp_path):
    job.run("--shard", "0/2")
    assert "is not done" in job.ask("--merge", tmp_path / "x.npy", code=1)["stderr"]
    job.run()
    assert ".npy" in job.ask("--merge", tmp_path / "x.raw", code=2)["stderr"]
    assert not (tmp_path / "x.raw").exists() and not (tmp_path / "x.jsonl").exists()


def test_merge_replaces_no_file_of_the_job(tmp_path):
    source = write(tmp_path / "reviews.jsonl", '{"text":"a cat"}\n{"text":"a dog"}\n')
    job = Job(tmp_path, source)
    job.run()
    (tmp_path / "link.npy").symlink_to(job.out / "part-00000-00000.npy")
    (tmp_path / "twin.jsonl").symlink_to(source)
    before = job.content()
    for target, words in [("reviews.npy", "reviews.jsonl is an input"), ("twin.npy", "twin.jsonl is an input"),
                          (job.out / "all.npy", "in the job's folder"), ("link.npy", "in the job's folder"),
                          (job.out / "part-00000-00000.npy", "in the job's folder")]:
        told = job.ask("--merge", tmp_path / target, code=2)["stderr"]
        assert words in told and "another" in told, told
    assert job.content() == before and source.read_text().count("\n") == 2
    assert not (tmp_path / "reviews.npy").exists()
    job.ask("--merge", tmp_path / "vectors.npy")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where it likes")
def test_an_output_that_cannot_be_written(job):
    job.out.mkdir()
    job.out.chmod(0o555)
    assert "cannot write" in job.run(code=1)["stderr"]


@pytest.mark.parametrize("place", ["/proc/fletch-out", "/sys/fletch-out"])
def test_an_output_where_nobody_writes(tmp_path, source, place):
    told = Job(tmp_path, source, place).run(code=1)["stderr"]
    assert place in told and not os.path.exists(place)


def test_a_clock_that_jumps(job, source):
    """What is done is told by content: times of files, before and behind, say nothing."""
    job.run()
    want, before = job.content(), job.done()
    for when in (0, 4_102_444_800):
        for folder in (source, job.out):
            for path in folder.rglob("*"):
                os.utime(path, (when, when))
        again = job.run()
        assert again["made"] == 0 and job.done() == before and job.content() == want
        job.ask("--check")


def test_an_output_that_is_a_file(job):
    write(job.out, "in the way")
    job.run(code=1)
    assert job.out.read_text() == "in the way"


# ---- deploy/slurm ----------------------------------------------------------------------------------------


def test_the_slurm_script(tmp_path, source):
    """One task of an array: what it runs, and which ends put it back into the queue."""
    stand_in = write(tmp_path / "bin/scontrol", f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n')
    stand_in.chmod(0o755)
    (tmp_path / "bin/fletch").symlink_to(commandline.BIN)

    def task(index, **more):
        environment = commandline.environment(
            tmp_path, PATH=f"{tmp_path}/bin:{os.environ['PATH']}", IN=str(source), OUT=str(tmp_path / "out"),
            FLAGS=f"-q -m {jobs.TOY}", SLURM_ARRAY_TASK_ID=str(index), SLURM_ARRAY_TASK_COUNT="2",
            SLURM_ARRAY_JOB_ID="7", SLURM_CPUS_PER_TASK="1")
        done = subprocess.run(["bash", commandline.ROOT / "deploy/slurm/fletch-run.sbatch"], env=environment | more,
                              cwd=tmp_path, capture_output=True, timeout=commandline.WAIT)
        return done.returncode

    assert task(0) == 0 and task(1) == 0, "refused texts are no failure of a task"
    assert Job(tmp_path, source).ask("--check")["rows"] == 2999
    assert task(1, FLAGS=f"-q -m {jobs.TOY} --dtype int8") == 2
    assert not (tmp_path / "calls").exists()
    assert task(1, IN=str(tmp_path / "absent")) == 1
    assert (tmp_path / "calls").read_text() == "requeue 7_1\n"
    assert task(5, SHARDS="9", OUT=str(tmp_path / "more")) == 0
