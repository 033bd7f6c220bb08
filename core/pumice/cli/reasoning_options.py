"""Options of chats: how models reason, variables of the template, and the length of answers."""

from __future__ import annotations

from typing import Any

import click

from pumice.cli.options import CommandFunction, read_template_variables
from pumice.cli.vocabulary import defined, with_options
from pumice.options import CHAT, REQUEST

reasoning_budget_option = defined(
    CHAT["reasoning_budget"],
    type=click.IntRange(-1),
    help="Maximum number of reasoning tokens, after which the answer follows; -1: unlimited.  [default: -1]",
)

answer_length_option = defined(
    REQUEST["max_tokens"],
    metavar="N",
    help="Maximum number of tokens of an answer; -1: until the model ends it.  [default: -1]",
)

_OTHERS = [
    defined(CHAT["reasoning_budget_message"], metavar="TEXT", advanced=True),
    defined(
        CHAT["reasoning_effort"],
        metavar="LEVEL",
        help=f"{CHAT['reasoning_effort'].meaning}  [default: default, the template's]",
        advanced=True,
    ),
    defined(
        CHAT["template_variables"],
        metavar="JSON",
        advanced=True,
        help="Variables of the chat template, as a JSON object.",
    ),
]


def reasoning_options(command: CommandFunction) -> CommandFunction:
    """Add the options of ``take_reasoning`` except ``--reasoning``, whose default each command has, and the budget."""
    return with_options(command, _OTHERS)


def take_reasoning(options: dict[str, Any], auto: bool | None) -> dict[str, Any]:
    """Remove the options of reasoning, and return them as options of ``Model.chat``; None stands for a default.

    Args:
        options: Options of the command, with ``reasoning``: on, off, auto, or None as auto.
        auto: Value of ``reasoning`` for auto; None leaves it to the template.

    Raises:
        UsageError: The variables of the template are no JSON object.
    """
    reasoning = {"on": True, "off": False}.get(options.pop("reasoning"), auto)
    budget, effort = options.pop("reasoning_budget"), options.pop("reasoning_effort")
    variables = read_template_variables(options.pop("template_variables"))
    return {
        "reasoning": variables.pop("enable_thinking", reasoning),
        "reasoning_budget": None if budget == -1 else budget,
        "reasoning_budget_message": options.pop("reasoning_budget_message"),
        "reasoning_effort": None if effort == "default" else effort,
        "template_variables": variables or None,
    }
