from clients_city import City
from clients_common import MESSAGES, MODEL, TOOL, URL, run
from ollama import Client

client = Client(host=URL)
OPTIONS = {"num_predict": 10}


def structured():
    schema = City.model_json_schema()
    return City.model_validate_json(client.chat(MODEL, MESSAGES, format=schema).message.content)


run(
    chat=lambda: client.chat(model=MODEL, messages=MESSAGES, options=OPTIONS).message.content,
    stream=lambda: "".join(part.message.content for part in client.chat(MODEL, MESSAGES, options=OPTIONS, stream=True)),
    tools=lambda: client.chat(MODEL, MESSAGES, tools=[TOOL], options=OPTIONS).message.role,  # it cannot demand a call
    structured=structured,
    embeddings=lambda: client.embed(model=MODEL, input=["a", "b"]).embeddings[1],
)
