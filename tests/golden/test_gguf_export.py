# SPDX-License-Identifier: Apache-2.0
"""fletch model convert: the file that is written has the keys, names and bytes that llama.cpp's converter and the gguf
package give it, and gives the folder's vectors; what GGUF cannot say is refused by name and nothing is left behind."""
import json
import pathlib
import re
import subprocess

import gguf
import numpy
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from safetensors.numpy import load_file, save_file

import golden
import gguf_writer
import test_gguf
import test_gguf_tokens

FOLDERS, TEXTS = test_gguf.FOLDERS, test_gguf.TEXTS
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"]
# What the converter of llama.cpp does not write, or this test's stand-in for it says in other words.
OTHERWISE = re.compile(r"GGUF\.|general\.|tokenizer\.ggml\.(padding_token_id|mask_token_id|add_(bos|eos)_token)|"
                       r".*\.(attention\.((key|value)_length|causal|sliding_window_pattern)|rope\..*|hidden_activation|normalize_embeddings)")


def convert(source, out, *flags, code: int = 0):
    done = subprocess.run([golden.BIN, "model", "convert", source, out, *flags], capture_output=True, text=True)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done


def values(path) -> dict:
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def tensors(path) -> dict:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def without_prompt(folder: pathlib.Path) -> None:
    path = folder / "config_sentence_transformers.json"
    if path.is_file():
        path.write_text(json.dumps(json.loads(path.read_text()) | {"default_prompt_name": None}))


@pytest.mark.parametrize("name, change", test_gguf.NAMES + [("family-jina-qk", {}), ("family-qwen3-scaled", {})],
                         ids=lambda value: value if isinstance(value, str) else "")
def test_the_file_gives_the_bytes_of_the_folder(name, change, tmp_path):
    folder = test_gguf.copy(name, tmp_path, change)
    without_prompt(folder)
    if name == "family-gemma3":  # its last layer leads to another width, at which llama.cpp ends
        save_file({"linear.weight": load_file(folder / "2_Dense/model.safetensors")["linear.weight"].T.copy()}, folder / "3_Dense/model.safetensors")
        told = json.loads((folder / "3_Dense/config.json").read_text())
        (folder / "3_Dense/config.json").write_text(json.dumps(told | {"out_features": json.loads((folder / "config.json").read_text())["hidden_size"]}))
    convert(folder, tmp_path / "m.gguf", "--type", "F32")
    texts = [text for text in TEXTS if "<pad>" not in text]  # its position is cut off the table
    expected = test_gguf.read(folder, texts=texts, work=tmp_path)
    assert numpy.array_equal(test_gguf.read(tmp_path / "m.gguf", texts=texts, work=tmp_path), expected)
    if name == "family-jina-qk":  # what llama.cpp's converter makes of it is refused
        return
    written, said = tensors(tmp_path / "m.gguf"), values(tmp_path / "m.gguf")
    reference = gguf_writer.tensors(folder)
    assert set(written) == set(reference)
    for tensor, data in reference.items():
        assert written[tensor].data.tobytes() == data.tobytes() and list(reversed(written[tensor].shape)) == list(data.shape), tensor
    for key, value in gguf_writer.metadata(folder).items():
        if not OTHERWISE.match(key):
            even = value // 2 * 2 if key.endswith("sliding_window") else value  # half of it to each side
            assert said[key] == even or said[key] == pytest.approx(even, rel=1e-7), key
    assert not {key for key in said if not OTHERWISE.match(key)} - set(gguf_writer.metadata(folder))


