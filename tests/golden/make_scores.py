#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_scores.py - small rerankers and classifiers, and the scores that CrossEncoder.predict gives.

    make_scores.py             writes tests/golden/scores/ anew

A folder for the head of every family, each way to name an activation, both forms in which they are
saved (config.json alone, modules.json), and a head made of modules. expected.json holds the scores of
PAIRS and of their first texts alone, as logits and as predict gives them, with the labels. Files that
are the same in several folders are links. Needs torch and sentence-transformers; the tests need neither.
"""
import json
import pathlib
import shutil

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import modules as ce
from sentence_transformers.sentence_transformer import modules as st

import family_references as reference
import make_folders as base
import odd_classes

base.HERE = HERE = pathlib.Path(__file__).resolve().parent / "scores"
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
         "max_position_embeddings": 72}
IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
LONG = "the sea and the road and the ship " * 12
PAIRS = [
    ("the cat", "sat on the mat"), ("the cat", "the dog ran at sea"), ("", "the dog"), ("the dog", ""), ("", ""),
    ("Rain at sea?", "café and Ñandú: it is you; unseen ☃ snow"), ("a cat", LONG), (LONG, "a cat"), (LONG, LONG),
    ("the road " * 9, LONG), ("[SEP] <s> in a text", "</s> and [SEP] he was re-running 3 ships"), ("x" * 90, "y" * 90),
]


def save(name: str, config: transformers.PretrainedConfig, labels: int = 1, roberta: bool = False, original: bool = True,
         **settings) -> pathlib.Path:
    """A folder as transformers writes it: config.json, weights, tokenizer."""
    path = base.new_folder(name)
    tokenizer = base.mpnet_tokenizer(path) if roberta else base.bert_tokenizer(path)
    config.vocab_size = len(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    config.num_labels = labels
    for key, value in settings.items():
        setattr(config, key, value)
    for key in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if getattr(config, key, None) is not None:
            setattr(config, key, 2)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    base.randomise(model, sum(name.encode()))
    model.save_pretrained(path, save_original_format=original)
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(path)
    return path


def scores(model: CrossEncoder, inputs, **options) -> list:
    """One at a time, so that padding plays no part; float32 as they are."""
    return [numpy.atleast_1d(model.predict(one, show_progress_bar=False, **options)).astype(float).tolist()
            for one in inputs]


def finish(path: pathlib.Path, **options) -> None:
    for unused in ("special_tokens_map.json", "generation_config.json", "README.md"):
        (path / unused).unlink(missing_ok=True)
    model = CrossEncoder(str(path), device="cpu", model_kwargs={"dtype": torch.float32})
    identity, first = torch.nn.Identity(), [pair[0] for pair in PAIRS]
    expected = {"labels": [model.config.id2label.get(i, f"LABEL_{i}") for i in range(model.num_labels)],
                "activation": type(model.activation_fn).__name__.lower(), "max_length": model.max_seq_length,
                "options": options,
                "pairs": scores(model, PAIRS, **options), "logits": scores(model, PAIRS, activation_fn=identity, **options),
                "texts": scores(model, first, activation_fn=identity, **options)}
    base.write_json(path / "expected.json", expected)


def finish_deberta_v1() -> None:
    """With the pair of its published tokenizer.json, which transformers 5 gives under the name that takes the file as it is."""
    path, tokenizer = base.new_folder("deberta-v1"), odd_classes.deberta_v1()
    model = transformers.DebertaForSequenceClassification(transformers.DebertaConfig(
        **SMALL, vocab_size=len(tokenizer["model"]["vocab"]), relative_attention=True, position_biased_input=False, pos_att_type="c2p|p2c",
        type_vocab_size=2, num_labels=3, id2label={0: "contradiction", 1: "entailment", 2: "neutral"}))
    base.randomise(model, 5)
    model.save_pretrained(path)
    base.write_json(path / "tokenizer.json", tokenizer)
    settings = odd_classes.settings("PreTrainedTokenizerFast", **odd_classes.SPECIALS) | {
        "model_max_length": 64, "model_input_names": ["input_ids", "attention_mask", "token_type_ids"]}
    base.write_json(path / "tokenizer_config.json", settings)
    finish(path)
    base.write_json(path / "tokenizer_config.json", settings | {"tokenizer_class": "DebertaTokenizer"})


def make_families() -> None:
    bert = transformers.BertConfig
    finish(save("bert", bert(**SMALL)))
    names = {0: "contradiction", 1: "entailment", 2: "neutral"}
    finish(save("bert-three", bert(**SMALL), labels=3, id2label=names))
    finish(save("bert-relu", bert(**SMALL | {"hidden_act": "relu"}),
                sbert_ce_default_activation_function=IDENTITY))
    finish(save("bert-untrusted", bert(**SMALL), sentence_transformers={"activation_fn": "mine.Act"},
                sbert_ce_default_activation_function=IDENTITY))
    finish(save("roberta", transformers.RobertaConfig(**SMALL | {"type_vocab_size": 1}), roberta=True,
                sentence_transformers={"activation_fn": IDENTITY}))
    finish(save("xlm-roberta", transformers.XLMRobertaConfig(**SMALL | {"type_vocab_size": 1}), labels=2, roberta=True))
    finish(save("camembert", transformers.CamembertConfig(**SMALL | {"type_vocab_size": 1}), roberta=True))
    finish(save("data2vec", transformers.Data2VecTextConfig(**SMALL | {"type_vocab_size": 1}), labels=2, roberta=True))
    finish(save("roberta-prelayernorm", transformers.RobertaPreLayerNormConfig(**SMALL | {"type_vocab_size": 1}), roberta=True))
    finish(save("ernie", transformers.ErnieConfig(**SMALL), labels=3))
    finish(save("mpnet", transformers.MPNetConfig(**SMALL), roberta=True))
    finish(save("distilbert", transformers.DistilBertConfig(
        dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=72), labels=4))
    finish(save("electra", transformers.ElectraConfig(**SMALL | {"embedding_size": 12})))
    deberta = {"relative_attention": True, "position_biased_input": False, "norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p",
               "position_buckets": 8, "share_att_key": True, "type_vocab_size": 0}
    finish(save("deberta", transformers.DebertaV2Config(**SMALL | deberta)))
    finish(save("deberta-three", transformers.DebertaV2Config(**SMALL | deberta, pooler_hidden_act="tanh"), labels=3, id2label=names))
    finish_deberta_v1()
    finish(save("albert", transformers.AlbertConfig(**SMALL | {"embedding_size": 12}), labels=3))
    rope = {kind: {"rope_type": "default", "rope_theta": 900.0} for kind in ("full_attention", "sliding_attention")}
    modern = {"num_hidden_layers": 3, "local_attention": 16}
    finish(save("modernbert", transformers.ModernBertConfig(**SMALL | modern, rope_parameters=rope)))
    finish(save("modernbert-mean", transformers.ModernBertConfig(
        **SMALL | modern, rope_parameters=rope, classifier_pooling="mean", classifier_bias=True, norm_bias=True,
        classifier_activation="relu"), labels=2))
    finish(save("gte", transformers.GteConfig(**SMALL | {"type_vocab_size": 0})))
    finish(save("gte-types", transformers.GteConfig(**SMALL | {"type_vocab_size": 2}), original=False))
    finish(save("nomic", transformers.NomicBertConfig(**SMALL)))
    finish(save("nomic-names", transformers.NomicBertConfig(**SMALL), labels=2, original=False))


def make_modular() -> None:
    """As CrossEncoder saves them: the network's own head, and one of modules with a prompt."""
    path = save("saved", transformers.BertConfig(**SMALL), sentence_transformers={"activation_fn": SIGMOID})
    CrossEncoder(str(path), device="cpu", activation_fn=torch.nn.Identity(),
                 prompts={"query": "sea: "}, default_prompt_name="query").save_pretrained(str(path))
    finish(path)
    path = save("modules", transformers.BertConfig(**SMALL))
    network = ce.Transformer(str(path))
    generator = torch.Generator().manual_seed(4)
    inner = ce.Dense(16, 10, activation_function=torch.nn.Tanh(), init_weight=torch.randn(10, 16, generator=generator),
                     init_bias=torch.randn(10, generator=generator))
    outer = ce.Dense(10, 1, activation_function=torch.nn.Identity(), module_output_name="scores",
                     init_weight=torch.randn(1, 10, generator=generator), init_bias=torch.zeros(1))
    model = CrossEncoder(modules=[network, st.Pooling(16, "mean"), inner, outer], device="cpu",
                         prompts={"query": "the road: "})
    for file in path.iterdir():
        file.unlink()
    model.save_pretrained(str(path))
    finish(path, prompt_name="query")


