"""The plugin manager: finds plugins by entry point, loads each on its own, and knows what they registered."""

import dataclasses
import importlib.metadata
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pluggy
from pydantic import BaseModel, ConfigDict, create_model

from pumice import hookspecs
from pumice.architecture import Architecture
from pumice.backend import Backend
from pumice.config import Config, Plugins, validate
from pumice.errors import BackendError, ConfigError, ModelError, PluginError, RequestError
from pumice.sampler import Sampler, parameters
from pumice.suggest import did_you_mean, unknown_name

GROUP = "pumice"

KINDS: dict[str, type] = {"backends": Backend, "architectures": Architecture, "samplers": Sampler}
"""What plugins register: the hook of a kind is ``pumice_register_<kind>``, the class its contract."""


@dataclass(frozen=True)
class PluginInfo:
    """One installed plugin; ``registered`` maps a kind to names, ``error`` says why it did not load."""

    name: str
    distribution: str | None = None
    version: str | None = None
    hooks: list[str] = field(default_factory=list)
    registered: dict[str, list[str]] = field(default_factory=dict)
    error: str | None = None
    disabled: bool = False


class Registry:
    """Every plugin that is installed, and the classes that the loaded ones registered, by name.

    A plugin that fails, whatever the exception, is in ``plugins`` with its error and stops nothing else.
    Names that several plugins claim are described in ``conflicts``, one line each, and are not registered.
    """

    def __init__(self, settings: Plugins) -> None:
        self.plugins: list[PluginInfo] = []
        self.conflicts: list[str] = []
        self.backends: dict[str, type[Backend]] = {}
        self.architectures: dict[str, type[Architecture]] = {}
        self.samplers: dict[str, type[Sampler]] = {}
        self._manager = pluggy.PluginManager("pumice")
        self._manager.add_hookspecs(hookspecs)
        self._claims: dict[str, dict[str, dict[str, type]]] = {kind: {} for kind in KINDS}
        self._load_all(settings)
        for kind in KINDS:
            self._resolve(kind, getattr(settings.prefer, kind))

    def backend(self, name: str) -> type[Backend]:
        """The backend of this name. Raises BackendError with the known names."""
        if name not in self.backends:
            raise BackendError(unknown_name("backend", name, self.backends) + self._failures())
        return self.backends[name]

    def architecture(self, name: str) -> type[Architecture]:
        """The architecture of this GGUF name. Raises ModelError with the known names."""
        if name not in self.architectures:
            how = "; a plugin can add it: see docs/plugins.md"
            raise ModelError(unknown_name("architecture", name, self.architectures) + self._failures() + how)
        return self.architectures[name]

    def sampler(self, name: str) -> type[Sampler]:
        """The sampler of this name. Raises ConfigError with the known names."""
        if name not in self.samplers:
            raise ConfigError(unknown_name("sampler", name, self.samplers) + self._failures())
        return self.samplers[name]

    def _load_all(self, settings: Plugins) -> None:
        names: set[str] = set()
        for point in _entry_points():
            distribution = point.dist.metadata["Name"] if point.dist else None
            version = point.dist.version if point.dist else None
            name = point.name if point.name not in names else f"{distribution}:{point.name}"
            names.add(name)
            info = PluginInfo(name, distribution, version, disabled=name in settings.disabled)
            self.plugins.append(info if info.disabled else self._load(info, point))
        for name in settings.bundled:
            if name not in names:
                error = "bundled, but its entry point is not installed; install pumice again"
                self.plugins.append(PluginInfo(name, "pumice", error=error))

    def _load(self, info: PluginInfo, point: importlib.metadata.EntryPoint) -> PluginInfo:
        """Import a plugin and collect what it registers: all of it, or after any error nothing."""
        try:
            plugin = point.load()
            self._manager.register(plugin, info.name)
            hooks = self._hooks(plugin)
            claims = {kind: self._call(plugin, kind) for kind in KINDS if f"pumice_register_{kind}" in hooks}
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            return dataclasses.replace(info, error=message)
        for kind, classes in claims.items():
            for name, cls in classes.items():
                self._claims[kind].setdefault(name, {})[info.name] = cls
        registered = {kind: sorted(classes) for kind, classes in claims.items()}
        return dataclasses.replace(info, hooks=hooks, registered=registered)

    def _hooks(self, plugin: ModuleType) -> list[str]:
        callers = self._manager.get_hookcallers(plugin) or []
        known = [f"pumice_register_{kind}" for kind in KINDS]
        for caller in callers:
            if caller.name not in known:
                raise PluginError(unknown_name("hook", caller.name, known))
        return sorted(caller.name for caller in callers)

    def _call(self, plugin: ModuleType, kind: str) -> dict[str, type]:
        """Call one hook of one plugin; what it registers, checked."""
        classes: dict[str, type] = {}

        def register(name: str, cls: type) -> None:
            contract = KINDS[kind]
            if not isinstance(name, str) or not name:
                raise PluginError(
                    f"the name of a plugin's {kind[:-1]} must be a string that is not empty, not {name!r}"
                )
            if not isinstance(cls, type) or not issubclass(cls, contract):
                raise PluginError(f"{kind[:-1]} {name!r}: expected a subclass of {contract.__name__}, not {cls!r}")
            if issubclass(cls, Backend) and not dataclasses.is_dataclass(cls.Options):
                raise PluginError(f"backend {name!r}: its Options must be a dataclass, not {cls.Options!r}")
            if name in classes:
                raise PluginError(f"{kind[:-1]} {name!r} is registered twice")
            classes[name] = cls

        others = [other for other in self._manager.get_plugins() if other is not plugin]
        hook = self._manager.subset_hook_caller(f"pumice_register_{kind}", others)
        hook(register=register)
        return classes

    def _resolve(self, kind: str, prefer: Mapping[str, str]) -> None:
        """Give each name to the one plugin that claims it, or to the one that the configuration prefers."""
        registered = getattr(self, kind)
        for name, claims in sorted(self._claims[kind].items()):
            chosen = prefer.get(name) if len(claims) > 1 else next(iter(claims))
            if chosen in claims:
                registered[name] = claims[chosen]
            else:
                plugins = " and ".join(f"{plugin!r}" for plugin in claims)
                self.conflicts.append(
                    f"plugins {plugins} both register the {kind[:-1]} {name!r}; choose one in a configuration file, "
                    f"with plugins.prefer.{kind}.{name}, or name the other in plugins.disabled"
                )

    def _failures(self) -> str:
        """The plugins that did not load: the name sought may be theirs."""
        failed = [info.name for info in self.plugins if info.error]
        return f"; these plugins did not load: {', '.join(failed)} (see `pumice plugins`)" if failed else ""


