"""Chat: a model's template turns messages into a prompt; its output becomes content, reasoning and tool calls.

Public names are imported on first use, so that the workers that render templates start quickly.
"""

from typing import TYPE_CHECKING

from pumice.lazy import lazy_names

if TYPE_CHECKING:
    from pumice.chat.answer import AnswerBuilder
    from pumice.chat.builtin import BUILTIN
    from pumice.chat.calls import Keys
    from pumice.chat.chat import Chat, Turn
    from pumice.chat.families import FORMATS
    from pumice.chat.formats import ChatFormat
    from pumice.chat.messages import ChatCompletion, ChatDelta, Message, TokenLogprob, ToolCall, Usage
    from pumice.chat.request import ChatRequest, Messages
    from pumice.chat.tools import Tool, ToolError

__all__ = [
    "BUILTIN",
    "FORMATS",
    "AnswerBuilder",
    "Chat",
    "ChatCompletion",
    "ChatDelta",
    "ChatFormat",
    "ChatRequest",
    "Keys",
    "Message",
    "Messages",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "ToolError",
    "Turn",
    "Usage",
]

_HOMES = {
    "answer": ["AnswerBuilder"],
    "builtin": ["BUILTIN"],
    "calls": ["Keys"],
    "chat": ["Chat", "Turn"],
    "families": ["FORMATS"],
    "formats": ["ChatFormat"],
    "messages": ["ChatCompletion", "ChatDelta", "Message", "TokenLogprob", "ToolCall", "Usage"],
    "request": ["ChatRequest", "Messages"],
    "tools": ["Tool", "ToolError"],
}

__getattr__ = lazy_names(__name__, _HOMES)
