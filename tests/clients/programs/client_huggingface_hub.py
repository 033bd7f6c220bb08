from clients_common import MESSAGES, MODEL, TOOL, URL, run
from huggingface_hub import InferenceClient

client = InferenceClient(base_url=f"{URL}/v1", api_key="none")
SCHEMA = {"name": "city", "schema": TOOL["function"]["parameters"]}


def stream():
    chunks = client.chat_completion(MESSAGES, model=MODEL, max_tokens=10, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def tools():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = client.chat_completion(MESSAGES, model=MODEL, tools=[TOOL], tool_choice=choice)
    return answer.choices[0].message.tool_calls[0].function.arguments


def structured():
    form = {"type": "json_schema", "json_schema": SCHEMA}
    return "city" in client.chat_completion(MESSAGES, model=MODEL, response_format=form).choices[0].message.content


run(
    chat=lambda: client.chat_completion(MESSAGES, model=MODEL, max_tokens=10).choices[0].message.content,
    stream=stream,
    tools=tools,
    structured=structured,
)
