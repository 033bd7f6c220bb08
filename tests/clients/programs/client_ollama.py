from clients_common import MESSAGES, MODEL, TOOL, URL, check, run
from ollama import Client
from pydantic import BaseModel

client = Client(host=URL)
OPTIONS = {"num_predict": 10}


class City(BaseModel):
    name: str


@check
def chat():
    return client.chat(model=MODEL, messages=MESSAGES, options=OPTIONS).message.content


@check
def stream():
    return "".join(part.message.content for part in client.chat(MODEL, MESSAGES, options=OPTIONS, stream=True))


@check
def tools():
    return client.chat(MODEL, MESSAGES, tools=[TOOL], options=OPTIONS).message.role  # it cannot demand a call


@check
def structured():
    schema = City.model_json_schema()
    return City.model_validate_json(client.chat(MODEL, MESSAGES, format=schema).message.content)


@check
def embeddings():
    return client.embed(model=MODEL, input=["a", "b"]).embeddings[1]


run()
