"""LiteLLM's proxy in front of the server, with the configuration of its quick start, and OpenAI's client."""

import os
import sys
import tempfile
from pathlib import Path

from clients_common import MESSAGES, MODEL, TOOL, URL, run, started
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


def stream():
    chunks = client.chat.completions.create(model="local", messages=MESSAGES, max_tokens=10, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def tools():
    answer = client.chat.completions.create(model="local", messages=MESSAGES, tools=[TOOL], tool_choice="required")
    return answer.choices[0].message.tool_calls[0].function.name


def structured():
    form = {"type": "json_schema", "json_schema": {"name": "weather", "schema": TOOL["function"]["parameters"]}}
    answer = client.chat.completions.create(model="local", messages=MESSAGES, response_format=form)
    return answer.choices[0].message.content.startswith("{")


def anthropic_chat():
    answer = client.chat.completions.create(model="local-anthropic", messages=MESSAGES, max_tokens=10)
    return answer.choices[0].message.content


run(
    chat=lambda: (
        client.chat.completions.create(model="local", messages=MESSAGES, max_tokens=10).choices[0].message.content
    ),
    stream=stream,
    tools=tools,
    structured=structured,
    embeddings=lambda: client.embeddings.create(model="local-embedding", input=["a", "b"]).data[1].embedding,
    responses=lambda: client.responses.create(model="local", input="Once", max_output_tokens=10).output,
    anthropic_chat=anthropic_chat,
)
