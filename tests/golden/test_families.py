# SPDX-License-Identifier: Apache-2.0
"""Every family of encoders: dialects of config.json and of tensor names give the same bytes, values that
the tables do not express are refused by name, and a config that lies is told, never believed.

The folders are made by make_families.py; that their vectors are right is test_folders.py's business.
"""
import fnmatch
import json
import pathlib
import random
import re
import shutil
import subprocess

import numpy
import pytest
from safetensors.numpy import load_file, save_file

import golden

DUMP = golden.BUILD / "tests/model_dump"
FOLDERS = golden.HERE / "folders"
TEXTS = json.loads((FOLDERS / "texts.json").read_text(encoding="utf-8"))
DIALECTS = sorted(path.name for path in FOLDERS.glob("family-*") if path.name.endswith(("-hub", "-names")))


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects_give_the_same_bytes(name, tmp_path):
    plain = golden.embed(FOLDERS / name.rsplit("-", 1)[0], TEXTS, work=tmp_path)
    assert numpy.array_equal(golden.embed(FOLDERS / name, TEXTS, work=tmp_path), plain)


def changed(name: str, work, **values):
    """A copy of a folder whose config.json has other values; None takes a key away."""
    path = work / "model"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(FOLDERS / name, path)
    config = json.loads((path / "config.json").read_text()) | values
    config = {key: value for key, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config))
    return path


