"""Models as files without data: what is enough to decide on types, with as many layers as the rules look at."""

import os
from pathlib import Path
from struct import pack

import gguf_bytes as raw
from pumice.gguf import GGMLType, row_bytes

Shapes = dict[str, tuple[int, ...]]  # in GGUF's order


def dense(n_layer: int, n_embd: int = 256, n_ff: int = 512, tied: bool = False) -> Shapes:
    shapes: Shapes = {"token_embd.weight": (n_embd, 64), "output_norm.weight": (n_embd,)}
    if not tied:
        shapes["output.weight"] = (n_embd, 64)
    for i in range(n_layer):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{i}.{name}.weight"] = (n_embd, 256)
        shapes[f"blk.{i}.attn_norm.weight"] = (n_embd,)
        shapes[f"blk.{i}.ffn_gate.weight"] = shapes[f"blk.{i}.ffn_up.weight"] = (n_embd, n_ff)
        shapes[f"blk.{i}.ffn_down.weight"] = (n_ff, n_embd)
    return shapes


def experts(n_layer: int, n_expert: int) -> Shapes:
    shapes = {name: shape for name, shape in dense(n_layer).items() if "ffn" not in name}
    for i in range(n_layer):
        shapes[f"blk.{i}.ffn_gate_inp.weight"] = (256, n_expert)
        for name in ("gate", "up", "down"):
            shapes[f"blk.{i}.ffn_{name}_exps.weight"] = (256, 256, n_expert)
    return shapes


def fused(n_layer: int) -> Shapes:
    """As falcon's, whose queries, keys and values are one matrix."""
    shapes = {name: shape for name, shape in dense(n_layer).items() if not any(f"attn_{x}." in name for x in "qkv")}
    return {**shapes, **{f"blk.{i}.attn_qkv.weight": (256, 768) for i in range(n_layer)}}


# name: architecture, layers, heads, key/value heads, experts, tensors
OUTLINES = {
    "llama": ("llama", 17, 8, 2, 0, dense(17)),
    "tied": ("llama", 8, 4, 4, 0, dense(8, tied=True)),
    "odd_rows": ("llama", 4, 4, 4, 0, dense(4, n_embd=224, n_ff=40)),
    "70b": ("llama", 80, 8, 2, 0, dense(80)),
    "eight_experts": ("llama", 16, 8, 2, 8, experts(16, 8)),
    "many_experts": ("qwen3moe", 16, 8, 2, 16, experts(16, 16)),
    "falcon": ("falcon", 16, 8, 8, 0, fused(16)),
}


def write_outline(path: Path, name: str) -> Path:
    """The file, whose tensors of float16 are a hole in it."""
    architecture, n_layer, n_head, n_head_kv, n_expert, shapes = OUTLINES[name]
    numbers = {
        "block_count": n_layer,
        "context_length": 64,
        "embedding_length": shapes["token_embd.weight"][0],
        "feed_forward_length": 512,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "expert_count": n_expert,
        "expert_used_count": min(n_expert, 2),
        "vocab_size": 64,
    }
    epsilons = ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon")
    entries = [raw.entry("general.architecture", raw.STRING, raw.string(architecture))]
    entries += [raw.entry(f"{architecture}.{key}", raw.U32, pack("<I", value)) for key, value in numbers.items()]
    entries += [raw.entry(f"{architecture}.{key}", raw.F32, pack("<f", 1e-5)) for key in epsilons]
    infos, offset = [], 0
    for tensor, shape in shapes.items():
        infos.append(raw.tensor(tensor, shape, GGMLType.F16, offset))
        rows = 1
        for n in shape[1:]:
            rows *= n
        offset += -(-row_bytes(GGMLType.F16, shape[0]) * rows // 32) * 32
    head = raw.gguf(entries, infos)
    path.write_bytes(head)
    os.truncate(path, len(head) + offset)
    return path
