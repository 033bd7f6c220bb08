"""The memory that a request takes is bounded by a multiple of its body."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from pumice_server.limits import MAX_IDS, MAX_SPELT, MAX_VALUES
from waiting import PATIENCE

ROOT = Path(__file__).parents[3]
MIB = 1 << 20
BASE = 48 * MIB  # whatever the body
TIMES = 40  # the body, as JSON
TIMES_TOKENS = 150  # the body, while its text is cut into tokens
TIMES_WORDS = 30  # the same, if it has words
CHAT = "/v1/chat/completions"

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no process tells its memory here")


class Process(NamedTuple):
    pid: int
    client: httpx2.Client

    def growth(self, path: str, body: bytes) -> tuple[int, int]:
        """The status, and the bytes by which the process's memory was larger meanwhile."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # its peak is what it has now
        before = self._bytes("VmRSS")
        status = self.client.post(path, content=body).status_code
        return status, self._bytes("VmHWM") - before

    def _bytes(self, name: str) -> int:
        return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())[1])


@pytest.fixture(scope="module")
def process(tmp_path_factory) -> Iterator[Process]:
    command = [sys.executable, "-m", "pumice", "serve", "--port", "0", "--batches", "--backend", "numpy"]
    caches = {**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("caches"))}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=caches)
    try:
        url = next(found[1] for line in server.stderr if (found := re.match(r"listening on (\S+)", line)))
        with httpx2.Client(base_url=url, timeout=2 * PATIENCE) as client:
            small = {"messages": [{"role": "user", "content": "Once"}], "content": "a", "tokens": [5], "max_tokens": 1}
            for path in (CHAT, "/tokenize", "/detokenize"):  # what is made once
                assert client.post(path, json=small).status_code == 200
            yield Process(server.pid, client)
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def chat(content: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": content}]}, ensure_ascii=False).encode()


def array(value: bytes, last: bytes) -> bytes:
    return b'{"other":[' + (value + b",") * (MAX_VALUES // 2 - 10) + last + b"]}"


def dumped(**fields: object) -> bytes:
    return json.dumps(fields).encode()


LARGE: dict[str, tuple[str, Callable[[], bytes], int, int]] = {
    "lists": (CHAT, lambda: array(b"[]", b"[]"), 400, TIMES),
    "objects": (CHAT, lambda: array(b'{"a":1}', b"{}"), 400, TIMES),
    "more objects": (CHAT, lambda: array(b'{"a":1}', b"{}") * 3, 400, TIMES),
    "a text of wide characters": (CHAT, lambda: chat("word " * 6_000_000 + "\U0001f600"), 400, TIMES),
    "token ids": ("/v1/completions", lambda: dumped(prompt=[1000] * MAX_IDS), 400, TIMES),
    "tokens": ("/detokenize", lambda: dumped(tokens=[1000] * MAX_IDS), 200, TIMES),
    "words": ("/tokenize", lambda: dumped(content="word and " * (MAX_SPELT // 9)), 200, TIMES_WORDS),
    "a text": ("/tokenize", lambda: dumped(content="a" * MAX_SPELT, with_pieces=True), 200, TIMES_TOKENS),
}


@pytest.mark.parametrize("name", LARGE)
def test_memory_of_the_largest_bodies(process, name):
    path, made, expected, times = LARGE[name]
    body = made()
    status, growth = process.growth(path, body)
    assert status == expected
    assert growth < BASE + times * len(body), f"{growth / MIB:.0f} MiB for {len(body) / MIB:.1f}"


def test_the_documentation_tells_the_multiples():
    page = (ROOT / "docs" / "request_limits.md").read_text()
    assert f"{TIMES} times its body" in page
    assert f"{TIMES_TOKENS} bytes per byte of text during tokenization ({TIMES_WORDS} if" in page
    assert f"plus {BASE // MIB} MiB" in page
