# SPDX-License-Identifier: Apache-2.0
"""canary and verify: stored vectors are held against those of today, and what differs is said."""
import json
import shutil

import commandline
import pytest

PLAIN = commandline.ROOT / "tests/golden/folders/plain-bert"
OTHER = commandline.ROOT / "tests/golden/folders/pooling-cls"


@pytest.fixture
def canary(fletch):
    """The file of a small model, as an object."""
    done = fletch("canary", "-m", PLAIN)
    assert done.returncode == 0, done.stderr
    (fletch.tmp_path / "canary.json").write_bytes(done.stdout)
    return json.loads(done.stdout)


def verdict(fletch, *flags, name="canary.json", model=PLAIN):
    done = fletch("verify", "--format", "json", "-m", model, *flags, name)
    return done.returncode, json.loads(done.stdout)


def rewrite(fletch, canary, change) -> None:
    change(canary)
    (fletch.tmp_path / "canary.json").write_text(json.dumps(canary))


def test_the_same_program_gives_the_same_bytes(fletch, canary):
    assert len(canary["rows"]) == 18 and canary["rows"][0]["text"] == "" and len(canary["model"]) == 64
    for flags in ((), ("--threads", "1"), ("--exact",)):
        code, said = verdict(fletch, *flags)
        assert (code, said["verdict"], said["same_bytes"], said["differs"]) == (0, "same bytes", 18, [])
        assert said["largest_difference"] == 0 and said["least_cosine"] == 1
    text = fletch("verify", "-m", PLAIN, "canary.json")
    assert text.stdout == b"same bytes: all 18 vectors\n" and text.returncode == 0


def test_the_vectors_are_those_of_embed(fletch, canary):
    source = "".join(json.dumps(row["text"]) + "\n" for row in canary["rows"])
    rows = fletch.rows("embed", "-m", PLAIN, "--input-format", "jsonl", "-i", "-", "--format", "jsonl", input=source)
    assert [row["embedding"] for row in rows] == [row["vector"] for row in canary["rows"]]
    assert any(row["truncated"] for row in rows), "one text is longer than the model reads"


def test_another_instruction_set_has_the_same_bytes(fletch, canary):
    code, said = verdict(fletch, "--cpu-isa", "ref", "--exact")
    assert (code, said["verdict"], said["differs"]) == (0, "same bytes", [])


def test_what_an_older_library_rounded_otherwise_is_the_same_space(fletch, canary):
    for row in canary["rows"]:
        row["vector"] = [value + 1e-6 for value in row["vector"]]
    (fletch.tmp_path / "near.json").write_text(json.dumps(canary | {"settings": canary["settings"] | {"numerics": "1"}}))
    done = fletch("verify", "-m", PLAIN, "--format", "json", "near.json")
    said = json.loads(done.stdout)
    assert done.returncode == 0 and said["verdict"] == "same space" and 0 < said["largest_difference"] < 1e-5
    assert [part["name"] for part in said["differs"]] == ["numerics"]
    assert fletch("verify", "-m", PLAIN, "--exact", "near.json").returncode == 1


@pytest.mark.parametrize("flags, name", [(("--precision", "int8"), "precision"), (("--model-weights", "q4"), "cpu.precision"),
                                         (("--pooling", "cls"), "pooling"), (("--prompt", "query: "), "prompt"),
                                         (("--max-length", "8"), "max_length"), (("--normalize", "true"), "normalize")])
def test_another_space_is_told_with_its_reason(fletch, canary, flags, name):
    code, said = verdict(fletch, *flags)
    assert code == 1 and said["verdict"] == "another space" and said["largest_difference"] > 1e-5
    assert name in [part["name"] for part in said["differs"]]
    text = fletch("verify", "-m", PLAIN, *flags, "canary.json")
    assert text.returncode == 1 and b"differ by more than 1e-5" in text.stdout and name.encode() in text.stdout


def test_another_model_and_another_width(fletch, canary):
    code, said = verdict(fletch, model=OTHER)
    assert code == 1 and said["verdict"] == "another space" and said["differs"][0]["name"] == "model"
    code, said = verdict(fletch, "--dimensions", "16")
    assert code == 1 and said["verdict"] == "another space" and said["vectors"] == 0
    assert b"vectors of 32 dimensions there, 16 here" in fletch("verify", "-m", PLAIN, "--dimensions", "16", "canary.json").stdout


def test_a_copy_of_the_folder_is_the_same_model(fletch, canary, tmp_path):
    assert verdict(fletch, model=shutil.copytree(PLAIN, tmp_path / "copy"))[1]["differs"] == []


