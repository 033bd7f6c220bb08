import asyncio

from clients_common import MODEL, URL, run
from openai import AsyncOpenAI
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
    OpenAITextEmbedding,
)
from semantic_kernel.contents import ChatHistory

SETTINGS = OpenAIChatPromptExecutionSettings(max_tokens=10)
HISTORY = ChatHistory()
HISTORY.add_user_message("Once upon a time")


def client():
    return AsyncOpenAI(base_url=f"{URL}/v1", api_key="none")


def service():
    return OpenAIChatCompletion(ai_model_id=MODEL, async_client=client())


def stream():
    async def collect():
        return [str(part) async for part in service().get_streaming_chat_message_content(HISTORY, SETTINGS)]

    return "".join(asyncio.run(collect()))


def embeddings():
    service = OpenAITextEmbedding(ai_model_id=MODEL, async_client=client())
    return len(asyncio.run(service.generate_embeddings(["a", "b"]))) == 2


run(
    chat=lambda: str(asyncio.run(service().get_chat_message_content(HISTORY, SETTINGS))),
    stream=stream,
    embeddings=embeddings,
)
