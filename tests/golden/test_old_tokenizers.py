# SPDX-License-Identifier: Apache-2.0
"""test_old_tokenizers.py - a folder without tokenizer.json gives the ids that transformers gives it.

What must never break: SentencePiece's models of XLM-R, T5, mT5 and DeBERTa, whose special tokens each class puts elsewhere; RoBERTa's and CLIP's
vocab.json and merges.txt; damage, and what the classes cannot be made of, is refused by name.
"""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

import golden

HERE = golden.HERE / "old_tokenizers"
CASES = sorted(path.name for path in HERE.iterdir())
FILES = {"xlm-roberta": "sentencepiece.bpe.model", "t5": "spiece.model", "mt5": "spiece.model", "deberta-v2": "spm.model", "roberta": "vocab.json", "deberta": "vocab.json", "clip": "vocab.json"}


def tokenize(path: pathlib.Path, texts) -> subprocess.CompletedProcess:
    return subprocess.run([golden.BIN, "tokenize", "-m", path, "--input-format", "jsonl", "--format", "jsonl", "--max-length", "100000"],
                          capture_output=True, text=True, input="".join(json.dumps(text) + "\n" for text in texts))


def changed(name: str, tmp_path: pathlib.Path, **settings) -> pathlib.Path:
    path = tmp_path / name
    shutil.copytree(HERE / name, path)
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return path


def refusal(path: pathlib.Path) -> str:
    done = tokenize(path, ["a"])
    assert done.returncode == 3, (done.returncode, done.stderr)
    return done.stderr


@pytest.mark.parametrize("name", CASES)
def test_ids(name):
    expected = json.loads((HERE / name / "expected.json").read_text())
    done = tokenize(HERE / name, [text for text, _ in expected])
    assert done.returncode == 0, done.stderr
    for (text, ids), line in zip(expected, done.stdout.splitlines(), strict=True):
        assert json.loads(line)["ids"] == ids, text


@pytest.mark.parametrize("name", CASES)
def test_a_snapshot_of_the_hub_is_whole_with_them(name, tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    cache = tmp_path / "hub/models--org--old"
    shutil.copytree(HERE / name, cache / "snapshots" / commit)
    (cache / "snapshots" / commit / "model.safetensors").touch()
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(commit)
    (cache / ".no_exist" / commit).mkdir(parents=True)
    (cache / ".no_exist" / commit / "modules.json").touch()
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([golden.BIN, "tokenize", "-m", "org/old", "--quiet", "a cat"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_map_of_deberta_counts():
    """As transformers 4 and SentencePiece have it, not as transformers 5."""
    both = tokenize(HERE / "deberta-v2", ["ﬁ", "fi", "Ａ\troad", "A road"]).stdout.splitlines()
    ids = [json.loads(line)["ids"] for line in both]
    assert ids[0] == ids[1] and ids[2] == ids[3]


@pytest.mark.parametrize("name", CASES)
def test_other_classes_are_refused(name, tmp_path):
    assert "tokenizer_class without tokenizer.json" in refusal(changed(name, tmp_path, tokenizer_class="BartTokenizer"))


@pytest.mark.parametrize("name", [name for name in CASES if FILES[name] != "vocab.json"])
def test_damage(name, tmp_path):
    """Every cut: refused, or what remains is whole."""
    path = changed(name, tmp_path)
    data = (path / FILES[name]).read_bytes()
    for size in [*range(0, 60), *range(60, len(data), 211)]:
        (path / FILES[name]).write_bytes(data[:size])
        done = tokenize(path, ["a cat"])
        assert done.returncode in (0, 3), (size, done.returncode, done.stderr)
        assert done.returncode == 0 or FILES[name] in done.stderr, (size, done.stderr)
    (path / FILES[name]).write_bytes(b"\x0a\x02\x12\x00" + data)
    assert FILES[name] in refusal(path)


def test_bytes_without_a_part(tmp_path):
    path = changed("roberta", tmp_path)
    vocab = json.loads((path / "vocab.json").read_text())
    (path / "vocab.json").write_text(json.dumps({token: vocab[token] for token in vocab if token != "<mask>"}))
    assert "special token" in refusal(path)
    (path / "vocab.json").write_text("[]")
    assert "vocab.json" in refusal(path)
    (path / "vocab.json").write_text("{")
    assert "vocab.json" in refusal(path)
    (path / "vocab.json").write_text(json.dumps(vocab))
    (path / "merges.txt").write_text("t h e\n")
    assert refusal(path)
    (path / "merges.txt").unlink()
    assert "neither tokenizer.json nor vocab.txt" in refusal(path)
