# SPDX-License-Identifier: Apache-2.0
"""family_references.py - JinaBERT v2 and NomicBERT with experts in plain torch, for make_families.py.

transformers has neither (their classes are remote code), so they are written here from the published
formulas: a dict of random tensors by their published names, and the rows of one text. Of LFM2 it has the
half that looks back; `centred` are the other's convolutions.
"""
import math

import torch
from torch.nn.functional import conv1d, gelu, layer_norm, linear, silu, softmax


def draw(shapes: dict, seed: int) -> dict:
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        if len(shape) > 1:
            tensors[name] = noise / shape[-1] ** 0.5 * 1.5
        else:
            tensors[name] = 1 + 0.2 * noise if name.endswith("weight") else 0.1 * noise
    return tensors


def module(name: str, rows: int, columns: int = 0, bias: bool = True) -> dict:
    weight = {f"{name}.weight": (rows, columns) if columns else (rows,)}
    return weight | ({f"{name}.bias": (rows,)} if bias else {})


def norm(x, t, name, eps):
    return layer_norm(x, x.shape[-1:], t[name + ".weight"], t[name + ".bias"], eps)


def apply(x, t, name):
    return linear(x, t[name + ".weight"], t.get(name + ".bias"))


def split(x, heads):
    return x.view(len(x), heads, -1).transpose(0, 1)


def join(x):
    return x.transpose(0, 1).reshape(x.shape[1], -1)


# ---- JinaBERT v2 -------------------------------------------------------------------------------------

