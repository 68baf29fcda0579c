# SPDX-License-Identifier: Apache-2.0
"""Which .onnx file is taken, how its inputs and outputs are matched, and every way it can be bad.

Networks are toys (onnx_files.toy) whose token vectors are known by heart, in a folder with the default model's
tokenizer; expected rows are numpy's. A bad file is an error that says how to mend it; the program survives.
"""
import json
import os
import pathlib
import shutil
import subprocess

import numpy
import pytest

import golden

onnx_files = pytest.importorskip("onnx_files", reason="the onnx package is not in this Python (tools/venv.sh)")
import onnx  # noqa: E402  (after the skip)

pytestmark = [pytest.mark.skipif(not onnx_files.library(), reason="no ONNX Runtime library: make onnxruntime"),
              pytest.mark.skipif(not os.environ.get("FLETCH_MODEL"), reason="FLETCH_MODEL names no model folder")]
HIDDEN = 384
LIBRARY = ("--onnxruntime-library", onnx_files.library())
RAW = (*LIBRARY, "--model-normalize", "false")
TEXTS = ["hello", "a b c d e", "one two", "x y z", "hello there my dear old friend"]


@pytest.fixture
def folder(tmp_path):
    return onnx_files.folder_without_weights(pathlib.Path(os.environ["FLETCH_MODEL"]), tmp_path / "model")


def run(*words, env=None):
    return subprocess.run([str(golden.BIN), *map(str, words)], capture_output=True, text=True,
                          env={**os.environ, **(env or {})})


def ids_of(folder, texts):
    done = run("tokenize", "-m", folder, "--format", "jsonl", *texts)
    assert done.returncode == 0, done.stderr
    return [numpy.array(json.loads(line)["ids"], numpy.float64) for line in done.stdout.splitlines()]


def tokens_of(folder, texts, scale=1.0):
    return [scale * ids[:, None] * numpy.arange(1, HIDDEN + 1) / 1000 for ids in ids_of(folder, texts)]


def check(rows, expected, relative=1e-5):
    expected = numpy.array(expected)
    assert rows.shape == expected.shape
    assert (numpy.abs(rows - expected) <= relative * numpy.maximum(1, numpy.abs(expected))).all()


POOLINGS = {
    "cls": lambda x: x[0],
    "mean": lambda x: x.mean(axis=0),
    "max": lambda x: x.max(axis=0),
    "mean_sqrt_len_tokens": lambda x: x.sum(axis=0) / numpy.sqrt(len(x)),
    "weightedmean": lambda x: (x * numpy.arange(1, len(x) + 1)[:, None]).sum(axis=0) / numpy.arange(1, len(x) + 1).sum(),
    "lasttoken": lambda x: x[-1],
}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_token_vectors_are_pooled_as_asked(folder, pooling, tmp_path):
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    rows = golden.embed(folder, TEXTS, *RAW, "--model-pooling", pooling, work=tmp_path)
    check(rows, [POOLINGS[pooling](x) for x in tokens_of(folder, TEXTS)])


def test_several_poolings_side_by_side(folder, tmp_path):
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    rows = golden.embed(folder, TEXTS, *RAW, "--model-pooling", "max,mean", work=tmp_path)
    check(rows, [numpy.concatenate([x.max(axis=0), x.mean(axis=0)]) for x in tokens_of(folder, TEXTS)])


@pytest.mark.parametrize("inputs", [
    ("input_ids", "attention_mask", "token_type_ids"),
    ("attention_mask", "input_ids", "position_ids"),
    ("input_mask", "input_ids", "segment_ids"),
])
def test_inputs_are_matched_by_name(folder, inputs, tmp_path):
    onnx_files.toy(folder / "model.onnx", HIDDEN, inputs=inputs)
    rows = golden.embed(folder, TEXTS, *RAW, work=tmp_path)
    check(rows, [x.mean(axis=0) for x in tokens_of(folder, TEXTS)])


