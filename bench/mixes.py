"""Send `pumice serve` random mixes of every endpoint, and compare each greedy answer with the one of the request alone.

    python bench/mixes.py [--seconds 7200] [--clients 8] [--seed N] [--kill-every 60] [MODEL]

Two copies of MODEL (the demo model by default) and a model that ranks texts are served on the CPU backend, two of them
loaded at a time, each with a small cache and a short queue. Requests that are known to have one answer are sent alone
first. Then clients send them at random, leave in the middle, unload models, save and restore prompts, and send wrong
requests; with --kill-every an engine is killed at intervals. The exit status is 1 if an answer differs, if a request
fails without a kill, or if the server is not alive or its memory or open files grew. Linux only (/proc).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from serve_process import serving

from pumice.demo import demo_model_path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from gguf_files import byte_tokenizer
from tiny_models import tiny

NAMES = ("one", "two")
RANKS = "ranks"
N_CTX = 512
PATIENCE = 120.0  # seconds for an answer
BUSY = (429, 503)  # statuses that ask the client to come again
CLOSE = 1e-3  # difference of values
TURN = 20.0  # seconds for which most requests are to one model
OTHERS = 0.02  # part of the requests that are to any model
GRACE = 20.0  # seconds after a kill in which requests may fail: streams end, and the model loads again
MEMORY = 32 << 20  # bytes by which the server's process may grow from the second quarter to the last
FILES = 8  # open files, likewise
BEGINNINGS = ("Once upon a time", "The dog said", "Lily and Tom went", "It was a cold day and", "In the garden")
SENTENCE = " The little dog ran to the house and saw a cat."
MOST = 35  # sentences of a text that nearly fills the context
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"]}

Read = Callable[[Any], Any]


class Ask(NamedTuple):
    """A request with one answer: its path, its body, and what of the answer is compared."""

    path: str
    body: dict[str, Any]
    read: Read

    @property
    def key(self) -> str:
        return f"{self.path} {json.dumps(self.body, sort_keys=True)}"


@dataclass
class Tally:
    """What the clients saw."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    killed: float = -GRACE  # time of the last kill of an engine


def completion_of(answer: Any) -> Any:
    choices = answer["choices"]
    return [(one["text"], one["finish_reason"], (one.get("logprobs") or {}).get("token_logprobs")) for one in choices]


def message_of(answer: Any) -> Any:
    return [(one["message"]["content"], one["finish_reason"]) for one in answer["choices"]]


def vectors_of(answer: Any) -> Any:
    return [one["embedding"] for one in answer["data"]]


def _scores(answer: Any) -> Any:
    return sorted((one["index"], one["relevance_score"]) for one in answer["results"])


def _asks(model: str, rng: random.Random) -> list[Ask]:
    """Return requests to a model that generates, one of each kind, with random texts and lengths."""

    def text(n: int) -> str:
        return rng.choice(BEGINNINGS) + SENTENCE * rng.randrange(n + 1)

    def long() -> str:
        return rng.choice(BEGINNINGS) + SENTENCE * rng.randrange(MOST // 2, MOST)

    n = rng.choice([1, 5, 20, 60])
    greedy = {"model": model, "temperature": 0, "max_tokens": n}
    messages = [{"role": "user", "content": text(12)}]
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}
    ollama = {"model": model, "stream": False, "options": {"temperature": 0, "num_predict": n}}
    scored = {"echo": True, "logprobs": 0, "max_tokens": rng.choice([0, 3])}
    return [
        Ask("/v1/completions", {**greedy, "prompt": text(25)}, completion_of),
        Ask("/v1/completions", {**greedy, "prompt": [text(3), text(9)], "n": 2, "ignore_eos": True}, completion_of),
        Ask("/v1/completions", {**greedy, "prompt": long(), **scored}, completion_of),
        Ask("/v1/completions", {**greedy, "prompt": long(), **scored, "max_tokens": 0}, completion_of),
        Ask("/v1/chat/completions", {**greedy, "messages": messages}, message_of),
        Ask("/v1/chat/completions", {**greedy, "messages": messages, "response_format": form}, message_of),
        Ask("/v1/messages", {**greedy, "messages": messages}, lambda answer: answer["content"]),
        Ask("/v1/responses", {"model": model, "temperature": 0, "max_output_tokens": n, "input": text(5)},
            lambda answer: [part["text"] for item in answer["output"] for part in item.get("content", [])]),
        Ask("/api/generate", {**ollama, "prompt": text(8)}, lambda answer: answer["response"]),
        Ask("/api/chat", {**ollama, "messages": messages}, lambda answer: answer["message"]["content"]),
        Ask("/completion", {"model": model, "prompt": text(20), "n_predict": n, "temperature": 0},
            lambda answer: answer["content"]),
        Ask("/v1/embeddings", {"model": model, "input": [long() for _ in range(4)]}, vectors_of),
        Ask("/v1/embeddings", {"model": model, "input": [text(25) for _ in range(rng.choice([1, 4]))]}, vectors_of),
        Ask("/api/embed", {"model": model, "input": text(20)}, lambda answer: answer["embeddings"]),
        Ask("/embedding", {"model": model, "content": text(2)}, lambda answer: answer),
        Ask("/tokenize", {"model": model, "content": text(30)}, lambda answer: answer["tokens"]),
        Ask("/apply-template", {"model": model, "messages": messages}, lambda answer: answer["prompt"]),
    ]  # fmt: skip


