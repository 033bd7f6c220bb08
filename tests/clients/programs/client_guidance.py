import json

from clients_common import MODEL, SCHEMA, URL, run
from guidance import assistant, gen, models, user
from guidance import json as gen_json


def begun():
    model = models.OpenAI(MODEL, base_url=f"{URL}/v1", api_key="none", echo=False)
    with user():
        model += "Once upon a time"
    return model


def chat():
    model = begun()
    with assistant():
        model += gen("story", max_tokens=10)
    return model["story"]


def structured():
    model = begun()
    with assistant():
        model += gen_json("weather", schema=SCHEMA, max_tokens=60)
    return json.loads(model["weather"])["city"]


run(chat=chat, structured=structured)
