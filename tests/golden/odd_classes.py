# SPDX-License-Identifier: Apache-2.0
"""odd_classes.py - the classes other than BERT's for make_odd_folders.py: small tokenizers, and what people edit in them.

A folder of these has no weights: what is compared is AutoTokenizer's ids at `LENGTH` tokens at most.
"""
import base64
import itertools
import json
import struct

DELETE = "<delete>"
LENGTH = 12
T, C, M = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
TEXTS = [
    "the cat sat", "The CAT's  sat\n at 2024", "CAF\u00c9 nai\u0308ve \u65e5\u672c x", "a</s>b <s> c<|endoftext|> d", "one <new> two", "one<new>the",
    "<mask> the <unk>x", "a b c d e f g h i j k l m n o p", "\u2581the \u2581 cat", "", " the", "the ", "[CLS] the[SEP]", "<bos>the<eos>", "\ufb01 \uff41\u3000\u00bd",
]
PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = {byte: chr(byte) for byte in PLAIN} | {byte: chr(256 + n) for n, byte in enumerate(b for b in range(256) if b not in PLAIN)}
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def added(vocab, tokens, **flags):
    return [{"id": vocab[token], "content": token, "single_word": False, "lstrip": token == "<mask>", "rstrip": False,
             "normalized": False, "special": True, **flags} for token in tokens]


def template(vocab, *parts):
    def side(letter, kind):
        return [{"Sequence": {"id": letter, "type_id": kind}} if part == "A" else {"SpecialToken": {"id": part, "type_id": kind}}
                for part in parts]
    return {"type": "TemplateProcessing", "single": side("A", 0), "pair": side("A", 0) + side("B", 1),
            "special_tokens": {part: {"id": part, "ids": [vocab[part]], "tokens": [part]} for part in parts if part != "A"}}


def whole(vocab, specials, model, normalizer, pre_tokenizer, post_processor, decoder=None):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(vocab, specials), "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder, "model": {**model, "vocab": vocab}
            if "vocab" not in model else model}


def merged(tokens, merges):
    """The vocabulary with what the merges make."""
    out = dict.fromkeys([*tokens, *("".join(pair) for pair in merges)])
    return {token: index for index, token in enumerate(out)}


def bytes_of(specials):
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("a", "t"), ("\u0120", "c"), ("\u0120c", "at"), ("\u0120", "s"), ("\u0120s", "at"),
              ("\u0120", "a"), ("'", "s"), ("\u0120", "\u0120"), ("2", "0"), ("o", "n"), ("on", "e")]
    vocab = merged([*specials, *BYTES.values()], merges)
    return vocab, {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                   "byte_fallback": False, "ignore_merges": False, "merges": [list(pair) for pair in merges]}


