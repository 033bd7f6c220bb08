"""Run `pumice serve` for hours with all features: models that load and unload, killed engines, clients of every kind.

    python bench/soak_http.py [--seconds 7200] [--clients 12] [--kill-every 60] [MODEL]

Copies of MODEL (the demo model by default), one with an adapter and one that speculates, exceed the number of loaded
models, so that they are loaded and evicted continuously. Clients stream, cancel, read slowly, leave in the middle of a
body, send invalid requests, use adapters, grammars, schemas and tools, in every protocol; every minute an engine is
killed. Writes a line per minute to standard error, and JSON at the end. The
exit status is 1 if a text differs from the same request alone, if a request fails without a killed engine, if memory or
open files grew, or if first tokens were later in the last quarter than in the second.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
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

NAMES = ("one", "two", "speculating", "adapted")
LOADED = 3  # loaded models at once, of four
MEMORY = 32 * 2**20  # allowed growth in bytes from the second to the last quarter
LATER = 1.5  # allowed factor of the p99 time to the first token, relative to the second quarter
GRACE = 20.0  # seconds after a kill in which requests to the model may fail: its streams end, and it reloads
PATIENCE = 300.0
PROMPTS = ["Once upon a time", "The dog said", "Lily and Tom went", "It was a cold day and", "In the garden"]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"type": "integer"}},
          "required": ["name", "n"], "additionalProperties": False}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}


@dataclass
class Tally:
    """The clients' observations."""

    counts: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)  # requests that failed without a kill
    wrong: list[str] = field(default_factory=list)  # texts that differ from the same request alone
    firsts: list[tuple[float, float]] = field(default_factory=list)  # time, seconds to the first token
    kills: list[float] = field(default_factory=list)


