"""Loading: a model to run, or only its tokenizer, or only its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from pumice.config import load_config
from pumice.hub import locate
from pumice.model import Model
from pumice.model_files.locating import arguments_of, locate_configured
from pumice.model_files.opening import open_configured, open_model
from pumice.options import ENGINE, EngineOptions, documented
from pumice.process.codec import make_load
from pumice.process.linked import Connect, Deliver, LinkedEngine, process_engine
from pumice.registry import get_registry, load_registry
from pumice.tokenizers import Tokenizer, from_metadata
from pumice.tracebacks import short_traceback

if TYPE_CHECKING:
    from pumice.planning import ModelPlan
    from pumice.planning.machine import GPUMemory

_documented = documented(ENGINE)


@short_traceback
@_documented
def load_process(
    path: str | Path | None = None,
    *,
    deliver: Deliver | None = None,
    command: str = "",
    config: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[EngineOptions],
) -> Model:
    """Load a model whose engine runs in a process of its own, so that a crash only ends the model's streams.

    Installed plugins are available.

    Args:
        path: As in ``load``.
        deliver: Called with a function and its arguments, once for the events of a step. A server passes its
            ``loop.call_soon_threadsafe``. None calls the function in the thread that reads the events.
        command: Subcommand that ``pumice ps`` shows for the model.
        config: As in ``load``.
        progress: As in ``load``.

    Raises:
        PumiceError: As ``load``, and EngineDiedError.
    """
    file, settings = locate_configured(path, config, options)
    return Model(process_engine(make_load(file, settings, str(path or file), command), progress, deliver))


@_documented
def load_linked(
    path: str | Path | None,
    connect: Connect,
    *,
    deliver: Deliver | None = None,
    config: Mapping[str, object] | None = None,
    **options: Unpack[EngineOptions],
) -> Model:
    """Return the model of an engine that runs elsewhere; only the tokenizer and the chat template are loaded here.

    Args:
        path: File or name of the model.
        connect: Function that connects to the engine.
        deliver: As in ``load_process``.
        config: As in ``load``. Give this and the options with which the engine was loaded.

    Raises:
        PumiceError: As ``load``, and EngineDiedError.
    """
    file, settings = locate_configured(path, config, options)
    return Model(LinkedEngine(file, settings, connect, deliver))


def load_tokenizer(path: str | Path, *, plugins: Sequence[object] = ()) -> Tokenizer:
    """Return the tokenizer of a GGUF file or a Hugging Face folder; weights are not needed.

    Args:
        path: File, folder, or name of a model.
        plugins: As in ``load``.

    Raises:
        PumiceError: HubError, GGUFError, ConvertError, TokenizerError or PluginError.
    """
    from pumice.convert import ConvertOptions

    registry = load_registry(load_config(), plugins)
    with open_model(locate(path).path, registry, ConvertOptions(vocab_only=True)) as file:
        return from_metadata(file.metadata, registry.tokenizers, registry.pre_tokenizers)


def describe_graph(
    path: str | Path, *, config: Mapping[str, object] | None = None, **options: Unpack[EngineOptions]
) -> str:
    """Return the graph of a model as text: the backend of each operation, and the memory plan.

    Args:
        path: As in ``load``.
        config: As in ``load``.
        options: As in ``load``.

    Raises:
        PumiceError: As ``load``.
    """
    from pumice.engine.placement.backends import OpeningBackends
    from pumice.local_engine import prepare

    located, settings = locate_configured(path, config, options)
    with ExitStack() as stack:
        registry = get_registry(settings)
        file = stack.enter_context(open_configured(located, registry, settings))
        opening = OpeningBackends(registry, settings)
        return prepare(stack, file, settings, opening)[1].placed.describe()


@short_traceback
@_documented
def plan(
    path: str | Path | None = None,
    *,
    memory: GPUMemory | None = None,
    ram: str | float | None = None,
    config: Mapping[str, object] | None = None,
    **options: Unpack[EngineOptions],
) -> ModelPlan:
    """Return the plan of a model: its parts on each device, and the largest context. Loads no weights.

    Args:
        path: As in ``load``. Of a model of the Hub that is not on this machine, only the header is fetched.
        memory: Memory of the GPUs of another machine: a size such as ``"12GiB"``, several, or sizes by name; ``0``
            stands for no GPU. None plans for the GPUs of this machine.
        ram: Host memory of another machine, such as ``"32GiB"``. None plans for the free memory of this machine.
        config: As in ``load``.

    Raises:
        PumiceError: As ``load``.
    """
    from pumice.hub.headers import find_remote, read_range
    from pumice.planning import PlannedMachine, plan_file, plan_repository

    machine = PlannedMachine.of(memory, ram)
    if path is not None and (remote := find_remote(path)):
        settings = load_config(arguments_of(config, options), remote.options)
        read = partial(read_range, remote)
        return next(plan_repository(remote.only_chosen(), read, settings, get_registry(settings), machine)).plan
    located, settings = locate_configured(path, config, options)
    registry = get_registry(settings)
    with open_configured(located, registry, settings) as file:
        return plan_file(file, settings, registry, machine, model=str(path or located))