def test_inputs_of_32_bits(folder, tmp_path):
    onnx_files.toy(folder / "model.onnx", HIDDEN, integers=onnx_files.I32)
    check(golden.embed(folder, TEXTS, *RAW, work=tmp_path), [x.mean(axis=0) for x in tokens_of(folder, TEXTS)])


def test_the_precision_chooses_the_file(folder, tmp_path):
    """Each file multiplies by another number, so that the rows tell which was taken."""
    onnx_files.toy(folder / "onnx/model.onnx", HIDDEN, scale=1)
    onnx_files.toy(folder / "onnx/model_optimized.onnx", HIDDEN, scale=2)
    onnx_files.toy(folder / "onnx/model_fp16.onnx", HIDDEN, scale=1 / 64, half=True)
    onnx_files.toy(folder / "onnx/model_quantized.onnx", HIDDEN, scale=3)
    expected = [x.mean(axis=0) for x in tokens_of(folder, TEXTS)]
    for precision, scale, relative in (("auto", 1, 1e-5), ("fp32", 1, 1e-5), ("int8", 3, 1e-5), ("fp16", 1 / 64, 1e-2)):
        rows = golden.embed(folder, TEXTS, *RAW, "--provider-precision", precision, work=tmp_path)
        check(rows, [scale * x for x in expected], relative)
    onnx_files.toy(folder / "model.onnx", HIDDEN, scale=5)  # beside config.json comes before onnx/
    check(golden.embed(folder, TEXTS, *RAW, work=tmp_path), [5 * x for x in expected])


@pytest.mark.parametrize("name, half", [("model_quantized", False), ("model_fp16", True)])
def test_the_only_file_is_taken_whatever_its_precision(folder, name, half, tmp_path):
    onnx_files.toy(folder / f"onnx/{name}.onnx", HIDDEN, scale=1 / 64, half=half)
    expected = [x.mean(axis=0) / 64 for x in tokens_of(folder, TEXTS)]
    check(golden.embed(folder, TEXTS, *RAW, work=tmp_path), expected, 1e-2)


