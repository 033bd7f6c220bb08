from clients_common import MODEL, URL, run
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret

KEY = {"api_key": Secret.from_token("none"), "api_base_url": f"{URL}/v1", "model": MODEL}
MESSAGES = [ChatMessage.from_user("Once upon a time")]


def stream():
    parts = []
    settings = {"max_tokens": 10}
    OpenAIChatGenerator(**KEY, generation_kwargs=settings, streaming_callback=parts.append).run(MESSAGES)
    return len(parts) > 1


run(
    chat=lambda: OpenAIChatGenerator(**KEY, generation_kwargs={"max_tokens": 10}).run(MESSAGES)["replies"][0].text,
    stream=stream,
    embeddings=lambda: OpenAITextEmbedder(**KEY).run("a")["embedding"],
)
