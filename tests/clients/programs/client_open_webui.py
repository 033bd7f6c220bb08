"""Open WebUI's server with the variables of `pumice launch open-webui`, asked as its page asks."""

import json
import os
import sys
import tempfile
import urllib.request

from clients_common import FORM, MESSAGES, MODEL, TOOL, URL, run, started

folder = tempfile.TemporaryDirectory()
os.environ.update(
    OPENAI_API_BASE_URL=f"{URL}/v1",
    OPENAI_API_KEY="none",
    ENABLE_OLLAMA_API="False",
    DEFAULT_MODELS=MODEL,
    DATA_DIR=folder.name,
    WEBUI_AUTH="False",
    WEBUI_SECRET_KEY="none",  # otherwise it writes one into the current folder
    OFFLINE_MODE="True",
    RAG_EMBEDDING_ENGINE="openai",
    RAG_OPENAI_API_BASE_URL=f"{URL}/v1",
    RAG_EMBEDDING_MODEL=MODEL,
)
SERVE = "from open_webui import app; app()"
address = started(
    lambda port: [sys.executable, "-c", SERVE, "serve", "--host", "127.0.0.1", "--port", str(port)], "/health"
)


def ask(path, body=None, key=""):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{address}{path}", data, headers)) as answer:
        return answer.read().decode()


token = json.loads(ask("/api/v1/auths/signin", {"email": "", "password": ""}))["token"]


def completion(**fields):
    return ask("/api/chat/completions", {"model": MODEL, "messages": MESSAGES, "max_tokens": 10, **fields}, token)


def message(**fields):
    return json.loads(completion(max_tokens=100, **fields))["choices"][0]["message"]


def embeddings():
    return json.loads(ask("/api/embeddings", {"model": MODEL, "input": ["a", "b"]}, token))["data"][1]["embedding"]


run(
    chat=lambda: message()["content"],
    stream=lambda: "data: [DONE]" in completion(stream=True),
    tools=lambda: message(tools=[TOOL], tool_choice="required")["tool_calls"][0]["function"]["name"],
    structured=lambda: json.loads(message(response_format=FORM)["content"])["city"],
    embeddings=embeddings,
    models=lambda: MODEL in [row["id"] for row in json.loads(ask("/api/models", key=token))["data"]],
)
