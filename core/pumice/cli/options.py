"""Arguments and options shared by subcommands."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from pumice.cli.files import InputFile, ModelName
from pumice.cli.messages import show_logs
from pumice.cli.metadata_options import METADATA_OPTIONS
from pumice.cli.output import echo
from pumice.cli.vocabulary import Decorator, GroupedCommand, defined, option, with_options
from pumice.demo import demo_model_path
from pumice.options import CHAT, ENGINE, SAMPLING, KVType
from pumice.wording import json_problem, not_utf8

CommandFunction = Callable[..., Any]
_MODEL, _VALUE_TYPE, _NO_SPECULATE = "pumice.model", "pumice.cache_type_v", "pumice.no_speculate"
_CPU_MOE = "pumice.cpu_moe"
_TEXT = "pumice.text"  # set to None by a command with a text behind MODEL, for a text in MODEL's place
_LONGEST_PATH = 4096
_MAX_TEXT = 1 << 24  # of a grammar, a schema, a template or a file of keys


def _kept(key: str, *names: str, **attributes: Any) -> Decorator:
    """Return the decorator of an option whose value another option's callback reads from ``ctx.meta[key]``."""

    def keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
        ctx.meta[key] = value

    return option(*names, is_eager=True, expose_value=False, callback=keep, **attributes)


def _choose_model(ctx: click.Context, param: click.Parameter, model: str | None) -> str:
    named = ctx.meta.get(_MODEL)
    if model is not None and named is not None:
        if _TEXT in ctx.meta and ctx.meta[_TEXT] is None and not (model.endswith(".gguf") or os.path.exists(model)):
            ctx.meta[_TEXT] = model  # with -m, the first argument is the text
            return str(named)
        raise click.UsageError("two models: one as MODEL and one with -m; give only one")
    chosen = named if model is None else model
    return str(demo_model_path()) if chosen is None else chosen


def model_argument(command: CommandFunction) -> CommandFunction:
    """Add the argument MODEL, which may also be given with ``-m``, as in llama.cpp."""
    text = "Model, instead of the argument MODEL."
    named = _kept(_MODEL, "-m", "--model", "named_model", type=ModelName(), metavar="MODEL", group="Model", help=text)
    command = named(command)
    return click.argument("model", required=False, type=ModelName(), callback=_choose_model)(command)


@contextmanager
def advised_on_arguments(ctx: click.Context, advice: str) -> Iterator[None]:
    """Add advice to click's error about arguments that a command does not take."""
    try:
        yield
    except click.UsageError as error:
        if error.message.startswith("Got unexpected extra argument"):
            raise click.UsageError(f"{error.message}; {advice}", ctx) from None
        raise


