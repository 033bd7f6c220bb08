"""Names of tensors, from checkpoints' to GGUF's: the package ``gguf`` has them for every architecture."""

from __future__ import annotations

from pumice.errors import ConvertError

SUFFIXES = (".weight", ".bias")


class TensorNames:
    """The names of one architecture with so many layers."""

    def __init__(self, architecture: str, n_layer: int) -> None:
        import gguf

        known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
        if architecture not in known:
            raise ConvertError(f"the names of {architecture}'s tensors are not known: its conversion must give them")
        self.architecture = architecture
        self._names = gguf.get_tensor_name_map(known[architecture], n_layer)

    def __call__(self, name: str) -> str:
        """GGUF's name. Raises ConvertError."""
        found = self._names.get_name(name, try_suffixes=SUFFIXES)
        if found is None:
            raise ConvertError(f"tensor {name!r} is none that {self.architecture} has")
        return found
