# SPDX-License-Identifier: Apache-2.0
"""fletch run --re-embed: a job's texts for another model, in a folder of its own; the old one stays whole."""
import json
import pathlib
import signal

import commandline
import jobs
import pytest
from jobs import Job

OTHER = commandline.ROOT / "tests/golden/folders/pooling-cls"


class Again(Job):
    """--re-embed of a job, in the same place."""

    def __init__(self, old: Job, out: str = "new", model=OTHER):
        super().__init__(old.place, "unused", out, model)
        at = self.command.index("-i")
        self.command[at:] = ["--re-embed", str(old.out), "-o", str(self.out)]


def make(place: pathlib.Path, *flags, model=jobs.TOY, out="old", count=400) -> Job:
    """A job of records with ids, one of them refused."""
    records = [{"body": text, "key": f"k{i}", "number": i} for i, text in enumerate(jobs.lines(count, 5))]
    lines = [json.dumps(record) for record in records]
    lines[7] = "{bad"
    (place / "in.jsonl").write_text("\n".join(lines) + "\n")
    job = Job(place, place / "in.jsonl", out, model)
    job.command += ["--field", "body", "--id-field", "key", *flags]
    assert job.run(code=4)["rows"] == count - 1
    return job


def states(job: Job) -> dict:
    return {name: ((job.out / name).stat().st_ino, (job.out / name).read_bytes()) for name in job.names()}


def rows(job: Job) -> list[dict]:
    return [json.loads(line) for line in job.merged()[1].splitlines()]


def test_it_is_the_job_of_the_new_model(tmp_path):
    old = make(tmp_path)
    before, fresh = states(old), make(tmp_path, model=OTHER, out="fresh")
    new = Again(old)
    assert new.run(code=4)["made"] == len(old.done()) > 5
    assert new.content() == fresh.content() and (new.out / "job.json").read_bytes() == (fresh.out / "job.json").read_bytes()
    assert [row.get("id") for row in rows(new)] == [row.get("id") for row in rows(old)]
    assert new.ask("--check", "--finish")["done"] == len(old.done()) and states(old) == before
    again = new.run(code=4)
    assert again["made"] == 0 and again["done_before"] == again["parts"]


def test_killed_again_and_again_the_old_one_is_whole(tmp_path):
    old = make(tmp_path, count=6000)
    old.ask("--check", "--finish")
    before, calm, new = states(old), Again(old, "calm"), Again(old)
    calm.run()
    assert jobs.storm(new, 8, signal.SIGKILL, 3) > 0
    assert old.ask("--check")["done"] == old.ask("--check")["parts"], "readable while the new one is made"
    new.run()
    assert new.merged() == calm.merged() and new.is_clean() and states(old) == before


def test_where_inputs_are_gone_the_rows_have_the_texts(tmp_path):
    old = make(tmp_path, "--keep-text", "--keep-fields")
    here = Again(old, "here")
    here.run()
    (tmp_path / "in.jsonl").unlink()
    new = Again(old)
    assert new.run(code=4)["refused"] == 1
    assert new.merged()[0] == here.merged()[0]
    took, want = rows(new), rows(here)
    assert took[:7] + took[8:] == want[:7] + want[8:] and want[0]["number"] == 0 and want[0]["id"] == "k0"
    assert "refused" in took[7] and new.ask("--check")["missing"] == 0
    next((old.out).glob("part-00000-00001.jsonl")).unlink()
    assert "some texts are lost" in Again(old, "third").run(code=1)["stderr"]


def test_other_numbers_and_formats(tmp_path):
    new = Again(make(tmp_path, "--dtype", "int8", "--format", "raw"))
    assert new.run(code=4)["rows"] == 399 and json.loads((new.out / "job.json").read_text())["options"]["dtype"] == "int8"
    assert next(new.out.glob("*.raw")).stat().st_size > 0
    floats = Again(Job(tmp_path, "unused", "old"), "floats")
    floats.run("--dtype", "float32", "--format", "npy", code=4)
    assert json.loads((floats.out / "job.json").read_text())["options"]["format"] == "npy"


def test_what_it_refuses(tmp_path):
    old = make(tmp_path)
    new = Again(old)
    assert "omit --input" in new.run("-i", tmp_path / "in.jsonl", code=2)["stderr"]
    assert '"field"' in new.run("--field", "body", code=2)["stderr"]
    assert "for making parts" in new.run("--check", code=2)["stderr"]
    assert "folder of the old job" in Again(old, "old").run(code=2)["stderr"]
    nowhere = Again(Job(tmp_path, "unused", "nowhere"))
    assert "is not a job folder" in nowhere.run(code=2)["stderr"]
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write('{"body":"one more","key":"k"}\n')
    assert "has changed since" in new.run(code=1)["stderr"]
    (tmp_path / "in.jsonl").unlink()
    assert "kept no texts" in new.run(code=1)["stderr"] and new.names() == []
    job = json.loads((old.out / "job.json").read_text())
    job["options"]["column"] = "text"
    (old.out / "job.json").write_text(json.dumps(job))
    assert "python -m fletch.job" in new.run(code=2)["stderr"]
    (old.out / "job.json").write_bytes(b"{")
    assert "job.json" in new.run(code=2)["stderr"]
