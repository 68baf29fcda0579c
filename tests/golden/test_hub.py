# SPDX-License-Identifier: Apache-2.0
"""test_hub.py - one cache for fletch and Python, and downloads that survive what networks do.

Must never break: what fletch pulls, the real huggingface_hub reads offline without a warning, and the other way round;
a file appears under its name only when its hash is right; a token goes to the hub alone; a pull that was cut, killed or
cancelled goes on where it stopped; and every refusal says what to do. The hub is hub_stand_in.py on 127.0.0.1; fletch is
driven through build/tests/hub_tool (FLETCH_BUILD names another build folder)."""
import hashlib
import json
import os
import pathlib
import random
import signal
import stat
import subprocess
import sys
import time

import pytest

os.environ.update(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1",
                  HF_HUB_DISABLE_IMPLICIT_TOKEN="1", NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT", "HF_HUB_CACHE", "HF_HOME", "HF_TOKEN"):
    os.environ.pop(key, None)
huggingface_hub = pytest.importorskip("huggingface_hub")
import huggingface_hub.errors  # noqa: E402 (its attributes come when they are imported)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_stand_in import Fault, StandIn, etag_of, git_sha1  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 300  # seconds; no test measures it: it ends what hangs
TOOL = pathlib.Path(os.environ.get("FLETCH_BUILD", ROOT / "build")) / "tests/hub_tool"
ID = "org/tiny"
WEIGHTS = "model.safetensors"
STATUS = {"ENOTFOUND": 4, "EMODEL": 5, "EUNSUPPORTED": 6, "ENETWORK": 10, "EDENIED": 11, "ECHECKSUM": 12,
          "ECANCELLED": 14, "ENOSPC": 17}


def model(size: int = 300_000, seed: int = 1, **more: bytes) -> dict[str, bytes]:
    """A small sentence-transformers folder; the bytes of the weights mean nothing."""
    weights = random.Random(seed).randbytes(size)
    modules = [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
               for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])]
    return {"config.json": b'{"model_type": "bert"}', "tokenizer.json": b'{"model": {}}',
            "tokenizer_config.json": b"{}", "vocab.txt": b"[PAD]\n", "special_tokens_map.json": b"{}",
            "modules.json": json.dumps(modules).encode(), "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
            "sentence_bert_config.json": b'{"max_seq_length": 256}', "config_sentence_transformers.json": b"{}",
            "chat_template.jinja": b"{{ messages }}", "artifact.metadata": b'{"doc_maxlen": 180}',
            "added_tokens.json": b'{"<x>": 9}', "sparse_linear.pt": b"PK", "colbert_linear.pt": b"2",
            WEIGHTS: weights} | more


OTHERS = {"README.md": b"# card", ".gitattributes": b"*", "pytorch_model.bin": b"pickle", "onnx/model.onnx": b"onnx",
          "1_Pooling/pytorch_model.bin.txt": b"no", "train_script.py": b"import os"}


class Result:
    def __init__(self, process: subprocess.Popen | subprocess.CompletedProcess, out: str, err: str):
        self.code, self.out, self.err = process.returncode, out.strip(), err
        lines = err.splitlines()
        self.error = next((line for line in lines if line.startswith("error ")), "")
        self.log = [line for line in lines if line.startswith("log ")]
        self.progress = [line.rsplit(" ", 3)[-3:] for line in lines if line.startswith("progress ")]

    def expect(self, status: str, *words: str) -> "Result":
        assert self.code == STATUS[status] and self.error.startswith("error " + status), self.err
        for word in words:
            assert word in self.error, self.error
        return self

    def fine(self) -> str:
        assert self.code == 0, self.err
        return self.out