def refusal(path) -> str:
    done = subprocess.run([DUMP, path], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr[-500:]
    return done.stderr


ROPE = {"rope_theta": 10.0, "factor": 2.0}
UNSUPPORTED, DAMAGED = "-6:", "-5:"
# folder, key, value, what the message says besides the key
ONLY = [
    ("plain-bert", "is_decoder", True, "true"),
    ("plain-bert", "add_cross_attention", True, "true"),
    ("plain-bert", "position_embedding_type", "relative_key", "relative_key"),
    ("plain-bert", "quantization_config", {"load_in_8bit": True}, "bitsandbytes"),
    ("plain-bert", "quantization_config", {"quant_method": "auto-round"}, "base_model"),
    ("plain-bert", "quantization_config", {"quant_type": "int8_weight_only"}, "no known method"),
    ("family-qwen3", "quantization_config", {"quant_method": "torchao"}, "torchao"),
    ("plain-bert", "pruned_heads", {"0": [1]}, "not empty"),
    ("plain-bert", "auto_map", {"AutoModel": "a/b--c.D"}, "a/b--c.D"),
    ("family-roberta", "position_embedding_type", "relative_key", "relative_key"),
    ("family-roberta", "auto_map", {"AutoModel": "a/b--c.D"}, "a/b--c.D"),
    ("mpnet", "relative_attention_num_buckets", 16, "16"),
    ("family-nomic-hub", "prenorm", True, "true"),
    ("family-nomic-hub", "use_rms_norm", True, "true"),
    ("family-nomic-hub", "parallel_block", True, "true"),
    ("family-nomic-hub", "rotary_emb_interleaved", True, "true"),
    ("family-nomic-hub", "rotary_emb_scale_base", 512, "present"),
    ("family-nomic-hub", "activation_function", "gelu", "gelu"),
    ("family-nomic-hub", "auto_map", {"AutoModel": "x/y--modeling_hf_nomic_bert.NomicBertModel"}, "x/y"),
    ("family-nomic", "rope_parameters", ROPE | {"rope_type": "yarn"}, "yarn"),
    ("family-gte", "logn_attention_scale", True, "true"),
    ("family-gte", "layer_norm_type", "rms_norm", "rms_norm"),
    ("family-gte-hub", "logn_attention_clip1", True, "true"),
    ("family-gte-hub", "rope_scaling", {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}, "ntk"),
    ("family-gte", "rope_parameters", ROPE | {"rope_type": "longrope"}, "longrope"),
    ("family-gte", "rope_scaling", ROPE | {"rope_type": "yarn"}, "yarn"),
    ("family-qwen3-yarn", "original_max_position_embeddings", 65, "65"),
    ("family-qwen2-gte-hub", "rope_scaling", ROPE | {"type": "yarn", "factor": 2.0}, "yarn"),
    ("family-jina", "feed_forward_type", "original", "original"),
    ("family-jina", "feed_forward_type", "swish", "swish"),
    ("family-jina", "auto_map", {"AutoModel": "a/jina-bert--modeling_bert.JinaBertModel"}, "a/jina-bert"),
    ("family-jina-qk", "feed_forward_type", "original", "original"),
    ("family-jina3", "lora_adaptations", ["text-matching"], "present"),
    ("family-jina3", "position_embedding_type", "relative_key", "relative_key"),
    ("family-jina3-tasks", "use_reg_tokens", True, "true"),
    ("family-jina3-tasks", "auto_map", {"AutoModel": "a/b--modeling_lora.XLMRobertaLoRA"}, "a/b--modeling_lora"),
    ("family-nomic-moe", "num_shared_experts", 1, "1"),
    ("family-nomic-moe", "moe_normalize_expert_weights", True, "true"),
    ("family-modernbert", "position_embedding_type", "relative_key", "relative_key"),
    ("family-modernbert-bias-hub", "rope_scaling", ROPE, "present"),
    ("family-modernbert", "layer_types", ["chunked_attention"] * 4, "chunked_attention"),
    ("family-modernbert", "rope_parameters", ROPE, "for all layers alike"),
    ("family-qwen3", "use_sliding_window", True, "true"),
    ("family-qwen3", "use_bidirectional_attention", True, "true"),
    ("family-qwen3", "layer_types", ["sliding_attention"] * 3, "sliding_attention"),
    ("family-qwen3", "auto_map", {"AutoModel": "a/b--c.D"}, "a/b--c.D"),
    ("family-qwen2", "use_sliding_window", True, "true"),
    ("family-llama-bidirec", "rope_parameters", ROPE | {"rope_type": "longrope", "short_factor": [1] * 6}, "longrope"),
    ("family-llama", "hidden_act", "xielu", "xielu"),
    ("family-gemma3", "attn_logit_softcapping", 50.0, "present"),
    ("family-gemma3", "final_logit_softcapping", 30.0, "present"),
    ("family-gemma3", "rope_scaling", ROPE | {"rope_type": "linear"}, "present"),
    ("family-gemma3", "is_causal", False, "false"),
    ("family-nomic", "rotary_emb_fraction", 0.5, "0.5"),
    ("family-nomic", "rotary_scaling_factor", 2, "2"),
    ("family-llama", "partial_rotary_factor", 0.5, "0.5"),
    ("family-t5", "feed_forward_proj", "gated-tanh", "tanh"),
    ("family-umt5", "feed_forward_proj", "gated-tanh", "tanh"),
    ("family-clip", "hidden_act", "mish", "mish"),
    ("family-albert", "num_hidden_groups", 2, "2"),
    ("family-deberta-v1", "talking_head", True, "true"),
    ("family-deberta-v1", "position_biased_input", None, "absent"),
    ("family-deberta-v1", "pos_att_type", "c2p", "c2p"),
    ("family-deberta-v1", "relative_attention", None, "absent"),
    ("family-deberta-v1", "embedding_size", 16, "present"),
    ("family-bloom", "apply_residual_connection_post_layernorm", True, "true"),
    ("family-bloom", "n_inner", 99, "present"),
    ("family-qwen3-bidirec", "auto_map", {"AutoModel": "modeling.Qwen3Other"}, "modeling.Qwen3Other"),
    ("family-qwen3-bidirec-hub", "auto_map", {"AutoModel": "modeling_bidirlm2.BidirLM"}, "modeling_bidirlm2.BidirLM"),
    ("family-qwen3-bidirec-hub", "query_pre_attn_scalar", 256, "present"),
    ("sparse-splade-code", "auto_map", {"AutoModelForMaskedLM": "splade2.Splade"}, "splade2.Splade"),
    ("family-qwen3", "auto_map", {"AutoModelForCausalLM": "modeling_other.Other"}, "modeling_other.Other"),
    ("family-reasonir", "auto_map", {"AutoModel": "modeling_reasonir_8b.Other"}, "modeling_reasonir_8b.Other"),
    ("family-deberta", "pos_att_type", ["c2p"], "c2p"),
    ("family-deberta", "pos_att_type", "p2p|c2p", "p2p|c2p"),
    ("family-deberta", "pos_att_type", None, "absent"),
    ("family-deberta", "position_biased_input", None, "absent"),
    ("family-deberta", "norm_rel_ebd", None, "absent"),
    ("family-deberta", "relative_attention", None, "absent"),
    ("family-deberta", "norm_rel_ebd", "none", "none"),
    ("family-deberta", "conv_kernel_size", 3, "3"),
    ("family-deberta", "embedding_size", 16, "present"),
    ("family-ministral3", "rope_parameters", None, "absent"),
    ("family-ministral3", "rope_scaling", {"type": "yarn", "factor": 2.0}, "present"),
    ("family-pplx", "auto_map", {"AutoModel": "perplexity-ai/pplx-embed-context-v1-0.6b--modeling.PPLXQwen3Model"}, "pplx-embed-context"),
    ("family-pplx", "use_bidirectional_attention", False, "false"),
    ("family-voyage", "use_bidirectional_attention", False, "false"),
    ("family-voyage", "use_bidirectional_attention", None, "absent"),
    ("family-voyage", "auto_map", {"AutoModel": "a/b--modeling_qwen3_bidirectional.Qwen3BidirectionalModel"}, "a/b--modeling_qwen3"),
    ("family-gpt2", "scale_attn_by_inverse_layer_idx", True, "true"),
    ("family-gpt-neox", "attention_bias", False, "false"),
    ("family-nvembed", "mask_type", "c", "c"),
    ("family-nvembed", "auto_map", {"AutoModel": "a/b--modeling_nvembed.NVEmbedModel"}, "a/b--modeling_nvembed"),
    ("family-llama-bidirec", "auto_map", {"AutoModel": "a/b--llama_bidirectional_model.LlamaBidirectionalModel"}, "a/b--llama"),
    ("plain-bert", "use_task_id", True, "true"),
    ("family-gemma", "hidden_activation", "gelu", "gelu"),
    ("family-gemma", "is_causal", False, "false"),
    ("family-gemma2", "attn_logit_softcapping", None, "absent"),
    ("family-gemma2", "use_bidirectional_attention", True, "true"),
    ("family-albert", "inner_group_num", 3, "3"),
    ("family-lfm2", "layer_types", ["conv", "full_attention", "mamba", "conv"], "mamba"),
    ("family-lfm2", "auto_map", {"AutoModel": "a/b--modeling_lfm2_bidirectional.Lfm2BidirectionalModel"}, "a/b--modeling_lfm2"),
    ("family-lfm2-bidirectional", "auto_map", {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalForMaskedLM"}, "ForMaskedLM"),
    ("family-qwen3", "layer_types", ["conv"] * 3, "conv"),
    ("family-jina", "feed_forward_type", None, "absent"),
    ("family-jina-qk", "feed_forward_type", None, "absent"),
]


@pytest.mark.parametrize("name, key, value, says", ONLY, ids=lambda value: str(value)[:30])
def test_other_values_are_refused_by_name(name, key, value, says, tmp_path):
    message = refusal(changed(name, tmp_path, **{key: value}))
    assert message.startswith(UNSUPPORTED), message
    word = "rope type" if says in ("yarn", "longrope", "ntk") else key
    assert word in message and says in message, message


def test_yarn_whose_range_is_not_rounded_is_refused(tmp_path):
    message = refusal(changed("family-qwen3-yarn", tmp_path, rope_scaling=ROPE | {"type": "yarn", "truncate": False}))
    assert message.startswith(UNSUPPORTED) and 'truncate "false"' in message, message


@pytest.mark.parametrize("key, factors", [("short_factor", None), ("short_factor", [1.0] * 5), ("long_factor", [1.0] * 7),
                                          ("long_factor", [1.0, 2.0, 0.0, 1.0, 1.0, 1.0]), ("long_factor", ["a"] * 6)])
def test_factors_of_longrope_that_are_none_are_damage(key, factors, tmp_path):
    config = json.loads((FOLDERS / "family-qwen3-longrope/config.json").read_text())
    message = refusal(changed("family-qwen3-longrope", tmp_path, rope_scaling=config["rope_scaling"] | {key: factors}))
    assert message.startswith(DAMAGED) and key in message, message


@pytest.mark.parametrize("name, says", [("family-qwen3-longrope", "(longrope)"), ("family-lfm2", "gated convolutions (LFM2)"),
                                        ("family-nvembed", "attention to latents (NV-Embed)"),
                                        ("family-gpt-neox", "side by side (GPT-NeoX)")])
def test_what_the_cpu_alone_computes_is_refused_elsewhere_by_name(name, says):
    done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / name, "--provider-engine", "onnxruntime", "--provider-order", "cpu", "a text"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and says in done.stderr, done.stderr


def test_nothing_stands_around_a_text_of_gpt_neox(tmp_path):
    """transformers 5 makes that class anew without a template, whatever tokenizer.json and add_eos_token say."""
    def tokenize(processor, **settings):
        path = changed("family-gpt-neox", tmp_path)
        for file, more in (("tokenizer.json", {"post_processor": processor}), ("tokenizer_config.json", {"tokenizer_class": "GPTNeoXTokenizerFast"} | settings)):
            (path / file).write_text(json.dumps(json.loads((path / file).read_text()) | more))
        return subprocess.run([golden.BIN, "tokenize", "-m", path, "--format", "jsonl", "the cat"], capture_output=True, text=True)
    template = json.loads((FOLDERS / "family-gpt-neox/tokenizer.json").read_text())["post_processor"]
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    assert json.loads(tokenize(plain).stdout)["ids"] == [259, 263]  # transformers 5.23's
    for done in (tokenize(template), tokenize(plain, add_eos_token=True)):
        assert done.returncode == 3 and "post_processor is not what GPTNeoXTokenizer makes" in done.stderr, done.stderr


def test_lfm2_has_one_activation_whatever_its_config_says(tmp_path):
    plain = golden.embed(FOLDERS / "family-lfm2", TEXTS, work=tmp_path)
    assert numpy.array_equal(golden.embed(changed("family-lfm2", tmp_path, hidden_act="gelu"), TEXTS, work=tmp_path), plain)


SOURCES = golden.ROOT / "src/model"
FOLDER_OF = {"bert": "plain-bert", "mpnet": "mpnet", "jina_flash": "../late/jina", "qwen3_bidirectional": "family-qwen3-bidirec", "splade_code": "sparse-splade-code"}  # others: "family-" and the name


def pairs(text: str) -> dict:
    """{"key", "values"}, … of C; a key of an object in the network's is "KWARGS.key"."""
    return dict(re.findall(r'{\s*"([\w.]+)", "([^"]*)"\s*}', re.sub(r'FL_KWARGS\("(\w+)"\)', r'"KWARGS.\1"', text)))


def own_values(name: str) -> dict:
    """The `only` of a table, with the macro that families share."""
    shared = re.search(r"#define FL_NOMIC_ONLY(.*?)#define", (SOURCES / "families/shared_names.h").read_text(), re.S)[1]
    text = (SOURCES / f"families/{name}.c").read_text().replace("FL_NOMIC_ONLY", shared.replace("\\\n", ""))
    found = re.search(r"\.only\s*= {(.*?)},\n *\n? *\.", text, re.S)
    return pairs(found[1] + "}") if found else {}


def other_value(values: str):
    values = values.removeprefix("=")
    if values[0].isdigit():
        return int(values[0]) + 1
    return {"false": True, "true": False, "absent": {"a": 1}, "*": None}.get(values, "another")


def with_value(name: str, folder: str, key: str, value):
    """config.json with that value wherever it counts: as such, or below text_config and in hf_model_config_kwargs there."""
    if name not in ("jina_clip", "nvembed"):
        yield {key: value}
        return
    inner = json.loads((FOLDERS / folder / "config.json").read_text())["text_config"]
    if name == "nvembed":
        yield {"text_config": inner | {key: value}}
        return
    if not key.startswith("KWARGS."):
        yield {"text_config": inner | {key: value}}
    if key not in own_values(name) or key.startswith("KWARGS."):
        kwargs = inner["hf_model_config_kwargs"] | {key.removeprefix("KWARGS."): value}
        yield {"text_config": inner | {"hf_model_config_kwargs": kwargs}}


FAMILIES = {path.stem: path.read_text() for path in sorted((SOURCES / "families").glob("*.c")) if "const fl_family " in path.read_text()}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_only_value_of_a_table_is_kept_to(name, tmp_path):
    """What the tables say and what all families have in common, whether or not a line above names it."""
    text = (SOURCES / "family.c").read_text()
    common = pairs(text[text.index("common[] = {"):text.index("};", text.index("common[] = {"))])
    own = own_values(name)
    assert len(common) >= 9 and (not re.search(r"\.only\b|_ONLY", (SOURCES / f"families/{name}.c").read_text()) or own)
    for key, values in (common | own).items():
        if values == "*":
            continue  # anything goes
        folder = FOLDER_OF.get(name, "family-" + name.replace("_", "-"))
        for config in with_value(name, folder, key, other_value(values)):
            message = refusal(changed(folder, tmp_path, **config))
            mark = key == "position_embedding_type" and "auto_map" in message  # it says whose code that is
            assert message.startswith((UNSUPPORTED, DAMAGED)) and (key.split(".")[-1] in message or mark), (key, values, message)


def published() -> dict:
    """The forms that docs/models.md lists: folder of the tests -> classes of the code that its row names."""
    table = re.search(r"\n\| code \| published as .*?\n\n", (golden.ROOT / "docs/models.md").read_text(), re.S)[0]
    forms, classes = {}, []
    for row in table.strip().splitlines()[2:]:
        _, code, _, form, _, _ = row.split("|")
        classes = re.findall(r"`([\w*]+\.[\w*]+)`", code)[:1] or classes  # "the same"
        for name in re.findall(r"(?<![\w/-])(?:family-[\w-]+|sparse-[\w-]+|jina-v\d|late/jina)", form):
            forms[name] = classes
    return forms


@pytest.mark.parametrize("name, classes", published().items())
def test_the_forms_of_the_document_are_folders_of_the_tests(name, classes):
    """Each opens: test_folders.py, test_lists.py, test_scores.py and test_late.py compare what comes out."""
    path = FOLDERS / name if name.startswith(("family-", "sparse-")) else golden.HERE / (name if "/" in name else f"scores/{name}")
    codes = json.loads((path / "config.json").read_text())["auto_map"]
    code = codes.get("AutoModel", codes.get("AutoModelForMaskedLM"))
    assert any(fnmatch.fnmatch(code.rsplit("--", 1)[-1], known) for known in classes), (codes, classes)


def test_every_code_of_the_tables_is_in_the_document():
    codes = {code for text in FAMILIES.values() for block in re.findall(r"\.remote_code\s*=\s*{(.*?)}", text, re.S)
             for code in re.findall(r'"(?:[\w./-]+--)?([\w*]+\.(?:\w+Model|\w+LoRA|\*))"', block)}
    assert len(codes) == 18
    assert codes == {name for classes in published().values() for name in classes}


def test_a_part_of_the_head_that_turns_is_refused(tmp_path):
    """Also inside rope_parameters: only NomicBERT of the Hub has a key for it."""
    for name in ("family-llama", "family-nomic"):
        message = refusal(changed(name, tmp_path, rope_parameters=ROPE | {"partial_rotary_factor": 0.5}))
        assert message.startswith(UNSUPPORTED) and 'partial_rotary_factor "0.5"' in message, message
    harmless = changed("family-nomic", tmp_path, rotary_emb_fraction=1.0, rotary_scaling_factor=1, max_trained_positions=2)
    assert numpy.array_equal(golden.embed(harmless, TEXTS, work=tmp_path),
                             golden.embed(FOLDERS / "family-nomic", TEXTS, work=tmp_path))


def test_the_quantizer_of_pplx_embed_is_of_its_family_alone(tmp_path):
    path = changed("family-qwen3-both-ways", tmp_path)
    modules = json.loads((path / "modules.json").read_text())
    modules.append({"idx": len(modules), "name": "9", "path": "", "type": "st_quantize.FlexibleQuantizer"})
    (path / "modules.json").write_text(json.dumps(modules))
    assert "is custom code" in refusal(path)


def test_queries_that_grow_end_where_they_would(tmp_path):
    """Ministral 3 behind its trained positions: 20 of them, whatever max_seq_length asks for; without the growth no end."""
    path = changed("family-ministral3", tmp_path)
    config = json.loads((path / "config.json").read_text())
    rope = config["rope_parameters"] | {"original_max_position_embeddings": 20}
    (path / "config.json").write_text(json.dumps(config | {"rope_parameters": rope}))
    cut = golden.embed(path, TEXTS, work=tmp_path)
    assert numpy.array_equal(cut, golden.embed(path, TEXTS, "--max-length", "20", work=tmp_path))
    (path / "config.json").write_text(json.dumps(config | {"rope_parameters": rope | {"llama_4_scaling_beta": 0}}))
    assert not numpy.array_equal(cut, golden.embed(path, TEXTS, work=tmp_path))


def test_a_projection_of_tokens_is_pooled_with_them(tmp_path):
    """voyage-4-nano: what pools otherwise than by sums, and the tokens themselves, are refused."""
    def refused(*flags) -> str:
        done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / "family-voyage", *flags, "a text"], capture_output=True, text=True)
        assert done.returncode != 0, flags
        return done.stderr
    for pooling in ("max", "mean,cls"):
        assert "network projects is not supported" in refused("--pooling", pooling)
    assert "projects only the pooled tokens" in refused("--output-kind", "tokens")
    path = changed("family-voyage", tmp_path)
    (path / "modules.json").unlink()
    whole = golden.embed(path, TEXTS, "--normalize", "true", "--max-length", "200", work=tmp_path)
    assert golden.difference(whole, golden.embed(FOLDERS / "family-voyage", TEXTS, work=tmp_path)) == 0


def test_is_causal_null_looks_both_ways(tmp_path):
    """As transformers' getattr(config, "is_causal", True) does; where another key decides it is refused."""
    path = changed("family-qwen3-both-ways", tmp_path)
    plain = golden.embed(path, TEXTS, work=tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"is_causal": None}))
    assert numpy.array_equal(golden.embed(path, TEXTS, work=tmp_path), plain)
    path = changed("family-gemma3", tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"is_causal": None}))
    message = refusal(path)
    assert message.startswith(UNSUPPORTED) and 'is_causal "null"' in message, message


