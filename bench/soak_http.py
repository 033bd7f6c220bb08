"""Run `pumice serve` for hours with all features: models that load and unload, killed engines, clients of every kind.

    python bench/soak_http.py [--seconds 7200] [--clients 12] [--pause 0] [--kill-every 60] [--loaded 3] [MODEL]

Copies of MODEL (the demo model by default), one with an adapter, one that speculates and one whose prompts go to host
memory and disk, and a tiny model that sees, exceed the number of loaded models, so that they are loaded and evicted
continuously. Clients stream, cancel, read slowly, leave in the middle of a body, send invalid requests and bodies that
are too large, use adapters, grammars, schemas, tools and images, in every protocol; every minute an engine is
killed. Writes a line per minute to standard error, and JSON at the end. The
exit status is 1 if a text differs from the same request alone, if a request fails without a killed engine, if memory or
open files grew, or if first tokens were later in the last quarter than in the second.
"""

import argparse
import base64
import contextlib
import json
import os
import random
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from serve import percentile
from serve_faults import held
from serve_process import serving

from pumice.demo import demo_model_path
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, Writer
from pumice_server.limits import MAX_BODY

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from gguf_files import tiny_llama
from vision_files import encoded, picture, write_projector

NAMES = ("one", "two", "speculating", "adapted", "tiered")
SEEING = "seeing"
TIER = {"cache_ram": 4, "cache_disk_limit": 0.05}  # MiB and GiB: prompts move on, and the oldest files go
BEGINNINGS = 40  # of long prompts, more than the cache of a model holds
KINDS = (
    *("greedy", "greedy", "stream", "stream", "cancel", "slow", "schema", "tools", "grammar", "adapter", "repeat"),
    *("anthropic", "ollama", "responses", "follow", "rename", "embed", "tokenize", "metrics"),
    *("long", "long", "see_openai", "see_anthropic", "see_ollama", "see_responses"),
    *("nonsense", "leave", "too_large"),
)
"""Methods of ``Client``."""
SENT = 1 << 20  # bytes of a body that is too large
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
    printed: set[str] = field(default_factory=set)  # problems that were printed
    texts: dict[str, str] = field(default_factory=dict)  # first answers to requests that have one answer

    def compare(self, request: str, text: str) -> None:
        """Note a text that differs from the first answer to the same request."""
        if text != self.texts.setdefault(request, text):
            self.wrong.append(f"{request}: {text!r} instead of {self.texts[request]!r}"[:300])


@dataclass(frozen=True)
class Plan:
    """Requests of the clients, their rate, and interventions at the server.

    Attributes:
        models: names of the models that most requests choose from.
        kinds: methods of ``Client``, chosen with equal probability.
        pause: mean seconds between two requests of a client.
        grace: seconds after a harm in which requests may fail.
        harm: ends a process; returns False if there was none.
    """

    models: Sequence[str]
    kinds: Sequence[str]
    pause: float
    grace: float
    harm: Callable[[], bool]