def make_jina_v1() -> None:
    """jina-reranker-v1 as published: BERT's head over JinaBERT, whose config.json names no labels."""
    path = base.new_folder("jina-v1")
    tokenizer = base.bert_tokenizer(path)
    tokenizer.save_pretrained(path)
    code = "jinaai/jina-bert-implementation--modeling_bert.JinaBert"
    config = SMALL | {
        "model_type": "bert", "architectures": ["JinaBertForSequenceClassification"], "position_embedding_type": "alibi",
        "feed_forward_type": "geglu", "hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2, "emb_pooler": "mean",
        "vocab_size": len(tokenizer), "auto_map": {
            "AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig", "AutoModel": code + "Model"}
        | {"AutoModelFor" + kind: f"{code}For{kind}" for kind in ("MaskedLM", "QuestionAnswering", "SequenceClassification",
                                                                  "TokenClassification")}}
    head = reference.module("pooler.dense", 16, 16), reference.module("classifier", 1, 16)
    tensors = reference.draw(reference.jina_shapes(config, False) | head[0] | head[1], 21)
    base.write_json(path / "config.json", config)
    save_file({key if key.startswith("classifier.") else "bert." + key: value for key, value in tensors.items()},
              path / "model.safetensors")

    def logits(*texts) -> list:
        """In a list, as CrossEncoder asks: an empty second text alone would be none."""
        made = tokenizer([texts if len(texts) == 2 else texts[0]], truncation=True, max_length=64, return_token_type_ids=True)
        first = reference.jina_rows(config, tensors, made.input_ids[0], False, made.token_type_ids[0])[0]
        return reference.apply(reference.apply(first, tensors, "pooler.dense").tanh(), tensors, "classifier").tolist()
    pairs = [logits(*pair) for pair in PAIRS]
    base.write_json(path / "expected.json", {
        "labels": ["LABEL_0"], "activation": "sigmoid", "max_length": 64, "options": {},
        "pairs": torch.tensor(pairs).sigmoid().tolist(), "logits": pairs, "texts": [logits(first) for first, _ in PAIRS]})