@pytest.mark.parametrize("name", ["family-qwen3", "family-llama", "family-gemma3", "family-modernbert", "family-gte", "family-jina"])
def test_positions_by_a_formula_go_on_to_max_seq_length(name, tmp_path):
    """200, of which config.json says 20: as in sentence-transformers, which gives the vectors of the folder as it is."""
    path = changed(name, tmp_path, max_position_embeddings=20)
    assert numpy.array_equal(golden.embed(path, TEXTS, work=tmp_path), golden.embed(FOLDERS / name, TEXTS, work=tmp_path))


@pytest.mark.parametrize("name, changes", [
    ("family-qwen3", {"max_position_embeddings": 20, "rope_parameters": ROPE | {"rope_type": "dynamic"}}),
    ("family-nomic-hub", {"rotary_scaling_factor": 2, "max_trained_positions": 20})])
def test_positions_whose_angles_change_do_not(name, changes, tmp_path):
    done = subprocess.run([golden.BIN, "embed", "-m", changed(name, tmp_path, **changes), "--format", "jsonl", "the sea " * 50],
                          capture_output=True, text=True)
    row = json.loads(done.stdout)
    assert row["tokens"] == 20 and row["truncated"], done.stderr


# ---- CLIP --------------------------------------------------------------------------------------------

