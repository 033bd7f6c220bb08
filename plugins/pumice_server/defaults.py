"""Options of ``pumice serve`` for what requests do not say: sampling, reasoning, how long an answer may be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from pumice_server.chain import read_samplers

Command = Callable[..., Any]

_SAMPLING = {
    "seed": (("-s", "--seed"), int, "Same seed, same text."),
    "temperature": (("--temp", "--temperature"), float, "Temperature; 0: always the likeliest token."),
    "top_k": (("--top-k",), int, "Keep the k likeliest tokens; 0: all."),
    "top_p": (("--top-p",), float, "Keep the likeliest tokens that add up to p."),
    "min_p": (("--min-p",), float, "Keep tokens at least p times as likely as the likeliest."),
    "top_n_sigma": (("--top-nsigma", "--top-n-sigma"), float, "Keep logits within n deviations of the highest."),
    "xtc_probability": (("--xtc-probability",), float, "Drop the likeliest with this probability."),
    "xtc_threshold": (("--xtc-threshold",), float, "Only those at least so likely."),
    "typical_p": (("--typical", "--typical-p"), float, "Keep what is about as surprising as expected."),
    "repeat_last_n": (("--repeat-last-n",), int, "Tokens that count as recent."),
    "repeat_penalty": (("--repeat-penalty",), float, "Make recent tokens less likely; 1: off."),
    "presence_penalty": (("--presence-penalty",), float, "Lower the logits of recent tokens."),
    "frequency_penalty": (("--frequency-penalty",), float, "The same, once for each time."),
    "dry_multiplier": (("--dry-multiplier",), float, "Strength against repeated sequences; 0: off."),
    "dry_base": (("--dry-base",), float, "Base of that penalty."),
    "dry_allowed_length": (("--dry-allowed-length",), int, "Length that is not penalized."),
    "dry_penalty_last_n": (("--dry-penalty-last-n",), int, "Tokens that are searched for repetitions."),
    "dynatemp_range": (("--dynatemp-range",), float, "Range of a temperature by entropy; 0: off."),
    "dynatemp_exponent": (("--dynatemp-exp",), float, "Its exponent."),
    "mirostat": (("--mirostat",), int, "Version of mirostat; 0: off."),
    "mirostat_eta": (("--mirostat-lr",), float, "Its learning rate."),
    "mirostat_tau": (("--mirostat-ent",), float, "Its target, in bits."),
}
"""Parameters of the sampler chain: the options of each, its type, and what it does."""

_OTHERS = [
    click.option("--samplers", metavar="NAMES", help="Samplers in their order, separated by semicolons."),
    click.option("--sampler-seq", "--sampling-seq", metavar="LETTERS", help="The same, by llama-server's letters."),
    click.option("--dry-sequence-breaker", multiple=True, metavar="TEXT", help="What ends a repeated sequence."),
    click.option("--ignore-eos", is_flag=True, help="Go on where the model would end."),
    click.option("-n", "--predict", "--n-predict", type=int, metavar="N", help="Most tokens of an answer; -1: any."),
    click.option(
        "-rea",
        "--reasoning",
        type=click.Choice(["on", "off", "auto"]),
        help="Whether models reason; auto: those that can.",
    ),
    click.option("--reasoning-budget", type=click.IntRange(-1), metavar="N", help="Most tokens of reasoning; -1: any."),
    click.option(
        "--reasoning-format",
        type=click.Choice(["auto", "deepseek", "none"]),
        help="none leaves reasoning in the content.",
    ),
    click.option("--reasoning-budget-message", metavar="TEXT", help="What a model says when its budget is spent."),
    click.option("--reasoning-effort", metavar="LEVEL", help="For templates that know it: low, medium, high."),
    click.option("--chat-template-kwargs", metavar="JSON", help="Variables of the chat template, as an object."),
]


def default_options(command: Command) -> Command:
    """The options that ``take_sampling`` and ``take_chat`` take."""
    for option in reversed(_OTHERS):
        command = option(command)
    for name, (options, kind, text) in reversed(_SAMPLING.items()):
        command = click.option(*options, name, type=kind, help=text)(command)
    return command


def take_sampling(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of the sampler chain; keys of a configuration: ``sampling`` and ``samplers``."""
    sampling = {name: value for name in _SAMPLING if (value := options.pop(name)) is not None}
    breakers = options.pop("dry_sequence_breaker")
    if breakers:
        sampling["dry_sequence_breakers"] = [] if breakers == ("none",) else list(breakers)
    if options.pop("ignore_eos"):
        sampling["ignore_eos"] = True
    names, letters = options.pop("samplers"), options.pop("sampler_seq")
    config: dict[str, Any] = {"sampling": sampling}
    if names or letters:
        try:
            config["samplers"] = read_samplers(letters or names.split(";"))
        except ValueError as error:
            raise click.UsageError(f"--samplers: {error}") from None
    return config


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


def take_chat(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of chats; options of ``Model.chat``. As with llama-server models that can reason do."""
    reasoning = options.pop("reasoning") != "off"
    budget, effort = options.pop("reasoning_budget"), options.pop("reasoning_effort")
    separate = None if (form := options.pop("reasoning_format")) is None else form != "none"
    message = options.pop("reasoning_budget_message")
    given = options.pop("chat_template_kwargs")
    try:
        variables = json.loads(given) if given else {}
    except ValueError as error:
        raise click.UsageError(f"--chat-template-kwargs is not valid JSON: {error}") from None
    if not isinstance(variables, dict):
        raise click.UsageError("--chat-template-kwargs must be a JSON object")
    reasoning = variables.pop("enable_thinking", reasoning)
    chat = {"reasoning": reasoning, "reasoning_budget": None if budget in (None, -1) else budget}
    chat |= {"separate_reasoning": separate, "reasoning_budget_message": message}
    chat |= {"reasoning_effort": None if effort == "default" else effort, "template_variables": variables}
    return {name: value for name, value in chat.items() if value not in (None, {})}
