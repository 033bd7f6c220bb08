import asyncio

from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from clients_common import MODEL, URL, run

INFO = {"vision": False, "function_calling": True, "json_output": True, "family": "unknown", "structured_output": True}
client = OpenAIChatCompletionClient(model=MODEL, base_url=f"{URL}/v1", api_key="none", model_info=INFO, max_tokens=10)
MESSAGES = [UserMessage(content="Once upon a time", source="user")]


run(chat=lambda: asyncio.run(client.create(MESSAGES)).content)
