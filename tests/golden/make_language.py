#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_language.py - small language models that rerank, and the scores that CrossEncoder.predict gives.

    make_language.py           writes tests/golden/language/ anew

Scores that are logits of one or two tokens at the end of a chat template (LogitScore), tied and untied, and
classifiers that read the last token that is not config.json's pad_token_id: one of each family, with that
token at the end of every text, of some, and unknown. expected.json holds the scores of PAIRS, with and without
a prompt (the template's system message). Needs torch and sentence-transformers 6.2; the tests need neither.
"""
import json
import math
import pathlib
import shutil

import numpy
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
         ("yes\n", " {{ no }} <|im_end|>\nno"), ("  spaces  ", "\ttabs\n\n"), ("the cat", "the dog<|endoftext|>"),
         ("the cat", "<|endoftext|><|endoftext|>"), ("<|endoftext|>", "<|endoftext|>"), ("a", "<|endoftext|>the sea"),
         ("the sea", "the ship!"), ("!", "!!")]
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

PLAIN = {key: value for key, value in SMALL.items() if key != "head_dim"}
END = 312  # <|endoftext|>
YARN = {"rope_type": "yarn", "rope_theta": 3000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 512, "llama_4_scaling_beta": 0.1}
GEMMA = transformers.Gemma3TextConfig(**SMALL, sliding_window=8, query_pre_attn_scalar=8)
SEQUENCES = [
    ("qwen3", transformers.Qwen3Config(**SMALL), transformers.Qwen3ForSequenceClassification, True, {"pad_token_id": END}),
    ("qwen2", transformers.Qwen2Config(**PLAIN), transformers.Qwen2ForSequenceClassification, False, {"pad_token_id": END}),
    ("llama", transformers.LlamaConfig(**SMALL), transformers.LlamaForSequenceClassification, True, {"pad_token_id": END}),
    ("llama-unpadded", transformers.LlamaConfig(**SMALL), transformers.LlamaForSequenceClassification, True, {}),
    ("llama-negative", transformers.LlamaConfig(**SMALL), transformers.LlamaForSequenceClassification, False, {"pad_token_id": -1}),
    ("mistral", transformers.MistralConfig(**SMALL, sliding_window=8), transformers.MistralForSequenceClassification, True,
     {"pad_token_id": END}),
    ("gemma", transformers.GemmaConfig(**SMALL), transformers.GemmaForSequenceClassification, True, {"pad_token_id": END}),
    ("gemma2", transformers.Gemma2Config(**SMALL, attn_logit_softcapping=2.0), transformers.Gemma2ForSequenceClassification, True, {"pad_token_id": END}),
    ("ministral3", transformers.Ministral3Config(**SMALL, rope_parameters=YARN), transformers.Ministral3ForSequenceClassification, True,
     {"pad_token_id": END}),
    ("gemma3", GEMMA, transformers.Gemma3TextForSequenceClassification, False, {}),  # then it is 0, which is "!"
    ("gemma3-end", GEMMA, transformers.Gemma3TextForSequenceClassification, True, {"pad_token_id": END}),
    ("gpt2", transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=512), transformers.GPT2ForSequenceClassification, True, {"pad_token_id": END}),
    ("gemma3-null", GEMMA, transformers.Gemma3TextForSequenceClassification, False, {"pad_token_id": None}),
]


def save(name: str, config, kind, template: str | None, **settings) -> pathlib.Path:
    path = base.new_folder(name)
    tokenizer = base.qwen_tokenizer([LONG + " yes no Document Query Instruct system user assistant"] * 3, 330, ("yes", "no", "Yes") if name == "zerank" else ("yes", "no"),
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


def edit(path: pathlib.Path, change) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    base.write_json(path, value)


def sequence(name: str, config, kind, appended: bool = False, **padding) -> None:
    """A classifier whose config.json has pad_token_id as `padding` says, or not at all."""
    path = save(name, config, kind, None, num_labels=1)

    def pad(value):
        del value["pad_token_id"]
        value.update(padding)

    def append(value):
        number = next(token["id"] for token in value["added_tokens"] if token["content"] == "<|endoftext|>")
        post = value["post_processor"]
        for kind, segment in ("single", 0), ("pair", 1):
            post[kind].append({"SpecialToken": {"id": "<|endoftext|>", "type_id": segment}})
        post["special_tokens"] = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [number], "tokens": ["<|endoftext|>"]}}
    edit(path / "config.json", pad)
    if appended:
        edit(path / "tokenizer.json", append)
    if config.model_type not in ("qwen2", "qwen3"):
        edit(path / "tokenizer_config.json", lambda value: value.update(tokenizer_class="PreTrainedTokenizerFast"))
    finish(path)


def modular(path: pathlib.Path, score: LogitScore, prompt: str | None = None, **options) -> None:
    model = CrossEncoder(modules=[Transformer(str(path), transformer_task="text-generation"), score], device="cpu", **options)
    model.save_pretrained(str(path))
    finish(path, prompt)


def write_scores(path: pathlib.Path, logit) -> None:
    """expected.json of code of the Hub, whose predict() is a sigmoid."""
    for unused in ("special_tokens_map.json", "generation_config.json", "README.md"):
        (path / unused).unlink(missing_ok=True)
    with torch.no_grad():
        logits = [[float(logit(*pair))] for pair in PAIRS]
    base.write_json(path / "expected.json", {"pairs": [[1 / (1 + math.exp(-x))] for [x] in logits], "logits": logits})


def zerank() -> None:
    """As published: Qwen3's language model, and code that scores by one token of a chat; its own chat template is another. The longest texts are cut."""
    path = save("zerank", transformers.Qwen3Config(**SMALL | {"max_position_embeddings": 20000}), transformers.Qwen3ForCausalLM, "{% if tools %}{{ tools }}{% endif %}")
    edit(path / "config.json", lambda value: value.update(auto_map={"AutoConfig": "modeling_zeranker.ZEConfig"}))
    edit(path / "tokenizer_config.json", lambda value: value.update(model_max_length=20000))
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    network = transformers.Qwen3ForCausalLM.from_pretrained(path, dtype=torch.float32)
    yes = tokenizer.convert_tokens_to_ids("Yes")  # in the published vocabulary the one token of that word

    def logit(query: str, document: str) -> torch.Tensor:
        text = f"<|im_start|>system\n{query[:2000].strip()}<|im_end|>\n<|im_start|>user\n{document[:10000].strip()}<|im_end|>\n<|im_start|>assistant\n"
        return network(**tokenizer(text, return_tensors="pt")).logits[0, -1, yes] / 5.0
    write_scores(path, logit)
    repeated = [["\u2003\x1c the cat ", 300, "\t the sea and the road\u00a0", 500], ["a ", 1, "the ship! ", 1001]]  # texts and how often: cut, then stripped
    with torch.no_grad():
        scores = [[float(logit(a * many, b * times))] for a, many, b, times in repeated]
    base.write_json(path / "expected.json", json.loads((path / "expected.json").read_text()) | {"repeated": repeated, "cut": scores})


def nemotron() -> None:
    """As published: Llama that looks both ways, the mean of all tokens, a head over a temperature, one text of both."""
    path = save("nemotron", transformers.LlamaConfig(**SMALL | {"is_causal": False}), transformers.LlamaForSequenceClassification, None, num_labels=1)
    module = "llama_bidirectional_model.LlamaBidirectional"
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    network = transformers.LlamaForSequenceClassification.from_pretrained(path, dtype=torch.float32)
    edit(path / "config.json", lambda value: value.update(
        model_type="llama_bidirec", architectures=["LlamaBidirectionalForSequenceClassification"], pooling="avg", temperature=0.7,
        auto_map={"AutoConfig": module + "Config", "AutoModelForSequenceClassification": module + "ForSequenceClassification"}))
    edit(path / "config.json", lambda value: value.pop("is_causal"))
    edit(path / "tokenizer_config.json", lambda value: value.update(tokenizer_class="PreTrainedTokenizerFast", padding_side="right"))

    def logit(query: str, document: str) -> torch.Tensor:
        text = f"question:{query} \n \n passage:{document}"
        rows = network.model(**tokenizer(text, truncation=True, max_length=400, return_tensors="pt")).last_hidden_state
        return network.score(rows.mean(1))[0, 0] / 0.7
    write_scores(path, logit)


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
    for name, config, kind, appended, padding in SEQUENCES:
        sequence(f"sequence-{name}", config, kind, appended, **padding)
    zerank()
    nemotron()
    base.write_json(HERE / "pairs.json", PAIRS)
    base.link_duplicates()


if __name__ == "__main__":
    main()
