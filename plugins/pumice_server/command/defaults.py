"""Options of ``pumice serve`` that are defaults of requests: sampling, reasoning, the length of answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from pumice.cli.options import CommandFunction, sampling_options
from pumice.cli.options import take_sampling as take_given
from pumice.cli.reasoning_options import (
    answer_length_option,
    reasoning_budget_option,
    reasoning_options,
    take_reasoning,
)
from pumice.cli.sampler_options import chain_options, take_chain
from pumice.cli.structured_output import output_options
from pumice.cli.vocabulary import option, with_options

_CHAT: Sequence[Callable[[CommandFunction], CommandFunction]] = [
    option(
        "-rea",
        "--reasoning",
        type=click.Choice(["on", "off", "auto"]),
        group="Reasoning",
        help="Reasoning of models that can reason; auto: on for served models, the template's default in a batch.  "
        "[default: auto]",
    ),
    reasoning_budget_option,
    option(
        "--reasoning-format",
        type=click.Choice(["auto", "deepseek", "none"]),
        group="Reasoning",
        advanced=True,
        help="Place of the reasoning in answers; none: in the content, with its marks.  [default: apart]",
    ),
    reasoning_options,
]

_OTHERS = [
    chain_options,
    answer_length_option,
    output_options("texts, for requests without a format", advanced=True),
]


def default_options(command: CommandFunction) -> CommandFunction:
    """Add the options that ``take_sampling``, ``take_output`` and ``take_chat`` read."""
    return sampling_options(with_options(chat_options(command), _OTHERS))


def chat_options(command: CommandFunction) -> CommandFunction:
    """Add the options that ``take_chat`` reads."""
    return with_options(command, _CHAT)


def take_sampling(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of the sampler chain, and return keys of a configuration: ``sampling`` and ``samplers``."""
    sampling, chain = take_given(options), take_chain(options)
    samplers = {"samplers": chain.pop("samplers")} if "samplers" in chain else {}
    return {"sampling": sampling | chain, **samplers}


def take_compat(options: dict[str, Any]) -> bool:
    """Remove the options of ``--compat``, and return True if it is given.

    It divides ``--ctx-size`` among the slots, unless these share it, and draws llama.cpp's random numbers.
    """
    compat, unified = options.pop("compat") is not None, options.pop("kv_unified")
    n_ctx, n_parallel = options["n_ctx"], options["n_parallel"]
    if compat and not unified and n_ctx and n_parallel is not None and n_parallel > 1:
        options["n_ctx"] = max(1, n_ctx // n_parallel)
    options["random"] = {"rng": "mt19937"} if compat else {}
    return compat


def take_chat(options: dict[str, Any], reasons: bool | None = True) -> dict[str, Any]:
    """Remove the options of chats, and return options of ``Model.chat``.

    ``reasons``: True if models reason by default; None leaves it to the template.
    """
    place = options.pop("reasoning_format")
    chat = {**take_reasoning(options, reasons), "separate_reasoning": None if place is None else place != "none"}
    return {name: value for name, value in chat.items() if value is not None}