def test_what_is_on_disk_comes_before_names_of_the_hub(folder, tmp_path):
    """A folder with a graph and a tokenizer alone, and a file in it, by their bare names."""
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    for name in ("config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (folder / name).unlink(missing_ok=True)
    for place, name in ((folder.parent, folder.name), (folder.parent, f"{folder.name}/model.onnx"), (folder, "model.onnx")):
        done = subprocess.run([golden.BIN, "embed", "-m", name, *RAW, "hello"], capture_output=True, text=True, cwd=place)
        assert done.returncode == 0, (name, done.stderr)


def test_a_precision_that_no_file_has_is_refused_with_those_there_are(folder):
    onnx_files.toy(folder / "onnx/model_fp16.onnx", HIDDEN, half=True)
    done = run("embed", "-m", folder, *RAW, "--provider-precision", "int8", "hello")
    assert done.returncode == 2 and "model_fp16.onnx" in done.stderr and "provider.precision" in done.stderr


@pytest.mark.parametrize("precision", ["int16", "fp8"])
def test_a_precision_of_another_engine_is_refused_not_computed_in_fp32(folder, precision):
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    done = run("embed", "-m", folder, *RAW, "--provider-precision", precision, "hello")
    assert done.returncode in (2, 3) and precision in done.stderr and "fp32" in done.stderr, done.stderr


def test_a_dynamically_quantised_file_gives_a_text_the_same_bytes_in_any_company(folder, tmp_path):
    """Such a file finds its ranges over everything in the run: a text runs alone, or its vector would be its neighbours'."""
    onnx_files.bert(pathlib.Path(os.environ["FLETCH_MODEL"]), folder / "onnx/model_quantized.onnx", quantised=True)
    flags = (*LIBRARY, "--provider-precision", "int8")
    texts = "cat dog house river 7 why love number green ! yes ocean".split()  # of one length: they share a run
    together = golden.embed(folder, texts, *flags, work=tmp_path)
    for text, row in zip(texts, together):
        assert (golden.embed(folder, [text], *flags, work=tmp_path)[0] == row).all(), text


def test_weights_outside_the_file(folder, tmp_path):
    onnx_files.toy(folder / "onnx/model.onnx", HIDDEN, save_as_external_data=True, location="model.onnx_data",
                   size_threshold=1024)
    assert (folder / "onnx/model.onnx_data").stat().st_size >= 4 * HIDDEN
    check(golden.embed(folder, TEXTS, *RAW, work=tmp_path), [x.mean(axis=0) for x in tokens_of(folder, TEXTS)])


def test_the_vector_id_counts_the_file_wherever_it_lies(folder, tmp_path):
    """Of the network in an .onnx file nothing else tells: its bytes, and those of the weights beside it."""
    def identify(place):
        done = run("model", "id", place, *LIBRARY)
        assert done.returncode == 0, done.stderr
        return done.stdout
    onnx_files.toy(folder / "onnx/model.onnx", HIDDEN)
    ids = {identify(folder)}
    onnx_files.toy(folder / "onnx/model.onnx", HIDDEN, save_as_external_data=True, location="model.onnx_data", size_threshold=1024)
    ids.add(before := identify(folder))
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert identify(tmp_path / "elsewhere") == before
    data = bytearray((folder / "onnx/model.onnx_data").read_bytes())
    data[-5] ^= 1
    (folder / "onnx/model.onnx_data").write_bytes(data)
    ids.add(identify(folder))
    assert len(ids) == 3


def hub_cache(folder, base):
    """The folder as a Hugging Face cache keeps it: a snapshot of links into blobs/."""
    blobs, snapshot = base / "models--a--b/blobs", base / "models--a--b/snapshots/0123456789abcdef"
    for number, file in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        blobs.mkdir(parents=True, exist_ok=True)
        blob = blobs / f"{number:040x}"
        shutil.copy2(file, blob)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_weights_outside_the_file_in_a_cache_of_links(folder, place, tmp_path):
    """The data lies beside the link by its name, and beside the blob under quite another."""
    onnx_files.toy(folder / place, HIDDEN, save_as_external_data=True, location="model.onnx_data", size_threshold=1024)
    snapshot = hub_cache(folder, tmp_path / "hub")
    assert (snapshot / place).is_symlink() and (snapshot / place).parent.joinpath("model.onnx_data").is_symlink()
    check(golden.embed(snapshot, TEXTS, *RAW, work=tmp_path), [x.mean(axis=0) for x in tokens_of(snapshot, TEXTS)])
    snapshot.joinpath(place).parent.joinpath("model.onnx_data").unlink()
    done = run("embed", "-m", snapshot, *RAW, "hello")
    assert done.returncode == 3 and "model.onnx_data is missing" in done.stderr, done.stderr


def test_a_pooled_output_is_taken_when_there_is_no_other(folder, tmp_path):
    """The toy's mean counts no padding, so that it also shows that texts of one length share a run."""
    onnx_files.toy(folder / "model.onnx", HIDDEN, pooled=True, output="sentence_embedding")
    check(golden.embed(folder, TEXTS * 3, *RAW, work=tmp_path), [x.mean(axis=0) for x in tokens_of(folder, TEXTS * 3)])


def test_a_pooled_output_is_refused_where_it_may_be_another_pooling(folder):
    onnx_files.toy(folder / "model.onnx", HIDDEN, pooled=True, output="sentence_embedding")
    done = run("embed", "-m", folder, *RAW, "--model-pooling", "max", "hello")
    assert done.returncode == 3 and "model.pooling" in done.stderr and "last_hidden_state" in done.stderr


def test_a_file_of_clip_has_to_project_what_counts(tmp_path):
    """Vectors of tokens would be pooled and not projected."""
    path = onnx_files.folder_without_weights(golden.HERE / "folders/family-clip", tmp_path / "clip")
    onnx_files.toy(path / "model.onnx", 30)
    done = run("embed", "-m", path, *LIBRARY, "hello")
    assert done.returncode == 3 and "text_embeds" in done.stderr, done.stderr
    onnx_files.toy(path / "model.onnx", 30, pooled=True, output="text_embeds")
    assert golden.embed(path, TEXTS, *LIBRARY, work=tmp_path).shape == (len(TEXTS), 30)


@pytest.mark.parametrize("file", ["", "onnx/text_model.onnx"])
def test_siglips_file_gives_its_pooler_output(file, tmp_path):
    """As onnx-community and fastembed have it: no mask goes in, two outputs come out, and a text is filled up as for the safetensors."""
    whole = json.loads((golden.HERE / "folders/texts.json").read_text(encoding="utf-8"))
    rows = golden.embed(golden.HERE / "folders/siglip-onnx" / file, whole, *LIBRARY, work=tmp_path)
    assert golden.difference(rows, numpy.load(golden.HERE / "folders/siglip-onnx/expected-0.npy")) <= 1e-5
    path = onnx_files.folder_without_weights(golden.HERE / "folders/siglip-onnx", tmp_path / "siglip")
    onnx_files.toy(path / "model.onnx", 32)
    done = run("embed", "-m", path, *LIBRARY, "hello")
    assert done.returncode == 3 and "pooler_output" in done.stderr, done.stderr


def test_an_architecture_that_is_not_known_is_no_matter(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "something-new"}))
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    check(golden.embed(folder, TEXTS, *RAW, work=tmp_path), [x.mean(axis=0) for x in tokens_of(folder, TEXTS)])


