"""Requests that a server of the demo model refuses, in each protocol. Broken bodies: test_hostile_requests.py."""

import re

import pytest

from pumice_server.errors import without_folders

COMPLETIONS, CHATS, RESPONSES, EMBED = "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"
MESSAGES = [{"role": "user", "content": "Once"}]
NEEDED = {  # fields of a request that is right but for one
    COMPLETIONS: {"prompt": "Once", "max_tokens": 8},
    "/completion": {"prompt": "Once"},
    CHATS: {"messages": MESSAGES},
    "/api/chat": {"messages": MESSAGES},
    RESPONSES: {"input": "Once"},
}
IMAGE = {"role": "user", "images": ["AAAA"]}


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        (COMPLETIONS, {"prompt": None}, "prompt must be"),
        (COMPLETIONS, {"prompt": []}, "prompt must be|1 to 128"),
        (COMPLETIONS, {"prompt": [1, "a", True]}, r"prompt\[2\] must be"),
        (COMPLETIONS, {"prompt": [-1]}, "token id -1"),
        (COMPLETIONS, {"prompt": [10**12]}, "token id"),
        (COMPLETIONS, {"prompt": [0] * 1_100_000}, "prompt: at most 1048576 items, not 1100000"),
        (COMPLETIONS, {"prompt": [[0] * 1000]}, "the prompt has 1000 tokens, n_ctx is 512"),
        (COMPLETIONS, {"prompt": ["a"] * 129}, "1 to 128 prompts"),
        (COMPLETIONS, {"prompt": ["a"] * 65}, "asks for 65 completions at once"),
        (COMPLETIONS, {"logprobs": 1000}, "logprobs must be between 0 and 20, not 1000"),
        (COMPLETIONS, {"best_of": 2, "stream": True}, "best_of needs all of the completions"),
        (COMPLETIONS, {"best_of": 1, "n": 2}, "best_of must be between n = 2 and"),
        (COMPLETIONS, {"suffix": "x"}, "501 .*cannot fill in text"),
        (COMPLETIONS, {"grammar_lazy": True, "regex": "a"}, "grammar_triggers: expected 1 to 16 texts, not 0"),
        (
            COMPLETIONS,
            {"grammar_lazy": True, "regex": "a", "grammar_triggers": [{"type": 2, "value": "x"}]},
            "patterns",
        ),
        (COMPLETIONS, {"min_tokens": 500}, "min_tokens: 500 is above max_tokens"),
        (COMPLETIONS, {"prompt_logprobs": 1, "stream": True}, "leave out stream"),
        (COMPLETIONS, {"choices": "yes"}, "choices"),
        ("/completion", {"prompt": None}, "prompt must be"),
        ("/completion", {"samplers": ["dance"]}, "samplers: 'dance' is not one of dry, "),
        ("/completion", {"samplers": "?"}, r"samplers: '\?' is not one of"),
        ("/detokenize", {"tokens": [10**9]}, "is not a token id"),
        ("/detokenize", {"tokens": [True]}, r"tokens\[0\] must be an integer"),
        ("/apply-template", {}, "messages must be a list"),
        (CHATS, {"functions": [{"name": "f"}]}, "functions is not supported: "),
        (CHATS, {"audio": {"voice": "alloy", "format": "wav"}}, "audio is not supported: "),
        (f"{RESPONSES}/input_tokens", {"input": "Once", "conversation": "x"}, "conversation is not supported: "),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "the part has no image"),
        (RESPONSES, {"input": [{"type": "computer_call"}]}, "'computer_call' is not supported"),
        (RESPONSES, {"background": True}, "background is not supported"),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "schema": {"type": "hiccup"}}}}, "hiccup"),
        ("/api/chat", {"messages": [5]}, r"messages\[0\] must be an object"),
        ("/api/chat", {"messages": [IMAGE | {"content": "x"}]}, "takes no images"),
        ("/api/chat", {"messages": [IMAGE | {"content": 5}]}, "content: expected text or a list"),
        ("/api/chat", {"format": 7}, "format must be"),
        (EMBED, {}, "input"),
        (EMBED, {"input": []}, "input"),
        (EMBED, {"input": [True]}, "input"),
        (EMBED, {"input": [["a"]]}, "input must be"),
        (EMBED, {"input": ["a", ["b", "c"]]}, "input must be"),
        (EMBED, {"input": [10**9]}, "token id"),
        (EMBED, {"input": "word and " * 1000}, "n_ctx is 512"),
        ("/embedding", {"content": {"content": 5}}, "content"),
        ("/rerank", {"query": "x", "documents": ["a"]}, "501"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_the_message_names_what_is_wrong(server, path, fields, message):
    response = server.client.post(path, json=NEEDED.get(path, {}) | fields)
    error = response.json()["error"]
    told = error if path.startswith("/api/") else error["message"]
    assert response.status_code == (501 if message.startswith("501") else 400)
    assert re.search(message, f"{response.status_code} {told}"), told


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("/srv/my models/a b.gguf: truncated", "a b.gguf: truncated"),
        ("not in ~/.cache/pumice/a.gguf, but in ../b/c.gguf", "not in a.gguf, but in c.gguf"),
        (r"cannot open 'C:\models\a.gguf'", "cannot open 'a.gguf'"),
        (r"No such file or directory: 'C:\\my models\\a.gguf'", "No such file or directory: 'a.gguf'"),
        (r"cannot open \\host\share\a.gguf", "cannot open a.gguf"),
        ("/srv/a.gguf does not fit /srv/my models/b.gguf", "a.gguf does not fit b.gguf"),
        ("run `/venv/bin/python -m pip install '/src/pumice[mcp]'`", "run `python -m pip install 'pumice[mcp]'`"),
        ("https://a.example/b/c.gguf: 3 tokens/s; POST /lora-adapters", None),
    ],
)
def test_errors_of_the_server_name_no_folders(message, told):
    assert without_folders(message) == (told or message)