class TextCommand(GroupedCommand):
    """A command with the arguments MODEL and a text; with ``-m`` the first argument is the text."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_TEXT] = None
        with advised_on_arguments(ctx, "put a text of several words in quotes"):
            rest = super().parse_args(ctx, args)
        if ctx.meta[_TEXT] is not None:
            _, text = (param for param in self.params if isinstance(param, click.Argument))
            assert text.name
            if ctx.params[text.name] is not None:
                raise click.UsageError("two models: one as MODEL and one with -m; give only one", ctx)
            ctx.params[text.name] = ctx.meta[_TEXT]
        model = ctx.params.get("model", "")
        if " " in model.strip() and not (model.endswith(".gguf") or os.path.exists(model)):
            raise click.UsageError(f"{model!r:.60} is no model; for a text without a model, use -p TEXT", ctx)
        return rest


ASSUMED_TEMPLATE = "chatml"
"""Default chat template for models whose files have none."""

json_option = option("--json", "as_json", is_flag=True, group="Output", help="Write the result as JSON.")

force_option = option("--force", is_flag=True, group="Output", help="Replace existing files.")


def _set_threads(ctx: click.Context, param: click.Parameter, n: int | None) -> None:
    """Set ``cpu.threads``. ``--set`` is eager, so it is processed before."""
    if n is not None:
        section = ctx.params["config"].setdefault("cpu", {})
        if isinstance(section, dict):  # anything else is a wrong setting, and reported as that
            section["threads"] = max(n, 0)  # llama.cpp's -1: as many as there are cores


def _choose_speculate(ctx: click.Context, param: click.Parameter, names: str | None) -> str | None:
    return "off" if ctx.meta.get(_NO_SPECULATE) else names


_LAYERS, _VECTORS = "pumice.control_vector_layers", "pumice.control_vectors"
NO_VECTOR = "--control-vector-layer-range needs a vector: --control-vector or --control-vector-scaled"


def _set_layers(ctx: click.Context, param: click.Parameter, layers: tuple[int, int] | None) -> None:
    """Store the layers. The option is eager, so it is processed before control vectors."""
    ctx.meta[_VECTORS] = False
    ctx.meta[_LAYERS] = list(layers) if layers else []


def _set_adapters(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    """Add adapters to the configuration: ``--lora FILE`` equals ``--set adapters.STEM=FILE``."""
    name = param.name or ""
    if name.startswith("control_vector"):
        _check_vectors(ctx, bool(values))
    for value in separated(values):
        stem, adapter = read_adapter(name, value, ctx.meta[_LAYERS])
        section = ctx.params["config"].setdefault("adapters", {})
        if isinstance(section, dict):  # anything else is a wrong setting, and reported as that
            if stem in section:
                raise click.BadParameter(f"two adapters are named {stem!r}: give names with --set adapters.NAME=FILE")
            section[stem] = adapter


def read_adapter(option: str, value: str, layers: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """Return the name of an adapter, and its entry among the configuration's ``adapters``.

    Args:
        option: One of ``ADAPTERS``.
        value: File, with a scale for options of such.
        layers: First and last layer of a control vector; empty: all.
    """
    kind = option.removesuffix("_scaled")
    path, scale = (value, 1.0) if kind == option else split_scale(value)
    adapter = {"file": path, "scale": scale, "kind": kind}
    return Path(path).stem, adapter if kind == "lora" else {**adapter, "layers": list(layers)}


def _check_vectors(ctx: click.Context, is_given: bool) -> None:
    """Raise UsageError for layers without a control vector: click processes options that are given before others."""
    ctx.meta[_VECTORS] |= is_given
    if ctx.meta[_LAYERS] and not ctx.meta[_VECTORS]:
        raise click.UsageError(NO_VECTOR)


def separated(values: Iterable[str]) -> list[str]:
    """Return the items of comma-separated values."""
    return [item.strip() for value in values for item in value.split(",") if item.strip()]


def split_scale(text: str) -> tuple[str, float]:
    """Split ``a.gguf:0.5`` into path and scale. Raises BadParameter."""
    path, colon, number = text.rpartition(":")
    try:
        scale = float(number if colon else "")
    except ValueError:
        scale = math.nan
    if not math.isfinite(scale):
        raise click.BadParameter(f"expected FILE:SCALE, not {text!r}")
    return path, scale


def read_bounded(noun: str, path: Path) -> str:
    """Return the text of a file, which may be a device that never ends.

    Raises ClickException that names the content by ``noun`` if it is too long, OSError and UnicodeDecodeError.
    """
    with path.open(encoding="utf-8-sig") as file:  # Windows editors write a byte order mark
        text = file.read(_MAX_TEXT + 1)
    if len(text) > _MAX_TEXT:
        raise click.ClickException(f"cannot read {noun}: {path}: more than {_MAX_TEXT} characters")
    return text


def read_text(noun: str, path: Path) -> str:
    """Return the text of a file. Raises ClickException that names the content by ``noun``."""
    try:
        return read_bounded(noun, path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else not_utf8(error)
        raise click.ClickException(f"cannot read {noun}: {path}: {reason}") from None


def _read_layers(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Parse the value of ``-ngl``; None leaves the number to the configuration (default: as many as fit)."""
    if text in (None, "all", "auto"):
        return None
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"expected a number of layers, all or auto, not {text!r}") from None


def _split_names(ctx: click.Context, param: click.Parameter, text: str | None) -> list[str] | None:
    names = None if text is None else separated([text])
    if text and not names:
        raise click.BadParameter(f"expected names with commas between, not {text!r}")
    return names


def _read_split_mode(ctx: click.Context, param: click.Parameter, mode: str | None) -> str | None:
    """Return the mode. Raises BadParameter for modes of llama.cpp that no backend has."""
    if mode in ("row", "tensor"):
        raise click.BadParameter(f"{mode} splits single matrices over GPUs, which no backend does; use layer or none")
    if mode not in (None, "auto", "none", "layer"):
        raise click.BadParameter(f"expected none, layer or auto, not {mode!r}")
    return mode