def test_one_changed_number_is_found(fletch, canary):
    rewrite(fletch, canary, lambda c: c["rows"][7]["vector"].__setitem__(3, c["rows"][7]["vector"][3] + 0.25))
    code, said = verdict(fletch)
    assert code == 1 and said["same_bytes"] == 17 and said["least_cosine"] < 1 and abs(said["largest_difference"] - 0.25) < 0.25
    assert "Кошка".encode() in fletch("verify", "-m", PLAIN, "canary.json").stdout, "the text that differs most"


@pytest.mark.parametrize("content, message", [
    (b"", "EOF"), (b"[]", "no rows"), (b"{}", "no \"canary\""), (b'{"canary":"1"}', "no \"canary\""),
    (b'{"canary":2}', "has format 2"), (b'{"canary":1}', "no rows"), (b'{"canary":1,"rows":[]}', "no rows"),
    (b'{"canary":1,"rows":[7]}', "no text"), (b'{"canary":1,"rows":[{"text":"a"}]}', "no vector"),
    (b'{"canary":1,"rows":[{"text":"a","vector":[1,"b"]}]}', "not a float32 number"), (b'{"canary":1,"rows":[{"text":"a","vector":{}}]}', "no vector"),
    (b'{"canary":1,"rows":[{"text":"a","vector":[1,2]},{"text":"a","vector":[1]}]}', "where earlier rows have"),
    (b'{"canary":1,"rows":[{"text":"a","vector":[1e999]}]}', "not a float32 number"),
    (b'{"canary":1,"rows":[{"text":"a","vector":[NaN]}]}', "canary.json"), (b"\xff{}", "canary.json")])
def test_a_file_that_is_none(fletch, content, message):
    (fletch.tmp_path / "canary.json").write_bytes(content)
    done = fletch("verify", "-m", PLAIN, "canary.json")
    assert done.returncode == 3 and message in done.stderr.decode() and not done.stdout, done.stderr


def test_a_difference_is_a_part_of_the_length(fletch, canary):
    """Vectors that point the other way are another space, however short they are; one of zeros has no direction."""
    def shorten(c):
        for row in c["rows"]:
            row["vector"] = [-1e-9 * x for x in row["vector"]]
    rewrite(fletch, canary, shorten)
    code, said = verdict(fletch)
    assert code == 1 and said["verdict"] == "another space" and said["least_cosine"] < -0.999
    rewrite(fletch, canary, lambda c: [row.update(vector=[0] * 32) for row in c["rows"]])
    code, said = verdict(fletch)
    assert code == 1 and said["least_cosine"] == 0


def test_long_prompts_and_tasks_are_settings(fletch):
    folder = commandline.ROOT / "tests/golden/folders/family-jina3-tasks"
    flags = ("--model-task", "separation", "--prompt", "x" + "é" * 400)
    done = fletch("canary", "-m", folder, *flags)
    assert done.returncode == 0, done.stderr
    (fletch.tmp_path / "canary.json").write_bytes(done.stdout)
    assert verdict(fletch, *flags, model=folder)[1]["differs"] == []
    names = [part["name"] for part in verdict(fletch, *flags[:3], flags[3] + "!", model=folder)[1]["differs"]]
    assert names == ["prompt"]
    said = verdict(fletch, "--model-task", "text-matching", *flags[2:], model=folder)
    assert said[0] == 1 and [part["name"] for part in said[1]["differs"]] == ["task"]


def test_what_a_file_says_does_not_steer_the_terminal(fletch, canary):
    rewrite(fletch, canary, lambda c: c.update(model="\x1b]0;x\x07 A", settings=c["settings"] | {"pooling": "cls\n  forged", "odd\x1b": "x"}))
    out = fletch("verify", "-m", PLAIN, "canary.json").stdout
    assert b"\x1b" not in out and b"\x07" not in out and out.count(b"\n") == 4


def test_texts_that_are_refused_are_left_out(fletch):
    done = fletch("canary", "-m", PLAIN, "--truncate", "error")
    assert done.returncode == 0 and 10 < len(json.loads(done.stdout)["rows"]) < 18
    (fletch.tmp_path / "canary.json").write_bytes(done.stdout)
    assert verdict(fletch, "--truncate", "error")[0] == 0


def test_no_file_and_no_model(fletch, canary):
    assert fletch("verify", "-m", PLAIN, "nowhere.json").returncode == 3
    assert fletch("verify", "-m", "./nowhere", "canary.json").returncode == 3
    assert fletch("verify", "-m", PLAIN).returncode == 2
    assert fletch("canary", "-m", PLAIN, "text").returncode == 2


def test_a_model_without_vectors_says_so(fletch):
    done = fletch("canary", "-m", commandline.ROOT / "tests/golden/folders/sparse-bert")
    assert done.returncode != 0 and not done.stdout and done.stderr
