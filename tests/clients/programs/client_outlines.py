from typing import Literal

import outlines
from clients_common import MODEL, URL, check, run
from openai import OpenAI
from pydantic import BaseModel

model = outlines.from_openai(OpenAI(base_url=f"{URL}/v1", api_key="none"), MODEL)


class City(BaseModel):
    name: Literal["Paris", "Rome"]


@check
def chat():
    return model("Once upon a time", max_tokens=10)


@check
def stream():
    return "".join(model.stream("Once upon a time", max_tokens=10))


@check
def structured():
    return City.model_validate_json(model("Once", City))


run()
