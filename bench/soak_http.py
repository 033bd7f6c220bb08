"""Hours of `pumice serve` with everything on: models that come and go, engines killed, clients of every kind.

    python bench/soak_http.py [--seconds 7200] [--clients 12] [--kill-every 60] [MODEL]

Copies of MODEL (the demo model by default), one with an adapter, are served with room for fewer, so that they are
loaded and evicted all the time. Clients stream, cancel, read slowly, send nonsense, ask for schemas and tools, in every
protocol; every minute an engine is killed. A line a minute on standard error, JSON at the end. The exit status is 1 if
a text differs from what it is alone, if a request is lost that no killed engine had, if memory or files grew, or if the
first tokens came later in the last quarter than in the second.
"""

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from serve import percentile
from serve_faults import held

from pumice.demo import demo_model_path
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, Writer

NAMES = ("one", "two", "three", "adapted")
LOADED = 3  # models at once, of four
MEMORY = 32 * 2**20  # bytes that the last quarter may have more than the second
LATER = 1.5  # times as late as in the second quarter p99 of the first token may be
GRACE = 20.0  # seconds after a kill in which requests to its model may fail: its streams end, and it loads again
PATIENCE = 300.0
PROMPTS = ["Once upon a time", "The dog said", "Lily and Tom went", "It was a cold day and", "In the garden"]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"type": "integer"}},
          "required": ["name", "n"], "additionalProperties": False}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}


@dataclass
class Tally:
    """What the clients saw."""

    counts: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)  # requests that failed, and no kill explains
    wrong: list[str] = field(default_factory=list)  # texts that are not what they are alone
    firsts: list[tuple[float, float]] = field(default_factory=list)  # when, and seconds to the first token
    kills: list[float] = field(default_factory=list)


class Client:
    """One client: request after request of random kinds, until it is stopped."""

    def __init__(self, url: str, seed: int, known: dict[tuple[str, str], str], tally: Tally) -> None:
        self._random = random.Random(seed)
        self._http = httpx2.Client(base_url=url, timeout=PATIENCE)
        self._known = known
        self._tally = tally
        self._kinds: list[Callable[[str], str]] = [
            self.greedy, self.greedy, self.stream, self.stream, self.cancel, self.slow, self.schema, self.tools,
            self.anthropic, self.ollama, self.responses, self.embed, self.tokenize, self.nonsense,
        ]  # fmt: skip

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            kind = self._random.choice(self._kinds)
            started = time.monotonic()
            try:
                failure = kind(self._random.choice(NAMES))
            except httpx2.HTTPError as error:
                failure = f"{type(error).__name__}: {error}"
            self._tally.counts[kind.__name__] += 1
            if failure:
                ended = time.monotonic()
                expected = any(started - GRACE < kill < ended for kill in self._tally.kills)
                self._tally.counts["failed after a kill" if expected else "lost"] += 1
                if not expected:
                    self._tally.lost.append(f"{kind.__name__}: {failure}"[:300])

    def _post(self, path: str, **body: Any) -> tuple[dict[str, Any], str]:
        response = self._http.post(path, json=body)
        return (response.json(), "") if response.status_code == 200 else ({}, _told(response))

    def _messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self._random.choice(PROMPTS)}]

    def greedy(self, model: str) -> str:
        prompt = self._random.choice(PROMPTS)
        answer, failure = self._post("/v1/completions", model=model, **completion(prompt))
        if not failure and self._known and answer["choices"][0]["text"] != self._known[model, prompt]:
            self._tally.wrong.append(f"{model}: {prompt}: {answer['choices'][0]}"[:300])
        return failure

    def _events(self, model: str, n_tokens: int) -> Iterator[str]:
        """The lines of a stream; the first line of a failure begins with a status."""
        body = {"model": model, "messages": self._messages(), "max_tokens": n_tokens, "stream": True}
        with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                response.read()
                yield _told(response)
                return
            yield from (line for line in response.iter_lines() if line)

    def stream(self, model: str) -> str:
        started, first, last = time.monotonic(), 0.0, ""
        for line in self._events(model, 40):
            first, last = first or time.monotonic(), line
        if last == "data: [DONE]":
            self._tally.firsts.append((first, first - started))
            return ""
        return last

    def cancel(self, model: str) -> str:
        left = self._random.randrange(1, 20)
        for line in self._events(model, 400):
            left -= 1
            if not line.startswith("data: ") or not left:
                return "" if line.startswith("data: ") else line
        return ""

    def slow(self, model: str) -> str:
        last = ""
        for line in self._events(model, 20):
            last = line
            time.sleep(0.05)
        return "" if last == "data: [DONE]" else last

    def schema(self, model: str) -> str:
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}
        answer, failure = self._post(
            "/v1/chat/completions", model=model, messages=self._messages(), max_tokens=120, response_format=form
        )
        if not failure and answer["choices"][0]["finish_reason"] == "stop":
            value = json.loads(answer["choices"][0]["message"]["content"])
            if value.keys() != {"name", "n"}:
                self._tally.wrong.append(f"schema: {value}")
        return failure

    def tools(self, model: str) -> str:
        _, failure = self._post("/v1/chat/completions", model=model, messages=self._messages(), max_tokens=80,
                                tools=[TOOL], tool_choice="auto")  # fmt: skip
        return failure

    def anthropic(self, model: str) -> str:
        return self._post("/v1/messages", model=model, messages=self._messages(), max_tokens=20)[1]

    def ollama(self, model: str) -> str:
        options = {"num_predict": 20}
        return self._post("/api/chat", model=model, messages=self._messages(), stream=False, options=options)[1]

    def responses(self, model: str) -> str:
        return self._post("/v1/responses", model=model, input="Once", max_output_tokens=20, store=True)[1]

    def embed(self, model: str) -> str:
        return self._post("/v1/embeddings", model=model, input=PROMPTS)[1]

    def tokenize(self, model: str) -> str:
        return self._post("/tokenize", model=model, content=" ".join(PROMPTS), with_pieces=True)[1]

    def nonsense(self, model: str) -> str:
        """A request that is refused, and nothing else."""
        values = [-1, "x", [], {"a": [[]]}, 1e300, "\0", [None] * 1000]
        body = {"model": model, "prompt": self._random.choice(values), "max_tokens": self._random.choice(values)}
        response = self._http.post("/v1/completions", json=body)
        return _told(response) if response.status_code >= 500 else ""


