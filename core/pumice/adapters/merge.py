"""Merge adapters into a model's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.adapters.adapter import EMBEDDINGS, Adapter, Pair
from pumice.errors import ModelError
from pumice.gguf import GGMLType, GGUFFile, ModelTensor, encode
from pumice.gguf.metadata import make_metadata
from pumice.gguf.tensors import without_ones

FILE_TYPE, MOSTLY_F16 = "general.file_type", 1


@dataclass(frozen=True)
class MergedTensor:
    """``W + sum(scale * B A)``, computed in float32: F32 if ``W`` is, else F16."""

    name: str
    base: ModelTensor
    pairs: tuple[tuple[Pair, float], ...]

    @property
    def type(self) -> GGMLType:
        return self.base.type if self.base.type is GGMLType.F32 else GGMLType.F16

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * (4 if self.type is GGMLType.F32 else 2)

    @property
    def data(self) -> NDArray[np.uint8]:
        values = self.base.dequantize().astype(np.float32, copy=True)
        for pair, scale in self.pairs:
            change = pair.down @ pair.up.T if self.name == EMBEDDINGS else pair.up @ pair.down
            values += (np.float32(scale) * change).reshape(values.shape)
        stored = values if self.type is GGMLType.F32 else values.astype(np.float16)
        return stored.view(np.uint8).reshape(*self.shape[:-1], -1)

    def dequantize(self) -> NDArray[np.float32]:
        dtype = np.float32 if self.type is GGMLType.F32 else np.float16
        return self.data.view(dtype).astype(np.float32)

    def release(self, start: int = 0, end: int | None = None) -> None:
        self.base.release()


def merge(model: GGUFFile, adapters: Sequence[tuple[Adapter, float]]) -> GGUFFile:
    """Return the model with adapters merged into its weights, each with its scale.

    Other tensors are unchanged. Raises ModelError for an adapter that does not fit.
    """
    for adapter, _ in adapters:
        for name, pair in adapter.pairs.items():
            weight = model.tensors.get(name)
            if weight is None:
                raise ModelError(f"{adapter.path}: changes {name!r}, which {model.path} does not have")
            if not pair.fits(name, without_ones(weight.shape)):
                raise ModelError(
                    f"{adapter.path}: {name!r} does not fit the weight {list(weight.shape)} of {model.path}"
                )
    tensors: dict[str, ModelTensor] = {}
    for name, tensor in model.tensors.items():
        pairs = tuple((adapter.pairs[name], scale) for adapter, scale in adapters if name in adapter.pairs)
        tensors[name] = MergedTensor(name, tensor, pairs) if pairs else tensor
    entries = {key: model.metadata.encoded(key) for key in model.metadata}
    entries[FILE_TYPE] = encode(MOSTLY_F16)
    n_bytes = sum(tensor.nbytes for tensor in tensors.values())
    return GGUFFile(model.path, make_metadata(entries), tensors, n_bytes)
