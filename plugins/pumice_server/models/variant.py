"""Names that clients make of a served model, with defaults of their own; the engine is the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pumice.hub import ChatDefaults, chat_defaults
from pumice.plugin.unstable import show_value
from pumice_server.errors import bad_request
from pumice_server.http.bodies import Generation, TextBody

_NAME = re.compile(r"[\w.:/@-]{1,500}")


@dataclass(frozen=True)
class Variant:
    """The defaults of one name.

    Attributes:
        system: System message of chats that have none.
        messages: Messages before those of each chat, after the system message.
        parameters: Parameters of generation for requests that do not give them.
        n_bytes: Size of all that as JSON.
    """

    system: str = ""
    messages: Sequence[Mapping[str, Any]] = ()
    parameters: Generation | None = None
    n_bytes: int = 0

    def beginning(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the messages of a chat with those of the variant before them."""
        first = messages[0] if messages else None
        has_system = isinstance(first, Mapping) and first.get("role") in ("system", "developer")
        system = [{"role": "system", "content": self.system}] if self.system and not has_system else []
        own = list(messages[:1]) if has_system else []
        return [*system, *own, *self.messages, *messages[len(own) :]]


def plain_name(name: str) -> str:
    """Return a name of Ollama's without its default tag."""
    return name.removesuffix(":latest")


def model_name(name: str | None) -> str:
    """Return the name of a model that a client makes. Raises HTTPException."""
    name = plain_name(name or "")
    if not _NAME.fullmatch(name):
        raise bad_request(
            f"the name of the model must be 1 to 500 letters, digits and - _ . : / @, not {show_value(name)}"
        )
    return name


def default_variant(model: str) -> Variant | None:
    """Return how chats with a model begin, by its entry in the catalogue; None without such an entry."""
    chat = chat_defaults(model) if model else None
    if chat is None or chat == ChatDefaults():
        return None
    parameters = TextBody(max_tokens=chat.max_tokens, stop=chat.stop or None)
    return Variant(chat.system, chat.messages, parameters)
