"""Names of tensors, from checkpoints' to GGUF's: the package ``gguf`` has them for every architecture."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.errors import ConvertError

SUFFIXES = (".weight", ".bias")
# Of layers that draft, which the package knows for some architectures alone.
DRAFTS = {
    "model.layers.{}.eh_proj": "blk.{}.nextn.eh_proj",
    "model.layers.{}.enorm": "blk.{}.nextn.enorm",
    "model.layers.{}.hnorm": "blk.{}.nextn.hnorm",
    "model.layers.{}.shared_head.norm": "blk.{}.nextn.shared_head_norm",
}


class TensorNames:
    """The names of one architecture with so many layers; ``more`` go before those of the package."""

    def __init__(self, architecture: str, n_layer: int, more: Mapping[str, str] | None = None) -> None:
        import gguf

        known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
        if architecture not in known:
            raise ConvertError(f"the names of {architecture}'s tensors are not known: its conversion must give them")
        self.architecture = architecture
        whole = gguf.TensorNameMap.block_mappings_cfg
        gguf.TensorNameMap.block_mappings_cfg = dict(whole)  # which the package changes for some architectures
        try:
            self._names = gguf.get_tensor_name_map(known[architecture], n_layer)
        finally:
            gguf.TensorNameMap.block_mappings_cfg = whole
        more = {**DRAFTS, **(more or {})}
        self._more = {old.format(i): new.format(i) for old, new in more.items() for i in range(n_layer)}

    def __call__(self, name: str) -> str:
        """GGUF's name. Raises ConvertError."""
        base, dot, suffix = name.rpartition(".")
        if f".{suffix}" in SUFFIXES and base in self._more:
            return f"{self._more[base]}{dot}{suffix}"
        found = self._more.get(name) or self._names.get_name(name, try_suffixes=SUFFIXES)
        if found is None:
            raise ConvertError(f"tensor {name!r} is none that {self.architecture} has")
        return found
