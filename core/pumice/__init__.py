"""Run GGUF language models on any GPU with a Vulkan driver and on any CPU.

Everything public is here; it is imported on first use, so that ``import pumice`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice.api import Model, load, load_tokenizer
    from pumice.demo import demo_model_path
    from pumice.errors import (
        BackendError,
        ConfigError,
        GGUFError,
        HubError,
        ModelError,
        PluginError,
        PumiceError,
        RequestError,
        TokenizerError,
    )
    from pumice.stream import Completion

    __version__: str

__all__ = [
    "BackendError",
    "Completion",
    "ConfigError",
    "GGUFError",
    "HubError",
    "Model",
    "ModelError",
    "PluginError",
    "PumiceError",
    "RequestError",
    "TokenizerError",
    "__version__",
    "demo_model_path",
    "load",
    "load_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pumice' has no attribute {name!r}")
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("pumice")
    else:
        home = "errors" if name.endswith("Error") else "demo" if name == "demo_model_path" else "api"
        value = getattr(importlib.import_module(f"pumice.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