ENDED = ["the cat<|endoftext|>sat on the road", "<|endoftext|>", "the<|startoftext|> cat <|endoftext|><|endoftext|>"]


def whole_clip(work, **values):
    path = work / "clip"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(FOLDERS / "clip-whole", path)
    config = path / "0_CLIPModel/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    return path


def test_clip_reads_the_first_end_token(tmp_path):
    rows = golden.embed(FOLDERS / "family-clip", ENDED, work=tmp_path)
    expected = numpy.load(FOLDERS / "family-clip/ended.npy")
    assert numpy.abs(rows - expected).max() <= 1e-5 * numpy.abs(expected).max()
    largest = changed("family-clip", tmp_path, eos_token_id=2)  # the end is the largest id: the same one here
    assert numpy.array_equal(golden.embed(largest, ENDED, work=tmp_path), rows)


@pytest.mark.parametrize("name", ["family-clip", "clip-whole", "family-siglip", "family-siglip-whole"])
@pytest.mark.parametrize("flags, says", [(("--model-pooling", "mean"), "model.pooling mean"), (("--output-kind", "tokens"), "token")])
def test_clip_has_one_vector_a_text(name, flags, says):
    done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / name, *flags, "a"], capture_output=True, text=True)
    assert done.returncode in (2, 3) and says in done.stderr, done.stderr


