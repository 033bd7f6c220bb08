"""Arguments and options that several subcommands have."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.messages import show_logs
from pumice.cli.progress import download_bar, show_progress
from pumice.demo import demo_model_path

if TYPE_CHECKING:
    from pumice.model import Model
    from pumice.summary import Summary

Command = Callable[..., Any]

logger = logging.getLogger("pumice")

model_argument = click.argument("model", default=lambda: str(demo_model_path()))
ASSUMED_TEMPLATE = "chatml"
"""The chat template of a model whose file has none, where no other is chosen."""

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")

force_option = click.option("--force", is_flag=True, help="Replace files that are there.")


def _set_threads(ctx: click.Context, param: click.Parameter, n: int | None) -> None:
    """``--threads`` is short for ``--set cpu.threads``, which is eager so that it is read before."""
    if n is not None:
        section = ctx.params["config"].setdefault("cpu", {})
        if isinstance(section, dict):  # anything else is a wrong setting, and reported as that
            section["threads"] = n


LAYERS = "pumice.control_vector_layers"


def _set_layers(ctx: click.Context, param: click.Parameter, layers: tuple[int, int] | None) -> None:
    """Eager, so that it is known when the control vectors are read."""
    ctx.meta[LAYERS] = list(layers) if layers else []


def _set_adapters(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    """``--lora FILE`` is short for ``--set adapters.STEM=FILE``; the other three for more than a file."""
    name = param.name or ""
    for value in values:
        path, scale = split_scale(value) if name.endswith("scaled") else (value, 1.0)
        options: dict[str, Any] = {"file": path, "scale": scale}
        if name.startswith("control_vector"):
            options["layers"] = ctx.meta[LAYERS]
        section = ctx.params["config"].setdefault("adapters", {})
        if isinstance(section, dict):  # anything else is a wrong setting, and reported as that
            stem = Path(path).stem
            if stem in section:
                raise click.BadParameter(f"two are named {stem!r}: give names with --set adapters.NAME=FILE")
            section[stem] = options


def split_scale(text: str) -> tuple[str, float]:
    """``a.gguf:0.5`` in its parts."""
    path, colon, number = text.rpartition(":")
    try:
        return path, float(number if colon else "")
    except ValueError:
        raise click.BadParameter(f"expected FILE:SCALE, not {text!r}") from None


def _adapter_option(flag: str, metavar: str, help: str) -> Callable[[Command], Command]:
    return click.option(
        flag, multiple=True, metavar=metavar, expose_value=False, callback=_set_adapters, help=f"{help} Repeatable."
    )


def _set_verbose(ctx: click.Context, param: click.Parameter, verbose: bool) -> None:
    if verbose:
        show_logs(verbose=True)


def _switch_sandbox_off(ctx: click.Context, param: click.Parameter, off: bool) -> None:
    if off:
        from pumice.sandbox import SWITCH

        os.environ[SWITCH] = "off"  # for every process that is started from here


no_sandbox_option = click.option(
    "--no-sandbox",
    is_flag=True,
    expose_value=False,
    callback=_switch_sandbox_off,
    help="Do not confine the processes of engines and workers, for debugging.",
)

_LOAD_OPTIONS: list[Callable[[Command], Command]] = [
    click.option("--backend", metavar="NAME", help="Backend to compute on, or auto."),
    click.option("-c", "--n-ctx", type=int, help="Tokens of context; 0: as many as the model was trained for."),
    click.option("-b", "--n-batch", type=int, help="Most tokens computed in one step."),
    click.option("-ngl", "--n-gpu-layers", type=int, help="Layers on a GPU backend; -1: all."),
    click.option(
        "-t",
        "--threads",
        type=int,
        expose_value=False,
        callback=_set_threads,
        help="Threads of the backend cpu; 0: as many as there are cores.",
    ),
    _adapter_option("--lora", "FILE", "A LoRA adapter, named after its file."),
    _adapter_option("--lora-scaled", "FILE:SCALE", "One that is stronger or weaker."),
    _adapter_option("--control-vector", "FILE", "A control vector, named after its file."),
    _adapter_option("--control-vector-scaled", "FILE:SCALE", "One that is stronger or weaker."),
    click.option(
        "--control-vector-layer-range",
        type=(click.IntRange(min=1), click.IntRange(min=1)),
        metavar="FIRST LAST",
        is_eager=True,
        expose_value=False,
        callback=_set_layers,
        help="The layers that control vectors change; all if not given.",
    ),
    click.option("--kv-type", metavar="TYPE", help="Type of the key/value cache, such as f16 or q8_0."),
    click.option(
        "--set",
        "config",
        multiple=True,
        is_eager=True,
        metavar="KEY=VALUE",
        callback=lambda ctx, param, values: parse_settings(values),
        help="Any key of a configuration file, e.g. --set sampling.typical_p=0.9. Repeatable.",
    ),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_set_verbose,
        help="Say on stderr what is going on.",
    ),
]


_SAMPLING_OPTIONS = [
    click.option("--temp", "temperature", type=float, help="Temperature; 0: always the likeliest token."),
    click.option("--top-k", type=int, help="Keep the k likeliest tokens; 0: all."),
    click.option("--top-p", type=float, help="Keep the likeliest tokens that add up to p."),
    click.option("--min-p", type=float, help="Keep tokens at least p times as likely as the likeliest."),
    click.option("--repeat-penalty", type=float, help="Make recent tokens less likely; 1: off."),
    click.option("--seed", type=int, help="Same seed, same text."),
]


def sampling_options(command: Command) -> Command:
    """Options for the most common parameters of the sampler chain; ``take_sampling`` gives those that were set."""
    for option in reversed(_SAMPLING_OPTIONS):
        command = option(command)
    return command


def take_sampling(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the sampling options from ``options``; those that were set."""
    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
    return {name: value for name in names if (value := options.pop(name)) is not None}


