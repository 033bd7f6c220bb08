"""Clients as servers meet them: right requests, wrong ones, bodies that are cut, readers that leave, wait or stall."""

import contextlib
import json
import random
import socket
import time

import httpx2

from pumice_server.application import operations
from pumice_server.http.bodies import SAMPLING

PATHS = [path for each in operations() if each.method == "POST" for path in each.paths if "{" not in path]
GENERATING = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat", "/completion"]
GOOD = {
    "messages": [{"role": "user", "content": "Once"}],
    "prompt": "Once",
    "input": "Once",
    "query": "Once",
    "documents": ["upon", "a time"],
    "content": "Once",
    "tokens": [1, 2],
    "max_tokens": 4,
    "max_output_tokens": 4,
    "n_predict": 4,
    "options": {"num_predict": 4},
}
NAMES = [*GOOD, *SAMPLING]
NAMES += ["n", "stream", "stop", "logit_bias", "logprobs", "top_logprobs", "n_probs", "tools", "system", "tool_choice"]
NAMES += ["response_format", "json_schema", "grammar", "format", "think", "thinking", "raw", "echo", "stream_options"]
NAMES += ["chat_template_kwargs", "reasoning_effort", "reasoning_budget_tokens", "stop_sequences", "samplers", "text"]
NAMES += ["response_fields", "return_progress", "id_slot", "keep_alive", "previous_response_id", "encoding_format"]
NAMES += ["dimensions", "embd_normalize", "truncate", "top_n", "cache_prompt", "instructions", "lora"]
NAMES += ["best_of", "suffix", "t_max_predict_ms", "reasoning_format", "parallel_tool_calls", "structured_outputs"]
NAMES += ["guided_choice", "regex", "stop_token_ids", "adaptive_target", "min_tokens", "reasoning_budget_message"]
VALUES = [None, True, False, 0, -1, 2, 10**9, 1e308, -0.5, "", "x", "auto", [], {}, [1], ["x"], [[]], [{}], {"a": 1}]
VALUES += [[True], {"type": "json_object"}, {"type": "tool", "name": "x"}, [{"role": "tool"}], "\x00", [{"name": "f"}]]
DUE = (200, 400, 404, 408, 409, 413, 429, 501)
"""Statuses that are nobody's fault, or the client's."""


def ask(url: str, number: int) -> str:
    """Client ``number`` asks. What went wrong, if that was the server's fault."""
    chosen = random.Random(number)
    kinds = [fields, fields, fields, cut, leave, stall, garbage]
    return chosen.choice(kinds)(url, chosen)


def fields(url: str, chosen: random.Random) -> str:
    """Fields of every kind with values of every kind."""
    path = chosen.choice(PATHS)
    body = GOOD | {chosen.choice(NAMES): chosen.choice(VALUES) for _ in range(chosen.randint(0, 3))}
    body |= {"stream": True} if chosen.random() < 0.3 else {}
    body.pop("keep_alive" if path != "/api/generate" else "", None)
    response = httpx2.post(url + path, content=json.dumps(body).encode(), timeout=120)
    told = response.status_code == 200 and '"error":{' in response.text and "/responses" not in path
    return f"{path} {response.status_code} {response.text[-200:]} {body}" if told or _undue(response) else ""


def cut(url: str, chosen: random.Random) -> str:
    """A body that ends before its length, or whose sender does not wait for the answer."""
    data = json.dumps(GOOD).encode()
    _send(url, _head(chosen.choice(PATHS), len(data)) + data[: chosen.choice([5, len(data)])])
    return ""


def leave(url: str, chosen: random.Random) -> str:
    """A stream whose reader leaves after its first line."""
    path = chosen.choice(GENERATING)
    with httpx2.stream("POST", url + path, json=_streamed(path, 300), timeout=120) as response:
        next(response.iter_lines(), None)
        return f"{response.status_code} of a stream" if _undue(response) else ""


def stall(url: str, chosen: random.Random) -> str:
    """A stream that is read slowly."""
    path = chosen.choice(GENERATING)
    with httpx2.stream("POST", url + path, json=_streamed(path, 30), timeout=120) as response:
        for line in response.iter_lines():
            time.sleep(0.002)
            if response.status_code == 200 and '"error":{' in line:
                return line
        return f"{response.status_code} of a slow stream" if _undue(response) else ""


def _streamed(path: str, n_tokens: int) -> dict[str, object]:
    body = GOOD | {"stream": True, **dict.fromkeys(("max_tokens", "n_predict", "max_output_tokens"), n_tokens)}
    return {name: value for name, value in body.items() if name != "prompt" or path != "/v1/responses"}


def garbage(url: str, chosen: random.Random) -> str:
    """Send bytes that are no HTTP, or more of it than is read."""
    _send(
        url, chosen.choice([b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"X: " + b"a" * 100_000, b"\r\n" * 50])
    )
    return ""


def _head(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()


def _send(url: str, data: bytes) -> None:
    host, port = url.removeprefix("http://").split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(data)


def _undue(response: httpx2.Response) -> bool:
    return response.status_code not in DUE