def _read_shares(ctx: click.Context, param: click.Parameter, text: str | None) -> list[float] | None:
    """Parse ``3,1`` or llama.cpp's ``3/1``."""
    if text is None:
        return None
    try:
        shares = [float(item) for item in text.replace("/", ",").split(",")] if text else []
    except ValueError:
        shares = [math.nan]
    if not all(0 <= share < math.inf for share in shares):
        raise click.BadParameter(f"expected numbers from 0 with commas between, not {text!r}")
    return shares


def _choose_cpu_layers(ctx: click.Context, param: click.Parameter, n_layers: int | None) -> int | None:
    return -1 if ctx.meta.get(_CPU_MOE) else n_layers


def _choose_kv_type(ctx: click.Context, param: click.Parameter, key_type: str | None) -> str | None:
    """Return the cache type. llama.cpp's second option, for values, must equal the first."""
    value_type = ctx.meta.get(_VALUE_TYPE)
    if key_type and value_type and key_type != value_type:
        raise click.UsageError("-ctk and -ctv differ: keys and values have one type here")
    return key_type or value_type


def take_template(options: dict[str, Any]) -> str | None:
    """Remove the options of the chat template, and return its name or text; None without one. Raises UsageError."""
    template, file = options.pop("chat_template"), options.pop("chat_template_file")
    if file is not None:
        if template is not None:
            raise click.UsageError("give either --chat-template or --chat-template-file")
        return read_text("the chat template", file)
    if template is not None and len(template) < _LONGEST_PATH and Path(template).suffix and Path(template).is_file():
        raise click.UsageError(
            f"--chat-template expects a name or a text, and {template} is a file: use --chat-template-file {template}"
        )
    return template


def read_template_variables(text: str | None) -> dict[str, Any]:
    """Return the variables of ``--chat-template-kwargs``. Raises UsageError."""
    import json

    try:
        variables = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--chat-template-kwargs is not valid JSON: {json_problem(error)}") from None
    if not isinstance(variables, dict):
        raise click.UsageError("--chat-template-kwargs must be a JSON object")
    return variables


def template_options(command: CommandFunction) -> CommandFunction:
    """Add the options of the chat template, which ``take_template`` reads."""
    file = option(
        "--chat-template-file",
        type=InputFile(path_type=Path),
        metavar="FILE",
        group="Chat",
        help="Read the chat template (Jinja) from FILE.",
    )
    named = defined(
        CHAT["chat_template"],
        metavar="NAME",
        help="Chat template: its name, or its text (Jinja).  [default: the model's]",
    )
    return named(file(command))


def _set_verbose(ctx: click.Context, param: click.Parameter, verbose: bool) -> None:
    if verbose:
        show_logs(verbose=True)


def _switch_sandbox_off(ctx: click.Context, param: click.Parameter, off: bool) -> None:
    if off:
        from pumice.sandbox import SWITCH

        os.environ[SWITCH] = "off"  # inherited by child processes


no_sandbox_option = option(
    "--no-sandbox",
    is_flag=True,
    expose_value=False,
    callback=_switch_sandbox_off,
    group="Security",
    advanced=True,
    help="Do not confine this process, engines and workers, for debugging.",
)