class Client:
    """A client that sends random requests until it is stopped."""

    def __init__(self, url: str, seed: int, texts: dict[tuple[str, str], str], tally: Tally, plan: Plan) -> None:
        """Prepare a client.

        Args:
            url: Address of the server.
            seed: Seed of its choices.
            texts: Expected texts by model and prompt; empty if they are not compared.
            tally: Observations of all clients.
            plan: What to send, and when.
        """
        self._random = random.Random(seed)
        self._plan = plan
        self._http = httpx2.Client(base_url=url, timeout=PATIENCE)
        self._known = texts
        self._tally = tally

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._plan.pause * self._random.random() * 2):
            kind: Callable[[str], str] = getattr(self, self._random.choice(self._plan.kinds))
            started = time.monotonic()
            try:
                failure = kind(self._random.choice(self._plan.models))
            except httpx2.HTTPError as error:
                failure = f"{type(error).__name__}: {error}"
            self._tally.counts[kind.__name__] += 1
            if failure:
                ended = time.monotonic()
                expected = any(started - self._plan.grace < kill < ended for kill in self._tally.kills)
                self._tally.counts["failed after a kill" if expected else "lost"] += 1
                if not expected:
                    self._tally.lost.append(f"{kind.__name__}: {failure}"[:300])

    @property
    def _address(self) -> tuple[str, int]:
        return self._http.base_url.host, self._http.base_url.port or 80

    def _post(self, path: str, **body: Any) -> tuple[dict[str, Any], str]:
        response = self._http.post(path, json=body)
        return (response.json(), "") if response.status_code == 200 else ({}, _error_line(response))

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
                yield _error_line(response)
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

    def long(self, _: str) -> str:
        """Send one of many long prompts, which move to host memory and disk, and come back."""
        number = self._random.randrange(BEGINNINGS)
        prompt = f"{number} times {PROMPTS[number % len(PROMPTS)]}, and so it went. " * 9
        answer, failure = self._post("/v1/completions", model="tiered", **completion(prompt))
        if not failure and self._known:
            self._tally.compare(f"long {number}", answer["choices"][0]["text"])
        return failure

    def _image(self) -> tuple[int, str]:
        """Return the number of one of the pictures, and its PNG in Base64."""
        number = self._random.randrange(8)
        return number, base64.b64encode(encoded(picture(40 + number, 30))).decode()

    def _seen(self, number: int, text: str) -> None:
        if self._known:
            self._tally.compare(f"picture {number}", text)

    def see_openai(self, _: str) -> str:
        number, image = self._image()
        content = [{"type": "text", "text": "What?"},
                   {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}]  # fmt: skip
        answer, failure = self._post("/v1/chat/completions", model=SEEING, max_tokens=6, temperature=0,
                                     messages=[{"role": "user", "content": content}])  # fmt: skip
        if not failure:
            self._seen(number, answer["choices"][0]["message"]["content"])
        return failure

    def see_anthropic(self, _: str) -> str:
        number, image = self._image()
        source = {"type": "base64", "media_type": "image/png", "data": image}
        content = [{"type": "text", "text": "What?"}, {"type": "image", "source": source}]
        answer, failure = self._post("/v1/messages", model=SEEING, max_tokens=6, temperature=0,
                                     messages=[{"role": "user", "content": content}])  # fmt: skip
        if not failure:
            self._seen(number, "".join(part.get("text", "") for part in answer["content"]))
        return failure

    def see_ollama(self, _: str) -> str:
        """Ollama's images come before the text, so the answer is another one than in the other protocols."""
        message = {"role": "user", "content": "What?", "images": [self._image()[1]]}
        options = {"num_predict": 6, "temperature": 0}
        return self._post("/api/chat", model=SEEING, messages=[message], stream=False, options=options)[1]

    def see_responses(self, _: str) -> str:
        number, image = self._image()
        content = [{"type": "input_text", "text": "What?"},
                   {"type": "input_image", "image_url": f"data:image/png;base64,{image}"}]  # fmt: skip
        answer, failure = self._post("/v1/responses", model=SEEING, max_output_tokens=6, temperature=0,
                                     input=[{"role": "user", "content": content}])  # fmt: skip
        if not failure:
            texts = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
            self._seen(number, "".join(texts))
        return failure

    def follow(self, model: str) -> str:
        """Send a response that follows another one, then delete the first."""
        first, failure = self._post("/v1/responses", model=model, input="Once", max_output_tokens=8)
        if failure:
            return failure
        id = first["id"]
        failure = self._post("/v1/responses", model=model, input="More", max_output_tokens=8, previous_response_id=id)[
            1
        ]
        response = self._http.delete(f"/v1/responses/{id}")
        return failure or ("" if response.status_code == 200 else _error_line(response))

    def rename(self, model: str) -> str:
        """Make a variant of a model with Ollama's protocol, use it, and delete it."""
        name = f"variant-{self._random.randrange(10**9)}"
        response = self._http.post("/api/create", json={"model": name, "from": model, "system": "S", "stream": False})
        if response.status_code != 200:
            return _error_line(response)
        options = {"num_predict": 4}
        failure = self._post("/api/generate", model=name, prompt="Once", stream=False, options=options)[1]
        response = self._http.request("DELETE", "/api/delete", json={"model": name})
        return failure or ("" if response.status_code == 200 else _error_line(response))

    def too_large(self, _: str) -> str:
        """Announce a body above the limit, send a part of it, and read the error, without and with keep-alive."""
        keeps = self._random.choice(["close", "keep-alive"])
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2 * MAX_BODY}\r\n"
        head += f"Connection: {keeps}\r\n\r\n"
        with socket.create_connection(self._address, timeout=PATIENCE) as connection:
            try:
                connection.sendall(head.encode() + b" " * SENT)
                line = connection.makefile("rb").readline()
            except OSError as error:
                return f"{keeps}: {error}"
        return "" if b" 413 " in line else f"{keeps}: {line!r}"

    def metrics(self, _: str) -> str:
        response = self._http.get("/metrics")
        return "" if response.status_code == 200 else _error_line(response)

    def leave(self, model: str) -> str:
        """Send the beginning of a body, and close the connection."""
        with socket.create_connection(self._address) as connection:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n{model}"
            connection.sendall(head.encode())
        return ""

    def nonsense(self, model: str) -> str:
        """Send an invalid request that must be refused."""
        values = [-1, "x", [], {"a": [[]]}, 1e300, "\0", [None] * 1000]
        body = {"model": model, "prompt": self._random.choice(values), "max_tokens": self._random.choice(values)}
        response = self._http.post("/v1/completions", json=body)
        return _error_line(response) if response.status_code >= 500 else ""


def _error_line(response: httpx2.Response) -> str:
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


