"""Find plugins, and load each of them separately."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pluggy

from pumice import builtin, hookspecs
from pumice.config import Config, Plugins
from pumice.errors import PluginError
from pumice.guard import describe
from pumice.installed import PACKAGE, installed_plugins
from pumice.registry.kinds import KINDS, Kind
from pumice.registry.names import Names, Registration
from pumice.registry.quiet import quiet_stdout
from pumice.registry.versions import check_version, written_version
from pumice.wording import did_you_mean

if TYPE_CHECKING:
    import click

    from pumice.architecture import Architecture
    from pumice.backend import Backend
    from pumice.chat import ChatFormat
    from pumice.cluster import Cluster
    from pumice.convert.conversion import Conversion
    from pumice.convert.projector import ProjectorConversion
    from pumice.media_encoder import MediaEncoder
    from pumice.proposers import Proposer
    from pumice.quantizer import Quantizer
    from pumice.sampler import Sampler
    from pumice.server_protocol import ServerProtocol
    from pumice.speech_model import SpeechModel
    from pumice.tokenizers import PreTokenizer, Tokenizer

_MAX_REASON = 200  # characters of a plugin's error in a message about something else
CORE = "core"  # name of the plugin `pumice.builtin`
#: Entry points of the distribution.
BUNDLED = ("architectures", "cpu", "mlx", "numpy", "ray", "samplers", "server", "vulkan")

logger = logging.getLogger("pumice")


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin.

    Attributes:
        name: name of the entry point.
        distribution: name of the distribution; None for a passed object.
        version: version of the distribution.
        hooks: names of its hooks.
        registered: names of registered objects by kind.
        error: reason if the plugin did not load.
        disabled: True if the configuration disables it.
        seconds: time that its import took.
    """

    name: str
    distribution: str | None = None
    version: str | None = None
    hooks: list[str] = field(default_factory=list)
    registered: dict[str, list[str]] = field(default_factory=dict)
    error: str | None = None
    disabled: bool = False
    seconds: float = 0.0


