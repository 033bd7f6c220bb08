from clients_city import City
from clients_common import MESSAGES, MODEL, TOOL, URL, run
from openai import OpenAI

client = OpenAI(base_url=f"{URL}/v1", api_key="none")


def stream():
    chunks = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=10, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def tools():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=[TOOL], tool_choice=choice)
    return answer.choices[0].message.tool_calls[0].function.name


run(
    chat=lambda: (
        client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=10).choices[0].message.content
    ),
    stream=stream,
    tools=tools,
    structured=lambda: (
        client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=City).choices[0].message.parsed
    ),
    embeddings=lambda: client.embeddings.create(model=MODEL, input=["a", "b"]).data[1].embedding,
    responses=lambda: client.responses.create(model=MODEL, input="Once", max_output_tokens=10).output_text,
)