def two_files(folder, **toy):
    """tokenizer.json and model.onnx, and nothing else."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "tokenizer.json":
            path.unlink()
    onnx_files.toy(folder / "model.onnx", HIDDEN, **toy)


def test_a_file_and_its_tokenizer_are_enough(folder, tmp_path):
    """The width comes from the graph; nothing says how to pool, which is told."""
    two_files(folder)
    done = run("embed", "-m", folder, *RAW, "-o", tmp_path / "rows.npy", *TEXTS)
    assert done.returncode == 0 and "mean pooling" in done.stderr, done.stderr
    check(numpy.load(tmp_path / "rows.npy"), [x.mean(axis=0) for x in tokens_of(folder, TEXTS)])


def test_a_file_that_pools_by_itself_is_not_said_to_be_pooled(folder, tmp_path):
    two_files(folder, pooled=True, output="sentence_embedding")
    done = run("embed", "-m", folder, *RAW, "-o", tmp_path / "rows.npy", *TEXTS)
    assert done.returncode == 0 and "pooling" not in done.stderr, done.stderr
    check(numpy.load(tmp_path / "rows.npy"), [x.mean(axis=0) for x in tokens_of(folder, TEXTS)])


def test_a_file_may_be_named_itself(folder, tmp_path):
    """Whatever else its folder holds; of a file in onnx/ the folder is the one above."""
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    onnx_files.toy(folder / "onnx/other.onnx", HIDDEN, scale=2.0)
    rows = golden.embed(folder / "onnx/other.onnx", TEXTS, *RAW, work=tmp_path)
    check(rows, [x.mean(axis=0) for x in tokens_of(folder, TEXTS, scale=2.0)])
    done = run("embed", "-m", folder / "onnx/none.onnx", *RAW, "hello")
    assert done.returncode == 3, done.stderr


def test_a_file_alone_whose_width_nobody_tells_is_refused_by_name(folder):
    two_files(folder, output="logits", pooled=True)
    done = run("embed", "-m", folder, *RAW, "hello")
    assert done.returncode == 3 and "config.json is missing" in done.stderr and "sentence_embedding" in done.stderr
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:200])
    assert run("embed", "-m", folder, *RAW, "hello").returncode == 3


def test_a_text_that_cannot_be_run_fails_alone(folder):
    """A word that the file's table lacks: its text is refused by name, and nobody else suffers."""
    onnx_files.table(folder / "model.onnx", HIDDEN, rows=8000)
    texts = ["hello", "zoologist", "a b c", "hello world", "a zoologist", "zoo"]
    bad = [number for number, ids in enumerate(ids_of(folder, texts)) if ids.max() >= 8000]
    assert 1 in bad and len(bad) < len(texts)
    done = run("embed", "-m", folder, *RAW, "--format", "jsonl", "--on-error", "skip", *texts)
    assert done.returncode == 4, done.stderr
    rows = {line["index"]: line["embedding"] for line in map(json.loads, done.stdout.splitlines())}
    assert sorted(rows) == [number for number in range(len(texts)) if number not in bad]
    assert rows[0][0] == pytest.approx((ids_of(folder, ["hello"])[0] + 1).mean(), rel=1e-6)
    assert done.stderr.count("cannot be run on this text") == len(bad) and "reopening" not in done.stderr


