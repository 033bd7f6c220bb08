"""Plugins with a backend that computes as NumPy's does and counts as a GPU."""

from collections.abc import Callable
from types import ModuleType

from pumice.backend.step import Limits
from pumice.engine.placement.expert_cache import OF_HOST
from pumice.graph import Node
from pumice.plugin import hookimpl
from pumice_numpy import NumpyBackend


class DenseGpu(NumpyBackend):
    """A GPU that leaves experts to the host."""

    offload = True

    def supports(self, node: Node, limits: Limits) -> bool:
        return node.op not in OF_HOST and super().supports(node, limits)


def gpu_plugin(gpu: type[NumpyBackend]) -> ModuleType:
    """Return a plugin whose backend ``gpu`` is ``gpu``."""

    @hookimpl
    def pumice_register_backends(register: Callable[[str, type], None]) -> None:
        register("gpu", gpu)

    module = ModuleType("gpus")
    module.pumice_register_backends = pumice_register_backends  # type: ignore[attr-defined]
    return module