def asks(seed: int, n: int) -> list[Ask]:
    """Return the requests of a run: ``n`` draws of one of each kind for each model."""
    rng = random.Random(seed)
    chosen = [ask for _ in range(n) for model in NAMES for ask in _asks(model, rng)]
    for _ in range(2 * n):
        documents = [rng.choice(BEGINNINGS) * rng.randrange(1, 5) for _ in range(rng.randrange(1, 6))]
        chosen.append(Ask("/v1/rerank", {"model": RANKS, "query": "a dog", "documents": documents}, _scores))
        chosen.append(Ask("/v1/embeddings", {"model": RANKS, "input": documents}, vectors_of))
    return chosen


def differs(found: Any, alone: Any) -> bool:
    """Return True if an answer is not the one alone: texts exactly, numbers closely."""
    if isinstance(alone, float):
        return not isinstance(found, (int, float)) or abs(found - alone) > CLOSE * max(1.0, abs(alone))
    if isinstance(alone, dict) and isinstance(found, dict):
        return alone.keys() != found.keys() or any(differs(found[key], alone[key]) for key in alone)
    if isinstance(alone, (list, tuple)) and isinstance(found, (list, tuple)):
        return len(alone) != len(found) or any(map(differs, found, alone))
    return bool(found != alone)


class Client:
    """Sends random requests until it is stopped."""

    def __init__(self, url: str, seed: int, alone: Sequence[tuple[Ask, Any]], tally: Tally) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._alone = alone
        self._tally = tally
        self._http = httpx2.Client(base_url=url, timeout=PATIENCE)

    def run(self, stop: threading.Event) -> None:
        acts = [self.ask] * 40 + [self.stream] * 12 + [self.leave] * 12 + [self.slot, self.wrong, self.look] * 3
        acts += [self.unload]
        while not stop.is_set():
            act, self._started = self._random.choice(acts), time.monotonic()
            try:
                act()
            except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
                self._failed(f"{act.__name__}: {type(error).__name__}: {error}")

    def _choice(self, takes: Callable[[Ask], bool] = lambda ask: True) -> tuple[Ask, Any]:
        """Return a request and its answer: of one model for some seconds, so that its requests meet, or of any."""
        names = [*NAMES, RANKS, *NAMES] if takes is not _streams else NAMES
        name = names[int(time.monotonic() / TURN) % len(names)]
        if self._random.random() < OTHERS:
            name = self._random.choice(names)
        return self._random.choice([pair for pair in self._alone if pair[0].body["model"] == name and takes(pair[0])])

    def ask(self) -> None:
        """Send a request, and compare its answer."""
        ask, alone = self._choice()
        response = self._http.post(ask.path, json=ask.body)
        if self._is_good(response, ask.key) and differs(found := ask.read(response.json()), alone):
            self._fault(f"{ask.key[:300]}\n    {str(found)[:300]}\n    alone {str(alone)[:300]}")

    def stream(self) -> None:
        """Stream a completion or a chat, and compare its text."""
        ask, alone = self._choice(_streams)
        parts: list[str] = []
        with self._http.stream("POST", ask.path, json={**ask.body, "stream": True}) as response:
            if not self._is_good(response, f"stream of {ask.key}"):
                return
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        parts = []
                        self._is_allowed(event["error"].get("code"), f"stream of {ask.key}: {line}")
                        return
                    parts += [one.get("text") or one.get("delta", {}).get("content") or "" for one in event["choices"]]
        if "".join(parts) != (alone[0][0] or ""):
            self._fault(f"stream of {ask.key[:300]}\n    {''.join(parts)!r}\n    alone {alone[0][0]!r}")

    def leave(self) -> None:
        """Send a request, and leave before its answer is there."""
        ask, _ = self._choice()
        body = {**ask.body, "stream": self._random.random() < 0.5} if _streams(ask) else ask.body
        patience = httpx2.Timeout(PATIENCE, read=self._random.choice([0.001, 0.02, 0.2]))
        try:
            with httpx2.Client(base_url=self._url, timeout=patience) as http:
                response = http.post(ask.path, json=body)
            self._is_good(response, ask.key)
        except httpx2.ReadTimeout:
            self._tally.counts["left"] += 1

    def slot(self) -> None:
        """Save, restore or erase a slot."""
        act = self._random.choice(["save", "restore", "erase"])
        body = {"filename": f"slot{self._random.randrange(2)}.bin"}
        model = self._random.choice(NAMES)
        response = self._http.post(f"/slots/{self._random.randrange(2)}?action={act}&model={model}", json=body)
        self._is_good(response, f"slots {act}", also=(400, 404))

    def unload(self) -> None:
        response = self._http.post("/models/unload", json={"model": self._random.choice([*NAMES, RANKS])})
        self._is_good(response, "unload", also=(400, 404, 409))

    def wrong(self) -> None:
        """Send a wrong request, which must be refused."""
        values = [-1, "x", [], {"a": 1}, 1e300, [None], [10**9], "\ud800"]
        name = self._random.choice(["prompt", "max_tokens", "cache_salt", "logprobs", "stop", "temperature", "n"])
        body = {"model": self._random.choice(NAMES), "prompt": "a", "max_tokens": 2}
        body[name] = self._random.choice(values)
        path = self._random.choice(["/v1/completions", "/completion", "/v1/embeddings"])
        content = json.dumps(body).encode()
        response = self._http.post(path, content=content, headers={"Content-Type": "application/json"})
        self._is_good(response, f"{path} {content!r}", also=(400, 413, 422))

    def look(self) -> None:
        path = self._random.choice(["/health", "/v1/models", "/metrics", "/props", "/api/ps", "/api/tags", "/slots"])
        self._is_good(self._http.get(path), path)

    def _is_good(self, response: httpx2.Response, what: str, also: Sequence[int] = ()) -> bool:
        """Return True for an answer with a result; note a status that is not documented."""
        if response.status_code == 200:
            self._tally.counts[what.split()[0]] += 1
            return True
        text = response.read()[:300]
        if response.status_code not in also:
            self._is_allowed(response.status_code, f"{what[:400]}: {response.status_code} {text!r}")
        return False

    def _is_allowed(self, status: object, what: str) -> None:
        """Note a failure, unless it asks the client to come again, and no engine ended by itself."""
        if status in BUSY and "ended by" not in what and "died" not in what:
            self._tally.counts[f"{status}"] += 1
        else:
            self._failed(what)

    def _failed(self, what: str) -> None:
        """Note a request without a result, which is a fault unless an engine was killed."""
        if self._started < self._tally.killed + GRACE:
            self._tally.counts["failed after a kill"] += 1
        else:
            self._fault(what)

    def _fault(self, what: str) -> None:
        self._tally.counts["faults"] += 1
        self._tally.faults.append(what)
        if len(self._tally.faults) <= 20:
            print(f"FAULT {what}", file=sys.stderr, flush=True)


