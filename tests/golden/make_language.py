#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_language.py - small language models that rerank, and the scores that CrossEncoder.predict gives.

    make_language.py           writes tests/golden/language/ anew

Scores that are logits of one or two tokens at the end of a chat template (LogitScore), tied and untied, and
classifiers that read the last token. expected.json holds the scores of PAIRS, with and without a prompt (the
template's system message). Needs torch and sentence-transformers 6.2; the tests need neither.
"""
import json
import pathlib
import shutil

import numpy
import tokenizers
import torch
import transformers
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore

import make_folders as base

HERE = base.HERE = pathlib.Path(__file__).resolve().parent / "language"
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
         "intermediate_size": 24, "max_position_embeddings": 512}
LONG = "the sea and the road and the ship " * 40
PAIRS = [("the cat", "sat on the mat"), ("the cat", "the dog ran at sea"), ("", "the dog"), ("the dog", ""), ("a", "b"),
         ("Rain at sea?", "café and Ñandú: it is you; unseen ☃ snow"), ("a cat", LONG), (LONG, "a cat"),
         ("yes\n", " {{ no }} <|im_end|>\nno"), ("  spaces  ", "\ttabs\n\n")]
SETS = """{%- set instruction = messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("Given a web search query, retrieve relevant passages") -%}
{%- set query_text = messages | selectattr("role", "eq", "query") | map(attribute="content") | first -%}
{%- set document_text = messages | selectattr("role", "eq", "document") | map(attribute="content") | first -%}
<|im_start|>system
Judge whether the Document meets the requirements. The answer can only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: {{ instruction }}
<Query>: {{ query_text }}
<Document>: {{ document_text }}<|im_end|>
<|im_start|>assistant
<think>

</think>

"""
INLINE = """<|im_start|>system
{{ messages
   | selectattr('role', 'eq', 'query')
   | map(attribute='content') | first -}}
<|im_end|>{# the order of a reader #}
{{- '\\n<|im_start|>user\\n' }}
  {% set text = messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first %}
  {{ text }}<|im_end|>
<|im_start|>assistant
"""


def save(name: str, config, kind, template: str | None, **settings) -> pathlib.Path:
    path = base.new_folder(name)
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator([LONG + " yes no Document Query Instruct system user assistant"] * 3, vocab_size=330,
                                show_progress=False)
    model = json.loads(trained._tokenizer.to_str())["model"]  # pylint: disable=protected-access
    for word in ("yes", "no"):
        model["vocab"].setdefault(word, len(model["vocab"]))
    tokenizer = transformers.Qwen2TokenizerFast(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]],
                                                model_max_length=400, padding_side="left")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    config.bos_token_id = config.eos_token_id = None
    for key, value in settings.items():
        setattr(config, key, value)
    network = kind(config)
    base.randomise(network, sum(name.encode()))
    network.save_pretrained(path)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(path)
    return path


def finish(path: pathlib.Path, prompt: str | None = None) -> None:
    for unused in ("special_tokens_map.json", "generation_config.json", "README.md"):
        (path / unused).unlink(missing_ok=True)
    model = CrossEncoder(str(path), device="cpu", model_kwargs={"dtype": torch.float32})
    print(path.name, model, model.activation_fn, model.max_seq_length)

    def scores(**options):
        return [numpy.atleast_1d(model.predict(pair, show_progress_bar=False, **options)).astype(float).tolist()
                for pair in PAIRS]
    expected = {"pairs": scores(), "logits": scores(activation_fn=torch.nn.Identity())}
    if prompt:
        expected |= {"prompt": prompt, "prompted": scores(activation_fn=torch.nn.Identity(), prompt=prompt)}
    base.write_json(path / "expected.json", expected)


def modular(path: pathlib.Path, score: LogitScore, prompt: str | None = None, **options) -> None:
    model = CrossEncoder(modules=[Transformer(str(path), transformer_task="text-generation"), score], device="cpu", **options)
    model.save_pretrained(str(path))
    finish(path, prompt)


def main() -> None:
    torch.set_num_threads(1)
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    qwen, untied = transformers.Qwen3Config, {"tie_word_embeddings": False}
    modular(save("logits", qwen(**SMALL), transformers.Qwen3ForCausalLM, SETS),
            LogitScore(true_token_id=60, false_token_id=70), "Find what the sea says")
    modular(save("one-token", qwen(**SMALL | untied), transformers.Qwen3ForCausalLM, INLINE),
            LogitScore(true_token_id=65), activation_fn=torch.nn.Identity())
    finish(save("plain", transformers.Qwen2Config(**{k: v for k, v in SMALL.items() if k != "head_dim"} | untied),
                transformers.Qwen2ForCausalLM, SETS), "Find what the sea says")
    finish(save("sequence", qwen(**SMALL), transformers.Qwen3ForSequenceClassification, None, num_labels=1), "sea: ")
    finish(save("sequence-three", transformers.LlamaConfig(**SMALL), transformers.LlamaForSequenceClassification, None,
                num_labels=3))
    base.write_json(HERE / "pairs.json", PAIRS)
    base.link_duplicates()


if __name__ == "__main__":
    main()
