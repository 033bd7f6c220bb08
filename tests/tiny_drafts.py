"""Tiny models of the zoo with a layer that drafts behind the last one."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tiny_models import IDS, TIED, TinyModel, tiny, uniform
from tiny_zoo import ZOO
from tiny_zoo.streams import BIASED, DEEPSEEK4, HASHED, LATENT, MIXED, MIXED_END, deepseek4

WITHOUT_POOLS = deepseek4(
    [f"{LATENT} {MIXED} {HASHED}", f"{LATENT} {MIXED} {BIASED}"],
    attention__compress_ratios=[0, 0],
    attention__indexer__key_length=32,
    swiglu_clamp_exp=0.5,
)
"""Of DeepSeek V4; with indexers as wide as heads, or without a draft, llama.cpp ends by a signal."""


def drafting(
    name: str,
    last: int,
    norm: str = "nextn.shared_head_norm",
    more: tuple[int, ...] = (),
    base: TinyModel | None = None,
    **keys: Any,
) -> TinyModel:
    """The model of this name, or ``base``, and a layer with the tensors of layer ``last``, and of ``more``.

    Lists of keys have one value more.
    """
    model = base or ZOO[name]
    n, n_embd = model.metadata["block_count"], model.metadata["embedding_length"]
    added = {
        f"blk.{n}.{key.removeprefix(blk)}": shape
        for blk in (f"blk.{each}." for each in (last, *more))
        for key, shape in model.shapes.items()
        if key.startswith(blk)
    }
    added |= {f"blk.{n}.{key}.weight": (n_embd,) for key in ("nextn.enorm", "nextn.hnorm", norm) if key}
    added[f"blk.{n}.nextn.eh_proj.weight"] = (n_embd, 2 * n_embd)
    metadata = {
        key: [*value, value[last]] if isinstance(value, list) and len(value) == n else value
        for key, value in model.metadata.items()
    }
    metadata |= {"block_count": n + 1, "nextn_predict_layers": 1} | keys
    return replace(model, metadata=metadata, shapes=model.shapes | added)


def both_blocks(name: str, attends: int, routes: int, **keys: Any) -> TinyModel:
    """A layer that drafts with attention and experts, where those before it have one of both."""
    model = drafting(name, attends, more=(routes,), **keys)
    n = model.metadata["block_count"] - 1
    return replace(model, shapes=model.shapes | {f"blk.{n}.post_attention_norm.weight": (64,)})


MODELS = {
    "glm4moe": drafting("glm4moe", 1), "glm4moe-own-norm": drafting("glm4moe", 1, norm=""),
    "deepseek2": drafting("deepseek2", 2), "deepseek32": drafting("deepseek32", 2),
    "deepseek4": drafting("deepseek4", 1, base=WITHOUT_POOLS),
    "glm-dsa": drafting("glm-dsa", 2, **{"attention.indexer.types": [1, 0, 1]}), "qwen3next": drafting("qwen3next", 1),
    "qwen35": drafting("qwen35", 1), "qwen35moe": drafting("qwen35moe", 1), "hy_v3": drafting("hy_v3", 1),
    "cohere2moe": drafting("cohere2moe", 1), "bailingmoe3": drafting("bailingmoe3", 1, norm="layer_output_norm"),
    "step35": drafting("step35", 1), "mimo2": drafting("mimo2", 0),
    "nemotron_h_moe": both_blocks("nemotron_h_moe", 2, 3, expert_used_count=2),
    "nemotron_h_moe-latent": both_blocks("nemotron_h_moe-latent", 2, 1),
}  # fmt: skip

EAGLE = (
    "attn_norm attn_norm_2=n attn_q=h*d,2*n attn_k=g*d,2*n attn_v=g*d,2*n attn_output ffn_norm ffn_gate ffn_up ffn_down"
)
ASSISTANT = "attn_norm post_attention_norm ffn_norm ffn_gate ffn_up ffn_down post_ffw_norm layer_output_scale=1"
QUERIES = " attn_q attn_q_norm attn_output"
SLIDING_QUERIES = " attn_q=h*8,n attn_q_norm=8 attn_output=n,h*8"
eagle = partial(tiny, "eagle3", n_layer=1, target_layers=[0, 1, 2], target_hidden_size=48)
EAGLES = {
    "eagle3": eagle(EAGLE, "token_embd fc=n,144 output_norm output"),
    "eagle3-few-tokens": eagle(
        EAGLE, "token_embd fc=n,144 enc.output_norm.weight=144 output_norm output=16,n d2t!=16",
        norm_before_residual=True, norm_before_fc=True, rope__freq_base=500.0,
    ),
}  # fmt: skip
"""Drafts of a token."""

DFLASH = "attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm attn_output ffn_norm ffn_gate ffn_up ffn_down"
MORE = f"{DFLASH} post_attention_norm post_ffw_norm layer_output_scale=1 attn_sinks"
FEATURES = "fc=n,2*n enc.output_norm.weight=n output_norm"
dflash = partial(tiny, "dflash", target_layers=[0, 2], block_size=8)
BLOCKS = {
    "dflash": dflash(DFLASH, f"token_embd {FEATURES} output rope_freqs"),
    "dflash-windows": dflash(
        [MORE, MORE.replace(" attn_v", "")], f"token_embd {FEATURES} output=16,n d2t!=16", attention__sliding_window=12,
        attention__sliding_window_pattern=[True, False], attention__scale=0.3, attention__value_scale=0.7,
        embedding_scale=3.0, hidden_activation="gelu",
    ),
    "dflash-tied": dflash(
        DFLASH, f"token_embd {FEATURES}", rope__dimension_sections=[8, 0, 0, 0], attention__causal=True,
    ),
}  # fmt: skip
"""Drafts of blocks of tokens."""

CHAIN = "markov_w1=V,12 markov_w2=V,12"
SURE = "conf_proj=1,n+12 conf_proj.bias=1"
dspark4 = partial(
    tiny, "dflash", f"{LATENT} {MIXED} {BIASED}", dims={"d": 64, "g": 1, "q": 24, "o": 16, "C": 4},
    target_layers=[0, 2], block_size=8, **DEEPSEEK4,
)  # fmt: skip
CHAINS = {
    "dspark": dflash(DFLASH, f"token_embd {FEATURES} output {CHAIN} {SURE}", block_size=10),
    "dspark-behind-a-token": dflash(
        DFLASH, f"token_embd {FEATURES} output=16,n d2t!=16 markov_w1=V,12 markov_w2=16,12 markov_w2.scale=1 {SURE}",
        sample_from_anchor=False,
    ),
    "dspark-unsure": dflash(DFLASH, f"token_embd {FEATURES} {CHAIN}"),
    "dspark-deepseek4": dspark4(
        ends=f"token_embd {FEATURES} output {MIXED_END} {CHAIN} {SURE}", attention__sliding_window=12,
        swiglu_clamp_exp=0.5,
    ),
    "dflash-deepseek4": dspark4(
        ends=f"token_embd {FEATURES} {MIXED_END}", attention__sliding_window=64, swiglu_clamp_exp=[0.0, 0.5],
        swiglu_clamp_shexp=[0.4, 0.0], attention__causal=True,
    ),
}  # fmt: skip
"""DSpark: drafts of blocks whose tokens hang together, and how likely each is accepted."""

CONVOLVED = " attn_conv_base!=2,K,n attn_conv_proj=2*K*n//S,n ffn_conv_base!=2,K,n ffn_conv_proj=2*K*n//S,n"
SELECTOR = "selector_predecessor=V,6 selector_successor=V,6 selector_hidden=6,n"
dflash2 = partial(dflash, selector_rank=6, selector_top_k=3)
LATTICES = {
    "dflash2": dflash2(
        DFLASH + CONVOLVED, f"token_embd {FEATURES} output {SELECTOR}", dims={"K": 4, "S": 16}, conv_kernel_size=4,
        conv_group_size=16,
    ),
    "dflash2-few-tokens": dflash2(
        MORE + CONVOLVED, f"token_embd {FEATURES} output=16,n d2t!=16 {SELECTOR}", dims={"K": 10, "S": 8},
        conv_kernel_size=10, conv_group_size=8, logit_scale=0.7, final_logit_softcapping=0.5,
        attention__sliding_window=12, attention__sliding_window_pattern=[True, False],
    ),
}  # fmt: skip
"""DFlash 2: drafts of blocks as candidates, and how well they follow each other."""

FOR_TARGETS = {
    "gemma4-assistant": (
        "gemma4",
        tiny(
            "gemma4-assistant", [ASSISTANT + SLIDING_QUERIES, ASSISTANT + QUERIES],
            f"{TIED} rope_freqs nextn.pre_projection.weight=n,128 nextn.post_projection.weight=64,n", dims={"n": 32},
            nextn_predict_layers=2, embedding_length_out=64, rope__freq_base=1e6, rope__dimension_count_swa=8,
            attention__key_length_swa=8, attention__value_length_swa=8, attention__sliding_window=8,
            attention__sliding_window_pattern=[True, False],
        ),
    ),
    "eagle3-shared": ("orion", eagle(EAGLE, "fc=n,144 output_norm")),
    "dflash-shared": ("orion", dflash(DFLASH, FEATURES)),
}  # fmt: skip
"""Drafts that read weights or caches of their target: the target's name in the zoo, and the draft."""


