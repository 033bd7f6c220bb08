"""The configuration, merged from layers with the same keys; each layer overrides those before it.

    registry.yaml in the package < $XDG_CONFIG_HOME/pumice/models/*.yaml < $XDG_CONFIG_HOME/pumice/config.yaml
    < ./pumice.yaml < $PUMICE_CONFIG
    < options of the model in the catalogue < arguments

Maps are merged key by key; every other value, lists included, replaces the one below. ``pumice.options.EngineOptions``
describes the keys.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import yaml

from pumice.cache_files import read_regular
from pumice.errors import ConfigError
from pumice.options import ENGINE, KVType, Option
from pumice.options.reading import SettingsReader, check_finite, fields_of, show_setting
from pumice.proposers import choice_of
from pumice.wording import did_you_mean

ARGUMENTS = "arguments"
MAX_BYTES = 1 << 20  # of a file
_MAX_KEYS = 10_000  # of a map
_MAX_INTEGER = 2**53
_MAX_DIGITS = 1000  # of an integer, below what Python reads
_MAX_DEPTH = 8  # of lists and maps in a call's options that hold numbers
PROJECT_FILE = "pumice.yaml"  # in the current directory
_WEIGHTS = re.compile(
    r".*\.(gguf|safetensors)"
    r"|.*/models--[^/]+/blobs/[^/]+"  # a hub's cache
    r"|.*/blobs/sha256-[0-9a-f]{64}",  # Ollama's
    re.DOTALL,
)


class Layer(NamedTuple):
    """One source of settings: a file's path, or ``arguments``."""

    source: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Plugins:
    """Selection of plugins.

    Attributes:
        disabled: Names of plugins that are not loaded.
        prefer: Plugin whose registration counts if several register a name: ``{"backends": {"cpu": "faster"}}``.
    """

    disabled: list[str] = field(default_factory=list)
    prefer: dict[str, dict[str, str]] = field(default_factory=dict)


def _check_layers(value: list[int]) -> None:
    if value and (len(value) != 2 or not 1 <= value[0] <= value[1]):
        raise ValueError("the first and the last layer, counted from 1")


@dataclass(frozen=True)
class AdapterOptions:
    """A LoRA adapter or a control vector; a string is its file.

    Attributes:
        file: Path of the file.
        scale: Scale of the adapter for requests that give none.
        layers: First and last layer that a control vector changes; empty: all for which it has directions.
        kind: Kind of file to accept, ``lora`` or ``control_vector``; empty: either. Options of commands set it.
    """

    SHORTHAND: ClassVar = "file"

    file: str
    scale: Annotated[float, check_finite] = 1.0
    layers: Annotated[list[int], _check_layers] = field(default_factory=list)
    kind: Literal["", "lora", "control_vector"] = ""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The merged settings, by the keys of ``pumice.options.EngineOptions``, which has the limits of numbers.

    ``pumice.registry.get_registry`` checks sections and ``sampling``, which depend on plugins.

    Attributes:
        sections: Options of backends by the name of the backend; every other key is one of ``SETTINGS``.
        layers: Sources of the settings, lowest first.
    """

    backend: str
    backends: list[str]
    n_ctx: int
    cache_share: float
    n_batch: int
    n_parallel: int
    max_queue: int
    prefill_tokens: int
    lookahead: int
    speculate: str
    n_draft: int
    n_gpu_layers: int
    devices: list[str]
    split_mode: Literal["auto", "none", "layer"]
    main_gpu: int
    tensor_split: list[float]
    override_tensors: list[str]
    n_cpu_moe: int
    n_cpu_ffn: int
    moe_in_place: Literal["on", "off"]
    kv_offload: bool
    mmap: bool
    mlock: bool
    numa: Literal["off", "distribute", "isolate", "numactl"]
    fit: bool
    fit_target: int
    fit_ctx: int
    kv_type: KVType
    kv_rotate: bool
    samplers: list[str]
    sampling: dict[str, Any]
    chat_template: str
    mmproj: str
    vocoder: str
    image_min_tokens: int
    image_max_tokens: int
    draft: str
    draft_max: int
    draft_min: int
    draft_p_min: float
    draft_n_ctx: int
    draft_n_gpu_layers: int
    cache_ram: int
    cache_disk: str
    cache_saved: str
    cache_disk_limit: float
    memory_limit: float
    sandbox: Literal["auto", "on", "off"]
    sandbox_read: list[str]
    sandbox_write: list[str]
    plugins: Plugins
    override_kv: dict[str, bool | int | float | str]
    adapters: dict[str, AdapterOptions]
    models: dict[str, dict[str, Any]]

    sections: dict[str, dict[str, Any]]
    layers: tuple[Layer, ...]

    @property
    def adapter_scales(self) -> dict[str, float]:
        """Scale of each adapter by name, for requests that give none."""
        return {name: options.scale for name, options in self.adapters.items()}

    def as_mapping(self) -> dict[str, Any]:
        """Return all settings as plain values by their keys; sections of backends by the names of the backends."""
        values = asdict(replace(self, layers=()))
        return {**{name: values[name] for name in SETTINGS}, **values["sections"]}

    def backend_options(self, name: str) -> dict[str, Any]:
        """Return the options in the section of a backend; empty without a section."""
        return dict(self.sections.get(name, {}))

    def source(self, *key: str) -> str:
        """Return the source of the value of a key: the path of a file, or ``arguments``."""
        for layer in reversed(self.layers):
            value: Any = layer.data
            for part in key:
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                return str(layer.source)
        return ARGUMENTS

    @property
    def cache_folder(self) -> str:
        """Absolute path of the folder to which an engine writes prompts; empty: none."""
        folder = self.cache_disk or self.cache_saved
        return os.path.abspath(os.path.expanduser(folder)) if folder else ""

    @property
    def cache_option(self) -> str:
        """Option that names the folder."""
        return "cache_disk" if self.cache_disk else "cache_saved"

    @property
    def files(self) -> list[str]:
        """Paths of the files that were read, lowest layer first."""
        return [str(layer.source) for layer in self.layers if layer.source != ARGUMENTS]

    @property
    def is_drafting(self) -> bool:
        """True if requests without a choice of their own want drafts; a draft model alone says so."""
        return self.speculate != "off" or (bool(self.draft) and self.is_default("speculate"))

    def is_default(self, *key: str) -> bool:
        """Return True if the value of a key is the package's default."""
        return self.source(*key) == self.layers[0].source


