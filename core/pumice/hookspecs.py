"""The three hooks a Pumice plugin may implement (pluggy, project name ``pumice``, entry-point group ``pumice``).

Each hook receives ``register``, a callable that takes a name and a class. Registering must be
cheap: import heavy libraries when the class is used, not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pumice.architecture import Architecture
    from pumice.backend import Backend
    from pumice.sampler import Sampler

hookspec = pluggy.HookspecMarker("pumice")
hookimpl = pluggy.HookimplMarker("pumice")


@hookspec
def pumice_register_backends(register: Callable[[str, type[Backend]], None]) -> None:
    """Call ``register(name, BackendClass)``; the name is what ``backend: name`` selects."""


@hookspec
def pumice_register_architectures(register: Callable[[str, type[Architecture]], None]) -> None:
    """Call ``register(key, ArchitectureClass)``; the key is the GGUF file's ``general.architecture``."""


@hookspec
def pumice_register_samplers(register: Callable[[str, type[Sampler]], None]) -> None:
    """Call ``register(name, SamplerClass)``; the name is what the ``samplers`` list of a configuration holds."""
