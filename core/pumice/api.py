"""Loading: a model to run, or only its tokenizer, or only its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pumice.config import Config, load_config
from pumice.demo import demo_model_path
from pumice.engine.runner import Observer
from pumice.hub import locate
from pumice.model import Model, prepare
from pumice.opening import open_model
from pumice.process import LinkedModel, ProcessModel
from pumice.process.linked import Connect, Deliver
from pumice.registry import get_registry, load_registry
from pumice.tokenizers import Tokenizer, from_metadata


def load(
    path: str | Path | None = None,
    *,
    backend: str | None = None,
    n_ctx: int | None = None,
    n_gpu_layers: int | None = None,
    kv_type: str | None = None,
    n_batch: int | None = None,
    n_parallel: int | None = None,
    config: Mapping[str, Any] | None = None,
    plugins: Sequence[object] = (),
    progress: Callable[[int, int], None] | None = None,
    observer: Observer | None = None,
) -> Model:
    """Load a model, or the demo model. Arguments that are None come from the configuration.

    Args:
        path: GGUF file, Hugging Face folder, or name of a model such as ``"hf.co/owner/repository:Q4_K_M"``, which is
            downloaded if it is not on this machine. None loads the demo model.
        backend: Name of a backend, or "auto" for the first available one.
        n_ctx: Context in tokens, shared by the sequences generated at once. 0 means what the model was trained for.
        n_gpu_layers: Number of layers on a GPU backend; -1 means all.
        kv_type: Type of the key/value cache, one of ``pumice.plugin.KV_TYPES``, such as "f16" or "q8_0".
        n_batch: Maximum number of tokens computed in one step.
        n_parallel: Maximum number of sequences computed in one step.
        config: Further settings, with the keys of a configuration file.
        plugins: Modules or other objects with hooks, as plugins for this load only. Their names replace those of
            installed plugins.
        progress: Called with the number of finished steps and of all steps while the model compiles.
        observer: Receives values inside each step, for example a ``pumice.imatrix.Collector``. With an observer the
            device computes one step at a time, which is slower.

    Raises:
        PumiceError: HubError, GGUFError, ModelError, ConfigError, PluginError or BackendError.
    """
    given = {
        "backend": backend,
        "n_ctx": n_ctx,
        "n_gpu_layers": n_gpu_layers,
        "kv_type": kv_type,
        "n_batch": n_batch,
        "n_parallel": n_parallel,
    }
    file, settings = _locate(path, _merged(config, given))
    return Model(file, settings, progress, plugins, observer=observer)


def load_process(
    path: str | Path | None = None,
    *,
    deliver: Deliver | None = None,
    command: str = "",
    progress: Callable[[int, int], None] | None = None,
    **arguments: Any,
) -> ProcessModel:
    """Load a model whose engine runs in a process of its own, so that a crash only ends the model's streams.

    Takes the other arguments of ``load`` except ``plugins``; installed plugins are available.

    Args:
        deliver: Called with a function and its arguments, once for the events of a step. A server passes its
            ``loop.call_soon_threadsafe``. None calls the function in the thread that reads the events.
        command: Subcommand that ``pumice ps`` shows for the model.

    Raises:
        PumiceError: As ``load``, and EngineDiedError.
    """
    file, settings = _locate(path, _merged(arguments.pop("config", None), arguments))
    return ProcessModel(file, settings, progress, deliver, str(path or file), command)


def load_linked(
    path: str | Path | None, connect: Connect, *, deliver: Deliver | None = None, **arguments: Any
) -> LinkedModel:
    """Return the model of an engine that runs elsewhere; only the tokenizer and the chat template are loaded here.

    Takes the other arguments of ``load``, with which the engine was loaded.

    Args:
        path: File or name of the model.
        connect: Function that connects to the engine.
        deliver: As in ``load_process``.

    Raises:
        PumiceError: As ``load``, and EngineDiedError.
    """
    file, settings = _locate(path, {**arguments.pop("config", {}), **arguments})
    return LinkedModel(file, settings, connect, deliver)


def load_tokenizer(path: str | Path, *, plugins: Sequence[object] = ()) -> Tokenizer:
    """Return the tokenizer of a GGUF file or a Hugging Face folder; weights are not needed.

    Args:
        path: File, folder, or name of a model.
        plugins: As in ``load``.

    Raises:
        PumiceError: HubError, GGUFError, ConvertError, TokenizerError or PluginError.
    """
    from pumice.convert import Options

    registry = load_registry(load_config(), plugins)
    with open_model(locate(path).path, registry, Options(vocab_only=True)) as file:
        return from_metadata(file.metadata, registry.tokenizers, registry.pre_tokenizers)


def describe_graph(path: str | Path, **arguments: Any) -> str:
    """The graph of a model as text: what runs where, and the memory plan. Takes the arguments of ``load``."""
    located, settings = _locate(path, arguments)
    with ExitStack() as stack:
        registry = get_registry(settings)
        file = stack.enter_context(open_model(located, registry))
        return prepare(stack, file, settings, registry)[1].describe()


def _merged(config: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the arguments that are given; None is not."""
    return {**(config or {}), **{key: value for key, value in given.items() if value is not None}}


def _locate(path: str | Path | None, arguments: Mapping[str, Any]) -> tuple[Path, Config]:
    """The file that ``path`` names, and the configuration it is loaded with."""
    settings = load_config(arguments)
    if path is None:
        return demo_model_path(), settings
    located = locate(path, settings)
    return located.path, load_config(arguments, located.options) if located.options else settings
