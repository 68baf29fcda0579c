# SPDX-License-Identifier: Apache-2.0
"""Classes whose pipeline transformers 5 builds by itself: a file that says the same is taken, another one is refused.

The files are real tokenizers (FLETCH_TEST_DATA); what is expected is what transformers 5.23's class code builds.
"""
import json
import subprocess

import pytest

import golden

FILES = golden.DATA / "tokenizers"
pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason=f"{FILES} is not there (FLETCH_TEST_DATA)")
LEGACY = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                              {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}


@pytest.mark.parametrize("file, family, config, edits, refused", [
    ("roberta", "roberta", {"tokenizer_class": "RobertaTokenizer"}, {}, ""),
    ("roberta", "roberta", {}, {}, ""),
    ("roberta", "roberta", {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True}, {}, "pre_tokenizer"),
    ("roberta", "roberta", {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": True}, {}, "add_prefix_space of the pre_tokenizer"),
    ("roberta", "roberta", {"tokenizer_class": "XLMRobertaTokenizer"}, {}, "model"),
    ("roberta", "roberta", {"tokenizer_class": "RobertaTokenizer", "cls_token": "<mask>"}, {}, "post_processor"),
    ("roberta", "roberta", {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False}, {}, ""),
    ("gpt2", "gpt2", {"tokenizer_class": "GPT2Tokenizer"}, {}, ""),
    ("gpt2", "gpt2", {"tokenizer_class": "Qwen2Tokenizer"}, {}, "normalizer"),
    ("modernbert", "modernbert", {"tokenizer_class": "PreTrainedTokenizerFast"}, {}, ""),
    ("modernbert", "modernbert", {"tokenizer_class": "GPT2Tokenizer"}, {}, "normalizer"),
    ("qwen3", "qwen3", {"tokenizer_class": "Qwen2Tokenizer"}, {}, ""),
    ("qwen3", "qwen3", {"tokenizer_class": "Qwen2Tokenizer"}, {"normalizer": None}, "normalizer"),
    ("mistral01", "mistral", {"tokenizer_class": "LlamaTokenizer"}, {"normalizer": LEGACY}, ""),
    ("mistral01", "llama", {"tokenizer_class": "LlamaTokenizer"}, {}, ""),
    ("mistral01", "llama", {"tokenizer_class": "LlamaTokenizer"}, {"normalizer": LEGACY}, "normalizer"),
    ("mistral01", "llama", {"tokenizer_class": "LlamaTokenizer", "add_eos_token": True}, {}, "post_processor"),
    ("mistral01", "mistral", {"tokenizer_class": "LlamaTokenizer", "add_eos_token": True}, {}, "post_processor"),
    ("mistral01", "llama", {"tokenizer_class": "LlamaTokenizer", "legacy": True}, {}, "pre_tokenizer"),
    ("qwen3", "qwen3", {}, {}, ""),
    ("qwen3", "qwen2", {"tokenizer_class": "PreTrainedTokenizerFast"}, {}, ""),
    ("qwen3", "qwen2", {"tokenizer_class": "PreTrainedTokenizerFast"}, {"normalizer": None}, "normalizer"),
    ("mistral01", "gemma3_text", {"tokenizer_class": "GemmaTokenizerFast"}, {}, "normalizer"),
])
def test_class(file, family, config, edits, refused, tmp_path):
    tokenizer = json.loads((FILES / f"{file}.json").read_text(encoding="utf-8")) | edits
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config), ("config.json", {"model_type": family})):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    done = subprocess.run([str(golden.BIN), "tokenize", "-m", str(tmp_path), "--format", "jsonl", "the cat sat"],
                          capture_output=True, text=True)
    if refused:
        assert done.returncode == 3 and f"{refused} is not what" in done.stderr, (done.returncode, done.stderr)
    else:
        assert done.returncode == 0 and len(json.loads(done.stdout)["ids"]) >= 3, done.stderr
