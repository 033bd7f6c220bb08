from typing import Literal

from clients_common import MODEL, URL, check, run
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="none"))
FEW = {"max_tokens": 10}


class City(BaseModel):
    name: Literal["Paris", "Rome"]


@check
def chat():
    return Agent(model, model_settings=FEW).run_sync("Once upon a time").output


@check
def stream():
    with Agent(model, model_settings=FEW).run_stream_sync("Once upon a time") as result:
        return "".join(result.stream_text(delta=True))


@check
def tools():
    return Agent(model, output_type=City).run_sync("Once upon a time").output.name


@check
def structured():
    return Agent(model, output_type=NativeOutput(City)).run_sync("Once upon a time").output.name


run()
