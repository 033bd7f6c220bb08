from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from clients_city import City
from clients_common import MODEL, URL, run
from openai import AsyncOpenAI

set_tracing_disabled(True)
FEW = ModelSettings(max_tokens=10)


def client():
    return AsyncOpenAI(base_url=f"{URL}/v1", api_key="none")


def chat():
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client())
    return Runner.run_sync(Agent("a", model=model, model_settings=FEW), "Once upon a time").final_output


def structured():
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client())
    return Runner.run_sync(Agent("a", model=model, output_type=City), "Once upon a time").final_output.name


def responses():
    model = OpenAIResponsesModel(model=MODEL, openai_client=client())
    return Runner.run_sync(Agent("a", model=model), "Once upon a time").final_output


run(chat=chat, structured=structured, responses=responses)
