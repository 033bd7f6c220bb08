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
    """Load a model, or the demo model. What is not given comes from the configuration.

    Args:
        path: a GGUF file; as a string also the name of a model, ``hf.co/owner/repository:Q4_K_M`` for example, which
            is fetched unless it is here. See docs/models.md.
        backend: a backend's name, or "auto": the first available one.
        n_ctx: tokens of context, shared by the sequences generated at once; 0: as many as the model was trained for.
        n_gpu_layers: layers on a GPU backend; -1: all.
        kv_type: type of the key/value cache, one of ``pumice.plugin.KV_TYPES``: "f16", "q8_0", ....
        n_batch: most tokens computed in one step.
        n_parallel: most sequences in one step.
        config: further settings, keys as in a configuration file.
        plugins: modules, or other objects, with hooks: plugins for this load only, beside those that are installed.
            What they register replaces what an installed one registers under the same name.
        progress: called with steps done and steps in all while the model compiles.
        observer: sees values inside each step, a ``pumice.imatrix.Collector`` for example. Without one, steps that
            the device takes by itself are faster.

    Raises PumiceError: HubError, GGUFError, ModelError, ConfigError, PluginError or BackendError.
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
    """Load a model whose engine is a process of its own: a crash of the engine is an error of its streams alone.

    Takes the other arguments of ``load``, but for ``plugins``: those that are installed are there. Raises as ``load``,
    and EngineDiedError.

    Args:
        deliver: called with a function and its arguments, once for the events of a step. A server gives its
            ``loop.call_soon_threadsafe``; None: the function is called in the thread that reads them.
        command: the subcommand that ``pumice ps`` shows for it.
    """
    file, settings = _locate(path, _merged(arguments.pop("config", None), arguments))
    return ProcessModel(file, settings, progress, deliver, str(path or file), command)


def load_linked(
    path: str | Path | None, connect: Connect, *, deliver: Deliver | None = None, **arguments: Any
) -> LinkedModel:
    """The model of an engine that ``connect`` reaches; here are its tokenizer and its chat template alone.

    Takes the other arguments of ``load``, with which the engine was loaded. Raises as ``load``, and EngineDiedError.
    """
    file, settings = _locate(path, {**arguments.pop("config", {}), **arguments})
    return LinkedModel(file, settings, connect, deliver)


def load_tokenizer(path: str | Path, *, plugins: Sequence[object] = ()) -> Tokenizer:
    """The tokenizer of a GGUF file or a Hugging Face folder, which need no weights; ``plugins`` as in ``load``.

    Raises HubError, GGUFError, ConvertError, TokenizerError or PluginError.
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
