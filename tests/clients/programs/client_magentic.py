from typing import Literal

from clients_common import MODEL, URL, check, run
from magentic import Chat, FunctionCall, OpenaiChatModel, StreamedStr, UserMessage
from pydantic import BaseModel

KEY = {"base_url": f"{URL}/v1", "api_key": "none"}
MESSAGES = [UserMessage("Once upon a time")]
short = OpenaiChatModel(MODEL, max_tokens=10, **KEY)


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Tell the weather of a city."""
    return city


@check
def chat():
    return Chat(MESSAGES, model=short).submit().last_message.content


@check
def stream():
    return "".join(Chat(MESSAGES, model=short, output_types=[StreamedStr]).submit().last_message.content)


@check
def tools():
    chosen = Chat(MESSAGES, model=OpenaiChatModel(MODEL, **KEY), functions=[get_weather], output_types=[FunctionCall])
    return chosen.submit().last_message.content.arguments


@check
def structured():
    return Chat(MESSAGES, model=OpenaiChatModel(MODEL, **KEY), output_types=[City]).submit().last_message.content.name


run()
