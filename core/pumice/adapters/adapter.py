"""Read the file of an adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import ModelError
from pumice.gguf import GGMLType, GGUFFile, ModelTensor
from pumice.gguf.kinds import CONTROL_VECTOR, kind_of

EMBEDDINGS = "token_embd.weight"
DOWN, UP = ".lora_a", ".lora_b"
IGNORED = "_norm.weight"  # trained norms, which llama.cpp ignores, too
DIRECTION = "direction."  # prefix of a layer's number in a control vector


@dataclass(frozen=True)
class Pair:
    """The change of one weight ``[..., m, k]``: ``up [..., m, r]`` times ``down [..., r, k]``.

    For token embeddings ``[n, k]``, whose rows are looked up, ``down`` is ``[n, r]`` and ``up`` is ``[k, r]``.
    """

    down: NDArray[np.float32]
    up: NDArray[np.float32]

    def fits(self, name: str, shape: tuple[int, ...]) -> bool:
        """Return True if the pair fits the weight ``name`` of this shape."""
        rank = self.up.shape[-1]
        if name == EMBEDDINGS:
            expected = (shape[0], rank), (shape[-1], rank)
        else:
            expected = (*shape[:-2], rank, shape[-1]), (*shape[:-1], rank)
        return (self.down.shape, self.up.shape) == expected


@dataclass(frozen=True)
class Adapter:
    """LoRA pairs by name of the weight, with ``up`` multiplied by ``alpha / rank``, or a control vector.

    Attributes:
        directions: for a control vector, the addend ``[n_embd]`` of the residual stream after each layer.
    """

    path: Path
    pairs: Mapping[str, Pair] = field(default_factory=dict)
    directions: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Digest of its values: equal for two files that change a model in the same way."""
        digest = blake2b(digest_size=16)
        for name, pair in self.pairs.items():
            digest.update(f"{name} {pair.down.shape} {pair.up.shape}".encode())
            digest.update(pair.down.tobytes())
            digest.update(pair.up.tobytes())
        for layer, direction in self.directions.items():
            digest.update(f"{layer} {direction.shape}".encode())
            digest.update(direction.tobytes())
        return digest.hexdigest()


def read_adapter(file: GGUFFile, architecture: str) -> Adapter:
    """Return the LoRA adapter in an open file. Raises ModelError if it is not an adapter for the architecture."""
    path, metadata = file.path, dict(file.metadata)
    _check(path, metadata, architecture)
    alpha = metadata.get("adapter.lora.alpha", 0.0)
    if not isinstance(alpha, int | float):
        raise ModelError(f"{path}: metadata key 'adapter.lora.alpha' is {alpha!r:.60}, expected a number")
    stored = [name for name in file.tensors if not name.endswith(IGNORED)]
    names = sorted({name.removesuffix(DOWN).removesuffix(UP) for name in stored})
    if not names:
        raise ModelError(f"{path}: the adapter has no tensors")
    return Adapter(path, {name: _pair(path, name, file.tensors, float(alpha)) for name in names})


def is_control_vector(file: GGUFFile) -> bool:
    return kind_of(file.metadata) == CONTROL_VECTOR


def read_control_vector(file: GGUFFile, n_embd: int, layers: Sequence[int] = ()) -> Adapter:
    """Return the control vector in an open file (Zou et al. 2023, arXiv:2310.01405).

    ``layers`` are the first and last layer to change; empty for all. Raises ModelError if the file is not a control
    vector, has another width, or has no directions for these layers.
    """
    if not is_control_vector(file):
        raise ModelError(f"{file.path}: not a control vector: general.architecture is {file.architecture!r}")
    directions = {_layer(file.path, name): tensor for name, tensor in file.tensors.items()}
    if not directions:
        raise ModelError(f"{file.path}: the control vector has no directions")
    for layer, tensor in directions.items():
        if tensor.type is not GGMLType.F32 or tensor.shape != (n_embd,):
            actual = f"{tensor.type.name} {list(tensor.shape)}"
            raise ModelError(f"{file.path}: {DIRECTION}{layer} is {actual}, but the model needs F32 [{n_embd}]")
    first, last = layers or (min(directions), max(directions))
    chosen = {layer: tensor.dequantize() for layer, tensor in directions.items() if first <= layer <= last}
    if not chosen:
        available = f"{min(directions)} to {max(directions)}"
        raise ModelError(f"{file.path}: directions exist for layers {available}, but not for {first} to {last}")
    return Adapter(file.path, directions=chosen)


def _layer(path: Path, name: str) -> int:
    number = name.removeprefix(DIRECTION)
    if not name.startswith(DIRECTION) or not (number.isdecimal() and number == str(int(number)) != "0"):
        raise ModelError(
            f"{path}: unexpected tensor {name!r} in a control vector; expected {DIRECTION}1, {DIRECTION}2, ..."
        )
    return int(number)


def _check(path: Path, metadata: Mapping[str, Any], architecture: str) -> None:
    kind, family, made_for = (metadata.get(key) for key in ("general.type", "adapter.type", "general.architecture"))
    if not (isinstance(kind, str) and isinstance(family, str) and (kind, family) == ("adapter", "lora")):
        if kind_of(metadata) == CONTROL_VECTOR:
            raise ModelError(f"{path}: a control vector cannot be merged into weights")
        types = f"general.type and adapter.type are {kind!r:.60} and {family!r:.60}"
        raise ModelError(f"{path}: neither a LoRA adapter nor a control vector: {types}")
    if "adapter.alora.invocation_tokens" in metadata:
        raise ModelError(f"{path}: activated LoRA adapters, which apply from certain tokens on, are not supported")
    if not isinstance(made_for, str) or made_for != architecture:
        raise ModelError(f"{path}: the adapter is for {made_for!r:.60}, but the model is {architecture!r}")


def _pair(path: Path, name: str, tensors: Mapping[str, ModelTensor], alpha: float) -> Pair:
    down, up = tensors.get(name + DOWN), tensors.get(name + UP)
    if down is None or up is None:
        raise ModelError(f"{path}: tensor {name!r}: one of the pair {DOWN} and {UP} is missing")
    rank = up.shape[-1]
    scale = np.float32(alpha / rank if alpha else 1.0)
    return Pair(down.dequantize(), up.dequantize() * scale)
