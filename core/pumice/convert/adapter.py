"""Convert LoRA adapters saved by the package peft to GGUF.

In ``W + scale * B A`` only ``B`` has the rows of ``W``, so a family's reordering of rows is applied to ``B``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pumice.convert.conversion import EXPERT, Conversion, used_name
from pumice.convert.converted import ConvertedTensor
from pumice.convert.folder import Folder, HFConfig, read_json, understood
from pumice.convert.lazy import LazyTensor, stack
from pumice.convert.safetensors import read_safetensors
from pumice.errors import ConvertError
from pumice.gguf import GGMLType, GGUFFile, encode
from pumice.gguf.metadata import make_metadata

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
SIDES = {"lora_A.weight": "down", "lora_B.weight": "up", "lora_embedding_A": "rows", "lora_embedding_B": "up"}


class AdapterFolder:
    """A folder saved by peft: ``adapter_config.json`` and ``adapter_model.safetensors``. Raises ConvertError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = HFConfig(path / CONFIG, read_json(path / CONFIG))
        if self.config.get("peft_type") != "LORA":
            raise ConvertError(
                f"{path / CONFIG}: peft_type is {self.config.get('peft_type')!r}; only LORA is supported"
            )
        if self.config.get("use_dora"):
            raise ConvertError(f"{path / CONFIG}: DoRA is not supported, since GGUF cannot store its magnitudes")

    @property
    def base(self) -> str:
        """Folder or name of the base model; empty if the adapter does not name one."""
        return str(self.config.get("base_model_name_or_path") or "")

    @property
    def alpha(self) -> float:
        return float(self.config.get("lora_alpha") or 0.0)

    def factor(self, module: str, rank: int) -> float:
        """Return the factor on ``B`` that makes ``alpha / rank`` the scale that the adapter was trained with."""
        pattern = self.config.get("alpha_pattern") or {}
        alpha = next((float(value) for name, value in pattern.items() if f".{module}".endswith(f".{name}")), self.alpha)
        scale = alpha / math.sqrt(rank) if self.config.get("use_rslora") else alpha / rank
        return scale / (self.alpha / rank) if self.alpha else scale

    def pairs(self) -> dict[str, dict[str, LazyTensor]]:
        """Return the tensors ``down``, ``up`` or ``rows`` by adapted module. Raises ConvertError for other tensors."""
        pairs: dict[str, dict[str, LazyTensor]] = {}
        for name, tensor in read_safetensors(self.path / WEIGHTS).items():
            module, side = next(
                (
                    (name.removesuffix(f".{suffix}"), side)
                    for suffix, side in SIDES.items()
                    if name.endswith(f".{suffix}")
                ),
                (name, None),
            )
            if side is None:
                raise ConvertError(
                    f"{self.path / WEIGHTS}: {name!r} replaces a whole tensor; only LoRA pairs can be converted"
                )
            pairs.setdefault(module.removeprefix(PREFIX), {})[side] = tensor
        if not pairs:
            raise ConvertError(f"{self.path / WEIGHTS}: the file has no tensors")
        for module, sides in pairs.items():
            self._check_pair(module, sides)
        return pairs

    def _check_pair(self, module: str, sides: dict[str, LazyTensor]) -> None:
        """Raise ConvertError unless ``sides`` are ``up [n, rank]``, and ``down`` or ``rows [rank, n]``."""
        if "up" not in sides or len(sides) != 2:
            raise ConvertError(f"{self.path / WEIGHTS}: {module!r} lacks one matrix of its pair")
        up, other = sides["up"].shape, next(tensor.shape for side, tensor in sides.items() if side != "up")
        if len(up) != 2 or len(other) != 2 or up[1] != other[0]:
            raise ConvertError(f"{self.path / WEIGHTS}: {module!r}: shapes {list(other)} and {list(up)} do not match")