def _streams(ask: Ask) -> bool:
    """Return True for a request whose streamed text is compared."""
    return ask.path in ("/v1/completions", "/v1/chat/completions") and not {"echo", "n"} & ask.body.keys()


def write_ranking(path: Path) -> Path:
    """Write a tiny model that ranks texts and embeds them."""
    model = tiny(
        "qwen3", "attn_norm attn_q attn_k attn_v attn_output attn_q_norm attn_k_norm ffn_norm ffn_gate ffn_up ffn_down",
        "token_embd output_norm output cls.output.weight=2,n", dims={"V": 300}, pooling_type=4,
        classifier__output_labels=["yes", "no"], context_length=N_CTX,
    )  # fmt: skip
    tokenizer = {f"/{key}": value for key, value in byte_tokenizer(300).items()}
    return replace(model, metadata=model.metadata | tokenizer).write(path)


def server(folder: Path, model: Path) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """Run the server, and yield it with its address."""
    catalogue: dict[str, dict[str, Any]] = {RANKS: {"model": str(write_ranking(folder / "ranks.gguf"))}}
    for name in NAMES:
        shutil.copy(model, folder / f"{name}.gguf")
        catalogue[name] = {"model": str(folder / f"{name}.gguf"), "chat_template": "chatml"}
    config = folder / "config.yaml"
    config.write_text(json.dumps({"models": catalogue}))
    (folder / "slots").mkdir()
    arguments = ["--models-catalogue", "--backend", "cpu", "--models-max", "2", "-c", str(N_CTX), "-b", "64"]
    arguments += ["-np", "2", "--max-queue", "6", "-t", "1", "--slot-save-path", str(folder / "slots")]
    # Texts are compared, so a row must not depend on those beside it.
    arguments += ["--set", "cpu.batch_invariant=true"]
    return serving(arguments, {**os.environ, "PUMICE_CONFIG": str(config)}, folder)