class Bench:
    """A stand-in hub, an empty cache, and fletch."""

    def __init__(self, hub: StandIn, folder: pathlib.Path):
        self.hub, self.folder, self.cache = hub, folder, folder / "cache"
        self.repo = self.cache / "models--org--tiny"

    def start(self, *words: str, **environment: str) -> subprocess.Popen:
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "HF_ENDPOINT": self.hub.url,
                 "HF_HUB_CACHE": str(self.cache), "NO_PROXY": "127.0.0.1",
                 "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "")}
        return subprocess.Popen([str(TOOL), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=clean | environment)

    def finish(self, process: subprocess.Popen) -> Result:
        out, err = process.communicate(timeout=PATIENCE)
        return Result(process, out, err)

    def fletch(self, *words: str, **environment: str) -> Result:
        return self.finish(self.start(*words, **environment))

    def incomplete(self) -> list[pathlib.Path]:
        return list(self.repo.glob("blobs/*.incomplete"))

    def wait_for_part(self, size: int) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for part in self.incomplete():
                try:
                    if part.stat().st_size >= size:
                        return
                except FileNotFoundError:  # renamed between the two looks
                    pass
            time.sleep(0.02)
        raise AssertionError("no part came")


@pytest.fixture
def bench(tmp_path):
    assert TOOL.exists(), f"{TOOL} is not built; FLETCH_BUILD names the build folder"
    with StandIn() as hub:
        yield Bench(hub, tmp_path)


def python_reads(bench: Bench, files: dict[str, bytes], revision: str = "main", repo_id: str = ID) -> str:
    """The real huggingface_hub, offline, finds every file with its content, and its scan finds nothing to warn of."""
    path = huggingface_hub.snapshot_download(repo_id, revision=revision, cache_dir=bench.cache, local_files_only=True)
    for name, data in files.items():
        one = huggingface_hub.hf_hub_download(repo_id, name, revision=revision, cache_dir=bench.cache, local_files_only=True)
        assert pathlib.Path(one).read_bytes() == data, name
    scan_is_clean(bench)
    return path


def scan_is_clean(bench: Bench):
    scan = huggingface_hub.scan_cache_dir(bench.cache)
    assert not scan.warnings, scan.warnings
    return scan


def snapshot_files(path: str) -> set[str]:
    root = pathlib.Path(path)
    return {str(one.relative_to(root)) for one in root.rglob("*") if not one.is_dir()}


# -- one cache for both

def test_python_reads_what_fletch_pulled(bench):
    files = model()
    commit = bench.hub.add(ID, files | OTHERS)
    result = bench.fletch("pull", ID)
    path = result.fine()
    assert path == python_reads(bench, files) == str(bench.repo / "snapshots" / commit)
    assert snapshot_files(path) == set(files)
    for name, data in files.items():
        link = pathlib.Path(path) / name
        assert os.readlink(link) == "../" * (name.count("/") + 2) + "blobs/" + etag_of(name, data)
    assert (bench.repo / "refs/main").read_text() == commit
    scan = huggingface_hub.scan_cache_dir(bench.cache)
    (repo,) = scan.repos
    (revision,) = repo.revisions
    assert (repo.repo_id, repo.size_on_disk, revision.refs) == (ID, sum(map(len, files.values())) - 4, frozenset({"main"}))
    assert not [one for one in bench.hub.seen() if any(name in one.path for name in OTHERS)], "only what is needed"
    assert [WEIGHTS, "300000", "300000"] in result.progress
    # A second pull asks for the listing only, and so does Python.
    bench.hub.forget()
    assert bench.fletch("pull", ID).fine() == path
    assert [(one.method, one.path) for one in bench.hub.seen()] == [("GET", f"/api/models/{ID}/revision/main")]
    huggingface_hub.snapshot_download(ID, cache_dir=bench.cache, endpoint=bench.hub.url, allow_patterns=list(files))
    assert not bench.hub.seen("cdn") and not bench.hub.seen("hub", "GET", "resolve")


def test_fletch_resolves_what_python_wrote(bench):
    files = model()
    bench.hub.add(ID, files | OTHERS)
    path = huggingface_hub.snapshot_download(ID, cache_dir=bench.cache, endpoint=bench.hub.url)
    bench.hub.forget()
    commit = bench.hub.repos[ID].refs["main"]
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}, {"TRANSFORMERS_OFFLINE": "yes"}, {"HF_ENDPOINT": "http://127.0.0.1:1"}):
        result = bench.fletch("resolve", ID, **environment)
        assert result.fine().splitlines() == [path, f"{ID} {commit}"] and not result.log
    assert bench.fletch("--offline", "1", "path", f"{ID}@{commit}").fine() == path
    assert not bench.hub.seen(), "a cache hit asks nobody"
    verdicts = [line.split("\t") for line in bench.fletch("verify", ID).fine().splitlines()]
    assert {name: origin for name, verdict, origin in verdicts if verdict == "ok"} == {
        name: "sha256" if name.endswith((WEIGHTS, ".bin")) else "git sha1" for name in files | OTHERS}


def test_a_part_of_a_model_in_the_cache_is_completed(bench):
    """transformers fetches config, tokenizer and weights one by one and never asks for modules.json."""
    files = model()
    bench.hub.add(ID, files)
    for name in ("config.json", "tokenizer.json", WEIGHTS):
        huggingface_hub.hf_hub_download(ID, name, cache_dir=bench.cache, endpoint=bench.hub.url)
    offline = bench.fletch("resolve", ID, HF_HUB_OFFLINE="1")
    assert offline.fine() and "modules.json" in offline.log[0], "usable, but said"
    bench.hub.forget()
    online = bench.fletch("resolve", ID)
    assert online.fine() and not bench.hub.seen("cdn"), "the weights are kept"
    python_reads(bench, files)
    bench.hub.forget()
    assert bench.fletch("resolve", ID).fine() == online.out and not bench.hub.seen()


def test_a_plain_folder_stays_plain(bench):
    """No modules.json at the hub: asked once, marked as Python marks it, never asked again."""
    files = {name: data for name, data in model().items() if name in ("config.json", "vocab.txt", WEIGHTS)}
    bench.hub.add(ID, files)
    path = bench.fletch("resolve", ID).fine().splitlines()[0]
    assert python_reads(bench, files) == path
    absent = huggingface_hub.try_to_load_from_cache(ID, "modules.json", cache_dir=bench.cache)
    assert absent is huggingface_hub.file_download._CACHED_NO_EXIST
    bench.hub.forget()
    result = bench.fletch("resolve", ID)
    assert result.fine() and not result.log and not bench.hub.seen()


def test_without_symlinks_both_read_plain_files(bench):
    files = model()
    bench.hub.add(ID, files)
    path = bench.fletch("pull", ID, HF_HUB_DISABLE_SYMLINKS="1").fine()
    assert all(stat.S_ISREG(os.lstat(pathlib.Path(path) / name).st_mode) for name in files)
    assert python_reads(bench, files) == path
    assert all(line.split("\t")[1].startswith("no hash known") for line in bench.fletch("verify", ID).fine().splitlines())
    assert bench.fletch("--offline", "1", "path", ID).fine() == path


def test_revisions_are_refs(bench):
    first = bench.hub.add(ID, model(seed=1), "main", "v1")
    second = bench.hub.add(ID, model(seed=2), "main", "refs/pr/3")
    for revision, commit in (("v1", first), ("refs/pr/3", second), (first, first), ("main", second)):
        path = bench.fletch("pull", f"{ID}@{revision}").fine()
        assert path.endswith(commit)
        assert python_reads(bench, {}, revision) == path
    assert bench.fletch("--revision", "v1", "path", ID).fine().endswith(first)
    assert not (bench.repo / "refs" / first).exists()
    listed = [line.split("\t") for line in bench.fletch("ls").fine().splitlines()]
    assert [(row[0], row[1], row[2], row[5]) for row in listed] == sorted(
        [(ID, first, "v1", "15"), (ID, second, "main, refs/pr/3", "15")])
    bench.fletch("pull", f"{ID}@v9").expect("ENOTFOUND", "v9")


