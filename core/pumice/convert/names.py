"""Names of tensors, from checkpoints' to GGUF's: the package ``gguf`` has them for every architecture."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.errors import ConvertError

SUFFIXES = (".weight", ".bias")


class TensorNames:
    """The names of one architecture with so many layers; ``more`` go before those of the package."""

    def __init__(self, architecture: str, n_layer: int, more: Mapping[str, str] | None = None) -> None:
        import gguf

        known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
        if architecture not in known:
            raise ConvertError(f"the names of {architecture}'s tensors are not known: its conversion must give them")
        self.architecture = architecture
        self._names = gguf.get_tensor_name_map(known[architecture], n_layer)
        self._more = {old.format(i): new.format(i) for old, new in (more or {}).items() for i in range(n_layer)}

    def __call__(self, name: str) -> str:
        """GGUF's name. Raises ConvertError."""
        base, dot, suffix = name.rpartition(".")
        if f".{suffix}" in SUFFIXES and base in self._more:
            return f"{self._more[base]}{dot}{suffix}"
        found = self._more.get(name) or self._names.get_name(name, try_suffixes=SUFFIXES)
        if found is None:
            raise ConvertError(f"tensor {name!r} is none that {self.architecture} has")
        return found
