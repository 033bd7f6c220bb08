"""What workers do with chat templates. Payloads and results are plain data, which dataclasses are made of here."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pumice.chat.capabilities import capabilities
from pumice.chat.formats import ChatFormat
from pumice.chat.probe import probe
from pumice.chat.prompt import MarkedPrompt, PromptJob, write_prompt
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits


@dataclass(frozen=True)
class Description:
    """What a template can do: with its traits, by llama-server's names, and the chat format that it shows."""

    template: ChatTemplate
    capabilities: dict[str, bool]
    format: ChatFormat


def describe(payload: object) -> Description:
    """Find out by rendering what a template can do. Raises ModelError if it is none."""
    template = with_traits(msgspec.convert(payload, ChatTemplate))
    return Description(template, capabilities(template), probe(template))


def write(payload: object) -> MarkedPrompt:
    return write_prompt(msgspec.convert(payload, PromptJob))