def adapter(**config: object) -> dict[str, bytes]:
    files = {name: data for name, data in model().items() if name not in ("config.json", WEIGHTS)}
    return files | {"adapter_config.json": json.dumps({"peft_type": "LORA"} | config).encode(), "adapter_model.safetensors": b"low rank"}


def test_the_base_comes_with_an_adapter(bench):
    """Whoever pulls where there is a network may open where there is none; the base in the revision that the adapter names."""
    old = bench.hub.add("org/base", model(seed=1), "v1")
    new = bench.hub.add("org/base", model(seed=2), "main")
    bench.hub.add(ID, adapter(base_model_name_or_path="org/base", revision="v1"), "v1")
    bench.hub.add(ID, adapter(base_model_name_or_path="org/base", revision=None), "main")
    assert bench.fletch("pull", f"{ID}@v1").fine() == python_reads(bench, {}, "v1")
    assert python_reads(bench, model(seed=1), "v1", "org/base").endswith(old)
    assert not (bench.cache / "models--org--base/refs/main").exists()
    path = bench.fletch("pull", ID).fine()
    assert python_reads(bench, model(seed=2), "main", "org/base").endswith(new)
    assert bench.fletch("pull", path).fine() == path, "a folder's base, too"


@pytest.mark.parametrize("config, status, words", [
    ({"base_model_name_or_path": "org/none"}, "ENOTFOUND", ("base_model_name_or_path", "org/none")),
    ({"base_model_name_or_path": "/home/me/base"}, "ENOTFOUND", ("base_model_name_or_path", "/home/me/base"))])
def test_an_adapter_without_its_base_is_told(bench, config, status, words):
    bench.hub.add(ID, adapter(**config))
    bench.fletch("pull", ID).expect(status, *words)


@pytest.mark.parametrize("config", [{"base_model_name_or_path": ID}, {}, {"base_model_name_or_path": 7, "revision": []}])
def test_a_base_that_is_no_other_model_does_not_loop(bench, config):
    bench.hub.add(ID, adapter(**config))
    bench.fletch("pull", ID).fine()


def test_main_moves_and_only_what_changed_comes(bench):
    bench.hub.add(ID, model())
    bench.fletch("pull", ID).fine()
    second = bench.hub.add(ID, model() | {"config.json": b'{"model_type": "mpnet"}'})
    bench.hub.forget()
    assert bench.fletch("path", ID).fine() != bench.fletch("pull", ID).fine()
    assert not bench.hub.seen("cdn") and (bench.repo / "refs/main").read_text() == second
    python_reads(bench, {"config.json": b'{"model_type": "mpnet"}'})


def test_removal_leaves_a_cache_python_accepts(bench):
    first = bench.hub.add(ID, model(1000, seed=1), "v1")
    bench.hub.add(ID, model(2000, seed=2))
    bench.hub.add("org/other", model(3000, seed=3))
    for name in (f"{ID}@v1", ID, "org/other"):
        bench.fletch("pull", name).fine()
    assert bench.fletch("rm", f"{ID}@{first}").fine() == "1040", "the weights and the ref"
    assert not (bench.repo / "refs/v1").exists()
    scan_is_clean(bench)
    python_reads(bench, model(2000, seed=2))
    shared = sum(len(data) for data in set(model(2000, seed=2).values()))
    assert int(bench.fletch("rm", ID).fine()) == shared + 40
    assert not bench.repo.exists() and not (bench.cache / ".locks/models--org--tiny").exists()
    python_reads(bench, model(3000, seed=3), repo_id="org/other")
    bench.fletch("path", ID).expect("ENOTFOUND", "fletch model pull")


# -- what networks do

def test_a_cut_connection_goes_on_where_it_stopped(bench):
    files = model(1_000_000)
    bench.hub.add(ID, files)
    bench.hub.fail("cdn", WEIGHTS, Fault("cut", 400_000))
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)
    first, second = bench.hub.seen("cdn", "GET")
    assert "range" not in first.headers and second.headers["range"] == "bytes=400000-"


@pytest.mark.parametrize("fault", ["ignore_range", "wrong_range", "status"])
def test_a_server_that_cannot_resume_starts_over(bench, fault):
    files = model(1_000_000)
    bench.hub.add(ID, files)
    bench.hub.fail("cdn", WEIGHTS, Fault("cut", 400_000))
    bench.hub.fail("cdn", WEIGHTS, Fault(fault, 416))
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)
    assert "range" in bench.hub.seen("cdn", "GET")[1].headers


def test_a_stalled_connection_is_given_up_and_resumed(bench):
    files = model(1_000_000)
    bench.hub.add(ID, files)
    bench.hub.fail("cdn", WEIGHTS, Fault("stall", 300_000))
    bench.hub.fail("hub", "config.json", Fault("stall", 0), "GET")
    bench.fletch("pull", ID, HF_HUB_DOWNLOAD_TIMEOUT="3", HF_HUB_ETAG_TIMEOUT="3").fine()
    python_reads(bench, files)
    assert "bytes=300000-" in [request.headers.get("range") for request in bench.hub.seen("cdn", "GET")]


