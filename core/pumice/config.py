"""The configuration, merged from layers with the same keys; each layer overrides those before it.

    registry.yaml in the package < $XDG_CONFIG_HOME/pumice/models/*.yaml < $XDG_CONFIG_HOME/pumice/config.yaml
    < ./pumice.yaml < $PUMICE_CONFIG
    < options of the model in the catalogue < arguments

Maps are merged key by key; every other value, lists included, replaces the one below. ``pumice.options.EngineOptions``
describes the keys.
"""

import errno
import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pumice.cache_files import read_regular
from pumice.errors import ConfigError
from pumice.options import ENGINE, KVType
from pumice.proposers import choice_of
from pumice.wording import JsonRepr, did_you_mean, printable

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

_WORDS = {
    "Input should": "should",
    "Value error, should": "should",
    "an object": "a map",
    "a valid array": "a list",
    "a valid dictionary": "a map",
    "a valid integer": "an integer",
    "a valid ": "a ",
}


_NOUNS = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


class Layer(NamedTuple):
    """One source of settings: a file's path, or ``arguments``."""

    source: str
    data: dict[str, Any]


class Plugins(BaseModel):
    """Selection of plugins.

    Attributes:
        disabled: Names of plugins that are not loaded.
        prefer: Plugin whose registration counts if several register a name: ``{"backends": {"cpu": "faster"}}``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    disabled: list[str] = []
    prefer: dict[str, dict[str, str]] = {}


class AdapterOptions(BaseModel):
    """A LoRA adapter or a control vector; a string is its file.

    Attributes:
        file: Path of the file.
        scale: Scale of the adapter for requests that give none.
        layers: First and last layer that a control vector changes; empty: all for which it has directions.
        kind: Kind of file to accept, ``lora`` or ``control_vector``; empty: either. Options of commands set it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    scale: float = Field(1.0, allow_inf_nan=False)
    layers: list[int] = []
    kind: Literal["", "lora", "control_vector"] = ""

    @model_validator(mode="before")
    @classmethod
    def _file_alone(cls, value: Any) -> Any:
        return {"file": value} if isinstance(value, str) else value

    @field_validator("layers")
    @classmethod
    def _first_and_last(cls, value: list[int]) -> list[int]:
        if value and (len(value) != 2 or not 1 <= value[0] <= value[1]):
            raise PydanticCustomError("layers", "should be the first and the last layer, counted from 1")
        return value


class Config(BaseModel):
    """The merged settings, by the keys of ``pumice.options.EngineOptions``, which has the limits of numbers.

    Any other key is the section of a backend.

    ``pumice.registry.get_registry`` checks sections and ``sampling``, which depend on plugins.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, dict[str, Any]] = Field(init=False)

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

    _layers: tuple[Layer, ...] = PrivateAttr(default=())

    @field_validator(*(name for name, option in ENGINE.items() if option.unit), mode="before")
    @classmethod
    def _size_in_unit(cls, value: Any, info: ValidationInfo) -> Any:
        """Accept sizes with a unit, such as 12GiB."""
        if not isinstance(value, str):
            return value
        try:
            return ENGINE[info.field_name or ""].size(value)
        except ConfigError:
            expected = f"should be a number of {ENGINE[info.field_name or ''].unit}, or a size such as 12GiB or 512MiB"
            raise PydanticCustomError("size", expected) from None

    @field_validator(*(name for name, option in ENGINE.items() if option.limits))
    @classmethod
    def _is_within_limits(cls, value: float, info: ValidationInfo) -> float:
        option = ENGINE[info.field_name or ""]
        if not option.is_within(value):
            raise PydanticCustomError("limits", f"should be {option.limits_text}")
        return value

    @field_validator("sandbox", "moe_in_place", mode="before")
    @classmethod
    def _on_is_true(cls, value: Any) -> Any:
        """Accept true and false, which YAML reads for the words on and off."""
        return {True: "on", False: "off"}[value] if isinstance(value, bool) else value

    @field_validator("mmproj", "vocoder", "draft", "cache_disk", "cache_saved")
    @classmethod
    def _may_name_a_path(cls, value: str) -> str:
        """Refuse texts that no system call takes as a path, such as one with a NUL character."""
        if value and not value.strip():
            raise PydanticCustomError("file", "should be the name of a file, or empty")
        try:
            os.lstat(os.path.expanduser(value))
        except ValueError:
            raise PydanticCustomError("path", "should be a path") from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise PydanticCustomError("path", "should be a shorter path") from None
        return value

    @field_validator("speculate", mode="before")
    @classmethod
    def _off_is_false(cls, value: Any) -> Any:
        return choice_of(value)

    @field_validator("tensor_split")
    @classmethod
    def _are_shares(cls, value: list[float]) -> list[float]:
        if not all(0 <= share < float("inf") for share in value) or (value and not any(value)):
            raise PydanticCustomError("shares", "should be a list of shares, at least 0 and not all 0")
        return value

    @property
    def layers(self) -> Sequence[Layer]:
        """Sources of the settings, lowest first."""
        return self._layers

    @property
    def adapter_scales(self) -> dict[str, float]:
        """Scale of each adapter by name, for requests that give none."""
        return {name: options.scale for name, options in self.adapters.items()}

    @property
    def sections(self) -> dict[str, dict[str, Any]]:
        """Options of backends that have a section, by the name of the backend."""
        return dict(self.__pydantic_extra__)

    def backend_options(self, name: str) -> dict[str, Any]:
        """Return the options in the section of a backend; empty without a section."""
        return dict(self.sections.get(name, {}))

    def source(self, *key: str) -> str:
        """Return the source of the value of a key: the path of a file, or ``arguments``."""
        for layer in reversed(self._layers):
            value: Any = layer.data
            for part in key:
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                return str(layer.source)
        return ARGUMENTS

    @property
    def cache_folder(self) -> str:
        """Folder to which an engine writes prompts; empty: none."""
        return self.cache_disk or self.cache_saved

    @property
    def cache_option(self) -> str:
        """Option that names the folder."""
        return "cache_disk" if self.cache_disk else "cache_saved"

    @property
    def files(self) -> list[str]:
        """Paths of the files that were read, lowest layer first."""
        return [str(layer.source) for layer in self._layers if layer.source != ARGUMENTS]

    @property
    def is_drafting(self) -> bool:
        """True if requests without a choice of their own want drafts; a draft model alone says so."""
        return self.speculate != "off" or (bool(self.draft) and self.is_default("speculate"))

    def is_default(self, *key: str) -> bool:
        """Return True if the value of a key is the package's default."""
        return self.source(*key) == self._layers[0].source


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
        raise ConfigError(f"{ARGUMENTS}: {key}: a number beyond {_MAX_INTEGER}: {_shown(value)}")
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
        validate(Config, layer.data, layer.source, partial=True)
        merged = _merge(merged, layer.data)
    config: Config = validate(Config, merged, layers[0].source)
    config._layers = tuple(layers)
    if config.draft_min > config.draft_max:
        raise ConfigError(
            f"{config.source('draft_min')}: draft_min is {config.draft_min}, more than draft_max, "
            f"{config.draft_max}: no proposal would be long enough; lower the one or raise the other"
        )
    return config


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


