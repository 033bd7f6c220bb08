"""The tiny models by name, in a module for each cluster of families: what a model is there to show is in its name.

A module's ``MODELS`` are found here; adding a module adds its models to every test that runs them.
"""

from importlib import import_module
from pkgutil import iter_modules

from tiny_models import TinyModel

CLUSTERS: dict[str, dict[str, TinyModel]] = {
    name: import_module(f"tiny_zoo.{name}").MODELS for name in sorted(module.name for module in iter_modules(__path__))
}
ZOO = {name: model for models in CLUSTERS.values() for name, model in models.items()}
assert len(ZOO) == sum(map(len, CLUSTERS.values())), "two clusters have a model of one name"

ROPES = CLUSTERS["ropes"]
FAMILIES = {name: model for name, model in ZOO.items() if name not in ROPES}

DEEP = [name for name, model in ZOO.items() if model.metadata["block_count"] > 20]
"""Models of as many layers as tell an architecture which published size it is looking at."""
