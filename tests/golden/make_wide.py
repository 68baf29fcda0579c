#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_wide.py - small folders that the CUDA engine takes: heads of 32, as real models have them.

    make_wide.py            writes tests/golden/wide/ anew

One of each kind of encoder: absolute positions, relative bias, rotary with a gate, norms before the blocks with windows,
causal with grouped heads and their norms. Vectors are sentence-transformers', as make_folders.py has it.
"""
import shutil

import transformers

import make_families as families
import make_folders as base

WIDE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 202}
GROUPED = WIDE | {"num_key_value_heads": 1, "head_dim": 32}
ROPE = {"rope_type": "default", "rope_theta": 3000.0}


def main() -> None:
    base.HERE = base.HERE.parent / "wide"
    shutil.rmtree(base.HERE, ignore_errors=True)
    base.HERE.mkdir()
    windows = {"full_attention": ROPE, "sliding_attention": ROPE | {"rope_theta": 55.0}}
    for name, config, pooling in (
            ("bert", transformers.BertConfig(**WIDE), families.MEAN),
            ("nomic", transformers.NomicBertConfig(**WIDE, rope_parameters=ROPE), families.MEAN),
            ("gte", transformers.GteConfig(**WIDE | {"type_vocab_size": 0}, rope_parameters=ROPE), families.CLS),
            ("modernbert", transformers.ModernBertConfig(**WIDE | {
                "layer_types": ["sliding_attention", "full_attention"], "local_attention": 15}, rope_parameters=windows), families.MEAN),
            ("qwen3", transformers.Qwen3Config(**GROUPED, rope_parameters=ROPE), families.LAST),
            ("llama", transformers.LlamaConfig(**GROUPED | {"attention_bias": True, "mlp_bias": True}, rope_parameters=ROPE), families.LAST)):
        base.finish(families.save(name, config, pooling))
    base.finish(families.save("mpnet", transformers.MPNetConfig(**WIDE | {"max_position_embeddings": 226}), families.MEAN, roberta=True))
    base.link_duplicates()


if __name__ == "__main__":
    main()
