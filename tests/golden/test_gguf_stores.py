# SPDX-License-Identifier: Apache-2.0
"""Models that Ollama, LM Studio and the Hugging Face cache hold are opened by their names where they lie; a manifest that lies
is refused by name, and nothing in it leads out of the store."""
import hashlib
import json
import os
import re
import subprocess

import numpy
import pytest

import gguf_writer
import golden

FOLDER = golden.HERE / "folders/pooling-cls"
KIND = "application/vnd.ollama.image."


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "m.gguf"
    gguf_writer.write(FOLDER, path)
    return path


def run(name, home, *flags, **more):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "OLLAMA_", "XDG_"))}
    return subprocess.run([golden.BIN, "embed", "-m", name, "--format", "jsonl", *flags, "the cat"], capture_output=True, text=True,
                          env=environment | {"HOME": str(home), "HF_HUB_OFFLINE": "1"} | more)


def vector(done) -> numpy.ndarray:
    assert done.returncode == 0, done.stderr
    return numpy.array(json.loads(done.stdout)["embedding"])


def ollama(store, plain, place="registry.ollama.ai/library/nomic-embed-text/latest", mark="-", change=None):
    """A store with one model; `change` edits its manifest."""
    data = plain.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    (store / f"blobs/sha256{mark}{digest}").write_bytes(data)
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "config": {},
                "layers": [{"mediaType": KIND + "model", "digest": f"sha256:{digest}", "size": len(data)},
                           {"mediaType": KIND + "license", "digest": "sha256:" + "0" * 64, "size": 3}]}
    if change:
        change(manifest)
    path = store / "manifests" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize("name, place, mark", [
    ("ollama:nomic-embed-text", "registry.ollama.ai/library/nomic-embed-text/latest", "-"),
    ("ollama:nomic-embed-text:v1.5", "registry.ollama.ai/library/nomic-embed-text/v1.5", ":"),
    ("ollama:user/model:q8_0", "registry.ollama.ai/user/model/q8_0", "-"),
    ("ollama:hf.co/org/repo:Q8_0", "hf.co/org/repo/Q8_0", "-")])
def test_a_model_of_ollama(name, place, mark, plain, tmp_path):
    ollama(tmp_path / ".ollama/models", plain, place, mark)
    expected = vector(run(plain, tmp_path))
    assert numpy.array_equal(vector(run(name, tmp_path)), expected)
    assert numpy.array_equal(vector(run(name, tmp_path / "elsewhere", OLLAMA_MODELS=str(tmp_path / ".ollama/models"))), expected)


def layer(key, value):
    def change(manifest):
        manifest["layers"][0][key] = value
    return change


def more(kind):
    return lambda manifest: manifest["layers"].append(manifest["layers"][0] | {"mediaType": KIND + kind})


WRONG = [
    (layer("digest", "sha256:../../../../etc/passwd"), "is not sha256: and 64 hexadecimal digits"),
    (layer("digest", "sha256-" + "a" * 64), "is not sha256: and 64 hexadecimal digits"),
    (layer("digest", "sha256:" + "a" * 63 + "/"), "is not sha256: and 64 hexadecimal digits"),
    (layer("digest", "sha256:" + "a" * 64), "which is not in the store"),
    (layer("digest", 7), "digest"),
    (layer("size", 7), "has 7 bytes, but it has"),
    (layer("size", -1), "size"),
    (layer("mediaType", KIND + "template"), "names no model of GGUF"),
    (lambda manifest: manifest.pop("layers"), "names no model of GGUF"),
    (lambda manifest: manifest.update(layers="model"), "layers"),
    (lambda manifest: manifest.update(layers=[3]), "names no model of GGUF"),
    (more("model"), "lies in several files"),
    (more("adapter"), 'has a layer "adapter", which is not supported'),
    (more("projector"), 'has a layer "projector", which is not supported'),
]


