from clients_common import MODEL, URL, run
from smolagents import ChatMessage, OpenAIServerModel, tool

model = OpenAIServerModel(model_id=MODEL, api_base=f"{URL}/v1", api_key="none", max_tokens=10)
MESSAGES = [ChatMessage(role="user", content=[{"type": "text", "text": "Once upon a time"}])]


@tool
def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Name of the city.
    """
    return city


def tools():
    wider = OpenAIServerModel(model_id=MODEL, api_base=f"{URL}/v1", api_key="none", max_tokens=200)
    return wider.generate(MESSAGES, tools_to_call_from=[get_weather]).tool_calls[0].function.name


run(
    chat=lambda: model.generate(MESSAGES).content,
    stream=lambda: "".join(part.content or "" for part in model.generate_stream(MESSAGES)),
    tools=tools,
)
