"""Adapters for tiny models: random pairs of matrices."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from pumice.gguf import GGMLType, TensorInfo, Writer
from tiny_models import TinyModel

RANK = 3


def write_adapter(
    path: Path, model: TinyModel, names: Sequence[str], alpha: float = 4.0, seed: int = 0, **metadata: Any
) -> Path:
    """An adapter that changes the tensors ``names`` of a model."""
    tensors = {}
    for name in names:
        *experts, m, k = model.shapes[name]
        random = np.random.default_rng([seed, crc32(name.encode())])
        if name == "token_embd.weight":
            tensors[f"{name}.lora_a"] = random.standard_normal((m, RANK)) * 0.3
            tensors[f"{name}.lora_b"] = random.standard_normal((k, RANK)) * 0.3
        else:
            tensors[f"{name}.lora_a"] = random.standard_normal((*experts, RANK, k)) * 0.1
            tensors[f"{name}.lora_b"] = random.standard_normal((*experts, m, RANK)) * 0.1
    values = {
        "general.architecture": model.architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": alpha,
    }
    infos = [TensorInfo(name, GGMLType.F32, array.shape) for name, array in tensors.items()]
    with Writer(path, values | metadata, infos) as writer:
        for array in tensors.values():
            writer.write(array.astype(np.float32))
    return path


ATTENTION = [f"blk.{i}.attn_{part}.weight" for i in range(2) for part in ("q", "k", "v", "output")]
EXPERTS = [f"blk.{i}.ffn_{part}_exps.weight" for i in range(2) for part in ("gate", "up", "down")]
DENSE = [f"blk.{i}.ffn_{part}.weight" for i in range(2) for part in ("gate", "up", "down")]

# Case -> tiny model, and for each adapter the tensors it changes and its scale.
CASES: dict[str, tuple[str, list[tuple[list[str], float]]]] = {
    "attention": ("llama-bias", [(ATTENTION, 1.0)]),
    "two": ("llama-bias", [(ATTENTION + DENSE, 0.5), (DENSE, -1.5)]),
    "embeddings": ("llama-bias", [(["token_embd.weight", "output.weight"], 1.0)]),
    "experts": ("qwen3moe", [(ATTENTION + EXPERTS, 1.0)]),
    "fused": ("phi3-short", [([f"blk.{i}.{part}.weight" for i in range(2) for part in ("attn_qkv", "ffn_up")], 1.0)]),
}


def write_case(folder: Path, case: str) -> list[tuple[Path, float]]:
    """The adapters of a case, and how strong they are."""
    from tiny_zoo import ZOO

    model, adapters = CASES[case]
    return [
        (write_adapter(folder / f"{case}-{i}.gguf", ZOO[model], names, seed=i), scale)
        for i, (names, scale) in enumerate(adapters)
    ]
