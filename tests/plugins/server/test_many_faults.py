"""Many requests at once, with fields of every kind in them, cut or left by the client: no fault of the server."""

import json
import random
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx2

from pumice_server.application import POST
from pumice_server.options import SAMPLING

N_REQUESTS = 150
PATHS = [path for paths in POST.values() for path in paths]
GOOD = {
    "messages": [{"role": "user", "content": "Once"}],
    "prompt": "Once",
    "content": "Once",
    "tokens": [1, 2],
    "max_tokens": 4,
    "n_predict": 4,
    "options": {"num_predict": 4},
}
NAMES = [
    *GOOD,
    *SAMPLING,
    "n",
    "stream",
    "stop",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "n_probs",
    "tools",
    "system",
]
NAMES += ["tool_choice", "response_format", "json_schema", "grammar", "format", "think", "thinking", "raw", "echo"]
NAMES += ["chat_template_kwargs", "reasoning_effort", "reasoning_budget_tokens", "stream_options", "stop_sequences"]
VALUES = [None, True, False, 0, -1, 2, 10**9, 1e308, -0.5, "", "x", "auto", [], {}, [1], ["x"], [[]], [{}], {"a": 1}]
VALUES += [[True], {"type": "json_object"}, {"type": "tool", "name": "x"}, [{"role": "tool"}], "\x00", [{"name": "f"}]]


def ask(url: str, number: int) -> str:
    """What went wrong, if it was the server's fault."""
    chosen = random.Random(number)
    path = chosen.choice(PATHS)
    body = GOOD | {chosen.choice(NAMES): chosen.choice(VALUES) for _ in range(chosen.randint(0, 3))}
    data = json.dumps(body | ({"stream": True} if chosen.random() < 0.3 else {})).encode()
    if chosen.random() < 0.2:
        host, port = url.removeprefix("http://").split(":")
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + data[: chosen.choice([5, len(data)])])
        return ""
    response = httpx2.post(url + path, content=data, timeout=60)
    failed = response.status_code not in (200, 400, 429, 501) or (
        response.status_code == 200 and '"error"' in response.text
    )
    return f"{path} {response.status_code} {response.text[-200:]} {body}" if failed else ""


def test_no_request_is_the_servers_fault(server, wait_until):
    with ThreadPoolExecutor(6) as threads:
        wrong = [each for each in threads.map(lambda number: ask(server.url, number), range(N_REQUESTS)) if each]
    assert wrong == []
    wait_until(lambda: server.model.snapshot().n_running == server.model.snapshot().n_waiting == 0)
    assert server.client.post("/v1/completions", json=GOOD).status_code == 200
