from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from clients_city import City
from clients_common import MODEL, URL, run

KEY = {"id": MODEL, "api_key": "none", "base_url": f"{URL}/v1"}


def agent(**options):
    return Agent(model=OpenAILike(max_tokens=20, **KEY), telemetry=False, **options)


run(
    chat=lambda: agent().run("Once upon a time").content,
    stream=lambda: "".join(str(part.content or "") for part in agent().run("Once upon a time", stream=True)),
    structured=lambda: agent(output_schema=City).run("Once").content.name,
)
