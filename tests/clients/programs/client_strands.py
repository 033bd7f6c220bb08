from clients_common import MODEL, URL, run
from strands import Agent
from strands.models.anthropic import AnthropicModel
from strands.models.ollama import OllamaModel
from strands.models.openai import OpenAIModel


def ask(model):
    return str(Agent(model=model, callback_handler=None)("Once upon a time"))


def anthropic_chat():
    client = {"base_url": URL, "api_key": "none"}
    return ask(AnthropicModel(client_args=client, model_id=MODEL, max_tokens=2000))


run(
    chat=lambda: ask(OpenAIModel(client_args={"base_url": f"{URL}/v1", "api_key": "none"}, model_id=MODEL)),
    anthropic_chat=anthropic_chat,
    ollama_chat=lambda: ask(OllamaModel(host=URL, model_id=MODEL)),
)
