"""Translate tensor names of checkpoints to GGUF's; the package ``gguf`` knows them for most architectures."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.errors import ConvertError

SUFFIXES = (".weight", ".bias")


def in_layers(before: str, new_before: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return GGUF names by checkpoint names that begin with ``before``, with its replacement; ``{}`` is the layer."""
    return {before + name: new_before + new_name for name, new_name in names.items()}


# Draft layers, which the package knows only for some architectures.
DRAFTS = in_layers("model.layers.{}.", "blk.{}.nextn.", {
    "eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head.norm": "shared_head_norm",
})  # fmt: skip


class TensorNames:
    """The tensor names of an architecture with ``n_layer`` layers; ``more`` takes precedence over the package."""

    def __init__(self, architecture: str, n_layer: int, more: Mapping[str, str] | None = None) -> None:
        import gguf

        architectures = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
        if architecture not in architectures:
            raise ConvertError(f"unknown architecture {architecture!r}: its conversion must set named_as or more_names")
        self.architecture = architecture
        whole = gguf.TensorNameMap.block_mappings_cfg
        gguf.TensorNameMap.block_mappings_cfg = dict(whole)  # a copy, since the package changes it
        try:
            self._names = gguf.get_tensor_name_map(architectures[architecture], n_layer)
        finally:
            gguf.TensorNameMap.block_mappings_cfg = whole
        more = {**DRAFTS, **(more or {})}
        self._more = {old.format(i): new.format(i) for old, new in more.items() for i in range(max(n_layer, 1))}

    def __call__(self, name: str) -> str:
        """Return the GGUF name. Raises ConvertError."""
        base, dot, suffix = name.rpartition(".")
        if f".{suffix}" in SUFFIXES and base in self._more:
            return f"{self._more[base]}{dot}{suffix}"
        renamed = self._more.get(name) or self._names.get_name(name, try_suffixes=SUFFIXES)
        if renamed is None:
            raise ConvertError(f"unknown tensor {name!r} for architecture {self.architecture}")
        return renamed