_RECORDED = ("sections", "layers")
SETTINGS: Mapping[str, Option] = {
    name: replace(ENGINE[name], type=option.type) if name in ENGINE else option
    for name, option in fields_of(Config).items()
    if name not in _RECORDED
}
"""The option of each key that is no section of a backend."""


class _Loader(yaml.SafeLoader):
    """Loader that refuses duplicate keys, as YAML demands; in PyYAML the last one wins, which hides mistakes.

    It also bounds the keys that ``<<`` merges: lists of aliases of lists of aliases would stand for billions.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_KEYS:
            raise yaml.MarkedYAMLError(problem=f"more than {_MAX_KEYS} keys of one map", problem_mark=node.start_mark)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        digits = len(str(node.value).replace("_", ""))
        number: int = super().construct_yaml_int(node) if digits <= _MAX_DIGITS else _MAX_INTEGER + 1
        if abs(number) > _MAX_INTEGER:
            raise yaml.MarkedYAMLError(problem=f"a number beyond {_MAX_INTEGER}", problem_mark=node.start_mark)
        return number

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in keys:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} is there twice", problem_mark=key.start_mark)
                keys.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def parse_yaml(text: str | bytes) -> Any:
    """Return the value of a YAML text. Raises yaml.YAMLError, and nothing else, for an invalid one."""
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # of dates, numbers, sets
        raise yaml.YAMLError(f"a value is not what its form or its tag says: {error}") from None


def load_config(overrides: Mapping[str, Any] | None = None, model: Layer | None = None) -> Config:
    """Read and merge every layer.

    Args:
        overrides: Settings of the highest layer; None stands for a setting that is not given.
        model: Options of a model in the catalogue, the layer below ``overrides``.

    Raises:
        ConfigError: A file cannot be read, a key is unknown, or a value is of a wrong type.
    """
    layers = [_package_layer(), *map(_read, config_files()[1:])]
    layers += [model] if model else []
    layers.append(Layer(ARGUMENTS, _without_none(overrides or {})))
    for key, value in layers[-1].data.items():
        _check_integers(key, value)
    config = merge_layers(layers)
    for layer in layers:
        if layer.source == PROJECT_FILE:
            _check_project(layer)
        elif layer is model:
            _check_sandbox_stays(layer)
    return config


def _check_integers(key: str, value: object, depth: int = 0) -> None:
    """Raise ConfigError for an integer that a file could not have either."""
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise ConfigError(f"{ARGUMENTS}: {key}: a number beyond {_MAX_INTEGER}: {show_setting(value)}")
    if isinstance(value, (list, tuple, Mapping)) and depth < _MAX_DEPTH:
        for item in value.values() if isinstance(value, Mapping) else value:
            _check_integers(key, item, depth + 1)


def bundled_config(overrides: Mapping[str, Any]) -> Config:
    """Return the package's own configuration with ``overrides``, whatever the files of users and folders say."""
    return merge_layers([_package_layer(), Layer(ARGUMENTS, _without_none(overrides))])


