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

LIMITS = {"gemma2-27b": 1e-5, "gemma3n": 1e-4}
"""Errors larger than others': llama.cpp looks GELU up in a table of float16 numbers; layers amplify its rounding."""

LARGEST = {model.architecture: name for name, model in sorted(FAMILIES.items(), key=lambda each: len(each[1].shapes))}
"""The model of each architecture that has the most tensors."""

CHUNKED = [name for name in LARGEST.values() if name not in DEEP]
"""One of each architecture, to see that chunks of a prompt give what the whole prompt gives."""

ALIKE = ("gated", "gemma", "gpt_like", "granite", "llama_like", "routed", "routed_windows")
"""Clusters of many architectures with the same operations."""

DAILY = [
    name
    for cluster, models in CLUSTERS.items()
    for name in [name for name in LARGEST.values() if name in models][-3 if cluster in ALIKE else 0 :]
]
"""One of each architecture, and of each cluster in ``ALIKE`` the three that have the most tensors."""

SPANNING = [
    *("bailingmoe3-compressed", "cohere2", "deepseek32", "deepseek4", "dots3note", "falcon-h1"),
    *("gemma3n", "gemma4-e2b", "glm5-next", "gpt-oss-yarn", "graniteswitch", "hy_v4-indexed"),
    *("jais", "jamba", "kimi-k3", "kimi-linear", "llada", "llama4-maverick"),
    *("minimax-01", "minimax-m3-blocks", "mistral4", "qwen4exp", "rwkv6-lerps-apart", "rwkv6qwen2"),
    *("rwkv7", "starcoder2", "step35"),
]
"""Models of ``DAILY`` that have each of their operations with each option, and each group that one kernel computes."""