def validate(schema: type[BaseModel], data: Mapping[str, Any] | str, source: str, *, partial: bool = False) -> Any:
    """Return ``data`` as an instance of ``schema``.

    Args:
        schema: Model with the keys.
        data: Values by key. JSON text may have a list for a tuple and a string for an enumeration, as files have.
        source: Name of the layer for errors.
        partial: Only check the keys that ``data`` has, and return None.

    Raises:
        ConfigError: A value is wrong; the message names the source, the key and what was expected.
    """
    try:
        if isinstance(data, str):
            return schema.model_validate_json(data, strict=True)
        return schema.model_validate(data, strict=True)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            if not (partial and problem["type"] == "missing"):
                raise ConfigError(f"{source}: {_describe(schema, problem)}") from None
        return None


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


def _shown(value: Any) -> str:
    """Return a wrong value for a message, shortened; YAML's aliases can nest lists deeply."""
    short = JsonRepr()
    short.maxlevel, short.maxstring, short.maxother = 2, 100, 100
    return short.repr(value)


_ADVICE = {
    "model_path": 'the model is the first argument: pumice.load("model.gguf")',
    **dict.fromkeys(("n_threads", "threads", "n_threads_batch"), "threads belong to the backend: cpu.threads"),
    "flash_attn": "leave it out: attention always is computed so",
    "verbose": 'leave it out: messages go to the logger "pumice"',
}
"""What to write for options of other programs that are no key here."""


def _describe(schema: type[BaseModel], problem: Any) -> str:
    """Return one line for an error of pydantic: the key, and the nearest known key or what was expected."""
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    section: Any = schema
    for part in path[:-1]:
        fields = getattr(section, "model_fields", {})
        section = fields[part].annotation if part in fields else next(reversed(get_args(section)), None)
    keys: dict[str, Any] = dict(getattr(section, "model_fields", {}))
    is_forbidden = problem["type"] == "extra_forbidden"
    if is_forbidden or (len(path) == 1 and key not in schema.model_fields):
        known = f" (known: {', '.join(keys)})"
        hint = known if is_forbidden else f" (a backend's section should be a map, not {_shown(problem['input'])})"
        advice = f"; {_ADVICE[key]}" if key in _ADVICE else did_you_mean(path[-1], keys)
        return f"unknown key {key!r}{advice or hint}"
    if get_origin(section) is UnionType:  # pydantic has an error for each member, whose name ends the path
        nouns = " or ".join(_NOUNS[member] for member in get_args(section))
        return f"{printable('.'.join(path[:-1]))}: should be {nouns}, not {_shown(problem['input'])}"
    expected = re.sub(r" or instance of \w+", "", problem["msg"])
    for pydantic_says, yaml_says in _WORDS.items():
        expected = expected.replace(pydantic_says, yaml_says)
    return f"{printable(key)}: {expected}, not {_shown(problem['input'])}"