ALONE = EAGLES | BLOCKS | CHAINS | LATTICES
"""Drafts that need nothing of their target."""

DRAFTS = ALONE | {name: draft for name, (_, draft) in FOR_TARGETS.items()}
"""Those in files of their own."""


def fitted(draft: TinyModel, target: TinyModel) -> TinyModel:
    """Return a draft of ``ALONE`` that reads the last layers of ``target``."""
    n_embd, last = target.metadata["embedding_length"], target.metadata["block_count"] - 1
    metadata: dict[str, Any] = {"target_layers": [max(last, 1)] * len(draft.metadata["target_layers"])}
    shapes = draft.shapes
    if draft.architecture == "eagle3":
        metadata["target_hidden_size"] = n_embd
        shapes = {name: tuple(3 * n_embd if n == 144 else n for n in shape) for name, shape in shapes.items()}
    return replace(draft, metadata=draft.metadata | metadata | {"/tokenizer.ggml.mask_token_id": 5}, shapes=shapes)


def features_of(model: TinyModel) -> np.ndarray:
    """Return the inputs of layers of a target for the tokens IDS: float32 ``[tokens, n_features]``."""
    n = model.shapes["fc.weight"][1]
    return uniform(3, len(IDS) * n).reshape(len(IDS), n).astype(np.float32)


def hidden_of(model: TinyModel) -> np.ndarray:
    """Hidden states for the tokens IDS: float32 ``[tokens, n_embd]``."""
    n_embd = model.metadata.get("embedding_length_out", model.metadata["embedding_length"])
    n_embd *= model.metadata.get("hyper_connection.count", 1)
    return uniform(7, len(IDS) * n_embd).reshape(len(IDS), n_embd).astype(np.float32)
