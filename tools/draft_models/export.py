"""Write the target, its sister and the head as GGUF files in Q8_0."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor, nn

from pumice.gguf import GGMLType, TensorInfo
from pumice.gguf.copy import parts_by_size
from pumice.gguf.writer import Writer
from pumice.quantize import quantize
from tools.demo_model.model import Block, Llama, ModelConfig
from tools.demo_model.tokenizer import BOS_ID, EOS_ID, vocabulary

from .eagle import Eagle

NORMAL, CONTROL = 1, 3  # GGUF's types of tokens
Metadata = Mapping[str, Any]


def export_llama(model: Llama, tokenizer: Tokenizer, path: Path, name: str, split: int = 0) -> None:
    """Write a llama model; with ``split``, in parts of at most ``split`` bytes."""
    metadata = architecture_keys("llama", model.config, name, model.config.n_layer, model.config.n_ff)
    modules: dict[str, nn.Module] = {"token_embd": model.embedding}
    for i, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        modules |= {f"blk.{i}.{part}": module for part, module in block_modules(block).items()}
    _write(path, metadata | tokenizer_keys(tokenizer), modules | {"output_norm": model.norm}, split)


def export_eagle(head: Eagle, layers: list[int], tokenizer: Metadata, path: Path) -> None:
    """Write a head, which shares the target's embeddings and output matrix. ``tokenizer``: keys of the target's."""
    metadata = architecture_keys("eagle3", head.config, "Pumice draft test, EAGLE-3", 1, head.n_ff)
    metadata |= {
        "eagle3.target_layers": layers,
        "eagle3.target_hidden_size": head.config.n_embd,
        "eagle3.norm_before_residual": False,
    }
    modules = {
        "fc": head.fc,
        "blk.0.attn_norm": head.token_norm,
        "blk.0.attn_norm_2": head.hidden_norm,
        "blk.0.attn_q": head.q,
        "blk.0.attn_k": head.k,
        "blk.0.attn_v": head.v,
        "blk.0.attn_output": head.output,
        "blk.0.ffn_norm": head.ffn_norm,
        "blk.0.ffn_gate": head.gate,
        "blk.0.ffn_up": head.up,
        "blk.0.ffn_down": head.down,
        "output_norm": head.norm,
    }
    _write(path, {**metadata, **tokenizer}, modules)


def block_modules(block: Block) -> dict[str, nn.Module]:
    """Return the parts of a layer by their names in a GGUF file."""
    return {
        "attn_norm": block.attention_norm,
        "attn_q": block.attention.q,
        "attn_k": block.attention.k,
        "attn_v": block.attention.v,
        "attn_output": block.attention.output,
        "ffn_norm": block.ffn_norm,
        "ffn_gate": block.gate,
        "ffn_up": block.up,
        "ffn_down": block.down,
    }


def architecture_keys(architecture: str, config: ModelConfig, name: str, n_layer: int, n_ff: int) -> dict[str, Any]:
    """Return the metadata of an architecture with a model's sizes."""
    sizes = {
        "vocab_size": config.n_vocab,
        "context_length": config.n_ctx,
        "embedding_length": config.n_embd,
        "block_count": n_layer,
        "feed_forward_length": n_ff,
        "attention.head_count": config.n_head,
        "attention.head_count_kv": config.n_head_kv,
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": config.rope_base,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
    }
    general = {"general.architecture": architecture, "general.type": "model", "general.name": name}
    return {**general, **{f"{architecture}.{key}": value for key, value in sizes.items()}}


def tokenizer_keys(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the metadata of a tokenizer."""
    tokens, merges = vocabulary(tokenizer)
    keys = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": np.array([CONTROL if i in (BOS_ID, EOS_ID) else NORMAL for i in range(len(tokens))], np.int32),
        "merges": merges,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "add_bos_token": True,
        "add_eos_token": False,
        "add_space_prefix": False,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def _write(path: Path, metadata: Metadata, modules: Mapping[str, nn.Module], split: int = 0) -> None:
    """Write the weights of modules, matrices in Q8_0 and vectors in F32."""
    wide = path.with_suffix(".f32.gguf")
    arrays = {f"{name}.weight": _array(module.weight) for name, module in modules.items()}
    infos = [TensorInfo(name, GGMLType.F32, array.shape) for name, array in arrays.items()]
    with Writer(wide, metadata, infos, force=True) as writer:
        for array in arrays.values():
            writer.write(array)
    parts = partial(parts_by_size, most=split) if split else None
    quantize(wide, path, "Q8_0", parts=parts, force=True)
    wide.unlink()


def _array(tensor: Tensor | nn.Module) -> np.ndarray:
    assert isinstance(tensor, Tensor)
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())
