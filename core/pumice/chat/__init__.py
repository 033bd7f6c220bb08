"""Chat: messages become prompts by a model's template, and its text becomes messages, reasoning and tool calls.

Everything public is here, and imported on first use: workers that render templates start without the rest.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice.chat.answer import Answer
    from pumice.chat.builtin import BUILTIN
    from pumice.chat.calls import Keys
    from pumice.chat.chat import Chat, Turn
    from pumice.chat.families import FORMATS
    from pumice.chat.formats import ChatFormat
    from pumice.chat.messages import ChatCompletion, ChatDelta, Message, TokenLogprob, ToolCall, Usage
    from pumice.chat.request import OPTIONS, ChatRequest, Messages

__all__ = [
    "BUILTIN",
    "FORMATS",
    "OPTIONS",
    "Answer",
    "Chat",
    "ChatCompletion",
    "ChatDelta",
    "ChatFormat",
    "ChatRequest",
    "Keys",
    "Message",
    "Messages",
    "TokenLogprob",
    "ToolCall",
    "Turn",
    "Usage",
]

_HOMES = {
    "answer": ["Answer"],
    "builtin": ["BUILTIN"],
    "calls": ["Keys"],
    "chat": ["Chat", "Turn"],
    "families": ["FORMATS"],
    "formats": ["ChatFormat"],
    "messages": ["ChatCompletion", "ChatDelta", "Message", "TokenLogprob", "ToolCall", "Usage"],
    "request": ["OPTIONS", "ChatRequest", "Messages"],
}


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'pumice.chat' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"pumice.chat.{home}"), name)
    return value
