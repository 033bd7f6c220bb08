"""Finding plugins and loading them, each on its own."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pluggy

from pumice import builtin, hookspecs
from pumice.config import Config, Plugins
from pumice.errors import PluginError
from pumice.guard import describe
from pumice.registry.kinds import KINDS, Kind
from pumice.registry.names import Names, Registration, quiet_stdout
from pumice.suggest import did_you_mean

if TYPE_CHECKING:
    import click

    from pumice.architecture import Architecture
    from pumice.backend import Backend
    from pumice.chat import ChatFormat
    from pumice.cluster import Cluster
    from pumice.convert.conversion import Conversion
    from pumice.quantizer import Quantizer
    from pumice.sampler import Sampler
    from pumice.tokenizers import PreTokenizer, Tokenizer

GROUP = "pumice"
PACKAGE = "pumice"  # the distribution
CORE = "core"  # the name of the plugin that `pumice.builtin` is
#: The distribution's entry points.
BUNDLED = ("architectures", "cpu", "mlx", "numpy", "ray", "samplers", "server", "vulkan")

logger = logging.getLogger("pumice")


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
    """Every plugin that is installed, and what the loaded ones registered, by name.

    A plugin that fails, whatever the exception, is in ``plugins`` with its error and stops nothing else.
    ``passed`` are plugins that are not installed, modules or other objects with hooks: what they register replaces what
    installed ones do. Raises PluginError if one of these fails.
    """

    backends: Names[type[Backend]]
    architectures: Names[type[Architecture]]
    samplers: Names[type[Sampler]]
    tokenizers: Names[type[Tokenizer]]
    pre_tokenizers: Names[PreTokenizer]
    chat_formats: Names[ChatFormat]
    quantizers: Names[Quantizer]
    conversions: Names[type[Conversion]]
    clusters: Names[type[Cluster]]
    commands: Names[click.Command]

    def __init__(self, settings: Plugins, passed: Sequence[object] = ()) -> None:
        self.plugins: list[PluginInfo] = []
        self.kinds: dict[str, Names[Any]] = {plural: Names(kind) for plural, kind in KINDS.items()}
        vars(self).update(self.kinds)
        self._manager = pluggy.PluginManager("pumice")
        self._manager.add_hookspecs(hookspecs)
        self._claims: list[Registration] = []
        self._load_installed(settings)
        installed = len(self._claims)
        for plugin in passed:
            self._load_passed(plugin)
        replaced = {(claim.kind, claim.name) for claim in self._claims[installed:]}
        kept = [claim for claim in self._claims[:installed] if (claim.kind, claim.name) not in replaced]
        for plural, names in self.kinds.items():
            claims = [claim for claim in kept + self._claims[installed:] if claim.kind is names.kind]
            names.settle(claims, settings.prefer.get(plural, {}), self._absent())

    def problems(self) -> dict[str, list[str]]:
        """What is wrong with names that loaded plugins registered, by plugin. Imports everything."""
        found: dict[str, list[str]] = {}
        for names in self.kinds.values():
            for plugin, error in names.problems():
                found.setdefault(plugin, []).append(error)
        return found

    def files(self) -> list[str]:
        """Where the plugins that loaded were imported from."""
        return [file for plugin in self._manager.get_plugins() if (file := getattr(plugin, "__file__", None))]

    def _load_installed(self, settings: Plugins) -> None:
        version = importlib.metadata.version(PACKAGE)
        self._load(PluginInfo(CORE, PACKAGE, version), lambda: builtin)
        names = {CORE}
        for point in entry_points():
            distribution = point.dist.metadata["Name"] if point.dist else None
            name = point.name if point.name not in names else f"{distribution}:{point.name}"
            names.add(name)
            info = PluginInfo(name, distribution, point.dist.version if point.dist else None)
            if name in settings.disabled:
                self.plugins.append(dataclasses.replace(info, disabled=True))
            else:
                self._load(info, point.load)
        for name in BUNDLED:
            if name not in names:
                error = "bundled, but its entry point is not installed; install pumice again"
                self.plugins.append(PluginInfo(name, PACKAGE, error=error))

    def _load_passed(self, plugin: object) -> None:
        if self._manager.is_registered(plugin):
            return  # installed too
        name = plugin.__name__ if inspect.ismodule(plugin) else type(plugin).__name__
        taken = {info.name for info in self.plugins}
        name = next(
            each for each in itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2))) if each not in taken
        )
        self._load(PluginInfo(name), lambda: plugin)
        info = self.plugins[-1]
        if info.error is None and not info.hooks:
            hint = "pass a module, or an instance with methods, that @pumice.plugin.hookimpl decorates"
            info = dataclasses.replace(info, error=f"it has no hooks: {hint}")
        if info.error:
            raise PluginError(f"plugin {name}: {info.error}")

    def _load(self, info: PluginInfo, load: Callable[[], Any]) -> None:
        """Import a plugin and collect what it registers: all of it, or after any error nothing."""
        try:
            with quiet_stdout():
                plugin = load()
                self._manager.register(plugin, info.name)
                kinds = self._hooks(plugin)
                claims = [claim for kind in kinds for claim in self._call(plugin, info.name, kind)]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # it may even call sys.exit
            logger.debug("plugin %s did not load", info.name, exc_info=True)
            self.plugins.append(dataclasses.replace(info, error=describe(error)))
            return
        self._claims += claims
        hooks = sorted(kind.hook for kind in kinds)
        registered = {kind.plural: sorted(c.name for c in claims if c.kind is kind) for kind in kinds}
        self.plugins.append(dataclasses.replace(info, hooks=hooks, registered=registered))

    def _hooks(self, plugin: object) -> list[Kind]:
        """The kinds that a plugin registers things of."""
        called = [caller.name for caller in self._manager.get_hookcallers(plugin) or []]
        known = {kind.hook: kind for kind in KINDS.values()}
        for name in called:
            if name not in known:
                kind = name.removeprefix("pumice_register_")
                hint = did_you_mean(kind, KINDS).replace("mean '", "mean 'pumice_register_")
                raise PluginError(f"unknown hook {name!r}{hint} (known: {', '.join(known)})")
        return [kind for hook, kind in known.items() if hook in called]

    def _call(self, plugin: object, plugin_name: str, kind: Kind) -> list[Registration]:
        """Call one hook of one plugin; what it registers, checked where it is no text."""
        claims: dict[str, Registration] = {}

        def register(name: str, target: Any) -> None:
            if not isinstance(name, str) or not name:
                raise PluginError(f"the name of a {kind.noun} must be a string that is not empty, not {name!r}")
            claim = Registration(kind, name, plugin_name, target)
            if name in claims:
                raise PluginError(f"{kind.noun} {name!r} is registered twice")
            if not isinstance(target, str):
                claim.resolve(self._classes(kind, name))
            claims[name] = claim

        others = [other for other in self._manager.get_plugins() if other is not plugin]
        self._manager.subset_hook_caller(kind.hook, others)(register=register)
        return list(claims.values())

    def _classes(self, kind: Kind, name: str) -> dict[str, Any]:
        """What is registered of a kind under other names, and imported already."""
        return {
            claim.name: claim.target
            for claim in self._claims
            if claim.kind is kind and claim.name != name and not isinstance(claim.target, str)
        }

    def _absent(self) -> str:
        """The plugins that are not there: a name that is sought may be theirs."""
        failed = [info.name for info in self.plugins if info.error]
        disabled = [info.name for info in self.plugins if info.disabled]
        return (f"; these plugins did not load: {', '.join(failed)} (see `pumice plugins`)" if failed else "") + (
            f"; these plugins are disabled: {', '.join(disabled)}" if disabled else ""
        )


_registries: dict[str, Registry] = {}


def load_registry(config: Config, plugins: Sequence[object] = ()) -> Registry:
    """The plugins, loaded once for each set of plugin settings; conflicts and errors are only recorded.

    With ``plugins`` that are not installed it is a registry of its own. Raises PluginError if one of these fails.
    """
    if plugins:
        return Registry(config.plugins, plugins)
    key = config.plugins.model_dump_json()
    if key not in _registries:
        _registries[key] = Registry(config.plugins)
    return _registries[key]


def entry_points() -> list[importlib.metadata.EntryPoint]:
    """Pumice's own first, so that a bundled plugin keeps its name whatever else is installed."""
    points = importlib.metadata.entry_points(group=GROUP)

    def order(point: importlib.metadata.EntryPoint) -> tuple[bool, str, str]:
        distribution = point.dist.metadata["Name"] if point.dist else ""
        return distribution != PACKAGE, distribution, point.name

    return sorted(points, key=order)