def alone(url: str, chosen: Sequence[Ask]) -> list[tuple[Ask, Any]]:
    """Return each request with its answer, sent one after the other."""
    answers = []
    with httpx2.Client(base_url=url, timeout=PATIENCE) as http:
        for ask in chosen:
            response = http.post(ask.path, json=ask.body)
            if response.status_code != 200:
                raise SystemExit(f"error: {ask.key[:300]}: {response.status_code} {response.text[:300]}")
            answers.append((ask, ask.read(response.json())))
    return answers


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            children += map(int, (task / "children").read_text().split())
    return [*children, *(below for child in children for below in descendants(child))]


def kill_engine(pid: int, tally: Tally) -> None:
    """Kill one of a server's engines, if it has any."""
    engines = []
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if re.search(rb"pumice\.process\.(worker|prepared)", Path(f"/proc/{child}/cmdline").read_bytes()):
                engines.append(child)
    if engines:
        tally.killed = time.monotonic()
        tally.counts["kills"] += 1
        os.kill(random.choice(engines), signal.SIGKILL)


def held(pid: int) -> tuple[int, int]:
    """Return the bytes of memory and the open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    memory = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024
    return memory, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def growth(samples: Sequence[tuple[int, int]]) -> list[float]:
    """Return by how much the medians of memory and files of the last quarter exceed those of the second."""
    quarter = len(samples) // 4
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    return [
        statistics.median(late) - statistics.median(early)
        for early, late in zip(zip(*second, strict=True), zip(*last, strict=True), strict=True)
    ]


def mix(
    url: str, pid: int, arguments: argparse.Namespace, answers: Sequence[tuple[Ask, Any]]
) -> tuple[Tally, list[tuple[int, int]]]:
    """Let clients send the requests for a while; return what they saw, and what the server held meanwhile."""
    tally, stop = Tally(), threading.Event()
    seeds = range(arguments.seed, arguments.seed + arguments.clients)
    clients = [Client(url, seed, answers, tally) for seed in seeds]
    threads = [threading.Thread(target=client.run, args=[stop], daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    samples: list[tuple[int, int]] = []
    started = time.monotonic()
    kills = started + (arguments.kill_every or arguments.seconds)
    while (now := time.monotonic()) < started + arguments.seconds:
        time.sleep(min(30.0, arguments.seconds / 16))
        if now > kills:
            kill_engine(pid, tally)
            kills = now + arguments.kill_every
        samples.append(held(pid))
        memory, files = samples[-1]
        state = f"{memory >> 20} MiB, {files} files, {dict(tally.counts)}"
        print(f"{now - started:7.0f} s  {state}", file=sys.stderr, flush=True)
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    if any(thread.is_alive() for thread in threads):
        tally.faults.append(f"a client got no answer in {PATIENCE:.0f} s")
    return tally, samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--kill-every", type=float, default=0.0, help="interval of kills in seconds; 0 kills none")
    parser.add_argument("--draws", type=int, default=3, help="different requests of each kind")
    parser.add_argument("model", nargs="?", type=Path, default=demo_model_path())
    arguments = parser.parse_args()
    chosen = asks(arguments.seed, arguments.draws)
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), arguments.model) as (process, url):
        tally, samples = mix(url, process.pid, arguments, alone(url, chosen))
        if process.poll() is not None:
            tally.faults.append(f"the server ended with {process.returncode}")
        elif httpx2.get(f"{url}/health", timeout=PATIENCE).status_code != 200:
            tally.faults.append("the server is not healthy at the end")
    memory, files = growth(samples)
    if memory > MEMORY or files > FILES:
        tally.faults.append(f"the server grew by {memory / 2**20:.1f} MiB and {files:.0f} open files")
    report = {"seed": arguments.seed, "counts": tally.counts, "faults": tally.faults[:20]}
    print(json.dumps({**report, "grown": [memory, files]}, indent=1))
    return int(bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