# A tensor of each kind with what decides its blocks: ties, zeros, one sign, large and tiny, subnormal scales.
def hard_rows(rows: int, columns: int) -> numpy.ndarray:
    random = numpy.random.default_rng(7)
    data = random.standard_normal((rows, columns)).astype(numpy.float32) * numpy.float32(0.05)
    data[0] = 0
    data[1] = numpy.abs(data[1])
    data[2] = -numpy.abs(data[2])
    data[3] = numpy.round(data[3] * 20) / 8
    data[4] *= numpy.float32(1e-6)
    data[5] *= numpy.float32(1e-30)
    data[6] *= numpy.float32(9e3)
    data[7, ::2], data[7, 1::2] = 1.5, -1.5
    data[8] = 0.25
    data[9, 1:] = 0
    return data


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    """A folder whose matrices of 64 columns hold such rows; those of 48 are no whole blocks."""
    work = tmp_path_factory.mktemp("hard")
    folder = test_gguf.copy("pooling-cls", work, {"hidden_size": 64, "num_attention_heads": 4})
    pooling = folder / "1_Pooling/config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"word_embedding_dimension": 64}))
    named = {}
    for name, data in load_file(folder / "model.safetensors").items():
        shape = [64 if size == 32 else size for size in data.shape]
        named[name] = hard_rows(*shape) if len(shape) == 2 and shape[0] > 9 else \
            numpy.random.default_rng(len(name)).standard_normal(shape).astype(numpy.float32)
    save_file(named, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_has_the_bytes_of_the_gguf_package(kind, hard, tmp_path):
    convert(hard, tmp_path / "m.gguf", "--type", kind.lower())
    kinds = gguf.GGMLQuantizationType
    seen = set()
    for name, data in gguf_writer.tensors(hard).items():
        type_ = kinds.F32 if data.ndim < 2 or name in ("position_embd.weight", "token_types.weight") else \
            kinds.Q8_0 if kind[:2] in ("Q4", "Q5") and name == "token_embd.weight" else kinds[kind]
        if data.shape[-1] % gguf.GGML_QUANT_SIZES[type_][0]:
            type_ = kinds.F16  # as llama.cpp does with rows that are no whole blocks
        written = tensors(tmp_path / "m.gguf")[name]
        assert written.tensor_type == type_, name
        assert written.data.tobytes() == gguf.quantize(data, type_).tobytes(), name
        seen.add(type_)
    assert kinds[kind] in seen and kinds.F32 in seen and (kind[0] != "Q" or kinds.F16 in seen)
    test_gguf.read(tmp_path / "m.gguf", work=tmp_path)


def test_twice_gives_the_same_bytes_and_q8_0_is_what_nobody_names(tmp_path):
    for name, flags in (("a", []), ("b", ["--type", "Q8_0"])):
        convert(FOLDERS / "family-qwen3", tmp_path / f"{name}.gguf", *flags)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_a_gguf_file_keeps_its_metadata(hard, tmp_path):
    """Also of a file that llama.cpp's converter made: Llama's rows stay in turns."""
    convert(hard, tmp_path / "f32.gguf", "--type", "F32")
    convert(hard, tmp_path / "q8.gguf")
    convert(tmp_path / "f32.gguf", tmp_path / "again.gguf")
    ours, theirs = tensors(tmp_path / "q8.gguf"), tensors(tmp_path / "again.gguf")
    assert {name: tensor.data.tobytes() for name, tensor in ours.items()} == {name: tensor.data.tobytes() for name, tensor in theirs.items()}
    told = [{key: value for key, value in values(tmp_path / f"{name}.gguf").items() if not key.startswith("GGUF.")} for name in ("q8", "again")]
    assert told[0] == told[1]
    folder = test_gguf.copy("family-llama", tmp_path, test_gguf.PLAIN)
    gguf_writer.write(folder, tmp_path / "llama.gguf")
    convert(tmp_path / "llama.gguf", tmp_path / "same.gguf", "--type", "F32")
    assert numpy.array_equal(test_gguf.read(tmp_path / "same.gguf", work=tmp_path), test_gguf.read(tmp_path / "llama.gguf", work=tmp_path))


def with_tokenizer(tokenizer: tokenizers.Tokenizer, work) -> pathlib.Path:
    """A folder that has this tokenizer, and three rows more in its word table."""
    count = tokenizer.get_vocab_size() + 3
    folder = test_gguf.copy("family-llama", work, test_gguf.PLAIN | {"vocab_size": count})
    for path in list(folder.glob("*token*")):
        path.unlink()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    named = load_file(folder / "model.safetensors")
    word = next(key for key in named if "embed_tokens" in key)
    named[word] = numpy.random.default_rng(3).standard_normal((count, named[word].shape[1])).astype(numpy.float32)
    save_file(named, folder / "model.safetensors")
    return folder


def pieces(name: str) -> tokenizers.Tokenizer:
    """SentencePiece's BPE as transformers' converters make it: every way to put a piece together is a merge."""
    made = test_gguf_tokens.PIECES[name]
    names = [token.replace(" ", "\u2581") for token in made["tokens"]]
    ids, merges = {token: id for id, token in enumerate(names)}, []
    for id, token in enumerate(names):
        score = 0 if made["types"][id] == 4 else made["scores"][id]
        ways = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ids and token[i:] in ids]
        merges += [(-score, -len(left), id, left, right) for left, right in ways if made["types"][id] in (1, 4)]
    t = tokenizers.Tokenizer(models.BPE(ids, [merge[3:] for merge in sorted(merges)], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", "\u2581")
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), spaces]) if made["prefix"] else spaces
    if not made["prefix"]:
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_special_tokens([names[id] for id, kind in enumerate(made["types"]) if kind in (2, 3)])
    t.add_tokens([tokenizers.AddedToken(names[id], normalized=False) for id, kind in enumerate(made["types"]) if kind == 4])
    first, last = ("<bos>", "<eos>") if name == "gemma" else ("<s>", "</s>")
    t.post_processor = processors.TemplateProcessing(single=[first, "$A", last], pair=None, special_tokens=[(first, ids[first]), (last, ids[last])])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


