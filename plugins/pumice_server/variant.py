"""Names that clients make of a served model, with defaults of their own; the engine is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pumice.hub import chat_defaults
from pumice_server.bodies import OllamaOptions
from pumice_server.errors import bad_request


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

    def parameter_lines(self) -> str:
        """Return the parameters as Ollama shows them: a line with a name and a value for each."""
        return "\n".join(f"{name:<30} {value}" for name, value in self._parameters())

    def modelfile(self, base: str) -> str:
        """Return the Modelfile that makes this name of the model ``base``, or an empty text without defaults."""
        lines = [f"PARAMETER {name} {value}" for name, value in self._parameters()]
        lines += [f"SYSTEM {_quoted(self.system)}"] if self.system else []
        lines += [f"MESSAGE {message['role']} {_quoted(str(message.get('content')))}" for message in self.messages]
        return "\n".join([f"FROM {base}", *lines, ""]) if lines else ""

    def _parameters(self) -> Iterator[tuple[str, str]]:
        """Yield the parameters that differ from a request's defaults; a list as several of one name."""
        values = msgspec.to_builtins(self.parameters) if self.parameters else {}
        defaults = msgspec.to_builtins(OllamaOptions())
        for name, value in values.items():
            if value != defaults[name]:
                for single in value if isinstance(value, list) else [value]:
                    yield name, json.dumps(single, ensure_ascii=False)


def plain_name(name: str) -> str:
    """Return a name of Ollama's without its default tag."""
    return name.removesuffix(":latest")


def model_name(name: str | None) -> str:
    """Return the name of a model that a client makes. Raises HTTPException."""
    name = plain_name(name or "")
    if not name or not name.isprintable() or len(name) > 500:
        raise bad_request("the name of the model must be 1 to 500 printable characters")
    return name


def _quoted(text: str) -> str:
    return f'"""{text}"""' if "\n" in text or '"' in text else f'"{text}"'


def default_variant(model: str) -> Variant | None:
    """Return how chats with a model begin, by its entry in the catalogue; None without such an entry."""
    chat = chat_defaults(model) if model else None
    if chat is None or not chat.model_fields_set:
        return None
    parameters = OllamaOptions(num_predict=chat.max_tokens, stop=chat.stop or None)
    return Variant(chat.system, chat.messages, parameters)
