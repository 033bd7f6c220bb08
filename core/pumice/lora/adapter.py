"""An adapter's file: pairs of matrices by the name of the weight that they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import ModelError
from pumice.gguf import GGUFFile, ModelTensor

EMBEDDINGS = "token_embd.weight"
DOWN, UP = ".lora_a", ".lora_b"
IGNORED = "_norm.weight"  # norms that were trained too: llama.cpp leaves them out


@dataclass(frozen=True)
class Pair:
    """What is added to one weight ``[..., m, k]``: ``up [..., m, r]`` times ``down [..., r, k]``.

    Of the token embeddings ``[n, k]``, whose rows are looked up, ``down`` is ``[n, r]`` and ``up`` is ``[k, r]``.
    """

    down: NDArray[np.float32]
    up: NDArray[np.float32]

    def fits(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether it can change the weight ``name`` of this shape."""
        rank = self.up.shape[-1]
        if name == EMBEDDINGS:
            expected = (shape[0], rank), (shape[-1], rank)
        else:
            expected = (*shape[:-2], rank, shape[-1]), (*shape[:-1], rank)
        return (self.down.shape, self.up.shape) == expected


@dataclass(frozen=True)
class Adapter:
    """Pairs by the name of the weight; ``up`` is already multiplied by ``alpha / rank``."""

    path: Path
    pairs: Mapping[str, Pair]
    metadata: Mapping[str, Any]


def read_adapter(file: GGUFFile, architecture: str) -> Adapter:
    """Read a file that is open. Raises ModelError for one that is no adapter of such a model."""
    path, metadata = file.path, dict(file.metadata)
    _check(path, metadata, architecture)
    alpha = metadata.get("adapter.lora.alpha", 0.0)
    stored = [name for name in file.tensors if not name.endswith(IGNORED)]
    names = sorted({name.removesuffix(DOWN).removesuffix(UP) for name in stored})
    if not names:
        raise ModelError(f"{path}: is an adapter without tensors")
    return Adapter(path, {name: _pair(path, name, file.tensors, float(alpha)) for name in names}, metadata)


def _check(path: Path, metadata: Mapping[str, Any], architecture: str) -> None:
    kind = metadata.get("general.type"), metadata.get("adapter.type")
    if kind != ("adapter", "lora"):
        raise ModelError(f"{path}: is no LoRA adapter: general.type and adapter.type are {kind[0]!r} and {kind[1]!r}")
    if metadata.get("general.architecture") != architecture:
        raise ModelError(
            f"{path}: is an adapter of {metadata.get('general.architecture')!r}, the model is {architecture!r}"
        )


def _pair(path: Path, name: str, tensors: Mapping[str, ModelTensor], alpha: float) -> Pair:
    down, up = tensors.get(name + DOWN), tensors.get(name + UP)
    if down is None or up is None:
        raise ModelError(f"{path}: tensor {name!r}: {DOWN} and {UP} come in pairs, and one is missing")
    rank = up.shape[-1]
    scale = np.float32(alpha / rank if alpha else 1.0)
    return Pair(down.dequantize(), up.dequantize() * scale)
