"""An adapter's file: what it changes in a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import ModelError
from pumice.gguf import GGMLType, GGUFFile, ModelTensor

EMBEDDINGS = "token_embd.weight"
DOWN, UP = ".lora_a", ".lora_b"
IGNORED = "_norm.weight"  # norms that were trained too: llama.cpp leaves them out
CONTROL_VECTOR, DIRECTION = "controlvector", "direction."  # general.architecture, and what a layer's number follows


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
    """LoRA pairs by the name of the weight, ``up`` already multiplied by ``alpha / rank``; or a control vector.

    Attributes:
        directions: of a control vector: what is added to the residual stream after a layer, ``[n_embd]``, by layer.
        scale: how strong it is where a request does not say.
    """

    path: Path
    pairs: Mapping[str, Pair] = field(default_factory=dict)
    directions: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    scale: float = 1.0


def read_adapter(file: GGUFFile, architecture: str, scale: float = 1.0) -> Adapter:
    """The LoRA adapter in a file that is open. Raises ModelError for one that is no adapter of such a model."""
    path, metadata = file.path, dict(file.metadata)
    _check(path, metadata, architecture)
    alpha = metadata.get("adapter.lora.alpha", 0.0)
    if not isinstance(alpha, int | float):
        raise ModelError(f"{path}: metadata key 'adapter.lora.alpha' is {alpha!r:.60}, not a number")
    stored = [name for name in file.tensors if not name.endswith(IGNORED)]
    names = sorted({name.removesuffix(DOWN).removesuffix(UP) for name in stored})
    if not names:
        raise ModelError(f"{path}: is an adapter without tensors")
    return Adapter(path, {name: _pair(path, name, file.tensors, float(alpha)) for name in names}, scale=scale)


def is_control_vector(file: GGUFFile) -> bool:
    return file.metadata.get("general.architecture") == CONTROL_VECTOR


def read_control_vector(file: GGUFFile, n_embd: int, scale: float = 1.0, layers: Sequence[int] = ()) -> Adapter:
    """The control vector in a file that is open (Zou et al. 2023, arXiv:2310.01405).

    layers: the first and the last one that it changes; none: all that the file has directions for.
    Raises ModelError for a file that is none, is of a model of another width, or has nothing for these layers.
    """
    if not is_control_vector(file):
        raise ModelError(f"{file.path}: is no control vector: general.architecture is {file.architecture!r}")
    directions = {_layer(file.path, name): tensor for name, tensor in file.tensors.items()}
    if not directions:
        raise ModelError(f"{file.path}: is a control vector without directions")
    for layer, tensor in directions.items():
        if tensor.type is not GGMLType.F32 or tensor.shape != (n_embd,):
            found = f"{tensor.type.name} {list(tensor.shape)}"
            raise ModelError(f"{file.path}: {DIRECTION}{layer} is {found}, the model needs F32 [{n_embd}]")
    first, last = layers or (min(directions), max(directions))
    kept = {layer: tensor.dequantize() for layer, tensor in directions.items() if first <= layer <= last}
    if not kept:
        known = f"{min(directions)} to {max(directions)}"
        raise ModelError(f"{file.path}: has directions for layers {known}, none from {first} to {last}")
    return Adapter(file.path, directions=kept, scale=scale)


def _layer(path: Path, name: str) -> int:
    number = name.removeprefix(DIRECTION)
    if not name.startswith(DIRECTION) or not (number.isdecimal() and number == str(int(number)) != "0"):
        raise ModelError(f"{path}: tensor {name!r} is no direction of a layer, {DIRECTION}1, {DIRECTION}2, ...")
    return int(number)


def _check(path: Path, metadata: Mapping[str, Any], architecture: str) -> None:
    kind = metadata.get("general.type"), metadata.get("adapter.type")
    if kind != ("adapter", "lora"):
        if metadata.get("general.architecture") == CONTROL_VECTOR:
            raise ModelError(f"{path}: is a control vector, which is no part of any weight")
        said = f"general.type and adapter.type are {kind[0]!r} and {kind[1]!r}"
        raise ModelError(f"{path}: is neither a LoRA adapter nor a control vector: {said}")
    if "adapter.alora.invocation_tokens" in metadata:
        raise ModelError(
            f"{path}: is an activated LoRA adapter, which works from certain tokens on: these are not applied"
        )
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
