"""Tasks of the workers that render templates. Payloads are plain data, converted to dataclasses here."""

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
    """The result of analyzing a template.

    Attributes:
        template: the template with its traits.
        capabilities: its capabilities by llama-server's names.
        format: the chat format that it shows.
    """

    template: ChatTemplate
    capabilities: dict[str, bool]
    format: ChatFormat


def describe(payload: object) -> Description:
    """Analyze a template by rendering chats. Raises ModelError if it is not valid Jinja."""
    template = with_traits(msgspec.convert(payload, ChatTemplate))
    return Description(template, capabilities(template), probe(template))


def write(payload: object) -> MarkedPrompt:
    return write_prompt(msgspec.convert(payload, PromptJob))