def jina_shapes(c: dict, qk: bool) -> dict:
    h, mlp = c["hidden_size"], c["intermediate_size"]
    shapes = {"embeddings.word_embeddings.weight": (c["vocab_size"], h),
              "embeddings.token_type_embeddings.weight": (2, h)} | module("embeddings.LayerNorm", h)
    for i in range(c["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= module(f"{at}attention.{part}", h, h)
        shapes |= module(at + "attention.output.LayerNorm", h)
        if qk:
            for part in ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1", "layer_norm_2"):
                shapes |= module(at + part, h)
            shapes |= module(at + "mlp.up_gated_layer", 2 * mlp, h, False) | module(at + "mlp.down_layer", h, mlp)
        else:
            shapes |= module(at + "mlp.gated_layers", 2 * mlp, h, False) | module(at + "mlp.wo", h, mlp)
            shapes |= module(at + "mlp.layernorm", h)
    return shapes


FLASH = (("encoder.layer.", "encoder.layers."), ("embeddings.LayerNorm", "emb_ln"), ("attention.output.dense", "mixer.out_proj"),
         ("attention.output.LayerNorm", "norm1"), ("mlp.layernorm", "norm2"))


def jina_flash(tensors: dict) -> dict:
    """The same tensors as jina-bert-flash-implementation calls them, which has queries, keys and values in one."""
    out = {}
    for name, tensor in tensors.items():
        if ".self.query." in name:
            out[name.replace("attention.self.query", "mixer.Wqkv")] = torch.cat([tensors[name.replace("query", part)] for part in ("query", "key", "value")])
        elif ".self." not in name:
            out[name] = tensor
    for old, new in FLASH:
        out = {name.replace(old, new): tensor for name, tensor in out.items()}
    return out


def slopes(heads: int) -> list[float]:
    """From the paper of ALiBi, as all implementations spell it."""
    def powers(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start ** i for i in range(n)]
    if math.log2(heads).is_integer():
        return powers(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return powers(closest) + slopes(2 * closest)[0::2][:heads - closest]


def jina_rows(c: dict, t: dict, ids: list[int], qk: bool, types=0):
    heads, eps = c["num_attention_heads"], c["layer_norm_eps"]
    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.token_type_embeddings.weight"][types]
    x = norm(x, t, "embeddings.LayerNorm", eps)
    places = torch.arange(len(ids))
    bias = -torch.tensor(slopes(heads))[:, None, None] * (places[:, None] - places).abs()
    for i in range(c["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        q, k, v = (apply(x, t, f"{at}attention.self.{part}") for part in ("query", "key", "value"))
        if qk:
            q = norm(q, t, at + "attention.self.layer_norm_q", eps)
            k = norm(k, t, at + "attention.self.layer_norm_k", eps)
        q, k, v = split(q, heads), split(k, heads), split(v, heads)
        seen = join(softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias, -1) @ v)
        y = norm(apply(seen, t, at + "attention.output.dense") + x, t, at + "attention.output.LayerNorm", eps)
        if qk:
            x = norm(y + x, t, at + "layer_norm_1", eps)
            up, gate = apply(x, t, at + "mlp.up_gated_layer").chunk(2, -1)
            x = norm(apply(up * gelu(gate), t, at + "mlp.down_layer") + x, t, at + "layer_norm_2", eps)
        else:
            gate, up = apply(y, t, at + "mlp.gated_layers").chunk(2, -1)
            x = norm(apply(gelu(gate) * up, t, at + "mlp.wo") + y, t, at + "mlp.layernorm", eps)
    return x


# ---- NomicBERT with experts --------------------------------------------------------------------------

def has_experts(c: dict, layer: int) -> bool:
    return layer % c["moe_every_n_layers"] == c["moe_every_n_layers"] - 1


def moe_shapes(c: dict) -> dict:
    h, mlp, experts = c["n_embd"], c["n_inner"], c["num_experts"]
    shapes = {"embeddings.word_embeddings.weight": (c["vocab_size"], h),
              "embeddings.token_type_embeddings.weight": (c["type_vocab_size"], h)} | module("emb_ln", h)
    for i in range(c["n_layer"]):
        at = f"encoder.layers.{i}."
        shapes |= module(at + "attn.Wqkv", 3 * h, h) | module(at + "attn.out_proj", h, h)
        shapes |= module(at + "norm1", h) | module(at + "norm2", h)
        if has_experts(c, i):
            shapes |= {at + "mlp.router.layer.weight": (experts, h), at + "mlp.experts.bias": (h,),
                       at + "mlp.experts.mlp.w1": (experts * mlp, h), at + "mlp.experts.mlp.w2": (experts * mlp, h)}
        else:
            shapes |= module(at + "mlp.fc1", mlp, h) | module(at + "mlp.fc2", h, mlp)
    return shapes


def turn(x, base: float):
    """Rotary positions of [heads, n, d], float32 throughout."""
    d = x.shape[-1]
    angles = torch.outer(torch.arange(x.shape[1]).float(), 1.0 / base ** (torch.arange(0, d, 2).float() / d))
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    return x * cos + torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1) * sin


def moe_rows(c: dict, t: dict, ids: list[int]):
    heads, eps, mlp = c["n_head"], c["layer_norm_epsilon"], c["n_inner"]
    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, t, "emb_ln", eps)
    for i in range(c["n_layer"]):
        at = f"encoder.layers.{i}."
        q, k, v = (split(part, heads) for part in apply(x, t, at + "attn.Wqkv").chunk(3, -1))
        q, k = turn(q, c["rotary_emb_base"]), turn(k, c["rotary_emb_base"])
        seen = join(softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1) @ v)
        x = norm(apply(seen, t, at + "attn.out_proj") + x, t, at + "norm1", eps)
        if has_experts(c, i):
            chances = softmax(apply(x, t, at + "mlp.router.layer"), -1)
            best, which = chances.topk(c["moe_top_k"], -1)
            y = torch.zeros_like(x) + t[at + "mlp.experts.bias"]
            for row in range(len(ids)):
                for chance, expert in zip(best[row], which[row].tolist()):
                    part = slice(expert * mlp, (expert + 1) * mlp)
                    up = gelu(linear(x[row], t[at + "mlp.experts.mlp.w1"][part]))
                    y[row] += chance * (up @ t[at + "mlp.experts.mlp.w2"][part])
        else:
            y = apply(gelu(apply(x, t, at + "mlp.fc1")), t, at + "mlp.fc2")
        x = norm(x + y, t, at + "norm2", eps)
    return x


# ---- LFM2 that looks both ways -----------------------------------------------------------------------

# ---- NV-Embed ----------------------------------------------------------------------------------------

BLOCK = "latent_attention_model.cross_attend_blocks."


def nv_shapes(c: dict) -> dict:
    h, mlp, dims = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    shapes = {"embedding_model.embed_tokens.weight": (c["vocab_size"], h), "embedding_model.norm.weight": (h,)}
    for i in range(c["num_hidden_layers"]):
        at = f"embedding_model.layers.{i}."
        for part in ("input_layernorm", "post_attention_layernorm"):
            shapes |= module(at + part, h, bias=False)
        for part, heads in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"]), ("v", c["num_key_value_heads"])):
            shapes |= module(f"{at}self_attn.{part}_proj", heads * dims, h, bias=False)
        shapes |= module(at + "self_attn.o_proj", h, c["num_attention_heads"] * dims, bias=False)
        shapes |= module(at + "mlp.gate_proj", mlp, h, bias=False) | module(at + "mlp.up_proj", mlp, h, bias=False)
        shapes |= module(at + "mlp.down_proj", h, mlp, bias=False)
    inner = c["num_cross_heads"] * c["cross_dim_head"]
    shapes |= {"latent_attention_model.latents": (c["num_latents_value"], h)}
    shapes |= module(BLOCK + "0.norm", h) | module(BLOCK + "0.norm_context", h) | module(BLOCK + "1.norm", h)
    shapes |= module(BLOCK + "0.fn.to_q", inner, h, bias=False) | module(BLOCK + "0.fn.to_kv", 2 * inner, h, bias=False)
    shapes |= module(BLOCK + "0.fn.to_out", h, inner, bias=False)
    return shapes | module(BLOCK + "1.fn.net.0", 8 * h, h) | module(BLOCK + "1.fn.net.2", h, 4 * h)


def rms(x, t, name, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * t[name + ".weight"]


def nv_layer(c: dict, t: dict, at: str, x):
    """Mistral's, but that every token sees all others."""
    z = rms(x, t, at + "input_layernorm", c["rms_norm_eps"])
    heads, kv, base = c["num_attention_heads"], c["num_key_value_heads"], c["rope_theta"]
    q, k = turn(split(apply(z, t, at + "self_attn.q_proj"), heads), base), turn(split(apply(z, t, at + "self_attn.k_proj"), kv), base)
    k, v = (part.repeat_interleave(heads // kv, 0) for part in (k, split(apply(z, t, at + "self_attn.v_proj"), kv)))
    shares = softmax(q @ k.transpose(1, 2) / c["head_dim"] ** 0.5, dim=-1)
    x = x + apply(join(shares @ v), t, at + "self_attn.o_proj")
    z = rms(x, t, at + "post_attention_layernorm", c["rms_norm_eps"])
    return x + apply(silu(apply(z, t, at + "mlp.gate_proj")) * apply(z, t, at + "mlp.up_proj"), t, at + "mlp.down_proj")


def nv_rows(c: dict, t: dict, ids: list[int]):
    x = t["embedding_model.embed_tokens.weight"][torch.tensor(ids)]
    for i in range(c["num_hidden_layers"]):
        x = nv_layer(c, t, f"embedding_model.layers.{i}.", x)
    x = rms(x, t, "embedding_model.norm", c["rms_norm_eps"])
    heads = c["num_cross_heads"]
    q = split(apply(norm(x, t, BLOCK + "0.norm", 1e-5), t, BLOCK + "0.fn.to_q"), heads)
    latents = norm(t["latent_attention_model.latents"], t, BLOCK + "0.norm_context", 1e-5)
    k, v = (split(part, heads) for part in apply(latents, t, BLOCK + "0.fn.to_kv").chunk(2, dim=-1))
    shares = softmax(q @ k.transpose(1, 2) / c["cross_dim_head"] ** 0.5, dim=-1)
    x = apply(join(shares @ v), t, BLOCK + "0.fn.to_out") + x
    half, gates = apply(norm(x, t, BLOCK + "1.norm", 1e-5), t, BLOCK + "1.fn.net.0").chunk(2, dim=-1)
    return apply(half * gelu(gates), t, BLOCK + "1.fn.net.2") + x


def nv_config(c: dict) -> dict:
    """config.json as published."""
    latent = ("num_latents_value", "num_cross_heads", "cross_dim_head")
    return {"architectures": ["NVEmbedModel"], "model_type": "nvembed", "auto_map": {
        "AutoConfig": "configuration_nvembed.NVEmbedConfig", "AutoModel": "modeling_nvembed.NVEmbedModel"},
        "hidden_size": c["hidden_size"], "padding_side": "right", "is_mask_instruction": True, "add_pad_token": True, "mask_type": "b",
        "add_eos": c["add_eos"], "text_config": {key: c[key] for key in c if key not in (*latent, "add_eos", "model_type")} | {
            "model_type": "bidir_mistral", "sliding_window": 4, "attention_dropout": 0.0, "hidden_act": "silu"},
        "latent_attention_config": {key: c[key] for key in latent} | {
            "model_type": "latent_attention", "hidden_dim": c["hidden_size"], "latent_dim": c["hidden_size"], "output_normalize": True}}


def centred(self, hidden_states, attention_mask=None, **_):
    """Lfm2ShortConv.forward whose middle is the token itself."""
    if attention_mask is not None:
        hidden_states = hidden_states * attention_mask[:, :, None]
    before, gate, x = self.in_proj(hidden_states).transpose(-1, -2).chunk(3, dim=-2)
    taps = self.conv.weight.shape[-1]
    summed = conv1d(before * x, self.conv.weight, self.conv.bias, padding=taps // 2, groups=x.shape[1])
    return self.out_proj((gate * summed[..., :x.shape[-1]]).transpose(-1, -2))
