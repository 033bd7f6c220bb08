"""Chat: messages become prompts by a model's template, and its text becomes messages, reasoning and tool calls."""

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