def load_options(command: Command) -> Command:
    """The options that ``load_model`` takes, as keyword arguments of ``pumice.load``."""
    for option in reversed(_LOAD_OPTIONS):
        command = option(command)
    return command


def parse_settings(values: tuple[str, ...]) -> dict[str, Any]:
    """``("a.b=1", "c=[x]")`` as ``{"a": {"b": 1}, "c": ["x"]}``: a value is YAML."""
    import yaml

    from pumice.config import parse_yaml

    settings: dict[str, Any] = {}
    for item in values:
        key, equals, text = item.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"expected KEY=VALUE, not {item!r}")
        try:
            value = parse_yaml(text)
        except yaml.YAMLError:
            raise click.BadParameter(f"the value of {key!r} is not valid YAML: {text!r}") from None
        *sections, last = key.split(".")
        target = settings
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise click.BadParameter(f"{item!r}: {section!r} has a value already")
        target[last] = value
    return settings


def configured_models() -> list[str]:
    """Names of models that the configuration adds to the catalogue."""
    from pumice.config import load_config

    return list(load_config().models)


@lru_cache(maxsize=64)
def warn_of_assumed_template(model: str) -> None:
    """Say, once for each model, that chats take ``ASSUMED_TEMPLATE``: it may have been trained with another one."""
    logger.warning(
        "%s: the file has no chat template: chats take ChatML, --chat-template names another (see docs/chat.md)", model
    )


def summarize_models(models: Sequence[str]) -> list[Summary | None]:
    """What the headers of models' files say; None for one that is not on this machine, or is not to be read."""
    from pumice.errors import PumiceError
    from pumice.process.reader import read_summaries

    paths = [_file_of(model) for model in models]
    try:
        told = iter(read_summaries([path for path in paths if path]))
        return [next(told) if path else None for path in paths]
    except (OSError, PumiceError) as error:
        logging.getLogger("pumice").warning("the headers of models cannot be read: %s", error)
        return [None] * len(models)


def _file_of(model: str) -> Path | None:
    from pumice.errors import PumiceError
    from pumice.hub.locate import cached, resolve_name

    try:
        paths = cached(resolve_name(model)[0])
        return paths[0] if paths and paths[0].is_file() else None
    except PumiceError:
        return None


def require_file(model: str) -> None:
    """Raise HubError if a model is a path, or a name of the catalogue for one, where no file is."""
    from pumice.errors import HubError
    from pumice.hub.locate import resolve_name

    path, _ = resolve_name(model)
    if isinstance(path, Path) and not path.exists():
        where = "" if str(path) == model else f"{model}: "
        raise HubError(f"{where}{path}: no such file, and no name of a model that could be fetched")


def model_problem(path: Path) -> str:
    """Why a GGUF file is not a model that generates or embeds, as its header tells; empty if it may be one."""
    from pumice.errors import PumiceError
    from pumice.gguf import GGUFFile

    try:
        with GGUFFile.open(path) as file:
            kind = file.metadata.get("general.type", "model")
            if kind != "model" or file.architecture == "controlvector":
                return f"{path}: not a model, but of the type {kind if kind != 'model' else file.architecture!r}"
            return "" if file.tensors else f"{path}: it has no tensors"
    except PumiceError as error:
        return str(error)


def is_here(model: str) -> bool:
    """Whether a model is on this machine, so that it need not be fetched."""
    from pumice.errors import PumiceError
    from pumice.hub.locate import cached, resolve_name

    try:
        return bool(cached(resolve_name(model)[0]))
    except PumiceError:
        return True  # nothing would be fetched


def locate_model(model: str) -> Path:
    """The file of a model; what is fetched shows a progress bar where standard error is a terminal."""
    from pumice.hub import locate

    with download_bar() as progress:
        return locate(model, progress=progress).path


class Download:
    """A download that a client of a server asked for, in a thread of its caller's.

    Raises UnknownModelError for a name that means no model; paths of this machine are none.
    """

    def __init__(self, model: str) -> None:
        from pumice.hub import ClientFetch

        self._model = model
        self._fetch = ClientFetch(model)
        self.loads_as = model  # once it is here: a name of the catalogue, which has options, or the path of the file

    def run(self, progress: Callable[[str, int, int], None]) -> Path:
        """Return the model's file; ``progress`` hears what is fetched. Raises HubError."""
        located = self._fetch.run(progress)
        self.loads_as = str(located.path) if located.options is None else self._model
        return located.path

    def abort(self) -> None:
        """End ``run``, which then raises HubError. Any thread may call this."""
        self._fetch.abort()


@contextmanager
def load_model(model: str, options: dict[str, Any]) -> Iterator[Model]:
    """A loaded model, which `pumice ps` lists; with a progress bar where standard error is a terminal."""
    import pumice
    from pumice.running import Running, told

    locate_model(model)
    with show_progress("loading", unit="step") as progress:
        loaded = pumice.load(model, progress=progress, **options)
    command = click.get_current_context().info_name or ""
    with loaded, told(Running(command, model, loaded.backends, loaded.memory, loaded.n_ctx)):
        yield loaded