def make_jina_v2() -> None:
    """jina-reranker-v2 as published: XLM-RoBERTa under the names of its own code, and no model_type."""
    path = save("jina-v2", transformers.XLMRobertaConfig(**SMALL | {"type_vocab_size": 1, "layer_norm_eps": 1e-5}), roberta=True)
    finish(path)
    old, new = load_file(path / "model.safetensors"), {}
    for key, value in old.items():
        for one, other in (("embeddings.LayerNorm", "emb_ln"), ("encoder.layer.", "encoder.layers."),
                           ("attention.output.LayerNorm", "norm1"), ("attention.output.dense", "mixer.out_proj"),
                           ("output.LayerNorm", "norm2"), ("intermediate.dense", "mlp.fc1"), ("output.dense", "mlp.fc2")):
            key = key.replace(one, other)
        new[key] = value
    for key in [key for key in new if ".attention.self.query." in key]:
        three = [new.pop(key.replace("query", part)) for part in ("query", "key", "value")]
        new[key.replace("attention.self.query", "mixer.Wqkv")] = torch.cat(three)
    save_file(new, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    del config["model_type"]
    code = "modeling_xlm_roberta.XLMRoberta"
    base.write_json(path / "config.json", config | {
        "position_embedding_type": "absolute", "use_flash_attn": True, "emb_pooler": None, "lora_adaptations": None,
        "lora_alpha": 1, "lora_rank": 4, "load_trained_adapters": False, "matryoshka_dimensions": None, "truncate_dim": None,
        "auto_map": {"AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig", "AutoModel": code + "Model",
                     "AutoModelForSequenceClassification": code + "ForSequenceClassification"}})


def make_zero_shot() -> None:
    """What transformers' pipeline makes of labels of one's own, by the classifier of three labels."""
    ask = transformers.pipeline("zero-shot-classification", model=str(HERE / "bert-three"), device="cpu")
    ask.model.config.label2id = {label: index for index, label in ask.model.config.id2label.items()}
    texts = ["the cat sat on the mat", "the dog ran at sea and it rained", "x", LONG]
    cases = []
    for multi in (False, True):
        for labels, template in ((["cat", "the sea", "road"], "This example is {}."), (["cat", "dog"], "It is {} at sea"), (["dog"], "{}")):
            found = [ask(text, candidate_labels=labels, hypothesis_template=template, multi_label=multi) for text in texts]
            cases.append({"labels": labels, "template": template, "multi": multi,
                          "scores": [[one["scores"][one["labels"].index(label)] for label in labels] for one in found]})
    base.write_json(HERE / "zero-shot.json", {"texts": texts, "cases": cases})


def main() -> None:
    torch.set_num_threads(1)
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    make_families()
    make_modular()
    make_jina_v1()
    make_jina_v2()
    make_zero_shot()
    base.write_json(HERE / "pairs.json", PAIRS)
    base.link_duplicates()


if __name__ == "__main__":
    main()