def test_siglip_fills_a_text_up(tmp_path):
    """The tokens of its padding are attended to: they count, a cut does not change their number, and a caller's ids are complete."""
    def embedded(*words) -> list:
        done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / "family-siglip", "--format", "jsonl", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
    long = " ".join(["the cat sat"] * 20)
    rows = embedded("the cat", long)
    assert [row["tokens"] for row in rows] == [24, 24] and [row["truncated"] for row in rows] == [False, True]
    short, cut = embedded("--max-length", "5", "the cat", long)
    assert short["embedding"] == rows[0]["embedding"] and cut["tokens"] == 24 and cut["truncated"] and cut["embedding"] != rows[1]["embedding"]


def test_siglip_needs_padding_and_a_head(tmp_path):
    path = changed("family-siglip", tmp_path)
    tokenizer, settings = (json.loads((path / file).read_text()) for file in ("tokenizer.json", "tokenizer_config.json"))
    (path / "tokenizer_config.json").unlink()
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 24}))
    done = subprocess.run([golden.BIN, "embed", "-m", path, "a"], capture_output=True, text=True)
    assert done.returncode == 3 and "names no pad_token" in done.stderr, done.stderr
    tensors = load_file(path / "model.safetensors")
    for name in ("head.weight", "head.bias"):
        (path / "model.safetensors").unlink()
        save_file({key: value for key, value in tensors.items() if key != name}, path / "model.safetensors")
        assert f"tensor {name} is missing" in refusal(path)
    (path / "model.safetensors").unlink()
    save_file(tensors, path / "model.safetensors")
    (path / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "SiglipTokenizer"}))
    done = subprocess.run([golden.BIN, "embed", "-m", path, "a"], capture_output=True, text=True)
    assert done.returncode == 3 and "SiglipTokenizer" in done.stderr, done.stderr


@pytest.mark.parametrize("where, key, value, says", [
    ("", "add_projections", True, 'add_projections "true"'),
    ("", "auto_map", {"AutoModel": "a/jina-clip--modeling_clip.JinaCLIPModel"}, "a/jina-clip"),
    ("text_config", "hf_model_name_or_path", "jinaai/jina-embeddings-v3", "jinaai/jina-embeddings-v3"),
    ("text_config", "hf_model_name_or_path", None, 'hf_model_name_or_path "absent"'),
    ("text_config", "pooler_type", "cls_pooler", "cls_pooler"),
    ("text_config", "proj_type", "linear", "proj_type"),
    ("text_config", "default_lora_task", "retrieval.query", "default_lora_task"),
    ("text_config", "embed_dim", 24, "embed"),
    ("hf_model_config_kwargs", "use_qk_norm", True, 'use_qk_norm "true"'),
    ("hf_model_config_kwargs", "mlp_type", "mlp", 'mlp_type "mlp"'),
    ("hf_model_config_kwargs", "window_size", [3, 3], 'window_size "present"'),
    ("hf_model_config_kwargs", "hidden_act", "mish", "mish"),
    ("hf_model_config_kwargs", "num_hidden_layers", "3", "num_hidden_layers"),
])
def test_what_jina_clip_is_not(where, key, value, says, tmp_path):
    config = json.loads((FOLDERS / "family-jina-clip/config.json").read_text())
    part = config if where == "" else config["text_config"] if where == "text_config" else config["text_config"]["hf_model_config_kwargs"]
    part[key] = value
    if value is None:
        del part[key]
    assert says in refusal(changed("family-jina-clip", tmp_path, **config))


def test_jina_clip_pools_as_its_code_does(tmp_path):
    done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / "family-jina-clip", "--model-pooling", "cls", "a"], capture_output=True, text=True)
    assert done.returncode in (2, 3) and "takes the mean" in done.stderr, done.stderr
    rows = golden.embed(FOLDERS / "family-jina-clip", TEXTS, work=tmp_path)
    plain = changed("family-jina-clip", tmp_path)
    (plain / "modules.json").unlink()  # as it was first published
    assert numpy.array_equal(golden.embed(plain, TEXTS, work=tmp_path), rows) or \
        numpy.abs(golden.embed(plain, TEXTS, work=tmp_path) - rows).max() < 1e-6


def test_the_older_name_of_clips_text_config_counts_first(tmp_path):
    config = json.loads((FOLDERS / "clip-whole/0_CLIPModel/config.json").read_text())["text_config"]
    rows = golden.embed(FOLDERS / "clip-whole", TEXTS, work=tmp_path)
    older = whole_clip(tmp_path, text_config={"hidden_size": 7}, text_config_dict=config)
    assert numpy.array_equal(golden.embed(older, TEXTS, work=tmp_path), rows)
    assert "is not a multiple" in refusal(whole_clip(tmp_path, text_config=config | {"hidden_size": 31}))
    assert 'is_decoder "true"' in refusal(whole_clip(tmp_path, text_config=config | {"is_decoder": True}))


def test_a_module_of_clip_or_a_pooling_where_it_does_not_belong_is_refused(tmp_path):
    path = changed("plain-bert", tmp_path)
    clip = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.CLIPModel"}
    (path / "modules.json").write_text(json.dumps([clip]))
    assert "CLIPModel" in refusal(path)
    path = changed("family-clip", tmp_path)
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    (path / "modules.json").write_text(json.dumps([clip, pooling]))
    assert "Pooling" in refusal(path)
    (path / "modules.json").unlink()
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    save_file({name: value for name, value in tensors.items() if "projection" not in name}, path / "model.safetensors")
    assert "text_projection.weight" in refusal(path)


def clip_tokens(work, *steps, **values) -> subprocess.CompletedProcess:
    """The ids of a text by family-clip whose tokenizer.json has another value at the end of `steps`, or others for keys."""
    path = changed("family-clip", work)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    part = tokenizer
    for step in steps:
        part = part[step]
    part.update(values)
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return subprocess.run([golden.BIN, "tokenize", "-m", path, "--format", "jsonl", "The cat's  road, 20\u00a0C!"], capture_output=True, text=True)


