from clients_city import City
from clients_common import CHOICE, MESSAGES, MODEL, TOOL, URL, run, text_of
from openai import OpenAI

client = OpenAI(base_url=f"{URL}/v1", api_key="none")


def ask(**options):
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, **options)


run(
    chat=lambda: ask(max_tokens=10).choices[0].message.content,
    stream=lambda: text_of(ask(max_tokens=10, stream=True)),
    tools=lambda: ask(tools=[TOOL], tool_choice=CHOICE).choices[0].message.tool_calls[0].function.name,
    structured=lambda: (
        client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=City).choices[0].message.parsed
    ),
    embeddings=lambda: client.embeddings.create(model=MODEL, input=["a", "b"]).data[1].embedding,
    responses=lambda: client.responses.create(model=MODEL, input="Once", max_output_tokens=10).output_text,
)
