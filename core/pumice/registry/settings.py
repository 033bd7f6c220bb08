"""Check the settings of plugins once their registrations are known."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from pumice.config import ARGUMENTS, SETTINGS, Config
from pumice.errors import BackendError, ConfigError, RequestError
from pumice.options.reading import SettingsReader
from pumice.registry.kinds import KINDS
from pumice.registry.loading import Registry, load_registry
from pumice.sampler import parameters
from pumice.wording import did_you_mean, unknown_name

MOST_SECONDS = 1.0
"""Seconds of an import from which on a plugin is slow."""

GPUS = {"cuda": "vulkan", "rocm": "vulkan", "hip": "vulkan", "sycl": "vulkan", "gpu": "vulkan", "metal": "mlx"}
"""The backend in place of one that other programs have."""

logger = logging.getLogger("pumice")


def get_registry(config: Config, plugins: Sequence[object] = ()) -> Registry:
    """Return the registry, including ``plugins`` that are not installed, after a check of the settings of plugins.

    Raises:
        PluginError: one of ``plugins`` fails.
        BackendError: ``backend`` is unknown.
        ConfigError: a section has no backend, a backend lacks an option, no sampler of the chain has a parameter, or a
            preferred plugin does not register the name.
    """
    registry = load_registry(config, plugins)
    _report(registry)
    _check_prefer(config, registry)
    _check_backend(config, registry)
    _check_sections(config, registry)
    _check_samplers(config, registry)
    return registry


def _report(registry: Registry) -> None:
    """Log plugins that failed or are slow to import, each once per process."""
    for info in registry.plugins:
        title = f"plugin {info.name} ({info.distribution} {info.version or ''})".replace(" )", ")")
        if info.error:
            warn_once(f"{title} did not load: {info.error}")
        elif info.seconds > MOST_SECONDS:
            warn_once(
                f"{title} takes {info.seconds:.1f} s to import, at every start; it should import heavy libraries where "
                "it uses them"
            )


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, once per process."""
    logger.warning(message)


def _check_prefer(config: Config, registry: Registry) -> None:
    plugins = {info.name: info for info in registry.plugins}
    for plural, preferred in config.plugins.prefer.items():
        where = f"{config.source('plugins', 'prefer', plural)}: plugins.prefer.{plural}"
        if plural not in KINDS:
            raise ConfigError(
                f"{where}: unknown key {plural!r}{did_you_mean(plural, KINDS)} (known: {', '.join(KINDS)})"
            )
        for name, plugin in preferred.items():
            if plugin not in plugins:
                raise ConfigError(f"{where}.{name}: {unknown_name('plugin', plugin, plugins)}")
            info = plugins[plugin]
            if info.error or info.disabled:
                raise ConfigError(
                    f"{where}.{name}: plugin {plugin!r} {'did not load' if info.error else 'is disabled'}"
                )
            if name not in info.registered.get(plural, []):
                raise ConfigError(f"{where}.{name}: plugin {plugin!r} registers no {KINDS[plural].noun} {name!r}")


def _check_backend(config: Config, registry: Registry) -> None:
    if config.backend != "auto" and config.backend not in registry.backends:
        source = config.source("backend")
        where = "" if source == ARGUMENTS else f"{source}: backend: "
        hint = f"; GPUs are used through {GPUS[config.backend]}" if config.backend in GPUS else ""
        raise BackendError(where + registry.backends.unknown(config.backend) + hint)


def _check_sections(config: Config, registry: Registry) -> None:
    absent = {info.name for info in registry.plugins if info.error or info.disabled}
    for name, options in config.sections.items():
        if name in registry.backends:
            for key, value in options.items():
                reader = SettingsReader(f"{config.source(name, key)}: {name}")
                reader.values(registry.backends[name].Options, {key: value})
        elif name not in absent.union(config.backends):
            hint = did_you_mean(name, [*SETTINGS, *registry.backends])
            hint = hint or f" (no setting or installed backend has this name; backends: {', '.join(registry.backends)})"
            raise ConfigError(f"{config.source(name)}: unknown key {name!r}{hint}{registry.backends.absent}")


def _check_samplers(config: Config, registry: Registry) -> None:
    """Check the samplers' names and parameters, except those of the package's own defaults.

    A name that several plugins claim is an error where a chain is built, and not of commands that generate nothing.
    """
    samplers = registry.samplers
    for name in config.samplers:
        if name not in samplers and not config.is_default("samplers"):
            raise ConfigError(f"{config.source('samplers')}: samplers: {samplers.unknown(name)}")
    chain = list(samplers.without_conflicts(config.samplers).values())
    for key, value in config.sampling.items():
        try:
            parameters.check_known({key} - parameters.SHARED, chain, samplers)
            for sampler in chain:
                parameters.create(sampler, {key: value})
        except RequestError as error:
            raise ConfigError(f"{config.source('sampling', key)}: sampling: {error}") from None
