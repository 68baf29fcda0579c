# SPDX-License-Identifier: Apache-2.0
"""tokenizer_kinds.py - tokenizer.json files of the published pipelines that no real file here has.

    python bench/tokenizer_kinds.py --data DIR OUT     writes OUT/deepseek.json, falcon.json, phi4.json, clip.json, metaspace.json

The steps are the published ones to the letter. DeepSeek's, Falcon's and Phi-4's stand around real vocabularies of DIR/tokenizers
(Qwen3's and GPT-2's); CLIP's and Metaspace's vocabularies are trained on the texts of DIR in some seconds. Needs the package tokenizers.
"""
import json
import pathlib

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from harness import arguments
from tokenizer_speed import sets

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


PIPELINES = {
    "deepseek": ("qwen3", [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level(False)]),
    "falcon": ("gpt2", [pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(False), split("[0-9][0-9][0-9]")]),
    "phi4": ("qwen3", [split(CL100K, "removed", True), byte_level(False)]),
}


def around(vocabulary: pathlib.Path, steps: list) -> dict:
    tokenizer = Tokenizer.from_file(str(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return json.loads(tokenizer.to_str()) | {"normalizer": None}


def clip(texts: list[str]) -> dict:
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split(CLIP, "removed", True), byte_level(True)])
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=40_000, end_of_word_suffix="</w>", initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tree = json.loads(tokenizer.to_str())
    for letter in letters:  # every byte may end a word
        tree["model"]["vocab"].setdefault(letter + "</w>", len(tree["model"]["vocab"]))
    return tree


def metaspace(texts: list[str]) -> dict:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(), normalizers.Strip(False, True)])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    trainer = trainers.UnigramTrainer(vocab_size=12_000, special_tokens=["[PAD]", "[UNK]"], unk_token="[UNK]", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def main() -> None:
    parser = arguments(__doc__, "data")
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    texts = [text for batch in sets(options.data).values() for text in batch]
    made = {name: around(options.data / "tokenizers" / f"{base}.json", steps) for name, (base, steps) in PIPELINES.items()}
    made |= {"clip": clip(texts), "metaspace": metaspace(texts)}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, tree in made.items():
        (options.out / f"{name}.json").write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
