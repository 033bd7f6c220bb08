from typing import Literal

import instructor
from clients_common import MESSAGES, MODEL, URL, check, run
from openai import OpenAI
from pydantic import BaseModel

client = OpenAI(base_url=f"{URL}/v1", api_key="none")


class City(BaseModel):
    name: Literal["Paris", "Rome"]


def extract(mode):
    made = instructor.from_openai(client, mode=mode)
    return made.chat.completions.create(model=MODEL, messages=MESSAGES, response_model=City, max_retries=0).name


@check
def tools():
    return extract(instructor.Mode.TOOLS)


@check
def structured():
    return extract(instructor.Mode.JSON_SCHEMA)


run()
