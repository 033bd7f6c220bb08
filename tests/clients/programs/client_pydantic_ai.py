from clients_city import City
from clients_common import MODEL, URL, run
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="none"))
FEW = {"max_tokens": 10}


def stream():
    with Agent(model, model_settings=FEW).run_stream_sync("Once upon a time") as result:
        return "".join(result.stream_text(delta=True))


run(
    chat=lambda: Agent(model, model_settings=FEW).run_sync("Once upon a time").output,
    stream=stream,
    tools=lambda: Agent(model, output_type=City).run_sync("Once upon a time").output.name,
    structured=lambda: Agent(model, output_type=NativeOutput(City)).run_sync("Once upon a time").output.name,
)