def test_killed_in_the_middle_and_pulled_again(bench):
    files = model(2_000_000)
    bench.hub.add(ID, files)
    bench.hub.fail("cdn", WEIGHTS, Fault("stall", 600_000))
    process = bench.start("pull", ID, HF_HUB_DOWNLOAD_TIMEOUT="600")
    bench.wait_for_part(300_000)
    process.send_signal(signal.SIGKILL)
    bench.finish(process)
    (part,) = bench.incomplete()
    size = part.stat().st_size
    assert 300_000 <= size < 2_000_000
    assert not (bench.repo / "refs/main").exists()
    bench.fletch("path", ID).expect("ENOTFOUND")
    with pytest.raises(huggingface_hub.errors.LocalEntryNotFoundError):
        huggingface_hub.snapshot_download(ID, cache_dir=bench.cache, local_files_only=True)
    bench.fletch("pull", ID).fine()
    assert bench.hub.seen("cdn", "GET")[-1].headers["range"] == f"bytes={size}-"
    assert not bench.incomplete()
    python_reads(bench, files)


def test_cancelled_and_pulled_again(bench):
    files = model(2_000_000)
    bench.hub.add(ID, files)
    bench.hub.fail("cdn", WEIGHTS, Fault("slow", 4_000_000))
    bench.fletch("--cancel-after", "500000", "pull", ID).expect("ECANCELLED")
    (part,) = bench.incomplete()
    assert part.stat().st_size > 500_000
    bench.fletch("pull", ID).fine()
    assert "range" in bench.hub.seen("cdn", "GET")[-1].headers
    python_reads(bench, files)


def test_a_damaged_part_is_noticed_and_thrown_away(bench):
    files = model(1_000_000)
    bench.hub.add(ID, files)
    (bench.repo / "blobs").mkdir(parents=True)
    (bench.repo / "blobs" / (etag_of(WEIGHTS, files[WEIGHTS]) + ".incomplete")).write_bytes(b"x" * 600_000)
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)


@pytest.mark.parametrize("length", [1_000_000, 1_000_001])
def test_a_whole_part_is_checked_not_fetched(bench, length):
    files = model(1_000_000)
    bench.hub.add(ID, files)
    (bench.repo / "blobs").mkdir(parents=True)
    (bench.repo / "blobs" / (etag_of(WEIGHTS, files[WEIGHTS]) + ".incomplete")).write_bytes(
        (files[WEIGHTS] + b"x")[:length])
    bench.fletch("pull", ID).fine()
    assert len(bench.hub.seen("cdn", "GET")) == (0 if length == 1_000_000 else 1)
    python_reads(bench, files)


@pytest.mark.parametrize("server, name", [("cdn", WEIGHTS), ("hub", "tokenizer.json")])
def test_a_wrong_hash_never_gets_a_name(bench, server, name):
    files = model()
    bench.hub.add(ID, files)
    bench.hub.fail(server, name, Fault("flip", times=99))
    bench.fletch("pull", ID).expect("ECHECKSUM", name, etag_of(name, files[name]))
    assert not (bench.repo / "blobs" / etag_of(name, files[name])).exists()
    assert not bench.incomplete() and not (bench.repo / "refs/main").exists()
    bench.hub.forget()
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)


def test_more_bytes_than_promised_are_refused(bench):
    bench.hub.add(ID, model())
    bench.hub.fail("cdn", WEIGHTS, Fault("longer", 5000, times=99))
    bench.fletch("pull", ID).expect("ENETWORK", "longer")
    assert not (bench.repo / "refs/main").exists()


MOST = 256 << 20  # of a file that is no weights and whose size nobody says
SLACK = 16 << 20  # what lies in sockets of the usual sizes
SOCKETS = sum(int(pathlib.Path(f"/proc/sys/net/ipv4/tcp_{which}mem").read_text().split()[2]) for which in "rw")  # and of this system's


@pytest.mark.parametrize("name, said, most", [("vocab.txt", False, MOST), (WEIGHTS, True, 300_000)])
def test_a_file_that_never_ends_is_refused_at_its_limit(bench, name, said, most):
    """The size that the hub has said, or the largest that such a file may have; nothing of it stays."""
    bench.hub.add(ID, model())
    if not said:
        bench.hub.fail("hub", name, Fault("no_size", times=99), "HEAD")
    bench.hub.fail("cdn" if name == WEIGHTS else "hub", "/" if name == WEIGHTS else name, Fault("endless", 200, times=99))
    for _ in range(2):
        bench.fletch("pull", ID).expect("ENETWORK", "longer than allowed", name)
    assert most <= bench.hub.endless <= 2 * (most + max(SLACK, SOCKETS))
    assert all(part.stat().st_size == 0 for part in bench.incomplete())
    assert not (bench.repo / "refs/main").exists()


def test_a_size_that_no_such_file_has_is_refused_before_it_comes(bench):
    bench.hub.add(ID, model())
    bench.hub.fail("hub", "vocab.txt", Fault("size", 1 << 40, times=99), "")
    bench.fletch("pull", ID).expect("EUNSUPPORTED", "vocab.txt", str(1 << 40))
    assert not bench.hub.seen("hub", "GET", "vocab.txt")


@pytest.mark.parametrize("server, part, status, method", [
    ("hub", "/api/models", 200, "GET"), ("hub", "/api/models", 404, "GET"), ("hub", "/resolve/", 307, "GET"), ("cdn", "/", 404, "GET")])
def test_a_page_that_never_ends_is_not_read_to_its_end(bench, server, part, status, method):
    bench.hub.add(ID, model())
    bench.hub.fail(server, part, Fault("endless", status, times=99), method)
    assert bench.fletch("pull", ID).code != 0
    assert bench.hub.endless <= 5 * SLACK * 2
    assert not (bench.repo / "refs/main").exists()


