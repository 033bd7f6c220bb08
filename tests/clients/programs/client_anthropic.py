from anthropic import Anthropic
from clients_common import MESSAGES, MODEL, SCHEMA, URL, run

client = Anthropic(base_url=URL, api_key="none")


def stream():
    with client.messages.stream(model=MODEL, max_tokens=10, messages=MESSAGES) as stream:
        return "".join(stream.text_stream)


def tools():
    tool = {"name": "get_weather", "input_schema": SCHEMA}
    choice = {"type": "tool", "name": "get_weather"}
    answer = client.messages.create(model=MODEL, max_tokens=100, messages=MESSAGES, tools=[tool], tool_choice=choice)
    return answer.content[-1].name


run(
    chat=lambda: client.messages.create(model=MODEL, max_tokens=10, messages=MESSAGES).content[0].text,
    stream=stream,
    tools=tools,
)
