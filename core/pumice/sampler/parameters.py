"""Parameters of samplers: flat keyword arguments, assigned to the samplers that declare them, and checked."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from pumice.errors import PluginError, RequestError
from pumice.guard import guarded
from pumice.options import CHAT, REQUEST, SAMPLING
from pumice.options.option import Option, read_parameter
from pumice.sampler.contract import Sampler
from pumice.wording import did_you_mean

ARGUMENTS = frozenset({*CHAT, *REQUEST, "progress"} - SAMPLING.keys())
"""Options of ``generate`` and ``chat`` that are no parameters of samplers."""

RESERVED = ARGUMENTS | {"each", "max_tool_turns", "messages", "prompt", "prompts", "run_tools"}
"""Arguments of the methods that generate; a sampler cannot have a parameter of such a name."""

SHARED = frozenset(["rng", "seed"])
"""Parameters of the chain, not of a single sampler."""


def names(cls: type[Sampler]) -> list[str]:
    """Return the names of the parameters that a sampler class declares."""
    return [item.name for item in dataclasses.fields(cls) if item.init] if dataclasses.is_dataclass(cls) else []


def defaults(chain: Iterable[type[Sampler]]) -> dict[str, Any]:
    """Return the parameters of the samplers of a chain with their default values."""
    samplers = [_make(cls) for cls in chain]
    return {name: getattr(sampler, name) for sampler in samplers for name in names(type(sampler))}


def of_chain(params: Mapping[str, Any], chain: Iterable[type[Sampler]]) -> dict[str, Any]:
    """Return the parameters that a sampler of the chain declares, or that all samplers share."""
    declared = {name for cls in chain for name in names(cls)} | SHARED
    return {name: value for name, value in params.items() if name in declared}


def create(cls: type[Sampler], params: Mapping[str, Any]) -> Sampler:
    """Return a sampler with the parameters that it declares. Raises RequestError that names a wrong one."""
    values = {name: plain(params[name]) for name in names(cls) if name in params}
    for name, value in values.items():
        _options(cls)[name].check(value)
        if isinstance(value, float) and not math.isfinite(value):
            raise RequestError(f"{name} must be a finite number, not {value}")
    return _make(cls, **values)


def _make(cls: type[Sampler], **values: Any) -> Sampler:
    made: Sampler = guarded(cls, f"{describe(cls)}: __init__")(**values)
    return made


def describe(cls: type[Sampler]) -> str:
    """Return a class and its module for messages; the module tells the plugin."""
    return f"sampler {cls.__module__}.{cls.__qualname__}"


def check_known(
    params: Iterable[str],
    chain: Iterable[type[Sampler]],
    others: Mapping[str, type[Sampler]],
    arguments: Iterable[str] = (),
) -> None:
    """Raise RequestError for a parameter that no sampler of the chain declares.

    Args:
        params: Names of parameters.
        chain: Classes of the samplers of the chain.
        others: All registered samplers by name; the message names the one to add to the chain.
        arguments: Other names that may have been meant.
    """
    declared = {name for cls in chain for name in names(cls)}
    for param in params:
        if param in declared:
            continue
        owners = [name for name in others if _declares(others, name, param)]
        if owners:
            raise RequestError(f"{param} is a parameter of {owners[0]!r}, which is not in the list of samplers; add it")
        candidates = declared.union(arguments)
        hint = did_you_mean(param, candidates) or f" (known: {', '.join(sorted(candidates)) or 'none'})"
        raise RequestError(f"unknown {'option' if arguments else 'sampling parameter'} {param[:100]!r}{hint}")


def _declares(samplers: Mapping[str, type[Sampler]], name: str, param: str) -> bool:
    """Return True if a sampler has a parameter; a sampler that cannot be imported has none."""
    with contextlib.suppress(PluginError):
        return param in names(samplers[name])
    return False


@cache
def _options(cls: type[Sampler]) -> Mapping[str, Option]:
    hints = typing.get_type_hints(cls, include_extras=True)
    nouns = {name: SAMPLING[name].noun if name in SAMPLING else "" for name in names(cls)}
    return {name: read_parameter(name, hints[name], noun) for name, noun in nouns.items()}


def plain(value: Any) -> Any:
    """Return a value as samplers declare it: with Python's numbers, lists and dictionaries."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    return value
