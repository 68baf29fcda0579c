# SPDX-License-Identifier: Apache-2.0
"""The tokenizer that a GGUF file's metadata describes gives the ids of the tokenizer.json that it was made from: WordPiece,
byte-level BPE by the names of its pre-tokenizers, Unigram, and SentencePiece's BPE (gguf_pieces.json: transformers 4.57)."""
import base64
import json
import subprocess

import numpy
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import gguf_writer
import golden

FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
EXTRA = ["It's 12345 dogs' DON'T we'll", "a  b   c\t\td\r\n\r\n e", "naïve façade — 日本語 ☃ ﬁ ①", "Å A\u030a", "x\u00a0y\u3000z", " <mask> [MASK]",
         "<|end|> twice <|end|>", "def f(x):\n    return x  # ok", "\u200b\ufeff", "<s> a </s>", "    four"]
PIECES = json.loads((golden.HERE / "gguf_pieces.json").read_text(encoding="utf-8"))
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def fletch_ids(path, texts, work):
    source = work / "texts.jsonl"
    source.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    done = subprocess.run([golden.BIN, "tokenize", "-m", path, "-i", source, "--input-format", "jsonl", "--format", "jsonl"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def refusal(path) -> str:
    done = subprocess.run([golden.BIN, "tokenize", "-m", path, "text"], capture_output=True, text=True)
    assert done.returncode == 3, (done.returncode, done.stderr)
    return done.stderr


def write(path, keys: dict) -> None:
    """A file of that tokenizer; its weights do not matter here."""
    folder = FOLDERS / "family-qwen3"
    none = {key: None for key in gguf_writer.metadata(folder) if key.startswith("tokenizer.ggml.")}
    gguf_writer.write(folder, path, keys=none | {f"tokenizer.ggml.{key}": value for key, value in keys.items()})


def test_wordpiece(tmp_path):
    folder = FOLDERS / "pooling-cls"
    gguf_writer.write(folder, tmp_path / "m.gguf")
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    expected = [encoding.ids for encoding in reference.encode_batch(TEXTS + EXTRA)]
    assert fletch_ids(tmp_path / "m.gguf", TEXTS + EXTRA, tmp_path) == expected


def split(pattern, digits=r"\p{N}"):
    words = tokenizers.Regex(pattern.replace(r"|\p{N}|", f"|{digits}|"))
    return pre_tokenizers.Sequence([pre_tokenizers.Split(words, "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRES = {  # normalizer, pre-tokenizer, ignore_merges, the token that strips
    "gpt-2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False), False, None),
    "roberta-bpe": (None, pre_tokenizers.ByteLevel(add_prefix_space=False), False, "<mask>"),
    "jina-v2-code": (None, pre_tokenizers.ByteLevel(add_prefix_space=False), False, "<mask>"),
    "modern-bert": (normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False), False, "[MASK]"),
    "qwen2": (normalizers.NFC(), split(QWEN), False, None),
    "llama-bpe": (None, split(QWEN, r"\p{N}{1,3}"), True, None),
}


def byte_level(pre: str, first: bool, last: bool):
    """A tokenizer of that name, and tokenizer.ggml.* as get_vocab_base and SpecialVocab write it."""
    normalizer, words, ignores, stripping = PRES[pre]
    t = tokenizers.Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = words
    t.train_from_iterator(TEXTS + EXTRA, trainers.BpeTrainer(vocab_size=400, show_progress=False,
                                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made = json.loads(t.to_str())
    made["model"]["ignore_merges"] = ignores
    t = tokenizers.Tokenizer.from_str(json.dumps(made))
    specials = ["<s>", "</s>", "<mask>", "[MASK]", "<|end|>"]
    t.add_special_tokens([tokenizers.AddedToken(text, lstrip=text == stripping, normalized=False) for text in specials])
    t.add_tokens([tokenizers.AddedToken("    ", normalized=True)])
    vocab = t.get_vocab()
    around = (["<s>"] if first else []) + ["$A"] + (["</s>"] if last else [])
    t.post_processor = processors.TemplateProcessing(single=around, pair=None, special_tokens=[("<s>", vocab["<s>"]), ("</s>", vocab["</s>"])])
    tokens = sorted(vocab, key=vocab.get)
    merges = [" ".join(pair) for pair in json.loads(t.to_str())["model"]["merges"]]
    keys = {"model": "gpt2", "pre": pre, "tokens": tokens, "merges": merges,
            "token_type": [3 if token in specials else 4 if token == "    " else 1 for token in tokens],
            "bos_token_id": vocab["<s>"], "eos_token_id": vocab["</s>"], "add_bos_token": first, "add_eos_token": last}
    return t, keys


@pytest.mark.parametrize("first, last", [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("pre", PRES)
def test_byte_level_bpe(pre, first, last, tmp_path):
    reference, keys = byte_level(pre, first, last)
    write(tmp_path / "m.gguf", keys)
    expected = [encoding.ids for encoding in reference.encode_batch(TEXTS + EXTRA)]
    assert fletch_ids(tmp_path / "m.gguf", TEXTS + EXTRA, tmp_path) == expected


def test_ids_that_no_token_has_are_left_out(tmp_path):
    """Rows that fill the table up: [PAD406] in a text is no token."""
    reference, keys = byte_level("qwen2", False, True)
    count = len(keys["tokens"])
    keys["tokens"] = keys["tokens"] + [f"[PAD{count + i}]" for i in range(3)]
    keys["token_type"] = keys["token_type"] + [5] * 3
    write(tmp_path / "m.gguf", keys)
    texts = TEXTS + [f"[PAD{count}] a", f"[PAD{count + 2}]"]
    assert fletch_ids(tmp_path / "m.gguf", texts, tmp_path) == [encoding.ids for encoding in reference.encode_batch(texts)]


def unigram(charsmap: bytes | None):
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    words = sorted({word for text in TEXTS for word in text.split()} | {"the", "a", "ing", "s", "1", "2"})
    pieces += [("\u2581", -2.5)] + [("\u2581" + word, -3.0 - i / 7) for i, word in enumerate(words)]
    letters = sorted({letter for text in TEXTS + EXTRA for letter in text if letter.isalnum() and ord(letter) < 0x250})
    known = {piece for piece, _ in pieces}
    pieces += [(letter, -9.0 - i / 13) for i, letter in enumerate(letters) if letter not in known] + [("<mask>", 0.0)]
    t = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    if charsmap:
        t.normalizer = normalizers.Precompiled(charsmap)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", tokenizers.AddedToken("<mask>", lstrip=True, normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair=None, special_tokens=[("<s>", 0), ("</s>", 2)])
    t.decoder = decoders.Metaspace()
    single = [(piece, float(numpy.float32(score))) for piece, score in pieces]  # as a file holds them
    made = json.loads(t.to_str())
    made["model"]["vocab"] = single
    keys = {"model": "t5", "pre": "default", "tokens": [piece for piece, _ in single], "scores": [score for _, score in single],
            "token_type": [2 if piece == "<unk>" else 3 if piece in ("<s>", "<pad>", "</s>", "<mask>") else 1 for piece, _ in single],
            "unknown_token_id": 3, "bos_token_id": 0, "eos_token_id": 2, "add_bos_token": True, "add_eos_token": True,
            "add_space_prefix": True, "remove_extra_whitespaces": True}
    if charsmap:
        keys["precompiled_charsmap"] = charsmap
    return tokenizers.Tokenizer.from_str(json.dumps(made)), keys


def nmt_nfkc() -> bytes:
    """The map of characters that this package's test folders have."""
    for path in sorted(golden.HERE.rglob("*.json")):
        if b"precompiled_charsmap" in path.read_bytes():
            found = json.dumps(json.loads(path.read_text(encoding="utf-8")))
            at = found.index('"precompiled_charsmap": "') + len('"precompiled_charsmap": "')
            return base64.b64decode(found[at:found.index('"', at)])
    pytest.skip("no test file holds a map of characters")


@pytest.mark.parametrize("mapped", [False, True])
def test_unigram(mapped, tmp_path):
    reference, keys = unigram(nmt_nfkc() if mapped else None)
    write(tmp_path / "m.gguf", keys)
    expected = [encoding.ids for encoding in reference.encode_batch(TEXTS + EXTRA)]
    assert fletch_ids(tmp_path / "m.gguf", TEXTS + EXTRA, tmp_path) == expected


def pieces(name: str) -> dict:
    made = PIECES[name]
    bos, eos, unk = (made["tokens"].index(token) for token in (("<bos>", "<eos>") if name == "gemma" else ("<s>", "</s>")) + ("<unk>",))
    return {"model": "llama", "pre": "default", "tokens": made["tokens"], "scores": made["scores"], "token_type": made["types"],
            "unknown_token_id": unk, "bos_token_id": bos, "eos_token_id": eos, "add_bos_token": True, "add_eos_token": True,
            "add_space_prefix": made["prefix"]}


@pytest.mark.parametrize("name", PIECES)
def test_sentencepiece_bpe(name, tmp_path):
    keys = pieces(name)
    write(tmp_path / "m.gguf", keys)
    texts = [text for text in PIECES[name]["ids"]]
    expected = [[keys["bos_token_id"], *PIECES[name]["ids"][text], keys["eos_token_id"]] for text in texts]
    assert fletch_ids(tmp_path / "m.gguf", texts, tmp_path) == expected


def wrong(keys: dict, **change) -> dict:
    return {key: value for key, value in (keys | change).items() if value is not None}


WRONG = [
    (lambda: wrong(byte_level("qwen2", False, True)[1], pre=None), "tokenizer.ggml.pre is missing"),
    (lambda: wrong(byte_level("qwen2", False, True)[1], pre="default"), 'tokenizer.ggml.pre "default" is not supported'),
    (lambda: wrong(byte_level("qwen2", False, True)[1], add_eos_token=None), "tokenizer.ggml.add_eos_token is missing"),
    (lambda: wrong(byte_level("qwen2", False, True)[1], add_bos_token=None), "tokenizer.ggml.add_bos_token is missing"),
    (lambda: wrong(byte_level("qwen2", False, True)[1], eos_token_id=None), "tokenizer.ggml.eos_token_id is missing"),
    (lambda: wrong(byte_level("qwen2", False, True)[1], merges=None), "tokenizer.ggml.merges is not a list"),
    (lambda: wrong(byte_level("qwen2", False, True)[1], merges=["a zz"]), "zz"),
    (lambda: wrong(unigram(None)[1], scores=None), "tokenizer.ggml.scores is missing"),
    (lambda: wrong(unigram(None)[1], scores=[0.0]), "tokenizer.ggml.scores is not as long"),
    (lambda: wrong(unigram(None)[1], add_space_prefix=False), "tokenizer.ggml.add_space_prefix is false"),
    (lambda: wrong(unigram(None)[1], precompiled_charsmap=b"\1\2"), "precompiled_charsmap"),
    (lambda: wrong(pieces("llama"), unknown_token_id=None), "tokenizer.ggml.unknown_token_id is missing"),
    (lambda: wrong(pieces("llama"), scores=[float("nan")] * 420), "tokenizer.ggml.scores holds something that is not a number"),
    (lambda: wrong(pieces("llama"), tokens=["a"] * 420), 'tokens has "a" as 0 and as 1'),
]


@pytest.mark.parametrize("index", range(len(WRONG)))
def test_what_decides_ids_is_not_guessed(index, tmp_path):
    keys, message = WRONG[index]
    write(tmp_path / "m.gguf", keys())
    assert message in refusal(tmp_path / "m.gguf")
