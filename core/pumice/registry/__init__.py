"""The plugin manager: find plugins by entry point, load each separately, and keep what they registered."""

from pumice.registry.loading import PluginInfo, Registry, load_registry
from pumice.registry.names import Names, Registration
from pumice.registry.settings import get_registry, warn_once

__all__ = ["Names", "PluginInfo", "Registration", "Registry", "get_registry", "load_registry", "warn_once"]