def test_the_large_page_of_an_error_empties_no_part(bench):
    files = model(4_000_000)
    bench.hub.add(ID, files)
    part = bench.repo / "blobs" / (etag_of(WEIGHTS, files[WEIGHTS]) + ".incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(files[WEIGHTS][:3_000_000])
    bench.hub.fail("cdn", WEIGHTS, Fault("status", 404, page=b"x" * (2 << 20)))
    bench.fletch("pull", ID).expect("ENETWORK", "404", "a page of more than 1 MiB", WEIGHTS)
    assert [one.headers.get("range") for one in bench.hub.seen("cdn", "GET")] == ["bytes=3000000-"]
    assert part.stat().st_size == 3_000_000
    bench.fletch("pull", ID).fine()
    assert bench.hub.seen("cdn", "GET")[-1].headers["range"] == "bytes=3000000-"
    python_reads(bench, files)


def test_a_server_that_takes_back_what_it_gave_is_given_up(bench):
    """A part that comes and is of no use then, again and again: what counts is what goes beyond the best try."""
    bench.hub.add(ID, model(2_000_000))
    for _ in range(40):
        bench.hub.fail("cdn", WEIGHTS, Fault("cut", 400_000))
        bench.hub.fail("cdn", WEIGHTS, Fault("status", 416, headers={"Retry-After": "0"}))
    bench.fletch("pull", ID).expect("ENETWORK")
    assert len(bench.hub.seen("cdn", "GET")) <= 6


def test_a_server_that_gives_a_little_each_time_is_given_up(bench):
    bench.hub.add(ID, model())
    bench.hub.fail("cdn", WEIGHTS, Fault("cut", 10, times=99))
    bench.fletch("pull", ID).expect("ENETWORK", "bytes remaining")
    assert len(bench.hub.seen("cdn", "GET")) == 5


def test_a_hash_in_capitals_is_a_hash(bench):
    files = model()
    bench.hub.add(ID, files)
    bench.hub.fail("hub", WEIGHTS, Fault("etag", etag_of(WEIGHTS, files[WEIGHTS]).upper(), times=99), "")
    bench.hub.fail("cdn", WEIGHTS, Fault("flip", times=99))
    bench.fletch("pull", ID).expect("ECHECKSUM", WEIGHTS)
    bench.hub.forget()
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)


def test_a_blob_of_others_is_checked_before_it_is_taken(bench):
    files = model()
    bench.hub.add(ID, files)
    bench.fletch("pull", ID).fine()
    blob = bench.repo / "blobs" / etag_of(WEIGHTS, files[WEIGHTS])
    (bench.repo / "snapshots" / bench.hub.repos[ID].refs["main"] / WEIGHTS).unlink()
    blob.write_bytes(b"y" + files[WEIGHTS][1:])
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)


def test_what_is_no_file_in_a_snapshot_is_told(bench):
    files = model()
    bench.hub.add(ID, files)
    bench.fletch("pull", ID).fine()
    pointer = bench.repo / "snapshots" / bench.hub.repos[ID].refs["main"] / "tokenizer.json"
    pointer.unlink()
    pointer.mkdir()
    assert bench.fletch("pull", ID).code != 0


def test_an_index_of_very_many_files_is_refused_at_once(bench):
    files = model()
    del files[WEIGHTS]
    index = {"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(50_000)}}
    bench.hub.add(ID, files | {"model.safetensors.index.json": json.dumps(index).encode()})
    bench.fletch("pull", ID).expect("EMODEL", "more than 1024 files")


def test_a_size_that_nobody_said_is_no_obstacle(bench):
    files = model()
    bench.hub.add(ID, files)
    bench.hub.fail("hub", WEIGHTS, Fault("no_size", times=99), "")
    bench.hub.fail("cdn", WEIGHTS, Fault("no_size", times=99))
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)


def test_busy_servers_are_asked_again(bench):
    files = model()
    bench.hub.add(ID, files)
    bench.hub.fail("hub", "/api/models", Fault("status", 429, headers={"Retry-After": "2"}))
    bench.hub.fail("hub", "config.json", Fault("status", 503, times=2, headers={"Retry-After": "0"}), "HEAD")
    bench.hub.fail("cdn", WEIGHTS, Fault("status", 500, headers={"Retry-After": "0"}))
    result = bench.fletch("pull", ID)
    result.fine()
    waits = [line.rsplit(" in ", 1)[1] for line in result.log if "trying again" in line]
    assert waits == ["2 s", "0 s", "0 s", "0 s"], "Retry-After is honoured"
    assert any("429" in line for line in result.log)
    python_reads(bench, files)


def test_a_server_that_stays_broken_is_given_up(bench):
    bench.hub.add(ID, model())
    bench.hub.fail("cdn", WEIGHTS, Fault("status", 503, times=99, headers={"Retry-After": "0"}))
    bench.fletch("pull", ID).expect("ENETWORK", "503", "HF_ENDPOINT")
    assert len(bench.hub.seen("cdn", "GET")) == 5


def test_two_processes_fetch_once(bench):
    files = model(2_000_000)
    bench.hub.add(ID, files)
    bench.hub.fail("cdn", WEIGHTS, Fault("slow", 2_000_000, times=99))
    both = [bench.start("pull", ID) for _ in range(2)]
    paths = [bench.finish(process).fine() for process in both]
    assert paths[0] == paths[1]
    assert len(bench.hub.seen("cdn", "GET")) == 1
    assert not bench.incomplete()
    python_reads(bench, files)