def pieces_of(specials):
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("a", "t"), ("\u2581", "c"), ("\u2581c", "at"), ("\u2581", "s"), ("\u2581s", "at"), ("\u2581", "a"),
              ("o", "n"), ("on", "e"), ("\u2581", "one"), ("\u2581", "\u2581")]
    vocab = merged([*specials, *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"abcdefghijklmnopqrstuvwxyzCATFE'"], merges)
    return vocab, {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                   "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "merges": [list(pair) for pair in merges]}


def byte_level(prefix=False, regex=True, trim=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def metaspace(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}


def splits(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def roberta():
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocab, model = bytes_of(names)
    post = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False}
    return whole(vocab, names, model, None, byte_level(), post, byte_level())


def gpt2():
    vocab, model = bytes_of(["<|endoftext|>"])
    return whole(vocab, ["<|endoftext|>"], model, None, byte_level(), byte_level(trim=False), byte_level())


CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
CLIP_SETTINGS = {"tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
                 "pad_token": "<|endoftext|>", "do_lower_case": True, "errors": "replace"}


def clip():
    """As published: the ends of words are tokens of their own, the two special tokens come last."""
    names = ["<|startoftext|>", "<|endoftext|>"]
    merges = [("t", "h"), ("th", "e</w>"), ("a", "t</w>"), ("c", "at</w>"), ("s", "at</w>"), ("o", "n"), ("on", "e</w>"), ("r", "o"), ("ro", "a"),
              ("roa", "d</w>"), ("'", "s</w>"), ("s", "e"), ("se", "a</w>"), (".", ".</w>")]
    vocab = merged([*BYTES.values(), *(f"{text}</w>" for text in BYTES.values())], merges)
    vocab |= {name: len(vocab) + index for index, name in enumerate(names)}
    model = {"type": "BPE", "dropout": None, "unk_token": "<|endoftext|>", "continuing_subword_prefix": "", "end_of_word_suffix": "</w>", "fuse_unk": False,
             "merges": [" ".join(pair) for pair in merges]}
    normalizer = {"type": "Sequence", "normalizers": [
        {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Lowercase"}]}
    split = {"type": "Split", "pattern": {"Regex": CLIP}, "behavior": "Removed", "invert": True}
    post = {"type": "RobertaProcessing", "sep": [names[1], vocab[names[1]]], "cls": [names[0], vocab[names[0]]], "trim_offsets": False,
            "add_prefix_space": False}
    return whole(vocab, names, model, normalizer, splits(split, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}), post, byte_level())


def write_clip(path):
    """What CLIP had before tokenizer.json."""
    model = clip()["model"]
    (path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{pair}\n" for pair in model["merges"]))


def qwen2():
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocab, model = bytes_of(names)
    split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
    post = {"type": "Sequence", "processors": [byte_level(regex=False, trim=False), template(vocab, "A", "<|endoftext|>")]}
    return whole(vocab, names, model, {"type": "NFC"}, splits(split, byte_level(regex=False)), post, byte_level())


def modernbert():
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    vocab, model = bytes_of(names)
    return whole(vocab, names, model, {"type": "NFC"}, byte_level(), template(vocab, "[CLS]", "A", "[SEP]"), byte_level())


def llama():
    names = ["<unk>", "<s>", "</s>"]
    vocab, model = pieces_of(names)
    return whole(vocab, names, model, None, metaspace("first", False), template(vocab, "<s>", "A"))


def gemma():
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    vocab, model = pieces_of(names)
    return whole(vocab, names, model, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                 {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                 template(vocab, "<bos>", "A", "<eos>"))


def unigram(names, tail, unk):
    words = ["\u2581", "\u2581the", "\u2581cat", "\u2581sat", "the", "at", "one", "\u2581one", "\u2581two", "\u65e5", "fi"]
    letters = [*"abcdefghijklmnopqrstuvwxyzCATFE'"]
    vocab = [[name, 0.0] for name in names] + [[word, -3.0 - n / 8] for n, word in enumerate(words)] + \
            [[letter, -9.0 - n / 16] for n, letter in enumerate(letters)] + [[name, 0.0] for name in tail]
    return {piece: index for index, (piece, _) in enumerate(vocab)}, \
        {"type": "Unigram", "unk_id": unk, "byte_fallback": False, "vocab": vocab}


def charsmap():
    """An empty map of SentencePiece's form: 256 free units, no strings."""
    data = struct.pack("<I", 1024) + bytes(1024) + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def xlm_roberta():
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab, model = unigram(names, ["<mask>"], 3)
    return whole(vocab, [*names, "<mask>"], model, charsmap(), splits({"type": "WhitespaceSplit"}, metaspace()),
                 template(vocab, "<s>", "A", "</s>"), metaspace())


EXTRA = [f"<extra_id_{n}>" for n in range(100)]


def side(first, last, letter, kind):
    return [*([{"SpecialToken": {"id": first, "type_id": kind}}] if first else []), {"Sequence": {"id": letter, "type_id": kind}},
            *([{"SpecialToken": {"id": last, "type_id": kind}}] if last else [])]


def t5():
    names = ["<pad>", "</s>", "<unk>"]
    vocab, model = unigram(names, EXTRA[::-1], 2)
    out = whole(vocab, [*names, *EXTRA], model, charsmap(), splits({"type": "WhitespaceSplit"}, metaspace()), template(vocab, "A", "</s>"), metaspace())
    out["post_processor"]["pair"] = side(None, "</s>", "A", 0) + side(None, "</s>", "B", 0)
    return out


def quotes(*steps):
    return {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": two}, "content": '"'} for two in ("``", "''")] + list(steps)}


BARE = [{"type": "NFKD"}, {"type": "StripAccents"}]
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def albert():
    names = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    vocab, model = unigram(names, ['"'], 1)
    normalizer = quotes(*BARE, {"type": "Lowercase"}, charsmap(), SPACES)
    return whole(vocab, names, model, normalizer, splits({"type": "WhitespaceSplit"}, metaspace()), template(vocab, "[CLS]", "A", "[SEP]"), metaspace())


def deberta():
    """As transformers 5 saves it, of which transformers 4 makes the same tokens; what was published: test_pipelines.py."""
    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    vocab, model = unigram(names, ["[MASK]"], 3)
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}, {"type": "NFC"},
                                                      {"type": "Strip", "strip_left": False, "strip_right": True}]}
    return whole(vocab, [*names, "[MASK]"], model, normalizer, {"type": "Sequence", "pretokenizers": [metaspace()]},
                 template(vocab, "[CLS]", "A", "[SEP]"), metaspace())


def deberta_v1():
    """As published: a pair has one [SEP] in its midst, and types."""
    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    vocab, model = bytes_of(names)
    post = template(vocab, "[CLS]", "A", "[SEP]")
    del post["pair"][3]
    return whole(vocab, names, model, None, byte_level(), post, byte_level())


def bloom():
    """Words by the published pattern, which has a set in a set; an end behind every text, so that none is empty."""
    vocab, model = bytes_of(["<unk>", "<s>", "</s>", "<pad>"])
    words = {"type": "Split", "pattern": {"Regex": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"}, "behavior": "Isolated", "invert": False}
    return whole(vocab, ["<unk>", "<s>", "</s>", "<pad>"], model, None, splits(words, byte_level(regex=False)), template(vocab, "A", "</s>"),
                 byte_level())


def neox():
    """GPT-2's words behind NFC; an end behind every text, so that none is empty."""
    special = ["<|endoftext|>", "<|padding|>"]
    vocab, model = bytes_of(special)
    return whole(vocab, special, model, {"type": "NFC"}, byte_level(), template(vocab, "A", "<|endoftext|>"), byte_level())


def ruri():
    """SentencePiece's Unigram as ModernBERTs of Japanese have it: tokenizer_class says LlamaTokenizer."""
    names = ["<pad>", "<unk>", "<s>", "</s>"]
    vocab, model = unigram(names, ["<mask>"], 1)
    return whole(vocab, [*names, "<mask>"], model, charsmap(), metaspace("never", split=False), template(vocab, "<s>", "A", "</s>"), metaspace())


def settings(name, **tokens):
    return {"tokenizer_class": name, "model_max_length": 24, **tokens}


ROBERTA = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
           "mask_token": "<mask>"}
SPECIALS = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
END = "<|endoftext|>"
# name: (model_type, tokenizer.json, tokenizer_config.json)
BASES = {
    "roberta": ("roberta", roberta(), settings("RobertaTokenizer", **ROBERTA, add_prefix_space=False, trim_offsets=True)),
    "gpt2": ("gpt2", gpt2(), settings("GPT2Tokenizer", bos_token=END, eos_token=END, unk_token=END, add_prefix_space=False)),
    "qwen2": ("qwen2", qwen2(), settings("Qwen2Tokenizer", eos_token=END, pad_token=END, unk_token=None, bos_token=None, add_prefix_space=False)),
    "qwen3": ("qwen3", qwen2(), settings("Qwen2Tokenizer", eos_token="<|im_end|>", pad_token=END, unk_token=None, bos_token=None)),
    "modernbert": ("modernbert", modernbert(), settings("PreTrainedTokenizerFast", **SPECIALS)),
    "llama": ("llama", llama(), settings("LlamaTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True,
                                         add_eos_token=False, legacy=False)),
    "mistral": ("mistral", llama(), settings("LlamaTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True,
                                             add_eos_token=False, legacy=False)),
    "gemma3": ("gemma3_text", gemma(), settings("GemmaTokenizer", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>",
                                                add_bos_token=True, add_eos_token=True)),
    "xlm-roberta": ("xlm-roberta", xlm_roberta(), settings("XLMRobertaTokenizer", **ROBERTA)),
    "t5": ("t5", t5(), settings("T5Tokenizer", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", extra_ids=100, additional_special_tokens=EXTRA)),
    "albert": ("albert", albert(), settings("AlbertTokenizer", bos_token="[CLS]", eos_token="[SEP]", unk_token="<unk>", sep_token="[SEP]",
                                            pad_token="<pad>", cls_token="[CLS]", mask_token="[MASK]", do_lower_case=True, keep_accents=False)),
    "deberta": ("deberta-v2", deberta(), settings("DebertaV2Tokenizer", **SPECIALS, bos_token="[CLS]", eos_token="[SEP]", do_lower_case=False,
                                                  split_by_punct=False, vocab_type="spm")),
}

NEW = {"content": "<new>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
EDITS = [
    *((C, "tokenizer_class", name) for name in (
        DELETE, "PreTrainedTokenizerFast", "TokenizersBackend", "RobertaTokenizer", "RobertaTokenizerFast", "GPT2TokenizerFast", "GPT2Tokenizer",
        "Qwen2TokenizerFast", "Qwen2Tokenizer", "LlamaTokenizerFast", "LlamaTokenizer", "GemmaTokenizerFast", "GemmaTokenizer",
        "XLMRobertaTokenizerFast", "XLMRobertaTokenizer", "CamembertTokenizer", "T5TokenizerFast", "T5Tokenizer", "BertTokenizer",
        "AlbertTokenizer", "BartTokenizer", "DebertaV2Tokenizer", "MBartTokenizer")),
    *((C, "add_prefix_space", value) for value in (True, False, DELETE)),
    *((C, key, value) for key in ("add_bos_token", "add_eos_token", "legacy", "split_special_tokens") for value in (True, False, DELETE)),
    (C, "truncation_side", "left"), (C, "trim_offsets", False), (C, "errors", "ignore"), (C, "clean_up_tokenization_spaces", True),
    (C, "do_lower_case", True), (C, "do_lower_case", False), (C, "model_max_length", 6), (C, "extra_ids", 0), (C, "keep_accents", True), (C, "extra_ids", 3), (C, "additional_special_tokens", DELETE), (C, "use_fast", False),
    *((C, f"{key}_token", value) for key in ("cls", "sep", "bos", "eos", "unk") for value in ("the", "<new>", None, DELETE)),
    (C, "mask_token", "at"), (C, "pad_token", "<new>"),
    (C, "added_tokens_decoder", {"3": {**NEW, "content": "<unk>", "special": True}}), (C, "added_tokens_decoder", {"400": NEW}),
    (C, "added_tokens_decoder", {"0": {**NEW, "content": "the", "special": True}}), (C, "additional_special_tokens", ["<new>"]),
    (C, "additional_special_tokens", ["the"]), (C, "extra_special_tokens", {"x_token": "one"}), (C, "", DELETE), (C, "", {}),
    (M, "", {"cls_token": "the"}), (M, "", {"eos_token": "the"}), (M, "", {"additional_special_tokens": ["<new>"]}), (M, "", {"mask_token": "one"}),
    ("added_tokens.json", "", {"<new>": 400}),
    (T, "normalizer", None), (T, "normalizer", {"type": "Lowercase"}), (T, "normalizer", {"type": "NFC"}), (T, "normalizer", {"type": "NFKC"}),
    (T, "normalizer", {"type": "Prepend", "prepend": "\u2581"}),
    (T, "normalizer", {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                           {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}),
    (T, "normalizer", {"type": "Sequence", "normalizers": [charsmap(), {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}),
    (T, "normalizer", quotes(*BARE, charsmap())), (T, "normalizer", quotes({"type": "Lowercase"}, charsmap())), (T, "normalizer", quotes(*BARE, SPACES)),
    (T, "pre_tokenizer", None), (T, "pre_tokenizer", {"type": "Whitespace"}), (T, "pre_tokenizer", byte_level(True)), (T, "pre_tokenizer", byte_level()),
    (T, "pre_tokenizer", metaspace()), (T, "pre_tokenizer", metaspace("first")), (T, "pre_tokenizer", metaspace("never")),
    (T, "pre_tokenizer", metaspace("first", False)), (T, "pre_tokenizer", metaspace("always", False)), (T, "pre_tokenizer", metaspace("never", False)),
    (T, "pre_tokenizer", splits({"type": "WhitespaceSplit"}, metaspace())),
    (T, "post_processor", None), (T, "post_processor", byte_level(trim=False)),
    (T, "model.unk_token", None), (T, "model.fuse_unk", False), (T, "model.fuse_unk", True), (T, "model.byte_fallback", False), (T, "model.byte_fallback", True),
    (T, "model.ignore_merges", True), (T, "model.end_of_word_suffix", "e"), (T, "model.continuing_subword_prefix", "t"), (T, "model.unk_id", 0),
    (T, "model.dropout", 0.0), (T, "added_tokens", []), (T, "added_tokens.0.special", False), (T, "added_tokens.0.normalized", True),
    (T, "added_tokens.0.lstrip", True), (T, "added_tokens.0.rstrip", True), (T, "added_tokens.0.single_word", True), (T, "decoder", None),
    (T, "truncation", {"direction": "Left", "max_length": 8, "strategy": "LongestFirst", "stride": 0}),
]
PAIRED = [(C, "tokenizer_class", DELETE), (C, "tokenizer_class", "PreTrainedTokenizerFast"), (C, "add_prefix_space", True), (C, "add_eos_token", True),
          (C, "eos_token", "the"), (C, "cls_token", "the"), (C, "legacy", True), (T, "normalizer", None), (T, "pre_tokenizer", None),
          (C, "do_lower_case", False), (C, "keep_accents", True), (T, "post_processor", None), (T, "model.byte_fallback", False), (T, "added_tokens", [])]


# config.json's class, with and without one in tokenizer_config.json
CONFIG_CLASSES = ("PreTrainedTokenizerFast", "RobertaTokenizer", "GPT2TokenizerFast", "Qwen2Tokenizer", "LlamaTokenizer", "GemmaTokenizer",
                  "XLMRobertaTokenizer", "BertTokenizer", "T5Tokenizer", "AlbertTokenizer")


def pair_processors(vocab, first, last):
    """Post-processors that agree on a text alone, and on nothing else."""
    one = side(first, last, "A", 0)
    again = [{"SpecialToken": {"id": last, "type_id": 0}}] if last else []
    pairs = [one + side(first, last, "B", 1), one + again + side(None, last, "B", 0), one + side(None, last, "B", 0), one + side(None, last, "B", 1)]
    return [{"type": "TemplateProcessing", "single": one, "pair": pair, "special_tokens": {
        name: {"id": name, "ids": [vocab[name]], "tokens": [name]} for name in (first, last) if name}} for pair in pairs]


PAIRS = [("the cat", "sat"), ("one", "the cat sat at one two"), ("a b c d e f g h", "the one a b c d"), ("", "the")]
AROUND = {"roberta": ("<s>", "</s>"), "llama": ("<s>", None), "mistral": ("<s>", None), "gemma3": ("<bos>", "<eos>"), "xlm-roberta": ("<s>", "</s>"),
          "modernbert": ("[CLS]", "[SEP]"), "qwen2": (None, "<|endoftext|>"), "gpt2": (None, None), "t5": (None, "</s>"), "albert": ("[CLS]", "[SEP]"), "deberta": ("[CLS]", "[SEP]"), "bert": ("[CLS]", "[SEP]"), "mpnet": ("<s>", "</s>")}


def pair_cases(vocabularies):
    """For make_odd_folders.py: what becomes of two texts, by post-processor and class."""
    for base, around in AROUND.items():
        for processor in [None, *pair_processors(vocabularies[base], *around)]:
            for name in (None, "PreTrainedTokenizerFast", DELETE):
                yield base, [*([(T, "post_processor", processor)] if processor else []), *([(C, "tokenizer_class", name)] if name else [])]


def cases():
    for base in BASES:
        for name in CONFIG_CLASSES:
            yield base, [("config.json", "tokenizer_class", name)]
            yield base, [("config.json", "tokenizer_class", name), (C, "tokenizer_class", DELETE)]
        yield base, []
        for edit in EDITS:
            yield base, [edit]
        for a, b in itertools.combinations(PAIRED, 2):
            if a[:2] != b[:2]:
                yield base, [a, b]
