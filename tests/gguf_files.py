"""Writing small GGUF files for tests."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES

from pumice.gguf import GGMLType, block_size, type_size

# What the package does not know yet.
GGML_QUANT_SIZES.setdefault(GGMLType.Q2_0, (block_size(GGMLType.Q2_0), type_size(GGMLType.Q2_0)))  # type: ignore[call-overload]


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    types: Mapping[str, GGMLType] = MappingProxyType({}),
) -> Path:
    """A GGUF file with these metadata (``general.architecture`` among them) and tensors.

    Tensors are float, or rows of blocks of the type that ``types`` has for their name.
    """
    writer = gguf.GGUFWriter(path, str(metadata["general.architecture"]))
    for key, value in metadata.items():
        if key == "general.architecture":
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, np.int32):
            writer.add_int32(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value.tolist() if isinstance(value, np.ndarray) else value)
    for name, array in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array), raw_dtype=types.get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_llama(
    path: Path,
    *,
    seed: int = 0,
    n_layer: int = 2,
    n_ctx: int = 256,
    n_vocab: int = 300,
    dim: int = 64,
    n_ff: int = 96,
    tokenizer: bool = True,
    more: Mapping[str, Any] = MappingProxyType({}),
    output: np.ndarray | None = None,
) -> Path:
    """A llama of ``dim`` dimensions with random weights; its tokenizer writes every byte as one token."""
    rng = np.random.default_rng(seed)
    n_head, n_head_kv, head_dim = 4, 2, dim // 4

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)

    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": n_layer,
        "llama.context_length": n_ctx,
        "llama.embedding_length": dim,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_head,
        "llama.attention.head_count_kv": n_head_kv,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": head_dim,
    }
    if tokenizer:
        metadata.update(byte_tokenizer(n_vocab))
    tensors = {
        "token_embd.weight": matrix(n_vocab, dim) * 4,
        "output_norm.weight": np.ones(dim, np.float32),
        "output.weight": matrix(n_vocab, dim) * 4 if output is None else output,
    }
    for layer in range(n_layer):
        prefix = f"blk.{layer}."
        tensors[prefix + "attn_norm.weight"] = np.ones(dim, np.float32)
        tensors[prefix + "ffn_norm.weight"] = np.ones(dim, np.float32)
        tensors[prefix + "attn_q.weight"] = matrix(n_head * head_dim, dim)
        tensors[prefix + "attn_k.weight"] = matrix(n_head_kv * head_dim, dim)
        tensors[prefix + "attn_v.weight"] = matrix(n_head_kv * head_dim, dim)
        tensors[prefix + "attn_output.weight"] = matrix(dim, n_head * head_dim)
        tensors[prefix + "ffn_gate.weight"] = matrix(n_ff, dim)
        tensors[prefix + "ffn_up.weight"] = matrix(n_ff, dim)
        tensors[prefix + "ffn_down.weight"] = matrix(dim, n_ff)
    return write_gguf(path, metadata | dict(more), tensors)


def byte_tokenizer(n_vocab: int) -> dict[str, Any]:
    """SentencePiece metadata: unknown, begin, end, 256 bytes, then single letters."""
    assert n_vocab >= 259
    letters = [chr(0x61 + i) if i < 26 else f"w{i}" for i in range(n_vocab - 259)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i + 1) for i in range(n_vocab - 259)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (n_vocab - 259),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
