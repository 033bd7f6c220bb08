"""LiteLLM's proxy in front of the server, with the configuration of its quick start, and OpenAI's client."""

import os
import sys
import tempfile
from pathlib import Path

from clients_common import FORM, MESSAGES, MODEL, TOOL, URL, run, started, text_of
from openai import OpenAI

CONFIG = f"""
model_list:
  - model_name: local
    litellm_params: {{model: "openai/{MODEL}", api_base: "{URL}/v1", api_key: none}}
  - model_name: local-anthropic
    litellm_params: {{model: "anthropic/{MODEL}", api_base: "{URL}", api_key: none}}
  - model_name: local-embedding
    litellm_params: {{model: "openai/{MODEL}", api_base: "{URL}/v1", api_key: none}}
"""
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "config.yaml"
path.write_text(CONFIG)
os.environ["LITELLM_MASTER_KEY"] = KEY = "sk-proxy"
PROXY = "from litellm import run_server; run_server()"  # the package's program, which has no module of its own
address = started(
    lambda port: [sys.executable, "-c", PROXY, "--config", str(path), "--host", "127.0.0.1", "--port", str(port)],
    "/health/liveliness",
)
client = OpenAI(base_url=f"{address}/v1", api_key=KEY)


def ask(model="local", **options):
    return client.chat.completions.create(model=model, messages=MESSAGES, **options)


run(
    chat=lambda: ask(max_tokens=10).choices[0].message.content,
    stream=lambda: text_of(ask(max_tokens=10, stream=True)),
    tools=lambda: ask(tools=[TOOL], tool_choice="required").choices[0].message.tool_calls[0].function.name,
    structured=lambda: ask(response_format=FORM).choices[0].message.content.startswith("{"),
    embeddings=lambda: client.embeddings.create(model="local-embedding", input=["a", "b"]).data[1].embedding,
    responses=lambda: client.responses.create(model="local", input="Once", max_output_tokens=10).output,
    anthropic_chat=lambda: ask("local-anthropic", max_tokens=10).choices[0].message.content,
)