def _go_offline(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        os.environ["HF_HUB_OFFLINE"] = "1"  # huggingface_hub reads it when it is imported


offline_option = option(
    "--offline",
    is_flag=True,
    expose_value=False,
    callback=_go_offline,
    group="Model",
    advanced=True,
    help="Download nothing; use models of this machine only.",
)

verbose_option = option(
    "-v",
    "--verbose",
    aliases=("--log-verbose",),
    is_flag=True,
    expose_value=False,
    callback=_set_verbose,
    help="Log progress and decisions of the library to standard error.",
)

_KV_HELP = f"Type of the key/value cache: {', '.join(get_args(KVType))}.  [default: f16]"


class _Switch(click.types.BoolParamType):
    """True or false, as on or off."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"expected on or off, not {value!r:.60}", param, ctx)


_PLACEMENT = [
    defined(ENGINE["devices"], metavar="NAMES", callback=_split_names, advanced=True),
    defined(ENGINE["split_mode"], type=str, metavar="MODE", callback=_read_split_mode, advanced=True),
    defined(ENGINE["main_gpu"], advanced=True),
    defined(ENGINE["tensor_split"], type=str, metavar="N,N,...", callback=_read_shares, advanced=True),
    defined(
        ENGINE["override_tensors"],
        metavar="REGEX=DEVICE,...",
        multiple=True,
        callback=lambda ctx, param, values: separated(values) or None,
        advanced=True,
    ),
    defined(ENGINE["n_cpu_moe"], callback=_choose_cpu_layers, advanced=True),
    _kept(
        _CPU_MOE,
        "-cmoe",
        "--cpu-moe",
        is_flag=True,
        group="Backend",
        advanced=True,
        help="Keep the experts of all layers in host memory, like --n-cpu-moe -1.",
    ),
    defined(ENGINE["n_cpu_ffn"], advanced=True),
    defined(ENGINE["moe_in_place"], advanced=True),
    option(
        "-kvo/-nkvo",
        "--kv-offload/--no-kv-offload",
        "kv_offload",
        default=None,
        group="Backend",
        advanced=True,
        help="Keep the key/value cache of layers on a GPU there, or in host memory.  [default: on the GPU]",
    ),
    option(
        "--mmap/--no-mmap",
        default=None,
        group="Backend",
        advanced=True,
        help="Map the model's file into memory, or read it into memory of the process.  [default: map]",
    ),
    defined(ENGINE["mlock"], is_flag=True, default=None, advanced=True),
    defined(ENGINE["numa"], advanced=True),
    defined(
        ENGINE["fit"],
        type=_Switch(),
        is_flag=False,
        default=None,
        metavar="on|off",
        help=f"{ENGINE['fit'].meaning}  [default: on]",
        advanced=True,
    ),
    defined(ENGINE["fit_target"], advanced=True),
    defined(ENGINE["fit_ctx"], advanced=True),
    defined(ENGINE["cache_share"], advanced=True),
]
"""Options of where layers and tensors are placed."""


def _list_devices(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from pumice.cli.device_list import list_devices

        echo(list_devices())
        ctx.exit()


list_devices_option = option(
    "--list-devices",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_devices,
    group="Backend",
    advanced=True,
    help="List the devices of each backend, and exit.",
)

_ENGINE = [
    list_devices_option,
    defined(ENGINE["n_ctx"], metavar="N"),
    defined(ENGINE["n_batch"], advanced=True),
    defined(ENGINE["kv_type"], metavar="TYPE", callback=_choose_kv_type, help=_KV_HELP),
    _kept(
        _VALUE_TYPE,
        "-ctv",
        "--cache-type-v",
        type=click.Choice(get_args(KVType)),
        metavar="TYPE",
        group="Context",
        advanced=True,
        help="Type of cached values; must equal the type of the keys (--cache-type-k).",
    ),
    option(
        "--kv-rotate/--no-kv-rotate",
        default=None,
        group="Context",
        advanced=True,
        help=f"{ENGINE['kv_rotate'].meaning}  [default: rotate]",
    ),
    defined(ENGINE["cache_ram"], advanced=True),
    defined(ENGINE["cache_disk"], metavar="DIR", advanced=True),
    defined(ENGINE["cache_disk_limit"], advanced=True),
    defined(ENGINE["backend"], metavar="NAME"),
    defined(
        ENGINE["n_gpu_layers"],
        type=str,
        metavar="N",
        callback=_read_layers,
        help="Number of layers on a GPU backend, counted from the last; all or -1: all; auto: as many as fit."
        "  [default: auto]",
    ),
    *_PLACEMENT,
    *METADATA_OPTIONS,
    defined(ENGINE["speculate"], metavar="NAMES", callback=_choose_speculate, group="Generation", advanced=True),
    _kept(
        _NO_SPECULATE,
        "--no-speculate",
        is_flag=True,
        group="Generation",
        advanced=True,
        help="Disable speculative decoding, like --speculate off.",
    ),
    defined(ENGINE["mmproj"], metavar="FILE", advanced=True),
    defined(ENGINE["vocoder"], metavar="FILE", advanced=True),
    defined(ENGINE["image_min_tokens"], metavar="N", advanced=True),
    defined(ENGINE["image_max_tokens"], metavar="N", advanced=True),
    defined(ENGINE["draft"], metavar="FILE", group="Generation"),
    defined(ENGINE["draft_max"], metavar="N", group="Generation", advanced=True),
    defined(ENGINE["draft_min"], metavar="N", group="Generation", advanced=True),
    defined(ENGINE["draft_p_min"], metavar="P", group="Generation", advanced=True),
    defined(ENGINE["draft_n_ctx"], metavar="N", advanced=True),
    defined(
        ENGINE["draft_n_gpu_layers"],
        type=str,
        metavar="N",
        callback=_read_layers,
        advanced=True,
        help="Number of the draft model's layers on a GPU backend, like --n-gpu-layers.  [default: auto]",
    ),
]
"""Options of the engine, shared by all commands that load a model."""

layer_range_option = partial(
    option,
    "--control-vector-layer-range",
    type=(click.IntRange(1), click.IntRange(1)),
    metavar="FIRST LAST",
    group="Adapters",
    advanced=True,
    help="First and last layer that control vectors change.  [default: all layers]",
)

ADAPTERS = {
    "lora": ("FILE", "LoRA adapter, named after its file."),
    "lora_scaled": ("FILE:SCALE", "LoRA adapter with a scale factor."),
    "control_vector": ("FILE", "Control vector, named after its file."),
    "control_vector_scaled": ("FILE:SCALE", "Control vector with a scale factor."),
}
"""Value and meaning of each option of adapters."""


def adapter_option(name: str, **attributes: Any) -> Decorator:
    """Return the decorator of one of ``ADAPTERS``."""
    value, meaning = ADAPTERS[name]
    return option(
        f"--{name.replace('_', '-')}",
        multiple=True,
        metavar=value,
        group="Adapters",
        advanced=name != "lora",
        help=f"{meaning} Repeatable, or with commas.",
        **attributes,
    )


threads_option = partial(
    option,
    "-t",
    "--threads",
    type=click.IntRange(-1),
    metavar="N",
    group="Backend",
    help="Number of threads of the backend cpu; 0 or -1: one for each core.  [default: 0]",
)

setting_option = partial(
    option,
    "--set",
    "config",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set any key of the configuration, such as --set sampling.typical_p=0.9. Repeatable.",
)

_LOAD_OPTIONS: list[Decorator] = [
    *_ENGINE,
    threads_option(expose_value=False, callback=_set_threads),
    *(adapter_option(name, expose_value=False, callback=_set_adapters) for name in ADAPTERS),
    layer_range_option(is_eager=True, expose_value=False, callback=_set_layers),
    setting_option(is_eager=True, callback=lambda ctx, param, values: parse_settings(values)),
    verbose_option,
    no_sandbox_option,
]

_COMMON_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
_SAMPLING = [
    name for name, definition in SAMPLING.items() if definition.flags and definition.type in (int, float, bool)
]


def sampling_options(command: CommandFunction, without: str = "") -> CommandFunction:
    """Add an option for each numeric parameter of the sampler chain, which ``take_sampling`` reads.

    ``without``: flag that has another meaning at the command.
    """
    for name in reversed(_SAMPLING):
        spellings = " ".join(flag for flag in SAMPLING[name].flags if flag != without)
        definition = replace(SAMPLING[name], spellings=spellings)
        command = defined(definition, advanced=name not in _COMMON_SAMPLING)(command)
    return command


def engine_options(command: CommandFunction) -> CommandFunction:
    """Add the options of the engine: context, batch, cache type, backend, layers on a GPU."""
    return with_options(command, _ENGINE)


def take_sampling(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the sampling options from ``options``, and return those that were set."""
    values = {name: options.pop(name) for name in _SAMPLING}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def load_options(command: CommandFunction) -> CommandFunction:
    """Add the options of ``load_model``, which are keyword arguments of ``pumice.load``."""
    return with_options(command, _LOAD_OPTIONS)


def parse_settings(values: tuple[str, ...]) -> dict[str, Any]:
    """Parse ``("a.b=1", "c=[x]")`` to ``{"a": {"b": 1}, "c": ["x"]}``; values are YAML. Raises BadParameter."""
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