class Client:
    """A client that sends random requests until it is stopped."""

    def __init__(self, url: str, seed: int, expected_texts: dict[tuple[str, str], str], tally: Tally) -> None:
        self._random = random.Random(seed)
        self._http = httpx2.Client(base_url=url, timeout=PATIENCE)
        self._known = expected_texts
        self._tally = tally
        self._kinds: list[Callable[[str], str]] = [
            self.greedy, self.greedy, self.stream, self.stream, self.cancel, self.slow, self.schema, self.tools,
            self.anthropic, self.ollama, self.responses, self.embed, self.tokenize, self.nonsense, self.grammar,
            self.adapter, self.repeat, self.metrics, self.leave,
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
        """Yield the lines of a stream; the first line of a failure starts with a status."""
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

    def grammar(self, model: str) -> str:
        body = {"prompt": "Yes", "max_tokens": 20, "grammar": 'root ::= ("yes" | "no")'}
        answer, failure = self._post("/v1/completions", model=model, **body)
        if not failure and answer["choices"][0]["text"] not in ("yes", "no"):
            self._tally.wrong.append(f"grammar: {answer['choices'][0]}"[:300])
        return failure

    def adapter(self, _: str) -> str:
        """Set the scale of the adapter for one request, beside requests with other scales."""
        lora = [{"id": 0, "scale": self._random.choice([0, 0.5, 2])}]
        return self._post("/completion", model="adapted", prompt="Once", n_predict=20, lora=lora)[1]

    def repeat(self, _: str) -> str:
        """Send a text that repeats, so that drafts are proposed."""
        prompt = "The dog ran. The cat ran. " * 4
        return self._post("/v1/completions", model="speculating", prompt=prompt, max_tokens=40, temperature=0)[1]

    def metrics(self, _: str) -> str:
        response = self._http.get("/metrics")
        return "" if response.status_code == 200 else _told(response)

    def leave(self, model: str) -> str:
        """Send the beginning of a body, and close the connection."""
        with socket.create_connection((self._http.base_url.host, self._http.base_url.port or 80)) as connection:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n{model}"
            connection.sendall(head.encode())
        return ""

    def nonsense(self, model: str) -> str:
        """Send an invalid request that must be refused."""
        values = [-1, "x", [], {"a": [[]]}, 1e300, "\0", [None] * 1000]
        body = {"model": model, "prompt": self._random.choice(values), "max_tokens": self._random.choice(values)}
        response = self._http.post("/v1/completions", json=body)
        return _told(response) if response.status_code >= 500 else ""


def _told(response: httpx2.Response) -> str:
    return f"{response.status_code} {response.text[:200]}"


def completion(prompt: str) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def write_adapter(model: Path, path: Path) -> Path:
    """Write a LoRA adapter of rank 2 for the queries of a model."""
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
    """Run `pumice serve` with the copies, and yield it with its address."""
    catalogue: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        shutil.copy(model, folder / f"{name}.gguf")
        catalogue[name] = {"model": str(folder / f"{name}.gguf"), "chat_template": "chatml"}
    catalogue["speculating"] |= {"speculate": "ngram", "n_draft": 4}
    catalogue["adapted"]["adapters"] = {"own": str(write_adapter(model, folder / "adapter.gguf"))}
    config = folder / "config.yaml"
    config.write_text(json.dumps({"models": catalogue}))
    command = [sys.executable, "-m", "pumice", "serve", "--models-catalogue", "--port", "0", "--backend", backend]
    command += ["-np", "4", "--models-max", str(LOADED), "--max-queue", "1000", "-c", "512", "-t", "1"]
    # Texts are compared, also those through the adapter's float matrices.
    command += ["--set", "cpu.batch_invariant=true"]
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
    """Return the descendants of a process."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            children += map(int, (task / "children").read_text().split())
    return [*children, *(below for child in children for below in descendants(child))]


def engines(pid: int) -> list[int]:
    """Return the engine processes among the server's descendants."""
    chosen = []
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if b"pumice.process.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                chosen.append(child)
    return chosen


def p99(seconds: list[float]) -> float:
    return percentile(seconds, 99) if seconds else 0.0


def quarter(samples: list[Any], which: int) -> list[Any]:
    return samples[len(samples) * (which - 1) // 4 : len(samples) * which // 4]


def grown(samples: list[dict[str, int]], name: str) -> float:
    """Return the growth of a median from the second to the last quarter."""
    second, last = ([held[name] for held in quarter(samples, which)] for which in (2, 4))
    return statistics.median(last) - statistics.median(second) if second else 0


def soak(url: str, pid: int, arguments: argparse.Namespace, tally: Tally) -> list[dict[str, int]]:
    """Run the clients, kill engines, and sample the server once a minute."""
    with httpx2.Client(base_url=url, timeout=PATIENCE) as http:
        expected_texts = {}
        for name in NAMES:
            for prompt in PROMPTS:
                response = http.post("/v1/completions", json={"model": name, **completion(prompt)})
                if response.status_code != 200:
                    raise SystemExit(f"error: model {name}: {_told(response)}")
                expected_texts[name, prompt] = response.json()["choices"][0]["text"]
    stop, samples, started = threading.Event(), [], time.monotonic()
    clients = [
        threading.Thread(
            target=Client(url, seed, expected_texts if arguments.backend == "cpu" else {}, tally).run,
            args=[stop],
            daemon=True,
        )
        for seed in range(arguments.clients)
    ]
    for client in clients:
        client.start()
    while time.monotonic() < started + arguments.seconds:
        time.sleep(min(arguments.kill_every, arguments.seconds / 8))
        samples.append(held(pid))
        recent = [seconds for when, seconds in tally.firsts if when > time.monotonic() - arguments.kill_every]
        now, late = samples[-1], p99(recent)
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
        tally.lost.append("a client did not get its answer")
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--kill-every", type=float, default=60.0, help="interval of kills in seconds")
    parser.add_argument("--backend", default="cpu", help="backend (texts are compared only on cpu)")
    parser.add_argument("model", nargs="?", type=Path, default=demo_model_path())
    arguments, tally = parser.parse_args(), Tally()
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder), arguments.model, arguments.backend) as (process, url),
    ):
        samples = soak(url, process.pid, arguments, tally)
    second, last = (p99([s for _, s in quarter(tally.firsts, which)]) for which in (2, 4))
    report = {
        "seconds": arguments.seconds, "counts": tally.counts, "kills": len(tally.kills),
        "wrong": len(tally.wrong), "lost": len(tally.lost), "examples": [*tally.wrong[:5], *tally.lost[:5]],
        "memory_mib": [round(now["memory"] / 2**20, 1) for now in samples],
        "memory_grown": grown(samples, "memory"), "files_grown": grown(samples, "files"),
        "first_token_p99": {"second quarter": round(second, 3), "last quarter": round(last, 3)},
    }  # fmt: skip
    print(json.dumps(report, indent=1))
    later = last > LATER * max(second, 0.1)
    return int(bool(tally.wrong or tally.lost or later or report["memory_grown"] > MEMORY or report["files_grown"] > 8))


if __name__ == "__main__":
    sys.exit(main())
