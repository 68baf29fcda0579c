#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_odd_folders.py - folders whose files disagree, and the token ids that two references give.

    make_odd_folders.py PYTHON_WITH_TRANSFORMERS_4            writes tests/golden/odd_folders.json anew
    make_odd_folders.py PYTHON_WITH_TRANSFORMERS_4 classes    writes tests/golden/odd_classes.json anew (odd_classes.py)
    make_odd_folders.py PYTHON_WITH_TRANSFORMERS_4 pairs      writes tests/golden/odd_pairs.json anew: ids and types of two texts

A folder that transformers saved says the same thing in tokenizer.json, tokenizer_config.json, special_tokens_map.json
and sentence_bert_config.json. People edit one of them. What then counts depends on the class of the tokenizer and on
the version of transformers: 4 opens tokenizer.json and patches it, 5 builds some classes anew from the vocabulary.
Every case here is a base folder and edits of its files, each key alone and in pairs; the outcome is the ids of
`TEXTS` through sentence-transformers 6.2 with both versions; null where they differ or neither opens the folder. A version
that fails has no say: it gives nobody a vector. test_odd_folders.py holds fletch to it: the same ids, or a refusal by
name, and never ids of its own.

The Python that runs this has transformers 5.23, the argument's 4.57; the test needs neither. `classes` needs no torch: its folders
have no weights, and AutoTokenizer's ids are compared.
"""
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import odd_classes

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = HERE / "folders"

TEXTS = [
    "The Cat sat", "CAF\u00c9 na\u00efve \u65e5\u672c x", "a [SEP] b [CLS] c", "one <new> two", "one <NEW>two", "[UNK] [PAD] x",
    "it is you, and it was at sea!", "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h", "w" * 30, "",
    "<s> a </s>", "the [MASK]d sea", "them Others", "a\u0007b\u00a0c\tx",
]
SHARES = 4  # processes under each Python
DELETE = "<delete>"  # as a value: the key, or the file, is taken away


def vocabulary(specials: list[str]) -> dict[str, int]:
    """122 tokens, as many as the folders' word tables have rows: both cases, accents and CJK tell the switches apart."""
    words = ["the", "The", "cat", "Cat", "sat", "sea", "it", "is", "you", "and", "was", "at", "one", "two"]
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = specials + words + list(letters) + ["##" + c for c in letters]
    tokens += list("CAFTNW") + ["##" + c for c in "AFTNW\u00c9"] + ["\u00e9", "##\u00e9", "\u00ef", "##\u00ef", "\u65e5", "\u672c", "##\u672c"]
    tokens += list(",!.<>/[]-_") + ["##s1", "##s2"]
    tokens = list(dict.fromkeys(tokens))
    assert len(tokens) <= 122, len(tokens)
    return {token: index for index, token in enumerate(tokens)}


def bert_json(specials: list[str], cls: str, sep: str, lowercase: bool) -> dict:
    vocab = vocabulary(specials)
    added = [{"id": vocab[s], "content": s, "single_word": False, "lstrip": s == "<mask>", "rstrip": False,
              "normalized": False, "special": True} for s in specials]
    side = [{"SpecialToken": {"id": cls, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": sep, "type_id": 0}}]
    pair = side + [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": sep, "type_id": 1}}]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": side, "pair": pair, "special_tokens": {
            s: {"id": s, "ids": [vocab[s]], "tokens": [s]} for s in (cls, sep)}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    }


def config(class_name: str, lowercase: bool, specials: dict[str, str]) -> dict:
    return {"tokenizer_class": class_name, "do_lower_case": lowercase, "strip_accents": None,
            "tokenize_chinese_chars": True, "model_max_length": 24, **specials}


BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
MPNET = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "[UNK]",
         "pad_token": "<pad>", "mask_token": "<mask>"}
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MPNET_SPECIALS = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]

BASES = {
    "bert": ("pooling-cls", bert_json(BERT_SPECIALS, "[CLS]", "[SEP]", True), config("BertTokenizer", True, BERT)),
    "cased": ("pooling-cls", bert_json(BERT_SPECIALS, "[CLS]", "[SEP]", False), config("BertTokenizer", False, BERT)),
    "fast": ("pooling-cls", bert_json(BERT_SPECIALS, "[CLS]", "[SEP]", True), config("PreTrainedTokenizerFast", True, BERT)),
    "mpnet": ("mpnet", bert_json(MPNET_SPECIALS, "<s>", "</s>", True), config("MPNetTokenizer", True, MPNET)),
}

NEW = {"content": "<new>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
TWO_IN_FRONT = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
NONE_AFTER = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
SPLIT = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}]}

