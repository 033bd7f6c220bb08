"""Names that clients make of a served model, with defaults of their own; the engine is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pumice.hub import chat_defaults
from pumice_server.bodies import OllamaOptions


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
    parameters: OllamaOptions | None = None
    n_bytes: int = 0

    def beginning(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the messages of a chat with those of the variant before them."""
        first = messages[0] if messages else None
        has_system = isinstance(first, Mapping) and first.get("role") in ("system", "developer")
        system = [{"role": "system", "content": self.system}] if self.system and not has_system else []
        own = list(messages[:1]) if has_system else []
        return [*system, *own, *self.messages, *messages[len(own) :]]


def default_variant(model: str) -> Variant | None:
    """Return how chats with a model begin, by its entry in the catalogue; None without such an entry."""
    chat = chat_defaults(model) if model else None
    if chat is None or not chat.model_fields_set:
        return None
    parameters = OllamaOptions(num_predict=chat.max_tokens, stop=chat.stop or None)
    return Variant(chat.system, chat.messages, parameters)