def test_many_lengths_at_once(folder, tmp_path):
    texts = ["word " * (i % 37) for i in range(300)]
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    check(golden.embed(folder, texts, *RAW, work=tmp_path), [x.mean(axis=0) for x in tokens_of(folder, texts)])


# ---- Bad files -----------------------------------------------------------------------------------

def bad_missing_input(path):
    onnx_files.toy(path, HIDDEN, inputs=("input_ids",))
    return "attention_mask"


def bad_unknown_input(path):
    onnx_files.toy(path, HIDDEN, inputs=("input_ids", "attention_mask", "pixel_values"))
    return "pixel_values"


def bad_fixed_axes(path):
    onnx_files.toy(path, HIDDEN, shape=(1, 128))
    return "dynamic axes"


def bad_rank(path):
    onnx_files.toy(path, HIDDEN, rank4=True)
    return "4 dimensions"


def bad_width(path):
    onnx_files.toy(path, HIDDEN - 4)
    return f"[batch, sequence, {HIDDEN}]"


def bad_pooler(path):
    onnx_files.toy(path, HIDDEN, pooled=True, output="pooler_output")
    return "pooler_output"


def bad_truncated(path):
    onnx_files.toy(path, HIDDEN)
    path.write_bytes(path.read_bytes()[:-40])
    return "damaged at byte"


def bad_text(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90\n")
    return "damaged at byte 0"


def bad_empty(path):
    path.write_bytes(b"")
    return "no ONNX graph"


def bad_operator(path):
    onnx_files.toy(path, HIDDEN)
    model = onnx.load(path)
    model.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(model, path)
    return "rejects it"


def outside(path, location):
    onnx_files.toy(path, HIDDEN)
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.name == "row")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(4 * HIDDEN))):
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


def bad_external_missing(path):
    outside(path, "gone.bin")
    return "gone.bin is missing"


def bad_external_above(path):
    outside(path, "../secret.bin")
    (path.parent.parent / "secret.bin").write_bytes(bytes(4 * HIDDEN))
    return "outside the model's folder"


def bad_external_absolute(path):
    outside(path, "/etc/passwd")
    return "outside the model's folder"


def bad_external_link(path):
    """A name inside the folder that leads outside: a cloned repository may hold such a link."""
    outside(path, "data.bin")
    secret = path.parent.parent / "secret.bin"
    secret.write_bytes(bytes(4 * HIDDEN))
    (path.parent / "data.bin").symlink_to(secret)
    return "leads outside the model's folder"


def bad_external_of_a_sparse_constant(path):
    """A node's attribute holds tensors, too."""
    onnx_files.toy(path, HIDDEN)
    model = onnx.load(path)
    sparse = onnx.SparseTensorProto(dims=[1])
    sparse.values.CopyFrom(onnx.TensorProto(name="v", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL))
    sparse.values.external_data.add(key="location", value="../secret.bin")
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(numpy.zeros(1, numpy.int64)))
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["unread"], sparse_value=sparse))
    path.write_bytes(model.SerializeToString())
    return "outside the model's folder"


def bad_external_cut(path):
    """A name of which a prefix is a file in the folder."""
    (path.parent / "w").write_bytes(bytes(4 * HIDDEN))
    outside(path, "./" * 511 + "w" + "x/../../secret.bin")
    return "damaged"


def bad_external_short(path):
    outside(path, "short.bin")
    (path.parent / "short.bin").write_bytes(bytes(100))
    return "truncated"