def merge_layers(layers: Sequence[Layer]) -> Config:
    """Return the configuration of layers, lowest first. Raises ConfigError for an unknown key or a wrong value."""
    merged: dict[str, Any] = {}
    for layer in layers:
        _read_settings(layer.data, SettingsReader(layer.source, partial=True))
        merged = _merge(merged, layer.data)
    values = _read_settings(merged, SettingsReader(layers[0].source))
    missing = SETTINGS.keys() - values
    if missing:
        raise ConfigError(f"{layers[0].source}: the keys {', '.join(sorted(missing))} are missing")
    config = _without_tildes(Config(**values, layers=tuple(layers)))
    if config.draft_min > config.draft_max:
        raise ConfigError(
            f"{config.source('draft_min')}: draft_min is {config.draft_min}, more than draft_max, "
            f"{config.draft_max}: no proposal would be long enough; lower the one or raise the other"
        )
    return config


def _without_tildes(config: Config) -> Config:
    """Return a configuration with the user's folder in place of ``~`` in the names of files that a model reads."""
    files = {key: os.path.expanduser(getattr(config, key)) for key in ("mmproj", "draft", "vocoder")}
    adapters = {
        name: replace(adapter, file=os.path.expanduser(adapter.file)) for name, adapter in config.adapters.items()
    }
    return replace(config, **files, adapters=adapters)


def _check_project(layer: Layer) -> None:
    """Raise ConfigError if a project's file, or its options of a model, weaken the sandbox or name files elsewhere."""
    models: Mapping[str, Any] = layer.data.get("models", {})
    own = [Layer(f"{layer.source}: models.{name}", options) for name, options in models.items()]
    for part in (layer, *own):
        for key in ("cache_disk", "cache_saved"):
            if part.data.get(key):
                raise ConfigError(
                    f"{part.source}: {key}: a project's file cannot choose a folder that engines write to; put it "
                    f"into {user_directory() / 'pumice' / 'config.yaml'} or the file that $PUMICE_CONFIG names, or "
                    "set it on the command line"
                )
        _check_sandbox_stays(part)
        check_named_files(part, os.curdir)


def check_named_files(layer: Layer, folder: str | Path) -> None:
    """Raise ConfigError if settings name files that a confined process would read, and that are none of a model.

    Args:
        layer: Settings that somebody else may have written.
        folder: Their folder, with everything below which came with them. Elsewhere they may name files of weights.
    """
    for key, file in _named_files(layer.data):
        if not all(_may_name(os.path.join(folder, path), folder) for path in {file, os.path.expanduser(file)}):
            raise ConfigError(
                f"{layer.source}: {key}: a file that comes with a project cannot name {file!r:.200}: outside of its "
                "folder it names only files of weights (.gguf, .safetensors); put it into "
                f"{user_directory() / 'pumice' / 'config.yaml'}, or set it on the command line"
            )


