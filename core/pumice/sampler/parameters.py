"""Samplers from flat keyword arguments: which sampler takes which, and whether the values are right."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pumice.errors import PluginError, RequestError
from pumice.sampler.contract import Sampler
from pumice.suggest import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

RESERVED = frozenset(
    [
        "adapters",
        "block_length",
        "budget",
        "cache_salt",
        "cfg_scale",
        "choices",
        "context_shift",
        "diffusion_algorithm",
        "diffusion_steps",
        "each",
        "grammar",
        "json_schema",
        "json_whitespace",
        "logprobs",
        "logprobs_sampled",
        "max_tokens",
        "messages",
        "n",
        "n_ctx",
        "newline_timeout",
        "priority",
        "progress",
        "prompt",
        "prompts",
        "regex",
        "request_id",
        "samplers",
        "special",
        "stop",
        "stop_tokens",
        "timeout",
    ]
)
"""Arguments of the methods of ``Model`` that generate: no sampler can have a parameter of such a name."""

ARGUMENTS = RESERVED - {"each", "messages", "progress", "prompt", "prompts"}
"""Those that a misspelt parameter of a request may mean."""

SHARED = frozenset(["rng", "seed"])
"""Parameters of a chain and not of one sampler."""

_NOUNS = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "a string",
    "array": "a list",
    "object": "a map",
}
_BOUNDS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}


def names(cls: type[Sampler]) -> list[str]:
    """The parameters that a sampler class declares."""
    return [item.name for item in dataclasses.fields(cls) if item.init] if dataclasses.is_dataclass(cls) else []


def defaults(chain: Iterable[type[Sampler]]) -> dict[str, Any]:
    """The parameters of the samplers of a chain, with the values that they have where none are given."""
    samplers = [cls() for cls in chain]
    return {name: getattr(sampler, name) for sampler in samplers for name in names(type(sampler))}


def of_chain(params: Mapping[str, Any], chain: Iterable[type[Sampler]]) -> dict[str, Any]:
    """Those of ``params`` that a sampler of the chain declares, or that all share."""
    known = {name for cls in chain for name in names(cls)} | SHARED
    return {name: value for name, value in params.items() if name in known}


def create(cls: type[Sampler], params: Mapping[str, Any]) -> Sampler:
    """A sampler with those of ``params`` that it declares. Raises RequestError naming a wrong one."""
    from pydantic import ValidationError

    given = {name: plain(params[name]) for name in names(cls) if name in params}
    schema = _schema(cls)
    try:
        schema.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise RequestError(_describe(schema, given, problem)) from None
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise RequestError(f"{name} must be a finite number, not {value}")
    return cls(**given)


def check_known(
    params: Iterable[str],
    chain: Iterable[type[Sampler]],
    others: Mapping[str, type[Sampler]],
    arguments: Iterable[str] = (),
) -> None:
    """Raise RequestError for a parameter that no sampler of the chain declares.

    ``others``: all samplers there are, by name, so that the message can name the one to add. ``arguments``: names that
    may have been meant besides.
    """
    known = {name for cls in chain for name in names(cls)}
    for param in params:
        if param in known:
            continue
        owners = [name for name in others if _declares(others, name, param)]
        if owners:
            raise RequestError(f"{param} is a parameter of {owners[0]!r}, which is not in the list of samplers; add it")
        meant = known.union(arguments)
        hint = did_you_mean(param, meant) or f" (known: {', '.join(sorted(meant)) or 'none'})"
        raise RequestError(f"unknown sampling parameter {param!r}{hint}")


def _declares(samplers: Mapping[str, type[Sampler]], name: str, param: str) -> bool:
    """Whether a sampler has a parameter; one that cannot be imported has none."""
    with contextlib.suppress(PluginError):
        return param in names(samplers[name])
    return False


@cache
def _schema(cls: type[Sampler]) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    hints = typing.get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {name: (hints[name], None) for name in names(cls)}
    settings = ConfigDict(strict=True, arbitrary_types_allowed=True, protected_namespaces=())
    schema: type[BaseModel] = create_model(cls.__name__, __config__=settings, **fields)
    return schema


def plain(value: Any) -> Any:
    """A NumPy scalar as the Python number; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _describe(schema: type[BaseModel], given: Mapping[str, Any], problem: Any) -> str:
    """One line for one of pydantic's errors: the parameter, what it may be, and what it was."""
    name, *inside = problem["loc"]
    described = schema.model_json_schema()["properties"][name]
    noun = _NOUNS.get(described.get("type"))
    if inside or noun is None:
        where = "".join(f"[{part!r}]" for part in inside if part != "[key]")
        return f"{name}{where} {problem['msg'].replace('Input should', 'must', 1)}, not {problem['input']!r}"
    bounds = [f"{words} {described[key]:g}" for key, words in _BOUNDS.items() if key in described]
    expected = noun + (f", {' and '.join(bounds)}" if bounds else "")
    return f"{name} must be {expected}, not {given[name]!r}"