TOKENIZERS = {f"bpe-{pre}": (lambda pre=pre: test_gguf_tokens.byte_level(pre, False, True)[0]) for pre in test_gguf_tokens.PRES} | {
    "bpe-bare": lambda: test_gguf_tokens.byte_level("llama-bpe", False, False)[0],
    "bpe-both": lambda: test_gguf_tokens.byte_level("qwen2", True, True)[0],
    "unigram": lambda: test_gguf_tokens.unigram(None)[0],
    "unigram-mapped": lambda: test_gguf_tokens.unigram(test_gguf_tokens.nmt_nfkc())[0],
    "llama": lambda: pieces("llama"), "gemma": lambda: pieces("gemma"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_tokenizer_gives_the_same_ids(name, tmp_path):
    reference = TOKENIZERS[name]()
    convert(with_tokenizer(reference, tmp_path), tmp_path / "m.gguf")
    texts = TEXTS + test_gguf_tokens.EXTRA
    assert test_gguf_tokens.fletch_ids(tmp_path / "m.gguf", texts, tmp_path) == [encoding.ids for encoding in reference.encode_batch(texts)]
    assert len(values(tmp_path / "m.gguf")["tokenizer.ggml.tokens"]) == reference.get_vocab_size() + 3


REFUSED = [  # a folder, what is changed in its config.json, and what the message says
    ("mpnet", {}, "llama.cpp has no name for this architecture (mpnet)"),
    ("family-gte", {}, "this architecture (gte)"), ("family-deberta", {}, "this architecture (deberta-v2)"), ("family-nomic-moe", {}, "mixtures of experts"),
    ("activation-gelu_new", {}, "activation gelu_pytorch_tanh"), ("family-qwen3-yarn", {}, "this architecture (qwen3)"),
    ("family-gemma3-causal", {}, "this architecture (gemma3_text)"),
    ("pooling-max", {}, "its pooling is none of mean, cls and lasttoken"), ("pooling-concat-new", {}, "its pooling is none of"),
    ("dense-tanh", {}, "other layers follow its pooling"), ("layer-norm", {}, "other layers follow its pooling"),
    ("prompts", {}, "it puts a prompt before every text by default"), ("truncate-dim", {}, "cut to truncate_dim"),
    ("lower-case", {}, "GGUF cannot express this tokenizer"), ("family-static", {}, "it is a static model"),
    ("sparse-bert", {}, "its vectors are sparse"), ("plain-vocab", {}, "a vocab.txt alone is not enough"),
]


@pytest.mark.parametrize("name, change, message", REFUSED, ids=[row[0] for row in REFUSED])
def test_what_gguf_cannot_say_is_refused_by_name(name, change, message, tmp_path):
    folder = test_gguf.copy(name, tmp_path, change) if change else FOLDERS / name
    done = convert(folder, tmp_path / "m.gguf", code=3)
    assert message in done.stderr and str(folder) in done.stderr
    assert not list(tmp_path.glob("*m.gguf*"))


def change_tokenizer(folder, change) -> None:
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    change(told)
    path.write_text(json.dumps(told), encoding="utf-8")


def wordless(told: dict) -> None:
    told["pre_tokenizer"] = {"type": "Whitespace"}


def stripping(told: dict) -> None:
    told["added_tokens"][-1]["rstrip"] = True


def around(told: dict) -> None:
    special = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    id = next(token["id"] for token in told["added_tokens"] if token["content"] == "[CLS]")
    told["post_processor"] = {"type": "TemplateProcessing", "single": [special, special, {"Sequence": {"id": "A", "type_id": 0}}],
                              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                              "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [id], "tokens": ["[CLS]"]}}}


@pytest.mark.parametrize("change, message", [
    (lambda told: told["normalizer"].update(clean_text=False), "tokenizer.json: normalizer is of a form"),
    (lambda told: told.update(normalizer={"type": "Lowercase"}), "tokenizer.json: normalizer is of a form"),
    (wordless, "tokenizer.json: pre_tokenizer is of a form"), (stripping, "tokenizer.json: added_tokens is of a form"),
    (around, "cannot express more than one token before"),
    (lambda told: told["model"].update(max_input_chars_per_word=7), "tokenizer.json: model is of a form")])
def test_a_tokenizer_that_gguf_cannot_say_is_refused(change, message, tmp_path):
    folder = test_gguf.copy("pooling-cls", tmp_path, {})
    for path in list(folder.glob("*token*config*")) + list(folder.glob("special*")):
        path.unlink()
    change_tokenizer(folder, change)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    done = convert(folder, tmp_path / "m.gguf", code=3)
    assert message in done.stderr and not list(tmp_path.glob("*m.gguf*"))


@pytest.mark.parametrize("words, code, message", [
    (["{folder}"], 2, "convert needs a model and the file to write"), (["{folder}", "a.gguf", "b"], 2, "convert takes one model and the file"),
    (["{folder}", "m.gguf", "--type", "Q3_K"], 2, 'unknown type "Q3_K"; use one of F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0'),
    (["{folder}", "."], 2, "is a folder; name a file in it"), (["{folder}", "m.bin"], 2, "does not end in .gguf"),
    (["{folder}", "there.gguf"], 2, "already exists; --force replaces it"), (["{folder}", "none/m.gguf"], 1, "none"),
    (["/nowhere/model", "m.gguf"], 3, "/nowhere/model")])
def test_wrong_words_leave_nothing(words, code, message, tmp_path):
    (tmp_path / "there.gguf").write_bytes(b"mine")
    words = [word.replace("{folder}", str(FOLDERS / "plain-bert")) for word in words]
    done = subprocess.run([golden.BIN, "model", "convert", *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code and message in done.stderr and not done.stdout, done
    assert [path.name for path in tmp_path.iterdir()] == ["there.gguf"] and (tmp_path / "there.gguf").read_bytes() == b"mine"


def test_force_replaces_a_file_and_a_full_disk_leaves_it(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"mine")
    full = subprocess.run(["sh", "-c", 'ulimit -f 8; exec "$@"', "-", golden.BIN, "model", "convert", FOLDERS / "plain-bert", path, "--force"],
                          capture_output=True, text=True)
    assert full.returncode == 1 and str(path) in full.stderr
    assert path.read_bytes() == b"mine" and [left.name for left in tmp_path.iterdir()] == ["m.gguf"]
    assert convert(FOLDERS / "plain-bert", path, "--force").stdout == f"{path}\n"
    test_gguf.read(path, work=tmp_path)


def test_what_the_file_loses_is_told(tmp_path):
    done = convert(FOLDERS / "length-short", tmp_path / "m.gguf")
    assert "the file cannot express truncation at" in done.stderr
    folder = test_gguf.copy("prompts", tmp_path, {})
    without_prompt(folder)
    assert "the file cannot hold the model's prompts (" in convert(folder, tmp_path / "p.gguf").stderr


def test_a_weight_that_is_no_number_is_told(tmp_path):
    folder = test_gguf.copy("plain-bert", tmp_path, {})
    named = load_file(folder / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    for value, kind, message in ((numpy.nan, "Q8_0", "is not finite"), (70000, "F16", "is too large for a half float")):
        named[name][3, 5] = value
        save_file(named, folder / "model.safetensors")
        done = convert(folder, tmp_path / "m.gguf", "--type", kind, code=3)
        assert "blk.1.ffn_down.weight" in done.stderr and message in done.stderr and not list(tmp_path.glob("*m.gguf*"))
