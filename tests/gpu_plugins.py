"""Plugins with a backend that computes as NumPy's does and counts as a GPU."""

from collections.abc import Callable
from types import ModuleType

from pumice.plugin import hookimpl
from pumice_numpy import NumpyBackend


class Gpu(NumpyBackend):
    """NumPy's backend as a GPU."""

    offload = True


def gpu_plugin(gpu: type[NumpyBackend]) -> ModuleType:
    """Return a plugin whose backend ``gpu`` is ``gpu``."""

    @hookimpl
    def pumice_register_backends(register: Callable[[str, type], None]) -> None:
        register("gpu", gpu)

    module = ModuleType("gpus")
    module.pumice_register_backends = pumice_register_backends  # type: ignore[attr-defined]
    return module