# (file, path of keys, value): one edit
T, C, M, S = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "sentence_bert_config.json"
EDITS = [
    (C, "do_lower_case", False), (C, "do_lower_case", True), (C, "do_lower_case", DELETE),
    (C, "strip_accents", True), (C, "strip_accents", False), (C, "strip_accents", DELETE),
    (C, "tokenize_chinese_chars", False), (C, "tokenize_chinese_chars", DELETE),
    (C, "tokenizer_class", DELETE), (C, "tokenizer_class", "BertTokenizerFast"), (C, "tokenizer_class", "PreTrainedTokenizerFast"),
    (C, "tokenizer_class", "DistilBertTokenizer"), (C, "tokenizer_class", "MPNetTokenizerFast"), (C, "tokenizer_class", "ElectraTokenizer"),
    (C, "tokenizer_class", "RobertaTokenizer"), (C, "tokenizer_class", "XLMRobertaTokenizer"), (C, "tokenizer_class", "TokenizersBackend"),
    (C, "truncation_side", "left"), (C, "truncation_side", "right"), (C, "padding_side", "left"),
    (C, "split_special_tokens", True), (C, "cls_token", "[SEP]"), (C, "sep_token", "[MASK]"), (C, "unk_token", "x"),
    (C, "cls_token", DELETE), (C, "sep_token", DELETE), (C, "sep_token", "<new>"), (C, "mask_token", "<new>"),
    (C, "added_tokens_decoder", {"116": NEW}), (C, "added_tokens_decoder", {"5": {**NEW, "content": "the", "special": True}}),
    (C, "added_tokens_decoder", {"122": NEW}), (C, "added_tokens_decoder", {"2": {**NEW, "content": "[CLS]", "special": True, "lstrip": True}}),
    (C, "additional_special_tokens", ["<new>"]), (C, "additional_special_tokens", ["the"]), (C, "extra_special_tokens", {"x_token": "two"}),
    (C, "model_max_length", 8), (C, "model_max_length", DELETE), (C, "model_max_length", 10**30), (C, "max_length", 6), (C, "stride", 2),
    (C, "do_basic_tokenize", False), (C, "never_split", ["sat"]), (C, "clean_up_tokenization_spaces", False), (C, "add_prefix_space", True),
    (C, "add_bos_token", True), (C, "add_eos_token", False), (C, "legacy", True), (C, "", DELETE), (C, "", {}),
    (M, "", {"cls_token": "[SEP]"}), (M, "", {"additional_special_tokens": ["<new>"]}), (M, "", {"unk_token": "x"}),
    (M, "", {"mask_token": "two"}), ("added_tokens.json", "", {"<new>": 118}), ("added_tokens.json", "", {"<new>": 122}),
    (S, "", {"max_seq_length": 6}), (S, "", {"max_seq_length": 16, "do_lower_case": True}), (S, "", {"max_seq_length": None}),
    (S, "", {"max_seq_length": 16, "tokenizer_args": {"truncation_side": "left"}}),
    (S, "", {"max_seq_length": 16, "processing_kwargs": {"text": {"max_length": 6}}}),
    (S, "", {"max_seq_length": 16, "processing_kwargs": {"text": {"truncation": False}}}),
    (S, "", {"max_seq_length": 16, "processing_kwargs": {"text": {"add_special_tokens": False}}}),
    (S, "", {"max_seq_length": 16, "processing_kwargs": {"text": {"padding": "max_length"}}}),
    (T, "truncation", {"direction": "Left", "max_length": 8, "strategy": "LongestFirst", "stride": 0}),
    (T, "truncation", {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}),
    (T, "padding", {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}),
    (T, "post_processor", None), (T, "post_processor.single", TWO_IN_FRONT), (T, "post_processor.single", NONE_AFTER),
    (T, "post_processor", {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}),
    (T, "post_processor", {"type": "BertProcessing", "sep": ["[MASK]", 4], "cls": ["[CLS]", 2]}),
    (T, "normalizer", None), (T, "normalizer.lowercase", False), (T, "normalizer.strip_accents", False), (T, "normalizer.strip_accents", True),
    (T, "normalizer.clean_text", False), (T, "normalizer.handle_chinese_chars", False),
    (T, "normalizer", {"type": "Lowercase"}), (T, "normalizer", {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]}),
    (T, "pre_tokenizer", {"type": "Whitespace"}), (T, "pre_tokenizer", {"type": "WhitespaceSplit"}), (T, "pre_tokenizer", SPLIT),
    (T, "model.max_input_chars_per_word", 10), (T, "model.unk_token", "x"), (T, "model.continuing_subword_prefix", ""),
    (T, "added_tokens", []), (T, "added_tokens.4.lstrip", True), (T, "added_tokens.2.normalized", True), (T, "added_tokens.3.special", False),
    (T, "decoder", None),
]
# Pairs: keys that speak of the same thing, and a mix of the rest
PAIRED = [0, 2, 3, 6, 8, 10, 17, 20, 21, 28, 32, 35, 49, 53, 59, 62, 65, 70, 71, 73, 77, 80, 85]