def convert_adapter(folder: AdapterFolder, conversion: Conversion) -> GGUFFile:
    """Return the adapter as a GGUF file. Raises ConvertError."""
    with understood(folder.config):
        lazies, alpha = dict(_tensors(folder, conversion)), folder.alpha
    tensors = {name: ConvertedTensor(name, GGMLType.F32, lazy) for name, lazy in lazies.items()}
    metadata = {
        "general.architecture": conversion.architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.name": folder.path.resolve().name,
        "adapter.lora.alpha": alpha,
    }
    encoded = make_metadata({key: encode(value) for key, value in metadata.items()})
    return GGUFFile(folder.path, encoded, tensors, sum(tensor.nbytes for tensor in tensors.values()))


def _tensors(folder: AdapterFolder, conversion: Conversion) -> Iterator[tuple[str, LazyTensor]]:
    for module, sides in _joined(folder.pairs()).items():
        up = sides["up"]
        rank = up.shape[-1]
        factor = np.float32(folder.factor(module, rank))
        up = up.map(lambda x, factor=factor: x * factor)  # type: ignore[misc]
        name = used_name(conversion, f"{module}.weight")
        if name is None:
            raise ConvertError(f"{folder.path}: changes {module!r}, which the converted model does not have")
        if "rows" in sides:
            gguf, _ = next(conversion.converted(name, up))
            yield f"{gguf}.lora_a", sides["rows"].transpose()
            yield f"{gguf}.lora_b", up
            continue
        _check_rows_alone(folder, conversion, name, up)
        for gguf, part in conversion.converted(name, up):
            yield f"{gguf}.lora_a", sides["down"]
            yield f"{gguf}.lora_b", part


def _check_rows_alone(folder: AdapterFolder, conversion: Conversion, name: str, up: LazyTensor) -> None:
    """Raise ConvertError if the conversion does more than reorder rows: then f(X) M differs from f(X M)."""
    random = np.random.default_rng(0)
    x = random.standard_normal((*up.shape[:-1], 2)).astype(np.float32)
    mix = random.standard_normal((2, 3)).astype(np.float32)
    one = [part.read() for _, part in conversion.converted(name, LazyTensor.of(x))]
    other = [part.read() for _, part in conversion.converted(name, LazyTensor.of(x @ mix))]
    for a, b in zip(one, other, strict=True):
        if a.shape[-1] != 2 or (a @ mix).shape != b.shape or not np.allclose(a @ mix, b, atol=1e-4):
            raise ConvertError(
                f"{folder.path}: the adapter of {name!r} cannot be converted, since GGUF stores that matrix differently"
            )


def _joined(pairs: dict[str, dict[str, LazyTensor]]) -> dict[str, dict[str, LazyTensor]]:
    """Stack the pairs of a layer's experts."""
    joined: dict[str, dict[str, LazyTensor]] = {}
    experts: dict[str, dict[int, dict[str, LazyTensor]]] = {}
    for module, sides in pairs.items():
        if match := EXPERT.match(module):
            experts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = sides
        else:
            joined[module] = sides
    for module, of_expert in experts.items():
        if sorted(of_expert) != list(range(len(of_expert))) or len({s["up"].shape for s in of_expert.values()}) > 1:
            raise ConvertError(
                f"{module!r}: the adapter must change all experts of a layer, by matrices of the same shapes"
            )
        ordered = [of_expert[i] for i in range(len(of_expert))]
        joined[module] = {side: stack([sides[side] for sides in ordered]) for side in ordered[0]}
    return joined


def is_adapter(path: Path) -> bool:
    """Return True if a folder is an adapter saved by peft."""
    return (path / CONFIG).is_file()


def base_folder(folder: AdapterFolder, base: Path | None) -> Folder:
    """Return the folder of the base model: ``base``, or the one that the adapter names if it exists here."""
    if base is not None:
        return Folder(base)
    if folder.base and _can_be_read(Path(folder.base) / "config.json"):
        return Folder(Path(folder.base))
    named = f"; it was made for {folder.base!r}" if folder.base else ""
    raise ConvertError(f"{folder.path}: give the folder of the base model with `pumice convert --base`{named}")


def _can_be_read(path: Path) -> bool:
    """Return whether a file may be opened: a confined command reads no folder that only an adapter names."""
    try:
        path.open("rb").close()
    except OSError:
        return False
    return True
