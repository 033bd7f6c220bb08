"""Options of ``pumice serve`` for what requests do not say: sampling, reasoning, how long an answer may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from pumice.cli.options import CommandFunction, read_template_variables, read_text, sampling_options
from pumice.cli.options import take_sampling as take_given
from pumice.cli.vocabulary import defined, option
from pumice.options import ENGINE, OUTPUT, REQUEST, SAMPLING, TEMPLATE
from pumice_server.chain import read_samplers

_CHAT: Sequence[Callable[[CommandFunction], CommandFunction]] = [
    option(
        "-rea",
        "--reasoning",
        type=click.Choice(["on", "off", "auto"]),
        group="Reasoning",
        help="Reasoning of models that can reason; auto: on for served models, the template's default in a batch.  "
        "[default: auto]",
    ),
    defined(
        TEMPLATE["reasoning_budget"],
        type=click.IntRange(-1),
        metavar="N",
        help="Maximum number of reasoning tokens, after which the answer follows; -1: unlimited.  [default: -1]",
    ),
    option(
        "--reasoning-format",
        type=click.Choice(["auto", "deepseek", "none"]),
        group="Reasoning",
        advanced=True,
        help="Place of the reasoning in answers; none: in the content, with its marks.  [default: apart]",
    ),
    defined(TEMPLATE["reasoning_budget_message"], metavar="TEXT", advanced=True),
    defined(TEMPLATE["reasoning_effort"], metavar="LEVEL", advanced=True),
    defined(
        TEMPLATE["template_variables"],
        metavar="JSON",
        advanced=True,
        help="Variables of the chat template, as a JSON object.",
    ),
]

_OTHERS = [
    defined(ENGINE["samplers"], metavar="NAMES", advanced=True, help="Names of the samplers, separated by semicolons."),
    option(
        "--sampler-seq",
        aliases=("--sampling-seq",),
        metavar="LETTERS",
        group="Sampling",
        advanced=True,
        help="Samplers by llama-server's letters.",
    ),
    defined(
        SAMPLING["dry_sequence_breakers"],
        multiple=True,
        metavar="TEXT",
        advanced=True,
        help="String at which a repetition ends for DRY; none: at no string. Repeatable.",
    ),
    defined(
        REQUEST["max_tokens"],
        metavar="N",
        help="Maximum number of tokens of an answer; -1: until the model ends it.  [default: -1]",
    ),
    defined(OUTPUT["grammar"], metavar="GRAMMAR", advanced=True, help="Grammar of texts, for requests without a form."),
    option(
        "--grammar-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        group="Structured output",
        advanced=True,
        help="Read the grammar from FILE.",
    ),
    defined(
        OUTPUT["json_schema"],
        type=str,
        metavar="SCHEMA",
        advanced=True,
        help="JSON schema of texts, for requests without a form.",
    ),
    option(
        "-jf",
        "--json-schema-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        group="Structured output",
        advanced=True,
        help="Read the JSON schema from FILE.",
    ),
]


def default_options(command: CommandFunction) -> CommandFunction:
    """Add the options that ``take_sampling``, ``take_output`` and ``take_chat`` take."""
    command = chat_options(command)
    for add in reversed(_OTHERS):
        command = add(command)
    return sampling_options(command)


def chat_options(command: CommandFunction) -> CommandFunction:
    """Add the options that ``take_chat`` takes."""
    for add in reversed(_CHAT):
        command = add(command)
    return command


def take_sampling(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of the sampler chain; keys of a configuration: ``sampling`` and ``samplers``."""
    sampling = take_given(options)
    breakers = options.pop("dry_sequence_breakers")
    if breakers:
        sampling["dry_sequence_breakers"] = [] if breakers == ("none",) else list(breakers)
    names, letters = options.pop("samplers"), options.pop("sampler_seq")
    config: dict[str, Any] = {"sampling": sampling}
    if names or letters:
        try:
            config["samplers"] = read_samplers(letters or names.split(";"))
        except ValueError as error:
            raise click.UsageError(f"--samplers: {error}") from None
    return config


def take_output(options: dict[str, Any]) -> dict[str, str]:
    """Remove the options of the form of texts, and return the grammar or the schema. Raises UsageError for several."""
    values = {name: options.pop(name) for name in ("grammar", "grammar_file", "json_schema", "json_schema_file")}
    named = {name: value for name, value in values.items() if value is not None}
    if not named:
        return {}
    if len(named) > 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in named)
        raise click.UsageError(f"give only one of {flags}")
    ((name, value),) = named.items()
    output = name.removesuffix("_file")
    return {output: read_text(f"the {output.replace('_', ' ')}", value) if isinstance(value, Path) else value}


def take_compat(options: dict[str, Any]) -> bool:
    """Remove the options of ``--compat``; whether it is given.

    With it ``-c`` is of all slots together, as long as they do not share it, and random numbers are llama.cpp's.
    """
    compat, unified = options.pop("compat") is not None, options.pop("kv_unified")
    n_ctx, n_parallel = options["n_ctx"], options["n_parallel"]
    if compat and not unified and n_ctx and n_parallel is not None and n_parallel > 1:
        options["n_ctx"] = max(1, n_ctx // n_parallel)
    options["random"] = {"rng": "mt19937"} if compat else {}
    return compat


def take_chat(options: dict[str, Any], reasons: bool | None = True) -> dict[str, Any]:
    """Remove the options of chats; options of ``Model.chat``. ``reasons``: whether models reason by default."""
    reasoning = {None: reasons, "auto": reasons, "on": True, "off": False}[options.pop("reasoning")]
    budget, effort = options.pop("reasoning_budget"), options.pop("reasoning_effort")
    separate = None if (form := options.pop("reasoning_format")) is None else form != "none"
    message = options.pop("reasoning_budget_message")
    variables = read_template_variables(options.pop("template_variables"))
    reasoning = variables.pop("enable_thinking", reasoning)
    chat = {"reasoning": reasoning, "reasoning_budget": None if budget in (None, -1) else budget}
    chat |= {"separate_reasoning": separate, "reasoning_budget_message": message}
    chat |= {"reasoning_effort": None if effort == "default" else effort, "template_variables": variables}
    return {name: value for name, value in chat.items() if value not in (None, {})}
