import outlines
from clients_city import City
from clients_common import MODEL, URL, run
from openai import OpenAI

model = outlines.from_openai(OpenAI(base_url=f"{URL}/v1", api_key="none"), MODEL)


run(
    chat=lambda: model("Once upon a time", max_tokens=10),
    stream=lambda: "".join(model.stream("Once upon a time", max_tokens=10)),
    structured=lambda: City.model_validate_json(model("Once", City)),
)
