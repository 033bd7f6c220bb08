from typing import Literal

from clients_city import City
from clients_common import MODEL, URL, run
from magentic import Chat, FunctionCall, OpenaiChatModel, StreamedStr, UserMessage

KEY = {"base_url": f"{URL}/v1", "api_key": "none"}
MESSAGES = [UserMessage("Once upon a time")]
short = OpenaiChatModel(MODEL, max_tokens=10, **KEY)


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Tell the weather of a city."""
    return city


def tools():
    chosen = Chat(MESSAGES, model=OpenaiChatModel(MODEL, **KEY), functions=[get_weather], output_types=[FunctionCall])
    return chosen.submit().last_message.content.arguments


run(
    chat=lambda: Chat(MESSAGES, model=short).submit().last_message.content,
    stream=lambda: "".join(Chat(MESSAGES, model=short, output_types=[StreamedStr]).submit().last_message.content),
    tools=tools,
    structured=lambda: (
        Chat(MESSAGES, model=OpenaiChatModel(MODEL, **KEY), output_types=[City]).submit().last_message.content.name
    ),
)