def _named_files(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield key and value of the settings that name files which a process reads; ``model`` is that of an entry."""
    named = {key: data.get(key) for key in ("model", "mmproj", "draft", "vocoder")}
    adapters = data.get("adapters")
    for name, adapter in adapters.items() if isinstance(adapters, Mapping) else ():
        named[f"adapters.{name}"] = adapter.get("file") if isinstance(adapter, Mapping) else adapter
    yield from ((key, value) for key, value in named.items() if isinstance(value, str))


def _may_name(file: str, folder: str | Path) -> bool:
    """Return True for a path below the folder, one of weights elsewhere, and one that does not exist.

    Links are resolved: a project may bring any.
    """
    try:
        target = os.path.realpath(file)
    except ValueError:  # a null character
        return True
    if not os.path.exists(target) or Path(target).is_relative_to(os.path.realpath(folder)):
        return True
    return os.path.isfile(target) and _WEIGHTS.fullmatch(target) is not None


def _check_sandbox_stays(layer: Layer) -> None:
    """Raise ConfigError if a project's file, or options of a model, weaken the sandbox; they may require one."""
    for key in ("sandbox", "sandbox_read", "sandbox_write"):
        if layer.data.get(key, "on") not in ("on", True):
            raise ConfigError(
                f"{layer.source}: {key}: a project's file cannot weaken the sandbox; put it into "
                f"{user_directory() / 'pumice' / 'config.yaml'} or the file that $PUMICE_CONFIG names, or use --set"
            )


def _read_settings(data: Mapping[str, Any], reader: SettingsReader) -> dict[str, Any]:
    """Return the values of keys, and ``sections``. Raises ConfigError for an unknown key or a wrong value."""
    values: dict[str, Any] = {"sections": {}}
    for key, value in data.items():
        if key in SETTINGS:
            values[key] = reader.value(SETTINGS[key], choice_of(value) if key == "speculate" else value, key)
        elif isinstance(value, Mapping):
            values["sections"][key] = dict(value)
        else:
            hint = f" (a backend's section should be a mapping, not {show_setting(value)})"
            advice = f"; {_ADVICE[key]}" if key in _ADVICE else did_you_mean(key, SETTINGS)
            raise ConfigError(f"{reader.source}: unknown key {key!r}{advice or hint}")
    return values


def config_files() -> list[Path]:
    """Return the configuration files that exist, lowest layer first."""
    named = os.environ.get("PUMICE_CONFIG")
    if named and not Path(named).is_file():
        raise ConfigError(f"$PUMICE_CONFIG names {named!r}, which is not a file; correct or unset it")
    optional = [*created_files(), user_directory() / "pumice" / "config.yaml", Path(PROJECT_FILE)]
    return [_package_file(), *filter(_exists, optional), *([Path(named)] if named else [])]


def created_files() -> list[Path]:
    """Return the files of created entries, sorted. Raises ConfigError if they cannot be listed."""
    try:
        return sorted(created_models_folder().glob("*.yaml"))
    except OSError as error:
        raise ConfigError(f"{created_models_folder()}: the created models cannot be listed: {error.strerror}") from None


def created_models_folder() -> Path:
    """Return the folder of entries of the catalogue that `pumice create` makes."""
    return user_directory() / "pumice" / "models"


def configuration_paths() -> list[str]:
    """Return the paths of the configuration for a confined process: its files, and the folder of created entries."""
    created = created_models_folder()
    return [os.path.abspath(path) for path in (*config_files(), *([created] if created.is_dir() else []))]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def _package_file() -> Path:
    """Return the path of registry.yaml: in the installed package, or at the root of a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "registry.yaml"
    return installed if installed.exists() else package.parents[1] / "registry.yaml"


@functools.cache
def _package_layer() -> Layer:
    """Return the package's own settings, read once: a confined server cannot open a file that replaces this one."""
    return _read(_package_file())


def user_directory() -> Path:
    """Return the XDG base directory for configuration; a relative one is ignored, as the specification demands."""
    directory = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return directory if directory.is_absolute() else Path.home() / ".config"


def _read(path: Path) -> Layer:
    """Return a configuration file as a layer; an empty file has no keys."""
    try:
        content = read_regular(path, MAX_BYTES)  # a project may bring a link to a device, which never ends
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: cannot read it: {error}") from None
    return _layer(str(path), content)


@functools.lru_cache(maxsize=8)  # a command reads its files before and after it is confined
def _layer(path: str, content: bytes) -> Layer:
    try:
        data = parse_yaml(content)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict | None):
        raise ConfigError(f"{path}: expected `key: value` lines, not {_described(data)}")
    return Layer(path, _without_none(data or {}))


def _described(value: Any) -> str:
    return "a list" if isinstance(value, list) else repr(value)[:60]


def _without_none(data: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out keys without a value, so that ``sampling:`` above commented lines is no error."""
    return {str(key): value for key, value in data.items() if value is not None}


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


_ADVICE = {
    "model_path": 'the model is the first argument: pumice.load("model.gguf")',
    **dict.fromkeys(("n_threads", "threads", "n_threads_batch"), "threads belong to the backend: cpu.threads"),
    "flash_attn": "leave it out: attention always is computed so",
    "verbose": 'leave it out: messages go to the logger "pumice"',
}
"""What to write for options of other programs that are no key here."""