@pytest.mark.parametrize("index", range(len(WRONG)))
def test_a_manifest_that_lies_is_refused(index, plain, tmp_path):
    change, message = WRONG[index]
    ollama(tmp_path, plain, change=change)
    done = run("ollama:nomic-embed-text", tmp_path, OLLAMA_MODELS=str(tmp_path))
    assert done.returncode == 3 and message in done.stderr, done.stderr


def test_a_manifest_that_is_no_json_is_refused(plain, tmp_path):
    ollama(tmp_path, plain).write_text("{")
    assert run("ollama:nomic-embed-text", tmp_path, OLLAMA_MODELS=str(tmp_path)).returncode == 3


@pytest.mark.parametrize("name", ["ollama:", "ollama:a/b/c/d", "ollama:../x", "ollama:a/../b", "ollama:a:b/c", "ollama:a:", "ollama:a b", "ollama:.a"])
def test_names_stay_in_the_store(name, tmp_path):
    done = run(name, tmp_path, OLLAMA_MODELS=str(tmp_path))
    assert done.returncode in (2, 3) and "is not a name of Ollama's" in done.stderr, done.stderr


def test_what_is_not_there_is_told(tmp_path):
    done = run("ollama:nomic-embed-text", tmp_path)
    assert done.returncode == 3 and "Run `ollama pull nomic-embed-text`" in done.stderr
    done = run("hf.co/org/repo:Q8_0", tmp_path)
    assert done.returncode == 3 and "hf download org/repo" in done.stderr
    done = run("lmstudio:org/repo", tmp_path)
    assert done.returncode == 3 and "no such folder" in done.stderr


def snapshot(home, plain, *names):
    repository = home / ".cache/huggingface/hub/models--org--repo"
    commit = "0123456789" * 4
    folder = repository / "snapshots" / commit
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(plain.read_bytes())
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)


def test_a_file_of_the_hub_cache(plain, tmp_path):
    snapshot(tmp_path, plain, "repo-Q8_0.gguf", "repo-Q4_K_M.gguf", "mmproj-Q8_0.gguf", "f16/repo-00002-of-00002.gguf")
    expected = vector(run(plain, tmp_path))
    for name in ("hf.co/org/repo:Q8_0", "hf.co/org/repo:q8_0", "huggingface.co/org/repo:Q4_K_M"):
        assert numpy.array_equal(vector(run(name, tmp_path)), expected)
    for name, message in (("hf.co/org/repo", "holds several .gguf files"), ("hf.co/org/repo:Q4_K", "holds no .gguf file of Q4_K"),
                          ("hf.co/org/repo:Q5_0", "holds no .gguf file of Q5_0"), ("hf.co/repo:Q8_0", "is not the name of a repository")):
        done = run(name, tmp_path)
        assert done.returncode in (2, 3) and message in done.stderr, done.stderr


def test_a_job_knows_the_model_by_its_content(plain, tmp_path):
    """The manifest of `fletch run` has the fingerprint, which is the file's, not its name's."""
    ollama(tmp_path / "store", plain)
    (tmp_path / "texts.txt").write_text("the cat\n")
    found = set()
    for i, name in enumerate((plain, "ollama:nomic-embed-text")):
        done = subprocess.run([golden.BIN, "run", "-m", name, "-i", tmp_path / "texts.txt", "-o", tmp_path / f"out{i}"],
                              capture_output=True, text=True, env=os.environ | {"OLLAMA_MODELS": str(tmp_path / "store")})
        assert done.returncode == 0, done.stderr
        found |= {word for path in (tmp_path / f"out{i}").rglob("*.json")
                  for word in re.findall(r'"model":"([0-9a-f]{64})"', path.read_text())}
    assert len(found) == 1


def test_a_file_of_lm_studio(plain, tmp_path):
    folder = tmp_path / ".lmstudio/models/org/repo"
    folder.mkdir(parents=True)
    (folder / "repo.Q8_0.gguf").write_bytes(plain.read_bytes())
    expected = vector(run(plain, tmp_path))
    assert numpy.array_equal(vector(run("lmstudio:org/repo", tmp_path)), expected)
    assert numpy.array_equal(vector(run("lmstudio:org/repo:Q8_0", tmp_path)), expected)
