import instructor
from clients_city import City
from clients_common import MESSAGES, MODEL, URL, run
from openai import OpenAI

client = OpenAI(base_url=f"{URL}/v1", api_key="none")


def extract(mode):
    made = instructor.from_openai(client, mode=mode)
    return made.chat.completions.create(model=MODEL, messages=MESSAGES, response_model=City, max_retries=0).name


run(tools=lambda: extract(instructor.Mode.TOOLS), structured=lambda: extract(instructor.Mode.JSON_SCHEMA))