@pytest.mark.parametrize("make", [value for name, value in sorted(globals().items()) if name.startswith("bad_")],
                         ids=lambda make: make.__name__[4:])
def test_bad_files(folder, make):
    said = make(folder / "model.onnx")
    done = run("embed", "-m", folder, *LIBRARY, "hello")
    assert done.returncode == 3, done.stderr
    assert said in done.stderr and ("again" in done.stderr or "xport" in done.stderr), done.stderr
    assert done.stdout == ""


def test_every_cut_of_a_file_is_survived(folder, tmp_path):
    onnx_files.toy(folder / "model.onnx", 4)
    whole = (folder / "model.onnx").read_bytes()
    for size in range(1, len(whole), max(1, len(whole) // 40)):
        (folder / "model.onnx").write_bytes(whole[:size])
        assert run("embed", "-m", folder, *LIBRARY, "hello").returncode in (2, 3)


# ---- Bad libraries -------------------------------------------------------------------------------

def compiled(tmp_path, source):
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    (tmp_path / "l.c").write_text(source)
    library = tmp_path / "libonnxruntime.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "l.c"], check=True)
    return library


BAD_LIBRARIES = {
    "crashes": ("__attribute__((constructor)) static void f(void) { *(volatile int *)0 = 1; }", "OrtGetApiBase"),
    "aborts": ("#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }", "OrtGetApiBase"),
    "stranger": ("int x;", "OrtGetApiBase"),
    "too old": ('static const char *v(void) { return "1.16.3"; } static const void *a(unsigned n) { (void)n; return 0; }'
                "static const struct { const void *(*a)(unsigned); const char *(*v)(void); } b = {a, v};"
                "const void *OrtGetApiBase(void) { return &b; }", "1.22"),
    "nothing inside": ('static const char *v(void) { return "1.99.0"; } static const void *a(unsigned n) { (void)n; return 0; }'
                       "static const struct { const void *(*a)(unsigned); const char *(*v)(void); } b = {a, v};"
                       "const void *OrtGetApiBase(void) { return &b; }", "returns NULL"),
}


@pytest.mark.parametrize("kind", BAD_LIBRARIES)
def test_bad_libraries(folder, kind, tmp_path):
    source, said = BAD_LIBRARIES[kind]
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    done = run("embed", "-m", folder, "--onnxruntime-library", compiled(tmp_path, source), "hello")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr, done.stderr


def test_wrong_architecture_and_no_file(folder, tmp_path):
    onnx_files.toy(folder / "model.onnx", HIDDEN)
    other = tmp_path / "libonnxruntime.so"
    header = bytearray(pathlib.Path(golden.BIN).read_bytes()[:4096])
    header[18:20] = (0xF3).to_bytes(2, "little")  # e_machine: RISC-V
    other.write_bytes(header)
    for library, said in ((other, "not a usable ONNX Runtime library"), (tmp_path / "gone.so", "gone.so"),
                          (tmp_path, "ONNX Runtime"), (folder, "no ONNX Runtime library in the folder")):
        done = run("embed", "-m", folder, "--onnxruntime-library", library, "hello")
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_the_library_of_a_virtual_environment_is_found(tmp_path):
    capi = tmp_path / "lib/python3.11/site-packages/onnxruntime/capi"
    capi.mkdir(parents=True)
    named = pathlib.Path(LIBRARY[1])
    real = named if named.is_file() else sorted(named.glob("libonnxruntime.so*"))[-1]
    (capi / real.name).symlink_to(real.resolve())
    program = tmp_path / "fletch"  # beside which no library lies
    shutil.copy2(golden.BIN, program)
    done = subprocess.run([program, "doctor"], capture_output=True, text=True,
                          env={"PATH": "/nowhere", "HOME": str(tmp_path), "VIRTUAL_ENV": str(tmp_path)})
    assert str(capi) in done.stdout, done.stdout + done.stderr
    done = subprocess.run([program, "doctor"], capture_output=True, text=True,
                          env={"PATH": "/nowhere", "HOME": "/nowhere"})
    assert str(capi) not in done.stdout
