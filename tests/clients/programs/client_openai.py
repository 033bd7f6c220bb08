from clients_common import MESSAGES, MODEL, TOOL, URL, check, run
from openai import OpenAI
from pydantic import BaseModel

client = OpenAI(base_url=f"{URL}/v1", api_key="none")


class City(BaseModel):
    name: str


@check
def chat():
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=10).choices[0].message.content


@check
def stream():
    chunks = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=10, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@check
def tools():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=[TOOL], tool_choice=choice)
    return answer.choices[0].message.tool_calls[0].function.name


@check
def structured():
    return client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=City).choices[0].message.parsed


@check
def embeddings():
    return client.embeddings.create(model=MODEL, input=["a", "b"]).data[1].embedding


@check
def responses():
    return client.responses.create(model=MODEL, input="Once", max_output_tokens=10).output_text


run()