class Registry:
    """All installed plugins, and what the loaded ones registered, by name.

    A plugin that fails, with any exception, is listed in ``plugins`` with its error and does not affect others.

    Args:
        settings: the section ``plugins`` of the configuration.
        passed: modules or other objects with hooks, whose registrations replace those of installed plugins.

    Raises:
        PluginError: an object of ``passed`` fails.
    """

    backends: Names[type[Backend]]
    architectures: Names[type[Architecture]]
    samplers: Names[type[Sampler]]
    proposers: Names[type[Proposer]]
    tokenizers: Names[type[Tokenizer]]
    pre_tokenizers: Names[PreTokenizer]
    chat_formats: Names[ChatFormat]
    quantizers: Names[Quantizer]
    conversions: Names[type[Conversion]]
    projector_conversions: Names[type[ProjectorConversion]]
    media_encoders: Names[type[MediaEncoder]]
    speech_models: Names[type[SpeechModel]]
    clusters: Names[type[Cluster[object]]]
    protocols: Names[ServerProtocol]
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
        if not isinstance(passed, Iterable):
            raise PluginError(f"plugins: expected a list, not {passed!r:.60}; give a single plugin in brackets")
        for plugin in passed:
            self._load_passed(plugin)
        replaced = {(claim.kind, claim.name) for claim in self._claims[installed:]}
        kept = [claim for claim in self._claims[:installed] if (claim.kind, claim.name) not in replaced]
        for plural, names in self.kinds.items():
            claims = [claim for claim in kept + self._claims[installed:] if claim.kind is names.kind]
            names.settle(claims, settings.prefer.get(plural, {}), self._absent())

    def problems(self) -> dict[str, list[str]]:
        """Return the problems of registered names by plugin. Imports everything."""
        problems: dict[str, list[str]] = {}
        for names in self.kinds.values():
            for plugin, error in names.problems():
                problems.setdefault(plugin, []).append(error)
        return problems

    def files(self) -> list[str]:
        """Return the files from which the loaded plugins were imported."""
        return [file for plugin in self._manager.get_plugins() if (file := getattr(plugin, "__file__", None))]

    def _load_installed(self, settings: Plugins) -> None:
        self._load(PluginInfo(CORE, PACKAGE, importlib.metadata.version(PACKAGE)), lambda: builtin)
        names = {CORE}
        for point, distribution, version in installed_plugins():
            name = point.name if point.name not in names else f"{distribution}:{point.name}"
            names.add(name)
            info = PluginInfo(name, distribution or None, version)
            if name in settings.disabled:
                self.plugins.append(dataclasses.replace(info, disabled=True))
            else:
                self._load(info, partial(_import, point, distribution))
        for name in BUNDLED:
            if name not in names:
                error = "bundled, but its entry point is not installed; install pumice again"
                self.plugins.append(PluginInfo(name, PACKAGE, error=error))

    def _load_passed(self, plugin: object) -> None:
        if self._manager.is_registered(plugin):
            return  # also installed
        name = plugin.__name__ if inspect.ismodule(plugin) else type(plugin).__name__
        taken = {info.name for info in self.plugins}
        candidates = itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2)))
        name = next(candidate for candidate in candidates if candidate not in taken)
        self._load(PluginInfo(name), lambda: plugin)
        info = self.plugins[-1]
        if info.error is None and not info.hooks:
            hint = "pass a module, or an instance with methods, that @pumice.plugin.hookimpl decorates"
            info = dataclasses.replace(info, error=f"it has no hooks: {hint}")
        if info.error:
            raise PluginError(f"plugin {name}: {info.error}")

    def _load(self, info: PluginInfo, load: Callable[[], Any]) -> None:
        """Import a plugin and collect its registrations: all of them, or none after an error."""
        try:
            with quiet_stdout():
                start = time.thread_time()  # of this thread, whatever else the machine does
                plugin = load()
                info = dataclasses.replace(info, seconds=time.thread_time() - start)
                self._manager.register(plugin, info.name)
                kinds = self._hooks(plugin)
                claims = [claim for kind in kinds for claim in self._call(plugin, info.name, kind)]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            logger.debug("plugin %s did not load", info.name, exc_info=True)
            self.plugins.append(dataclasses.replace(info, error=describe(error)))
            return
        self._claims += claims
        hooks = sorted(kind.hook for kind in kinds)
        registered = {kind.plural: sorted(c.name for c in claims if c.kind is kind) for kind in kinds}
        self.plugins.append(dataclasses.replace(info, hooks=hooks, registered=registered))

    def _hooks(self, plugin: object) -> list[Kind]:
        """Return the kinds that a plugin registers."""
        called = [caller.name for caller in self._manager.get_hookcallers(plugin) or []]
        kinds = {kind.hook: kind for kind in KINDS.values()}
        for name in dir(plugin):
            if name in kinds and name not in called:
                raise PluginError(f"{name} is no hook without its decorator; write @hookimpl above it")
        for name in called:
            if name not in kinds:
                kind = name.removeprefix("pumice_register_")
                hint = did_you_mean(kind, KINDS).replace("mean '", "mean 'pumice_register_")
                raise PluginError(f"unknown hook {name!r}{hint} (known: {', '.join(kinds)})")
        return [kind for hook, kind in kinds.items() if hook in called]

    def _call(self, plugin: object, plugin_name: str, kind: Kind) -> list[Registration]:
        """Call a hook of a plugin and return its registrations; objects other than names to import are checked."""
        claims: dict[str, Registration] = {}

        def register(name: str, target: Any) -> None:
            if not isinstance(name, str) or not name:
                raise PluginError(f"the name of a {kind.noun} must be a non-empty string, not {name!r}")
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
        """Return the already imported objects of a kind with other names."""
        return {
            claim.name: claim.target
            for claim in self._claims
            if claim.kind is kind and claim.name != name and not isinstance(claim.target, str)
        }

    def _absent(self) -> str:
        """Describe the plugins that are not loaded, to which an unknown name may belong."""
        failed = [f"{info.name} ({info.error[:_MAX_REASON]})" for info in self.plugins if info.error]
        disabled = [info.name for info in self.plugins if info.disabled]
        return (f"; these plugins did not load: {', '.join(failed)} (see `pumice plugins`)" if failed else "") + (
            f"; these plugins are disabled: {', '.join(disabled)}" if disabled else ""
        )


def _import(point: importlib.metadata.EntryPoint, distribution: str) -> Any:
    """Return the object of an installed plugin. Raises PluginError if it fits another version of the contract."""
    try:
        plugin = point.load()
    except ImportError as error:  # of a name that this version does not have, maybe
        written = written_version(point.module)
        if written is not None and (problem := check_version(written, distribution)):
            raise PluginError(problem) from error
        raise
    bundled = distribution == PACKAGE
    if not bundled and (problem := check_version(getattr(plugin, "pumice_api", None), distribution)):
        raise PluginError(problem)
    return plugin


_registries: dict[str, Registry] = {}


def load_registry(config: Config, plugins: Sequence[object] = ()) -> Registry:
    """Return the registry, loaded once per set of plugin settings; conflicts and errors are recorded, not raised.

    With additional ``plugins`` it is a separate registry. Raises PluginError if one of these fails.
    """
    if plugins:
        return Registry(config.plugins, plugins)
    key = repr(config.plugins)
    if key not in _registries:
        _registries[key] = Registry(config.plugins)
    return _registries[key]