def test_the_lock_is_the_one_huggingface_hub_takes(bench):
    import filelock
    files = model(1_000_000)
    bench.hub.add(ID, files)
    path = bench.cache / ".locks/models--org--tiny" / (etag_of(WEIGHTS, files[WEIGHTS]) + ".lock")
    path.parent.mkdir(parents=True)
    with filelock.FileLock(path):
        process = bench.start("pull", ID)
        time.sleep(0.8)
        assert process.poll() is None and not bench.hub.seen("cdn"), "fletch waits for Python"
    bench.finish(process).fine()
    bench.fletch("rm", ID).fine()
    bench.hub.fail("cdn", WEIGHTS, Fault("stall", 600_000))
    process = bench.start("pull", ID, HF_HUB_DOWNLOAD_TIMEOUT="600")
    bench.wait_for_part(100_000)
    with pytest.raises(filelock.Timeout):
        filelock.FileLock(path, timeout=0).acquire()
    process.kill()
    bench.finish(process)


def test_python_and_fletch_at_once(bench):
    files = model(1_000_000)
    bench.hub.add(ID, files)
    bench.hub.fail("cdn", WEIGHTS, Fault("slow", 1_500_000))
    process = bench.start("pull", ID)
    bench.wait_for_part(100_000)
    huggingface_hub.snapshot_download(ID, cache_dir=bench.cache, endpoint=bench.hub.url)
    bench.finish(process).fine()
    assert len(bench.hub.seen("cdn", "GET")) == 1
    python_reads(bench, files)


def test_a_full_disk_is_said_and_nothing_half_is_named(bench):
    files = model(1_000_000)
    bench.hub.add(ID, files)
    bench.fletch("--rlimit-fsize", "500000", "pull", ID).expect("ENOSPC", WEIGHTS, "HF_HUB_CACHE")
    assert not (bench.repo / "refs/main").exists()
    assert not (bench.repo / "blobs" / etag_of(WEIGHTS, files[WEIGHTS])).exists()
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)


@pytest.mark.parametrize("size_known", [True, False])
def test_a_full_small_disk(bench, size_known):
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    bench.cache.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", bench.cache], capture_output=True).returncode:
        pytest.skip("no mount allowed here")
    try:
        bench.hub.add(ID, model(1_000_000))
        if not size_known:
            bench.hub.fail("hub", WEIGHTS, Fault("no_size", times=99), "")
            bench.hub.fail("cdn", WEIGHTS, Fault("no_size", times=99))
        bench.fletch("pull", ID).expect("ENOSPC", WEIGHTS, "HF_HUB_CACHE")
        assert len(bench.hub.seen("cdn")) == (0 if size_known else 1), "no byte is asked for when they cannot fit"
        assert not (bench.repo / "refs/main").exists()
    finally:
        subprocess.run(["umount", "-l", bench.cache], check=True)


# -- who may see what

def test_the_token_goes_to_the_hub_alone(bench):
    files = model()
    bench.hub.add(ID, files)
    bench.hub.repos[ID].gated = True
    bench.hub.tokens.add("hf_secret")
    bench.fletch("pull", ID).expect("EDENIED", "accept the terms", "HF_TOKEN", "no token was sent")
    bench.fletch("pull", ID, HF_TOKEN="hf_secret", HF_HUB_DISABLE_IMPLICIT_TOKEN="1").expect(
        "EDENIED", "HF_HUB_DISABLE_IMPLICIT_TOKEN")
    bench.hub.forget()
    bench.fletch("pull", ID, HF_TOKEN="hf_secret").fine()
    assert all(one.headers.get("authorization") == "Bearer hf_secret" for one in bench.hub.seen("hub"))
    assert bench.hub.seen("cdn") and not [one for one in bench.hub.seen("cdn") if "authorization" in one.headers]
    python_reads(bench, files)


def test_the_token_is_dropped_wherever_a_redirect_leads(bench):
    bench.hub.add(ID, model())
    bench.hub.tokens.add("hf_secret")
    bench.hub.fail("hub", "/api/models", Fault("location", bench.hub.cdn + "/elsewhere"))
    bench.fletch("pull", ID, HF_TOKEN="hf_secret").expect("ENOTFOUND")
    bench.hub.fail("hub", "config.json", Fault("location", bench.hub.cdn + "/elsewhere", times=2), "")
    bench.fletch("pull", ID, HF_TOKEN="hf_secret").expect("ENOTFOUND")
    assert len(bench.hub.seen("cdn")) == 2
    assert not [one for one in bench.hub.seen("cdn") if "authorization" in one.headers]


@pytest.mark.parametrize("place", ["HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME"])
def test_tokens_are_found_where_python_leaves_them(bench, place):
    bench.hub.add(ID, model())
    bench.hub.repos[ID].private = True
    bench.hub.tokens.add("hf_secret")
    (bench.folder / "token").write_text("hf_secret\n")
    value = {"HUGGING_FACE_HUB_TOKEN": "hf_secret", "HF_TOKEN_PATH": str(bench.folder / "token"), "HF_HOME": str(bench.folder)}
    bench.fletch("pull", ID).expect("ENOTFOUND", "private", "no token was sent")
    bench.fletch("pull", ID, **{place: value[place]}).fine()
    bench.fletch("pull", ID, HF_TOKEN="hf_wrong").expect("EDENIED", "does not accept the token")