def _told(response: httpx2.Response) -> str:
    return f"{response.status_code} {response.text[:200]}"


def completion(prompt: str) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def write_adapter(model: Path, path: Path) -> Path:
    """A LoRA adapter of rank 2 for the queries of a model."""
    rng, tensors = np.random.default_rng(1), {}
    with GGUFFile.open(model) as file:
        architecture = file.metadata["general.architecture"]
        for name, tensor in file.tensors.items():
            if name.endswith("attn_q.weight"):
                rows, columns = tensor.shape
                tensors[f"{name}.lora_a"] = rng.standard_normal((2, columns)).astype(np.float32) * 0.1
                tensors[f"{name}.lora_b"] = rng.standard_normal((rows, 2)).astype(np.float32) * 0.1
    metadata = {"general.architecture": architecture, "general.type": "adapter", "adapter.type": "lora"}
    infos = [TensorInfo(name, GGMLType.F32, array.shape) for name, array in tensors.items()]
    with Writer(path, metadata | {"adapter.lora.alpha": 2.0}, infos) as writer:
        for array in tensors.values():
            writer.write(array)
    return path


@contextlib.contextmanager
def server(folder: Path, model: Path, backend: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`pumice serve` of the copies, and its address."""
    catalogue: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        shutil.copy(model, folder / f"{name}.gguf")
        catalogue[name] = {"model": str(folder / f"{name}.gguf"), "chat_template": "chatml"}
    catalogue["adapted"]["adapters"] = {"own": str(write_adapter(model, folder / "adapter.gguf"))}
    config = folder / "config.yaml"
    config.write_text(json.dumps({"models": catalogue}))
    command = [sys.executable, "-m", "pumice", "serve", "--models-catalogue", "--port", "0", "--backend", backend]
    command += ["-np", "4", "--models-max", str(LOADED), "--max-queue", "1000", "-c", "512", "-t", "1"]
    command += ["--set", "cpu.batch_invariant=true"]  # the adapter's float matrices too: texts are compared
    environment = {**os.environ, "PUMICE_CONFIG": str(config)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder)
    try:
        assert process.stderr
        for line in process.stderr:
            if match := re.match(r"listening on (\S+)", line):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield process, match[1]
                return
        raise SystemExit("error: the server did not start")
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


def descendants(pid: int) -> list[int]:
    """Processes that a process started, and those that they started."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            children += map(int, (task / "children").read_text().split())
    return [*children, *(below for child in children for below in descendants(child))]


def engines(pid: int) -> list[int]:
    """The processes of engines among them."""
    chosen = []
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if b"pumice.process.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                chosen.append(child)
    return chosen


def p99(seconds: list[float]) -> float:
    return percentile(seconds, 99) if seconds else 0.0


def quarter(seen: list[Any], which: int) -> list[Any]:
    return seen[len(seen) * (which - 1) // 4 : len(seen) * which // 4]


def grown(seen: list[dict[str, int]], name: str) -> float:
    """How much more the last quarter had than the second, by their medians."""
    second, last = ([held[name] for held in quarter(seen, which)] for which in (2, 4))
    return statistics.median(last) - statistics.median(second) if second else 0


def soak(url: str, pid: int, given: argparse.Namespace, tally: Tally) -> list[dict[str, int]]:
    """Run the clients, kill engines, and look at the server once a minute."""
    with httpx2.Client(base_url=url, timeout=PATIENCE) as http:
        known = {}
        for name in NAMES:
            for prompt in PROMPTS:
                response = http.post("/v1/completions", json={"model": name, **completion(prompt)})
                if response.status_code != 200:
                    raise SystemExit(f"error: model {name}: {_told(response)}")
                known[name, prompt] = response.json()["choices"][0]["text"]
    stop, seen, started = threading.Event(), [], time.monotonic()
    clients = [
        threading.Thread(
            target=Client(url, seed, known if given.backend == "cpu" else {}, tally).run, args=[stop], daemon=True
        )
        for seed in range(given.clients)
    ]
    for client in clients:
        client.start()
    while time.monotonic() < started + given.seconds:
        time.sleep(min(given.kill_every, given.seconds / 8))
        seen.append(held(pid))
        recent = [seconds for when, seconds in tally.firsts if when > time.monotonic() - given.kill_every]
        now, late = seen[-1], p99(recent)
        state = f"{now['memory'] / 2**20:.1f} MiB, {now['files']} files, {now['threads']} threads"
        print(
            f"{time.monotonic() - started:7.0f} s  {state}, first token p99 {late:.2f} s, {dict(tally.counts)}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        if victims := engines(pid):
            tally.kills.append(time.monotonic())
            os.kill(random.choice(victims), signal.SIGKILL)
    stop.set()
    for client in clients:
        client.join(PATIENCE)
    if any(client.is_alive() for client in clients):
        tally.lost.append("a client still waits for its answer")
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--kill-every", type=float, default=60.0, help="seconds between two kills of an engine")
    parser.add_argument("--backend", default="cpu", help="texts are compared on the backend cpu alone")
    parser.add_argument("model", nargs="?", type=Path, default=demo_model_path())
    given, tally = parser.parse_args(), Tally()
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), given.model, given.backend) as (process, url):
        seen = soak(url, process.pid, given, tally)
    second, last = (p99([s for _, s in quarter(tally.firsts, which)]) for which in (2, 4))
    told = {
        "seconds": given.seconds, "counts": tally.counts, "kills": len(tally.kills),
        "wrong": len(tally.wrong), "lost": len(tally.lost), "examples": [*tally.wrong[:5], *tally.lost[:5]],
        "memory_mib": [round(now["memory"] / 2**20, 1) for now in seen],
        "memory_grown": grown(seen, "memory"), "files_grown": grown(seen, "files"),
        "first_token_p99": {"second quarter": round(second, 3), "last quarter": round(last, 3)},
    }  # fmt: skip
    print(json.dumps(told, indent=1))
    later = last > LATER * max(second, 0.1)
    return int(bool(tally.wrong or tally.lost or later or told["memory_grown"] > MEMORY or told["files_grown"] > 8))


if __name__ == "__main__":
    sys.exit(main())