def server(
    folder: Path, model: Path, backend: str, n_loaded: int
) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """Run `pumice serve` with the copies, and yield it with its address."""
    catalogue: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        shutil.copy(model, folder / f"{name}.gguf")
        catalogue[name] = {"model": str(folder / f"{name}.gguf"), "chat_template": "chatml"}
    catalogue["speculating"] |= {"speculate": "ngram", "n_draft": 4}
    catalogue["adapted"]["adapters"] = {"own": str(write_adapter(model, folder / "adapter.gguf"))}
    catalogue["tiered"] |= {**TIER, "cache_disk": str(folder / "prompts")}
    (folder / "eyes").mkdir()
    write_projector(folder / "eyes" / "mmproj.gguf", "mlp")
    catalogue[SEEING] = {"model": str(tiny_llama(folder / "eyes" / "tiny.gguf")), "chat_template": "chatml"}
    config = folder / "config.yaml"
    config.write_text(json.dumps({"models": catalogue}))
    arguments = ["--models-catalogue", "--backend", backend, "-np", "4", "--models-max", str(n_loaded)]
    arguments += ["--max-queue", "1000", "-c", "512", "-t", "1"]
    # Texts are compared, also those through the adapter's float matrices.
    arguments += ["--set", "cpu.batch_invariant=true"]
    environment = {**os.environ, "PUMICE_CONFIG": str(config)}
    return serving(arguments, environment, folder)


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
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"pumice.process.worker" in command or b"pumice.process.prepared" in command:
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


def soak(url: str, pid: int, arguments: argparse.Namespace, tally: Tally, plan: Plan) -> list[dict[str, int]]:
    """Run the clients, harm the server, and sample it each time."""
    expected_texts = expected(url, plan.models)
    stop, samples, started = threading.Event(), [], time.monotonic()
    texts = expected_texts if arguments.backend == "cpu" else {}
    clients = [
        threading.Thread(target=Client(url, seed, texts, tally, plan).run, args=[stop], daemon=True)
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
        for problem in {*tally.wrong, *tally.lost} - tally.printed:
            tally.printed.add(problem)
            print(f"          {problem}", file=sys.stderr, flush=True)
        began = time.monotonic()
        tally.kills.append(began)  # before the harm: requests may fail while it lasts
        if not plan.harm():
            tally.kills.remove(began)
    stop.set()
    for client in clients:
        client.join(PATIENCE)
    if any(client.is_alive() for client in clients):
        tally.lost.append("a client did not get its answer")
    return samples


def expected(url: str, models: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the text of each prompt with each model, asked for alone."""
    texts = {}
    with httpx2.Client(base_url=url, timeout=PATIENCE) as http:
        for name in models:
            for prompt in PROMPTS:
                response = http.post("/v1/completions", json={"model": name, **completion(prompt)})
                if response.status_code != 200:
                    raise SystemExit(f"error: model {name}: {_error_line(response)}")
                texts[name, prompt] = response.json()["choices"][0]["text"]
    return texts


def kill_engine(pid: int) -> bool:
    """Kill one of a server's engines, if it has any."""
    victims = engines(pid)
    if victims:
        os.kill(random.choice(victims), signal.SIGKILL)
    return bool(victims)


def report(arguments: argparse.Namespace, tally: Tally, samples: list[dict[str, int]]) -> int:
    """Print the results as JSON, and return the exit status."""
    late = [p99([s for _, s in quarter(tally.firsts, which)]) for which in (1, 2, 3, 4)]
    summary = {
        "seconds": arguments.seconds, "counts": tally.counts, "kills": len(tally.kills),
        "wrong": len(tally.wrong), "lost": len(tally.lost), "examples": [*tally.wrong[:5], *tally.lost[:5]],
        "memory_mib": [round(now["memory"] / 2**20, 1) for now in samples],
        "memory_grown": grown(samples, "memory"), "files_grown": grown(samples, "files"),
        "first_token_p99_of_quarters": [round(seconds, 3) for seconds in late],
    }  # fmt: skip
    print(json.dumps(summary, indent=1))
    later = late[3] > LATER * max(late[1], 0.1)
    return int(
        bool(tally.wrong or tally.lost or later or summary["memory_grown"] > MEMORY or summary["files_grown"] > 8)
    )


def options(description: str, clients: int, kill_every: float) -> argparse.ArgumentParser:
    """Return a parser of the options that all soak tests through HTTP have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--clients", type=int, default=clients)
    parser.add_argument("--pause", type=float, default=0.0, help="mean seconds between two requests of a client")
    parser.add_argument("--kill-every", type=float, default=kill_every, help="interval of kills in seconds")
    parser.add_argument("model", nargs="?", type=Path, default=demo_model_path())
    return parser


def main() -> int:
    parser = options(__doc__.splitlines()[0], 12, 60.0)
    parser.add_argument("--backend", default="cpu", help="backend (texts are compared only on cpu)")
    parser.add_argument("--loaded", type=int, default=3, help="models that are loaded at once, of six")
    arguments, tally = parser.parse_args(), Tally()
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder), arguments.model, arguments.backend, arguments.loaded) as (process, url),
    ):
        plan = Plan(NAMES, KINDS, arguments.pause, GRACE, lambda: kill_engine(process.pid))
        samples = soak(url, process.pid, arguments, tally, plan)
    return report(arguments, tally, samples)


if __name__ == "__main__":
    sys.exit(main())