def test_what_is_not_there_is_said_with_the_way_on(bench):
    bench.hub.add(ID, model())
    bench.fletch("pull", "org/nothing").expect("ENOTFOUND", "org/nothing", "spelling")
    bench.fletch("pull", "nothing").expect("ENOTFOUND", "sentence-transformers/nothing")
    bench.fletch("resolve", ID, HF_HUB_OFFLINE="1").expect("ENOTFOUND", "HF_HUB_OFFLINE", "fletch model pull")
    bench.fletch("pull", ID, TRANSFORMERS_OFFLINE="1").expect("ENOTFOUND", "TRANSFORMERS_OFFLINE")
    bench.fletch("--offline", "1", "resolve", ID).expect("ENOTFOUND", "model.offline")
    bench.fletch("--download", "0", "resolve", ID).expect("ENOTFOUND", "model.auto_download")
    assert {one.path.split("/")[3] for one in bench.hub.seen()} <= {"org", "sentence-transformers"}
    assert not bench.hub.seen(part="resolve") and not bench.repo.exists()


def test_no_network_names_the_ways_without(bench):
    for endpoint in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
        result = bench.fletch("resolve", ID, HF_ENDPOINT=endpoint)
        result.expect("ENETWORK", "no network", "HF_ENDPOINT", "local model folder", str(bench.cache)[:100])
        assert not any("again" in line for line in result.log), "nobody there is said at once"
    bench.hub.add(ID, model())
    path = bench.fletch("pull", ID).fine()
    result = bench.fletch("pull", ID, HF_ENDPOINT="http://127.0.0.1:1")
    assert result.fine() == path and "copy in the cache" in result.log[-1], "a whole copy serves without a network"


def test_without_libcurl_and_libcrypto(bench):
    """Neither is linked: what needs no download works without them, a download says what to install."""
    files = model(3_000_000)
    bench.hub.add(ID, files)
    path = bench.fletch("pull", ID).fine()
    none = bench.folder / "none"
    none.mkdir()
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so", "libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"):
        (none / name).write_bytes(b"no library")  # the loader finds it first, refuses it and looks no further
    bare = {"LD_LIBRARY_PATH": str(none)}
    assert path in bench.fletch("--offline", "1", "resolve", ID, **bare).fine()
    assert "\tok" in bench.fletch("verify", ID, **bare).out, "hashed without libcrypto"
    bench.fletch("verify", ID, **bare).fine()
    bench.fletch("pull", "org/other", **bare).expect("EUNSUPPORTED", "libcurl", "apt-get install libcurl4", "hf download")


def test_a_renamed_model_is_followed(bench):
    files = model()
    bench.hub.add("new/name", files)
    bench.hub.renamed[ID] = "new/name"
    bench.fletch("pull", ID).fine()
    python_reads(bench, files)


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/api/models/org/tiny/revision/main", "gopher:x"])
def test_redirects_that_lead_nowhere_end(bench, location):
    bench.hub.add(ID, model())
    bench.hub.fail("hub", "/api/models", Fault("location", location, times=99))
    bench.fletch("pull", ID).expect("ENETWORK", "redirected")
    assert len(bench.hub.seen()) <= 11


def test_https_is_verified_and_never_left_for_http(bench):
    """The storage host of this hub speaks http: a redirect from https down to it is refused."""
    files = model()
    certificate = bench.folder / "hub.pem"
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                           "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                           "-keyout", certificate, "-out", bench.folder / "crt.pem"], capture_output=True)
    assert made.returncode == 0, made.stderr
    certificate.write_bytes(certificate.read_bytes() + (bench.folder / "crt.pem").read_bytes())
    with StandIn(str(certificate)) as hub:
        hub.add(ID, files)
        bench.fletch("pull", ID, HF_ENDPOINT=hub.url).expect("ENETWORK", "certificate")
        assert not hub.seen()
        trusted = {"HF_ENDPOINT": hub.url, "SSL_CERT_FILE": str(bench.folder / "crt.pem")}
        bench.fletch("pull", ID, **trusted).expect("ENETWORK", "from https to http")
        assert not hub.seen("cdn") and (bench.repo / "blobs" / git_sha1(files["config.json"])).exists()


# -- what a hostile or odd repository holds

def test_names_that_leave_the_folder_are_not_taken(bench):
    files = model()
    evil = {"../evil.json": b"x", "/tmp/evil.json": b"x", "1_Pooling/../../../config.json": b"x", "1_x\\config.json": b"x",
            "1_x/\nconfig.json": b"x"}
    bench.hub.add(ID, files | evil)
    result = bench.fletch("pull", ID)
    assert snapshot_files(result.fine()) == set(files)
    assert any("unsafe" in line for line in result.log)
    assert not list(bench.folder.rglob("evil*"))


@pytest.mark.parametrize("fault", [Fault("etag", "../../../evil"), Fault("etag", "a b"), Fault("commit", "0" * 40)])
def test_headers_that_lie_are_refused(bench, fault):
    bench.hub.add(ID, model())
    fault.times = 99
    bench.hub.fail("hub", WEIGHTS, fault, "HEAD")
    bench.fletch("pull", ID).expect("ENETWORK", "does not answer like a hub", "HF_ENDPOINT")
    assert not list(bench.folder.rglob("evil*"))


@pytest.mark.parametrize("body", [b"", b"<html>login</html>", b"[]", b'{"sha": "main", "siblings": []}', b'{"sha": 3}'])
def test_a_portal_instead_of_a_hub_is_noticed(bench, body):
    bench.hub.add(ID, model())
    bench.hub.fail("hub", "/api/models", Fault("body", body))
    result = bench.fletch("pull", ID)
    assert result.code in (STATUS["ENETWORK"], STATUS["EMODEL"]) and "hub" in result.error, result.err