def put(root, path: str, value):
    if path == "":
        return value
    keys = path.split(".")
    for key in keys[:-1]:
        root = root[int(key)] if isinstance(root, list) else root[key]
    last = int(keys[-1]) if isinstance(root, list) else keys[-1]
    if value == DELETE:
        root.pop(last, None)
    else:
        root[last] = value
    return None


def lay_out(base: str, edits, target: pathlib.Path) -> None:
    """The folder of a case: the base's weights if it has any, its tokenizer files, the edits."""
    if base in odd_classes.BASES:
        family, tokenizer, settings = odd_classes.BASES[base]
        target.mkdir(parents=True, exist_ok=True)
        files = {T: tokenizer, C: settings, "config.json": {"model_type": family}}
    else:
        source, tokenizer, settings = BASES[base]
        shutil.copytree(FOLDERS / source, target, dirs_exist_ok=True)
        for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
            (target / name).unlink(missing_ok=True)
        files = {T: tokenizer, C: settings, S: {"max_seq_length": 16, "do_lower_case": False}}
    files = json.loads(json.dumps(files))
    for name, path, value in edits:
        whole = put(files.setdefault(name, {}), path, value)
        if path == "":
            files[name] = whole
    for name, content in files.items():
        (target / name).unlink(missing_ok=True)
        if content != DELETE:
            (target / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def ids_of(folder: pathlib.Path):
    """Each text alone, through SentenceTransformer; None where that fails."""
    from sentence_transformers import SentenceTransformer
    try:
        model = SentenceTransformer(str(folder), device="cpu")
        out = []
        for text in TEXTS:
            feature = model.tokenize([text])
            keep = feature["attention_mask"][0].bool()
            out.append(feature["input_ids"][0][keep].tolist())
            if keep.any():
                model.forward({k: v for k, v in feature.items()})
        return out
    except BaseException as problem:  # a panic of the tokenizer too: the reference has no answer
        return f"{type(problem).__name__}: {problem}"[:160]


def ids_alone(folder: pathlib.Path):
    """Each text alone, through AutoTokenizer; why not where that fails."""
    from transformers import AutoTokenizer
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        return [tokenizer(text, truncation=True, max_length=odd_classes.LENGTH)["input_ids"] for text in odd_classes.TEXTS]
    except BaseException as problem:
        return f"{type(problem).__name__}: {problem}"[:160]


def ids_of_pairs(folder: pathlib.Path):
    """Two texts at a time: ids, and for the network that reads them types, after -1; why not where that fails."""
    from transformers import AutoTokenizer
    typed = json.loads((folder / "config.json").read_text())["model_type"] == "bert"
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        out = []
        for a, b in odd_classes.PAIRS:
            both = tokenizer(a, b, truncation=True, max_length=odd_classes.LENGTH, return_token_type_ids=True)
            out.append(both["input_ids"] + ([-1] + both["token_type_ids"] if typed else []))
        return out
    except BaseException as problem:
        return f"{type(problem).__name__}: {problem}"[:160]


def pair_cases():
    vocabularies = {base: table[1]["model"]["vocab"] for base, table in (BASES | odd_classes.BASES).items()}
    return odd_classes.pair_cases({base: {piece[0]: index for index, piece in enumerate(vocab)} if isinstance(vocab, list) else vocab
                                   for base, vocab in vocabularies.items()})


def bert_cases():
    for base in BASES:
        yield base, []
        for edit in EDITS:
            yield base, [edit]
    for a, b in itertools.combinations(PAIRED, 2):
        if EDITS[a][:2] != EDITS[b][:2]:
            for base in ("bert", "fast"):
                yield base, [EDITS[a], EDITS[b]]


def worker(cases, ids_of, share: int) -> None:
    """Under either Python: one line of ids per case of its share."""
    import logging
    import warnings
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    for base, edits in itertools.islice(cases(), share, None, SHARES):
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / "model"
            try:
                lay_out(base, edits, folder)
                result = ids_of(folder)
            except (KeyError, TypeError, IndexError):
                result = "not a case"
            print(json.dumps(result), flush=True)


def main() -> None:
    kind = next((word for word in ("classes", "pairs") if word in sys.argv), "folders")
    cases, texts, ask = {"classes": (odd_classes.cases, odd_classes.TEXTS, ids_alone), "pairs": (pair_cases, odd_classes.PAIRS, ids_of_pairs),
                         "folders": (bert_cases, TEXTS, ids_of)}[kind]
    if sys.argv[1] == "--worker":
        worker(cases, ask, int(sys.argv[2]))
        return
    count, runs = len(list(cases())), []
    with tempfile.TemporaryDirectory() as work:
        files = [[open(f"{work}/{n}-{share}", "w+", encoding="utf-8") for share in range(SHARES)] for n in range(2)]
        workers = [subprocess.Popen([python, __file__, "--worker", str(share), *sys.argv[2:]], stdout=files[n][share])
                   for n, python in enumerate((sys.executable, sys.argv[1])) for share in range(SHARES)]
        for one in workers:
            assert one.wait() == 0
        for shares in files:
            lines = [[json.loads(line) for line in pathlib.Path(file.name).read_text(encoding="utf-8").splitlines()] for file in shares]
            runs.append([lines[index % SHARES][index // SHARES] for index in range(count)])
    table, lists = [], []
    for (base, edits), new, old in zip(cases(), *runs, strict=True):
        if new == "not a case":
            continue
        answers = [run for run in (new, old) if isinstance(run, list)]
        agreed = answers[0] if answers and answers[0] == answers[-1] else None
        if agreed is not None and agreed not in lists:
            lists.append(agreed)
        table.append({"base": base, "edits": edits, "ids": None if agreed is None else lists.index(agreed)})
        if agreed is None and "-v" in sys.argv:
            print(base, edits, new if isinstance(new, str) else "", old if isinstance(old, str) else "", file=sys.stderr)
    with (HERE / f"odd_{kind}.json").open("w", encoding="utf-8") as file:
        file.write('{"texts": ' + json.dumps(texts) + ',\n "ids": [\n' + ",\n".join(map(json.dumps, lists)) + '],\n "cases": [\n')
        file.write(",\n".join(json.dumps(row) for row in table) + "\n]}\n")
    print(f"{len(table)} cases, {sum(row['ids'] is not None for row in table)} where both references agree")


if __name__ == "__main__":
    main()