@pytest.mark.parametrize("steps, values, says", [
    ((), {"normalizer": None}, "normalizer"),
    (("normalizer", "normalizers", 2), {"type": "NFKC"}, "normalizer"),
    (("pre_tokenizer", "pretokenizers", 0), {"invert": False}, "pre_tokenizer"),
    (("pre_tokenizer", "pretokenizers", 0), {"pattern": {"Regex": "[\\p{L}]+"}}, "pre_tokenizer"),
    (("model",), {"end_of_word_suffix": "</s>"}, "end_of_word_suffix"),
    (("model",), {"unk_token": "a"}, "unk_token"),
    (("post_processor",), {"sep": ["<|startoftext|>", 526]}, "post_processor"),
])
def test_clips_tokenizer_is_that_of_its_class(steps, values, says, tmp_path):
    done = clip_tokens(tmp_path, *steps, **values)
    assert done.returncode == 3 and f"{says} is not what CLIPTokenizer makes" in done.stderr, done.stderr


def test_the_two_patterns_of_clip_give_the_same_ids(tmp_path):
    """transformers 5 has special tokens in it, which are cut out of a text before."""
    plain = clip_tokens(tmp_path)
    pattern = json.loads((FOLDERS / "family-clip/tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    longer = clip_tokens(tmp_path, "pre_tokenizer", "pretokenizers", 0, pattern={"Regex": r"<\|startoftext\|>|<\|endoftext\|>|" + pattern})
    assert plain.returncode == 0 and plain.stdout == longer.stdout


def hub_qwen2(work, config=(), settings=(), tokenizer=()):
    """family-qwen2-gte-hub with other values in its three files."""
    path = changed("family-qwen2-gte-hub", work, **dict(config))
    for file, values in (("tokenizer_config.json", settings), ("tokenizer.json", tokenizer)):
        now = json.loads((path / file).read_text()) | dict(values)
        (path / file).unlink()
        (path / file).write_text(json.dumps(now))
    return path


END = [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]


@pytest.mark.parametrize("changes, says", [
    ({"config": {"is_causal": True}}, 'is_causal "true"'),
    ({"config": {"is_causal": None}}, 'is_causal "absent"'),
    ({"settings": {"eos_token": None}}, "post_processor"),
    ({"settings": {"add_bos_token": True}}, "post_processor"),
    ({"tokenizer": {"post_processor": {"type": "TemplateProcessing", "single": END, "pair": END + [{"Sequence": {"id": "B", "type_id": 0}}],
                                       "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["!"]}}}}},
     "post_processor"),
])
def test_code_of_gte_qwen2_with_other_switches_is_refused(changes, says, tmp_path):
    done = subprocess.run([golden.BIN, "embed", "-m", hub_qwen2(tmp_path, **changes), "a"], capture_output=True, text=True)
    assert done.returncode == 3 and says in done.stderr, done.stderr


def test_gte_qwen2_ends_a_text_only_where_its_code_does(tmp_path):
    def ids(path):
        done = subprocess.run([golden.BIN, "tokenize", "-m", path, "--format", "jsonl", "the sea"], capture_output=True, text=True)
        return json.loads(done.stdout)["ids"]
    ended, plain = ids(FOLDERS / "family-qwen2-gte-hub"), ids(hub_qwen2(tmp_path, settings={"add_eos_token": False}))
    assert ended[:-1] == plain and ended == ids(FOLDERS / "family-qwen2-gte")
    assert plain == ids(hub_qwen2(tmp_path, settings={"auto_map": None}))


def test_a_projection_between_equal_widths_is_refused(tmp_path):
    path = changed("family-albert", tmp_path, embedding_size=32)
    tensors = load_file(path / "model.safetensors")
    for name in [name for name in tensors if name.startswith("embeddings.") or name.endswith("hidden_mapping_in.weight")]:
        shape = (32,) if tensors[name].ndim == 1 else (len(tensors[name]), 32)
        tensors[name] = numpy.zeros(shape, numpy.float32)
    save_file(tensors, path / "model.safetensors")
    assert "encoder.embedding_hidden_mapping_in" in refusal(path)


def test_an_adapter_is_refused(tmp_path):
    path = changed("family-qwen3", tmp_path)
    (path / "adapter_config.json").write_text("{}")
    message = refusal(path)
    assert message.startswith(UNSUPPORTED) and "adapter_config.json" in message, message


def test_qwen2_has_the_tokenizer_of_its_class(tmp_path):
    """transformers 5 makes it whatever the folder names, 4 opens tokenizer.json: words in letters, and in pieces."""
    path = changed("family-qwen2", tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (path / file).unlink()
        shutil.copy(FOLDERS / "plain-bert" / file, path / file)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    for name, says in (("PreTrainedTokenizerFast", "only a tokenizer of that class"), ("BertTokenizer", "Set it to Qwen2Tokenizer")):
        (path / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": name}))
        done = subprocess.run([golden.BIN, "embed", "-m", path, "a"], capture_output=True, text=True)
        assert done.returncode == 3 and says in done.stderr, done.stderr


TASKS = "retrieval.query, separation, text-matching"


@pytest.mark.parametrize("name, flags, says", [
    ("family-jina3-tasks", (), TASKS),
    ("family-jina3-tasks", ("--model-task", "separatio"), TASKS),
    ("family-jina3-tasks", ("--model-task", "Separation"), TASKS),
    ("family-jina5", (), "retrieval, text-matching"),
    ("family-jina5-nano", ("--model-task", "retrieval.query"), "retrieval, text-matching"),
    ("family-jina3", ("--model-task", "separation"), "has no adapters or routes"),
    ("family-static", ("--model-task", "separation"), "has no adapters"),
], ids=str)
def test_a_task_is_asked_for_where_there_are_tasks_and_nowhere_else(name, flags, says):
    done = subprocess.run([golden.BIN, "embed", "-m", FOLDERS / name, *flags, "a"], capture_output=True, text=True)
    assert done.returncode == 2 and "model.task" in done.stderr and says in done.stderr, done.stderr


def test_a_task_brings_its_prompt_and_a_caller_may_bring_another(tmp_path):
    folder, flags = FOLDERS / "family-jina3-tasks", ("--model-task", "retrieval.query")
    rows = golden.embed(folder, TEXTS, *flags, work=tmp_path)
    bare = golden.embed(folder, ["the sea is " + text for text in TEXTS], *flags, "--prompt", "", work=tmp_path)
    assert numpy.array_equal(rows, bare)
    other = golden.embed(folder, ["it is " + text for text in TEXTS], *flags, "--prompt", "", work=tmp_path)
    named = golden.embed(folder, TEXTS, *flags, "--prompt-name", "text-matching", work=tmp_path)
    assert numpy.array_equal(other, named) and not numpy.array_equal(named, rows)


def test_a_task_without_a_prompt_has_that_of_config_json(tmp_path):
    """As the Hub's encode(task=…) puts it in front; sentence-transformers' file goes before it."""
    path, flags = changed("family-jina3-tasks", tmp_path), ("--model-task", "retrieval.query")
    rows = golden.embed(path, TEXTS, *flags, work=tmp_path)
    settings = path / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"prompts": {"other": "it is "}}))
    assert numpy.array_equal(golden.embed(path, TEXTS, *flags, work=tmp_path), rows)
    settings.unlink()
    assert numpy.array_equal(golden.embed(path, TEXTS, *flags, work=tmp_path), rows)
    settings.write_text(json.dumps({"prompts": {"retrieval.query": "it is "}}))
    bare = golden.embed(path, ["it is " + text for text in TEXTS], *flags, "--prompt", "", work=tmp_path)
    assert numpy.array_equal(golden.embed(path, TEXTS, *flags, work=tmp_path), bare)
    path = changed("family-jina3-tasks", tmp_path, task_instructions={"retrieval.query": 7})
    done = subprocess.run([golden.BIN, "embed", "-m", path, *flags, "a"], capture_output=True, text=True)
    assert done.returncode == 3 and "retrieval.query" in done.stderr, done.stderr


ADAPTER = "roberta.encoder.layers.1.mlp.fc1.parametrizations.weight.0.lora_"


@pytest.mark.parametrize("change, says", [
    (lambda t: t.pop(ADAPTER + "A"), "lora_A is missing"),
    (lambda t: t.update({ADAPTER + "B": t[ADAPTER + "B"][:2]}), "lora_B is not [3, 40, 2]"),
    (lambda t: t.update({ADAPTER + "A": t[ADAPTER + "A"][:, :1]}), "lora_A is not [3, 2, 32]"),
    (lambda t: t.update({ADAPTER + "B": t[ADAPTER + "B"].astype("int64")}), "lora_B is not"),
    (lambda t: t.pop(ADAPTER.replace("0.lora_", "original")), "mlp.fc1.parametrizations.weight.original"),
])
def test_adapters_that_do_not_fit_are_told(change, says, tmp_path):
    path = changed("family-jina3-tasks", tmp_path)
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    done = subprocess.run([golden.BIN, "embed", "-m", path, "--model-task", "separation", "a"], capture_output=True, text=True)
    assert done.returncode == 3 and says in done.stderr, done.stderr


def test_a_list_of_tasks_that_is_none_is_told(tmp_path):
    for tasks in (None, [], ["a"] * 300, {"a": 1}):
        path = changed("family-jina3-tasks", tmp_path, lora_adaptations=tasks)
        done = subprocess.run([golden.BIN, "embed", "-m", path, "--model-task", "a", "a"], capture_output=True, text=True)
        assert done.returncode == 3 and "lora_adaptations" in done.stderr, done.stderr


def test_a_task_whose_adapter_is_not_there_is_told(tmp_path):
    path, flags = changed("family-jina5", tmp_path, task_names=["retrieval", "clustering", "../retrieval"]), ("--model-task",)
    for task, says in (("clustering", "adapters/clustering/adapter_config.json is missing"), ("../retrieval", "leaves the folder")):
        done = subprocess.run([golden.BIN, "embed", "-m", path, *flags, task, "a"], capture_output=True, text=True)
        assert done.returncode == 3 and says in done.stderr, done.stderr
    done = subprocess.run([golden.BIN, "embed", "-m", path, *flags, "retrieval", "--pooling", "mean", "a"], capture_output=True, text=True)
    assert done.returncode in (2, 3) and "pools the last token" in done.stderr, done.stderr


def test_code_of_somebody_is_only_known_with_its_family(tmp_path):
    path = changed("family-jina3", tmp_path)
    modules = json.loads((path / "modules.json").read_text())
    (path / "modules.json").unlink()
    (path / "modules.json").write_text(json.dumps([modules[0] | {"type": "custom_st.Transformer"}, *modules[1:]]))
    message = refusal(path)
    assert message.startswith(UNSUPPORTED) and "custom_st.Transformer" in message, message


def static(work, **truncation):
    """A copy of family-static with this block "truncation", and a tokenizer_config.json that may not count."""
    path = work / "static"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(FOLDERS / "family-static", path)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    (path / "tokenizer.json").write_text(json.dumps(tokenizer | {"truncation": truncation or None}))
    (path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 2, "truncation_side": "left",
                                                            "tokenizer_class": "BertTokenizer", "do_lower_case": False}))
    return path


def test_a_static_model_reads_tokenizer_json_alone(tmp_path):
    plain = FOLDERS / "family-static"
    rows = golden.embed(static(tmp_path), TEXTS, work=tmp_path)
    assert numpy.array_equal(rows, golden.embed(plain, TEXTS, work=tmp_path))
    for side in ("Left", "Right"):
        block = {"direction": side, "max_length": 3, "strategy": "LongestFirst", "stride": 0}
        rows = golden.embed(static(tmp_path, **block), TEXTS, work=tmp_path)
        flags = ("--max-length", "3", "--truncate", side.lower())
        assert numpy.array_equal(rows, golden.embed(plain, TEXTS, *flags, work=tmp_path))
    message = refusal(static(tmp_path, max_length=3, stride=1))
    assert message.startswith(UNSUPPORTED) and "stride" in message, message


# what contradicts itself or the tensors: folder, changes, what the message names
LIES = [
    ("family-roberta", {"pad_token_id": 255}, "max_position_embeddings"),
    ("family-roberta", {"type_vocab_size": 2}, "token_type_embeddings.weight has shape [1, 32]"),
    ("family-ernie", {"use_task_id": True}, "task_type_embeddings.weight"),
    ("family-ernie-tasks", {"task_type_vocab_size": 4}, "task_type_embeddings.weight has shape [3, 32]"),
    ("family-electra", {"embedding_size": 24}, "word_embeddings.weight has shape"),
    ("family-electra", {"embedding_size": 32}, "word_embeddings.weight has shape"),
    ("family-nomic-hub", {"n_head": 3}, "num_attention_heads 3"),
    ("family-nomic-hub", {"rotary_emb_fraction": 0.4}, "pairs by rotary positions"),
    ("family-nomic-hub", {"rotary_emb_fraction": 1.5}, "rotary_emb_fraction 1.5"),
    ("family-nomic-hub", {"qkv_proj_bias": True}, "attn.Wqkv.bias"),
    ("family-jina", {"feed_forward_type": 1}, "feed_forward_type"),
    ("family-gte", {"type_vocab_size": 1}, "token_type_embeddings.weight"),
    ("family-gte-hub", {"rope_scaling": {"type": "ntk", "factor": 0.5}}, "rope factor 0.5"),
    ("family-nomic-moe", {"moe_top_k": 6}, "moe_top_k 6"),
    ("family-nomic-moe", {"num_experts": 4}, "router.layer.weight has shape [5, 32]"),
    ("family-modernbert", {"local_attention": 0}, "local_attention"),
    ("family-modernbert", {"local_attention": 1}, "local_attention 1 is a window that holds no other token"),
    ("family-modernbert", {"layer_types": ["full_attention"]}, "layer_types: its length 1"),
    ("family-modernbert", {"norm_bias": True}, "norm.bias"),
    ("family-modernbert-bias-hub", {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers"),
    ("family-modernbert-bias-hub", {"global_rope_theta": -1}, "global_rope_theta -1"),
    ("family-qwen3", {"num_key_value_heads": 4}, "num_key_value_heads 4"),
    ("family-qwen3-yarn", {"rope_scaling": {"type": "yarn", "factor": 0.5}}, "rope factor 0.5"),
    ("family-qwen3-yarn", {"rope_scaling": {"type": "yarn", "factor": 2.0, "attention_factor": -1}}, "make no yarn"),
    ("family-qwen3-yarn", {"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 0.1, "beta_slow": 9}}, "beta_fast 0.1"),
    ("family-qwen3", {"num_key_value_heads": 3}, "k_proj.weight has shape"),
    ("family-qwen3", {"head_dim": 11}, "head_dim 11"),
    ("family-qwen3", {"rms_norm_eps": 2}, "rms_norm_eps 2"),
    ("family-llama", {"rope_parameters": ROPE | {"rope_type": "llama3", "low_freq_factor": 4.0,
                                                 "high_freq_factor": 1.0}}, "high_freq_factor 1"),
    ("family-mistral", {"sliding_window": 1}, "sliding_window 1"),
    ("family-mistral", {"sliding_window": 0}, "sliding_window"),
    ("family-gemma3", {"sliding_window": 0}, "sliding_window"),
    ("family-nomic-moe", {"moe_top_k": 0}, "moe_top_k"),
    ("family-nomic-moe", {"num_experts": 5000}, "num_experts"),
    ("family-nomic-moe", {"moe_every_n_layers": 0}, "moe_every_n_layers"),
    ("family-gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar 0"),
    ("family-gemma3", {"num_hidden_layers": 4, "layer_types": None}, "layers.3."),
]


@pytest.mark.parametrize("name, change, says", LIES, ids=lambda value: str(value)[:40])
def test_a_config_that_lies_is_told(name, change, says, tmp_path):
    message = refusal(changed(name, tmp_path, **change))
    assert message.startswith(DAMAGED) and says in message, message


def test_any_small_change_is_refused_or_described(tmp_path):
    """Random values for random keys: model_dump ends with 0 or with a message, whatever comes."""
    draw = random.Random(15)
    values = [0, 1, -1, 3, 2 ** 31, 1e300, 0.5, True, False, None, "", "gelu", [], [1], {}, {"rope_type": 7}, "1"]
    for name in sorted(path.parent.name for path in FOLDERS.glob("family-*/config.json")):
        keys = sorted(json.loads((FOLDERS / name / "config.json").read_text()))
        for _ in range(6):
            path = changed(name, tmp_path, **{draw.choice(keys): draw.choice(values) for _ in range(2)})
            done = subprocess.run([DUMP, path], capture_output=True, text=True)
            assert done.returncode in (0, 3), (name, (path / "config.json").read_text(), done.stderr[-300:])


def stored(name: str, path, kind: str):
    """A copy of a folder with its weights rounded to half precision, stored as `kind`."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(FOLDERS / name, path)
    half = {key: value.astype(numpy.float16) for key, value in load_file(path / "model.safetensors").items()}
    (path / "model.safetensors").unlink()
    if kind == "shards":
        files = {key: f"model-0000{index % 3 + 1}-of-00003.safetensors" for index, key in enumerate(sorted(half))}
        for file in set(files.values()):
            save_file({key: half[key] for key in half if files[key] == file}, path / file)
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    else:
        save_file({key: value.astype(kind) for key, value in half.items()}, path / "model.safetensors")
    return path


@pytest.mark.parametrize("name", ["family-modernbert-bias", "family-gte", "family-qwen3", "family-gemma3", "family-static"])
def test_half_precision_and_shards_give_the_same_bytes(name, tmp_path):
    """Also of fused tensors, whose parts are ranges of rows."""
    rows = [golden.embed(stored(name, tmp_path / name, kind), TEXTS, work=tmp_path)
            for kind in ("float32", "float16", "shards")]
    assert numpy.array_equal(rows[0], rows[1]) and numpy.array_equal(rows[0], rows[2])


def test_a_gated_table_that_is_damaged_is_told(tmp_path):
    """A table in 4 bits of another size, a gate of another width or none, and a class of another name."""
    def copy(name: str):
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        return pathlib.Path(shutil.copytree(FOLDERS / name, tmp_path / "model"))
    path = copy("family-static-gated-4bit")
    table = (path / "embedding.q4_k_m.bin").read_bytes()
    for content, words in ((table[:-1], "not a table of 20 columns"), (b"", "not a table of 20 columns"), (None, "embedding.q4_k_m.bin")):
        (path / "embedding.q4_k_m.bin").write_bytes(content) if content is not None else (path / "embedding.q4_k_m.bin").unlink()
        assert words in refusal(path)
    path = copy("family-static-gated")
    tensors = load_file(path / "model.safetensors")
    for change, words in (({"dyt.bias": None}, "dyt.bias is missing"), ({"dyt.beta": tensors["dyt.beta"][:9]}, "shape of tensor dyt.beta")):
        save_file({key: value for key, value in (tensors | change).items() if value is not None}, path / "model.safetensors")
        assert words in refusal(path)
    path = copy("family-static-gated")
    (path / "modules.json").write_text((path / "modules.json").read_text().replace("modeling.SSE", "modeling.SSX"))
    assert "modeling.SSX" in refusal(path)
