from typing import Literal

from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from clients_common import MODEL, URL, check, run
from pydantic import BaseModel

KEY = {"id": MODEL, "api_key": "none", "base_url": f"{URL}/v1"}


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


def agent(**options):
    return Agent(model=OpenAILike(max_tokens=20, **KEY), telemetry=False, **options)


@check
def chat():
    return agent().run("Once upon a time").content


@check
def stream():
    return "".join(str(part.content or "") for part in agent().run("Once upon a time", stream=True))


@check
def structured():
    return agent(output_schema=City).run("Once").content.name


run()