_registries: dict[str, Registry] = {}


def load_registry(config: Config) -> Registry:
    """The plugins, loaded once for each set of plugin settings; conflicts and errors are only recorded."""
    key = config.plugins.model_dump_json()
    if key not in _registries:
        _registries[key] = Registry(config.plugins)
    return _registries[key]


def get_registry(config: Config) -> Registry:
    """The plugins, loaded once, after a check of the settings that belong to them.

    Raises PluginError if two plugins claim one name, and ConfigError for a section of no backend, an option
    its backend does not have, or a sampling parameter no sampler of the chain has.
    """
    registry = load_registry(config)
    if registry.conflicts:
        raise PluginError(registry.conflicts[0])
    _check_sections(config, registry)
    _check_samplers(config, registry)
    return registry


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    """Pumice's own first, so that a bundled plugin keeps its name whatever else is installed."""
    points = importlib.metadata.entry_points(group=GROUP)

    def order(point: importlib.metadata.EntryPoint) -> tuple[bool, str, str]:
        distribution = point.dist.metadata["Name"] if point.dist else ""
        return distribution != "pumice", distribution, point.name

    return sorted(points, key=order)


def _check_sections(config: Config, registry: Registry) -> None:
    absent = {info.name for info in registry.plugins if info.error or info.disabled}
    for name, options in config.sections.items():
        if name in registry.backends:
            schema = _schema(registry.backends[name].Options)
            for key, value in options.items():
                validate(
                    schema, json.dumps({key: value}, default=str), f"{config.source(name, key)}: {name}", partial=True
                )
        elif name not in absent.union(config.backends):
            hint = did_you_mean(name, [*Config.model_fields, *registry.backends])
            hint = hint or f" (no backend has this name; known: {', '.join(sorted(registry.backends))})"
            raise ConfigError(f"{config.source(name)}: unknown key {name!r}{hint}")


def _check_samplers(config: Config, registry: Registry) -> None:
    """Only names set above the package's own layer: its default chain is not the user's mistake."""
    for name in config.samplers:
        if name not in registry.samplers and not config.is_default("samplers"):
            problem = unknown_name("sampler", name, registry.samplers)
            raise ConfigError(f"{config.source('samplers')}: samplers: {problem}")
    chain = [registry.samplers[name] for name in config.samplers if name in registry.samplers]
    for key, value in config.sampling.items():
        try:
            parameters.check_known({key} - {"seed"}, chain, registry.samplers)
            for sampler in chain:
                parameters.create(sampler, {key: value})
        except RequestError as error:
            raise ConfigError(f"{config.source('sampling', key)}: sampling: {error}") from None


def _schema(options: type) -> type[BaseModel]:
    """The fields of a dataclass as a pydantic model."""
    hints = typing.get_type_hints(options, include_extras=True)
    fields: dict[str, Any] = {item.name: (hints[item.name], ...) for item in dataclasses.fields(options) if item.init}
    settings = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
    return create_model("Options", __config__=settings, **fields)
