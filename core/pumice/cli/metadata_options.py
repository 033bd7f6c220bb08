"""Options that override metadata of the model's file: ``--override-kv``, and llama.cpp's for RoPE and YaRN."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from pumice.cli.vocabulary import Decorator, defined, option
from pumice.options import ENGINE

Scalar = bool | int | float | str

_ROPE = "pumice.rope"
_COMMA = re.compile(r"(?<!\\),")
_BOOLEANS = {"true": True, "false": False}
_READERS: dict[str, Callable[[str], Scalar]] = {"int": int, "float": float, "bool": _BOOLEANS.__getitem__, "str": str}


def read_override(item: str) -> tuple[str, Scalar]:
    """Parse ``KEY=TYPE:VALUE``, as llama.cpp. Raises BadParameter."""
    key, _, value = item.partition("=")
    kind, colon, text = value.partition(":")
    if not key or not colon or kind not in _READERS:
        raise click.BadParameter(f"expected KEY=TYPE:VALUE with the type int, float, bool or str, not {item!r:.200}")
    try:
        return key, _READERS[kind](text)
    except (ValueError, KeyError):
        raise click.BadParameter(f"{item!r:.200}: the value is not of type {kind}") from None


def _read_overrides(ctx: click.Context, param: click.Parameter, items: tuple[str, ...]) -> dict[str, Scalar] | None:
    """Return the overrides of all options, those of RoPE first."""
    split = [part.replace("\\,", ",") for item in items for part in _COMMA.split(item)]
    return {**ctx.meta.get(_ROPE, {}), **dict(map(read_override, split))} or None


def _rope_option(name: str, key: str, help: str, unset: float = 0, **attributes: Any) -> Decorator:
    """Return the decorator of an option that overrides ``ARCHITECTURE.rope.KEY``.

    ``unset`` is the value with which llama.cpp takes the file's: 0, or -1 where 0 has a meaning.
    """
    return option(
        name,
        is_eager=True,
        expose_value=False,
        callback=partial(_keep, key, unset),
        group="Context",
        advanced=True,
        help=help,
        **attributes,
    )


def _keep(key: str, unset: float, ctx: click.Context, param: click.Parameter, value: float | str | None) -> None:
    if value is not None and value != unset:
        ctx.meta.setdefault(_ROPE, {})[f"*.rope.{key}"] = value


def _keep_inverse(ctx: click.Context, param: click.Parameter, value: float | None) -> None:
    _keep("scaling.factor", 0, ctx, param, 1 / value if value else None)


_FROM_0: dict[str, Any] = {"type": click.FloatRange(0), "metavar": "X"}
_FROM_MINUS_1: dict[str, Any] = {"type": click.FloatRange(-1), "metavar": "X", "unset": -1}

METADATA_OPTIONS: list[Decorator] = [
    defined(
        ENGINE["override_kv"],
        metavar="KEY=TYPE:VALUE,...",
        multiple=True,
        callback=_read_overrides,
        advanced=True,
        help="Metadata to use instead of that in the model's file; TYPE is int, float, bool or str.",
    ),
    _rope_option(
        "--rope-scaling",
        "scaling.type",
        "Scaling of RoPE's positions: none, linear or yarn.  [default: the file's]",
        type=click.Choice(["none", "linear", "yarn"]),
    ),
    _rope_option(
        "--rope-scale", "scaling.factor", "Factor by which RoPE extends the context; 0: the file's.", **_FROM_0
    ),
    option(
        "--rope-freq-scale",
        type=click.FloatRange(0),
        is_eager=True,
        expose_value=False,
        callback=_keep_inverse,
        group="Context",
        advanced=True,
        help="The reciprocal of --rope-scale; 0: the file's.",
    ),
    _rope_option("--rope-freq-base", "freq_base", "Base of RoPE's frequencies; 0: the file's.", **_FROM_0),
    _rope_option(
        "--yarn-orig-ctx",
        "scaling.original_context_length",
        "Context in tokens of the model before YaRN extends it; 0: the file's.",
        type=click.IntRange(0),
    ),
    _rope_option(
        "--yarn-ext-factor",
        "scaling.yarn_ext_factor",
        "Share of extrapolation in YaRN; 0: interpolation alone; -1: the file's.",
        **_FROM_MINUS_1,
    ),
    _rope_option(
        "--yarn-attn-factor",
        "scaling.yarn_attn_factor",
        "Factor of attention's magnitude where YaRN's share of extrapolation is 0; -1: the file's.",
        **_FROM_MINUS_1,
    ),
    _rope_option(
        "--yarn-beta-slow",
        "scaling.yarn_beta_slow",
        "Rotations over the context at or below which YaRN interpolates alone; -1: the file's.",
        **_FROM_MINUS_1,
    ),
    _rope_option(
        "--yarn-beta-fast",
        "scaling.yarn_beta_fast",
        "Rotations over the context at or above which YaRN does not interpolate; -1: the file's.",
        **_FROM_MINUS_1,
    ),
]
"""Options that override metadata, for all commands that load a model."""