def test_shards_come_with_their_index(bench):
    files = model()
    shards = {f"model-0000{i}-of-00002.safetensors": random.Random(i).randbytes(5000) for i in (1, 2)}
    index = {"metadata": {"total_size": 1}, "weight_map": {"a": list(shards)[0], "b": list(shards)[1], "c": list(shards)[0]}}
    del files[WEIGHTS]
    files |= shards | {"model.safetensors.index.json": json.dumps(index).encode()}
    bench.hub.add(ID, files | {"other.safetensors": b"not of this model"})
    assert snapshot_files(bench.fletch("pull", ID).fine()) == set(files)
    python_reads(bench, files)
    for name in shards:
        (bench.repo / "blobs" / etag_of(name, shards[name])).unlink()
        (bench.repo / "snapshots" / bench.hub.repos[ID].refs["main"] / name).unlink()
        bench.fletch("path", ID).expect("ENOTFOUND", name)
        bench.fletch("resolve", ID).fine()
        python_reads(bench, files)


@pytest.mark.parametrize("lost, pickle", [(WEIGHTS, "pytorch_model.bin"), ("", "2_Dense/pytorch_model.bin")])
def test_weights_of_torch_come_where_there_are_no_others(bench, lost, pickle):
    files = model() | {"2_Dense/config.json": b"{}", pickle: b"cos\nsystem"}
    files.pop(lost, None)
    bench.hub.add(ID, files | {"tf_model.h5": b"no", "unused.bin": b"no"})
    assert snapshot_files(bench.fletch("pull", ID).fine()) == set(files)
    python_reads(bench, files)


@pytest.mark.parametrize("names", [
    {"modules.json": [{"path": "encoder", "type": "sentence_transformers.models.Transformer"}, {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                      {"path": "more/projection", "type": "sentence_transformers.models.Dense"}]},
    {"modules.json": [{"path": "", "type": "sentence_transformers.models.Router"}],
     "router_config.json": {"types": {"encoder": "sentence_transformers.models.Transformer", "more/projection": "x.Dense"}, "structure": {}}},
])
def test_modules_lie_where_the_model_says(bench, names):
    """In folders of any name and depth; others are not taken, nor is one that the model's file says lies outside."""
    files = {name: data for name, data in model().items() if "/" in name or not name.startswith(("config.json", "tokenizer", "model."))}
    files |= {"encoder/config.json": b"{}", "encoder/tokenizer.json": b"{}", "encoder/" + WEIGHTS: b"w" * 100, "more/projection/config.json": b"{}",
              "more/projection/pytorch_model.bin": b"b" * 50}
    files |= {name: json.dumps(value).encode() for name, value in names.items()}
    bench.hub.add(ID, files | {"onnx/config.json": b"no", "onnx/model.onnx": b"no", "more/config.json": b"no", "other/" + WEIGHTS: b"no"})
    assert snapshot_files(bench.fletch("pull", ID).fine()) == set(files)
    python_reads(bench, files)
    (bench.repo / "snapshots" / bench.hub.repos[ID].refs["main"] / "encoder/config.json").unlink()
    bench.fletch("path", ID).expect("ENOTFOUND", "encoder/config.json")


def test_a_table_in_4_bits_is_weights(bench):
    files = {"modules.json": json.dumps([{"path": "", "type": "modeling.SSEQ"}]).encode(), "tokenizer.json": b"{}",
             "model_rest.safetensors": b"r" * 60, "embedding.q4_k_m.bin": b"t" * 90}
    bench.hub.add(ID, files | {"modeling.py": b"no"})
    assert snapshot_files(bench.fletch("pull", ID).fine()) == set(files)
    python_reads(bench, files)
    (bench.repo / "snapshots" / bench.hub.repos[ID].refs["main"] / "model_rest.safetensors").unlink()
    bench.fletch("path", ID).expect("ENOTFOUND", "model_rest.safetensors")


def test_shards_of_torch_come_with_their_index(bench):
    files = model()
    shards = {f"pytorch_model-0000{i}-of-00002.bin": random.Random(i).randbytes(5000) for i in (1, 2)}
    del files[WEIGHTS]
    files |= shards | {"pytorch_model.bin.index.json": json.dumps({"weight_map": dict(zip("ab", shards))}).encode()}
    bench.hub.add(ID, files)
    assert snapshot_files(bench.fletch("pull", ID).fine()) == set(files)
    name = list(shards)[1]
    (bench.repo / "blobs" / etag_of(name, shards[name])).unlink()
    (bench.repo / "snapshots" / bench.hub.repos[ID].refs["main"] / name).unlink()
    bench.fletch("path", ID).expect("ENOTFOUND", name)
    bench.fletch("resolve", ID).fine()
    python_reads(bench, files)


def test_a_repository_without_weights_is_refused_before_the_first_byte(bench):
    files = model()
    del files[WEIGHTS]
    bench.hub.add(ID, files | {"tf_model.h5": b"no"})
    bench.fletch("pull", ID).expect("EUNSUPPORTED", "model.safetensors", "pytorch_model.bin")
    assert not bench.hub.seen(part="resolve")


def test_verify_finds_what_changed_on_disk(bench):
    files = model()
    bench.hub.add(ID, files)
    bench.fletch("pull", ID).fine()
    blob = bench.repo / "blobs" / hashlib.sha256(files[WEIGHTS]).hexdigest()
    blob.write_bytes(b"y" + files[WEIGHTS][1:])
    (bench.repo / "blobs" / git_sha1(files["vocab.txt"])).unlink()
    result = bench.fletch("verify", ID).expect("ECHECKSUM", "2 file(s)")
    wrong = dict(line.split("\t")[:2] for line in result.out.splitlines() if line.split("\t")[1] != "ok")
    assert set(wrong) == {WEIGHTS, "vocab.txt"} and wrong["vocab.txt"].startswith("missing")
    # A pull mends what is missing; what has the right size but wrong bytes is for verify and rm.
    bench.fletch("pull", ID).fine()
    assert bench.fletch("verify", ID).expect("ECHECKSUM", "1 file(s)")
