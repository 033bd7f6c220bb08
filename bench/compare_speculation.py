"""Speculative decoding of Pumice and of llama.cpp on the same files: processor time without drafts relative to with.

The target is the demo model with further layers that add nothing, and some noise: its texts are like those of the demo
model, which drafts for it, and a step takes a multiple of the demo model's. Both engines write greedily what the model
says next; llama-server's answers show that its texts are as long. Runs without drafts and with take turns.

    python bench/compare_speculation.py path/to/llama-server --repetitions 5
    python bench/compare_speculation.py path/to/llama-server --head demo-eagle3.gguf --kinds head

``--write-target`` writes that target, for the training of a head; ``--target`` takes another one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pumice
from pumice.gguf import GGMLType, GGUFFile, TensorInfo
from pumice.gguf.copy import encoded_metadata
from pumice.gguf.writer import Writer
from pumice.quantize import quantize

INERT = ("attn_output.weight", "ffn_down.weight")  # of zeros in a layer that adds nothing
STORY = "Once upon a time, there was a little girl named {}. She lived by the river."
BEGINNINGS = [STORY, "{} was an old fisherman", "One morning, {}", "In the forest {} saw"]
TOPICS = ["a cat", "a duck", "a boat", "the moon"]
NAMES = [
    "Lily",
    "Ben",
    "Zoe",
    "Tim",
    "Anna",
    "Tom",
    "Mia",
    "Sam",
    "Nora",
    "Max",
    "Ella",
    "Leo",
    "Ruby",
    "Finn",
    "Ivy",
    "Jack",
]
CODE = """class {0}:
    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, path: str) -> str:
"""
RECORDS = (
    '[{{"name": "{0}", "age": 7, "likes": "the moon"}}, {{"name": "{1}", "age": 9, "likes": "a boat"}}, {{"name": "'
)
CASES = ("prose", "chat", "code", "json", "repetition")
LLAMA_NGRAMS = ["ngram-simple", "ngram-mod", "ngram-map-k"]
KINDS = ("n-grams", "draft model", "head")


def prompts_of(case: str, turn: int) -> list[str]:
    """Return the prompts of a case, others in each turn, so that no engine has seen its answers before."""
    names = [NAMES[(4 * turn + i) % len(NAMES)] for i in range(4)]
    if case == "prose":
        return [text.format(name) for text, name in zip(BEGINNINGS, names, strict=True)]
    if case == "chat":
        stories = [f"Tell me a story about {name}.\n{STORY.format(name)}\n" for name in names]
        return [story + f"Tell me a story about {topic}.\n" for story, topic in zip(stories, TOPICS, strict=True)]
    if case == "code":
        return [CODE.format(name) for name in names]
    if case == "json":
        return [RECORDS.format(first, second) for first, second in zip(names, reversed(names), strict=True)]
    return [" ".join([text.format(name)] * 6) for text, name in zip(BEGINNINGS[:2], names, strict=False)]


class Used(NamedTuple):
    """Processor seconds of requests, and their numbers of generated, drafted and accepted tokens."""

    seconds: float
    n_tokens: int
    n_drafted: int
    n_accepted: int


def write_target(path: Path, n_layer: int, noise: float) -> None:
    """Write the demo model in Q8_0 with ``n_layer`` layers, or its own alone, which have relative ``noise``."""
    random = np.random.default_rng(0)
    with GGUFFile.open(pumice.demo_model_path()) as file:
        metadata: dict[str, Any] = encoded_metadata(file.metadata)
        n_own = int(file.metadata["llama.block_count"])
        metadata["llama.block_count"] = n_layer = max(n_layer, n_own)
        arrays: dict[str, np.ndarray] = {}
        for name, tensor in file.tensors.items():
            array = np.asarray(tensor.dequantize(), np.float32)
            noisy = array.ndim == 2 and name.startswith("blk.")
            arrays[name] = array * (1 + noise * random.standard_normal(array.shape)) if noisy else array
        for layer in range(n_own, n_layer):
            for name in [name for name in arrays if name.startswith("blk.0.")]:
                zero = name.endswith(INERT)
                arrays[name.replace("blk.0.", f"blk.{layer}.")] = arrays[name] * (0.0 if zero else 1.0)
    wide = path.with_suffix(".f32.gguf")
    infos = [TensorInfo(name, GGMLType.F32, array.shape) for name, array in arrays.items()]
    with Writer(wide, metadata, infos) as writer:
        for array in arrays.values():
            writer.write(array.astype(np.float32))
    quantize(wide, path, "Q8_0")
    wide.unlink()


@dataclass
class LlamaServer:
    """A running llama-server."""

    process: subprocess.Popen[bytes]
    port: int

    def run(self, prompts: Sequence[str], n: int) -> Used:
        """Continue the prompts one after the other."""
        before, totals = self._seconds(), [0, 0, 0]
        for prompt in prompts:
            timings = self._complete(prompt, n)["timings"]
            for i, name in enumerate(("predicted_n", "draft_n", "draft_n_accepted")):
                totals[i] += timings.get(name, 0)
        return Used(self._seconds() - before, *totals)

    def _complete(self, prompt: str, n: int) -> dict[str, Any]:
        body = {"prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
        url = f"http://127.0.0.1:{self.port}/completion"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            completion: dict[str, Any] = json.load(answer)
            return completion

    def _seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def llama_server(program: str, arguments: Sequence[str]) -> Iterator[LlamaServer]:
    """Start llama-server, and stop it at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--port", str(port), "-np", "1", "-t", "1", "-tb", "1", "-c", "2048", "--no-webui", *arguments]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                    break
                except OSError:
                    if process.poll() is not None:
                        log.seek(0)
                        raise SystemExit(log.read().decode()[-2000:]) from None
                    time.sleep(0.2)
            yield LlamaServer(process, port)
        finally:
            process.terminate()


def run_pumice(model: pumice.Model, prompts: Sequence[str], n: int, choice: str) -> Used:
    """Continue the prompts one after the other, as ``LlamaServer.run``."""
    began = time.process_time()
    options: dict[str, Any] = {"max_tokens": n, "temperature": 0, "ignore_eos": True, "speculate": choice}
    options["cache_salt"] = choice  # each reads the prompt
    answers = [model.generate(prompt, **options).timings for prompt in prompts]
    seconds = time.process_time() - began
    drafted, accepted = (sum(getattr(answer, name) for answer in answers) for name in ("n_drafted", "n_accepted"))
    return Used(seconds, sum(answer.generated_tokens for answer in answers), drafted, accepted)


def row(case: str, engine: str, drafts: str, off: Sequence[Used], on: Sequence[Used]) -> str:
    """Return a row of the table, without the first pair (warm-up)."""
    ratios = sorted(before.seconds / after.seconds for before, after in zip(off[1:], on[1:], strict=True))
    last, low, high = on[-1], ratios[0], ratios[-1]
    milliseconds = 1e3 * statistics.median(run.seconds / run.n_tokens for run in off[1:])
    ratio = statistics.median(ratios)
    cells = [f"{ratio:.2f} ({low:.2f} to {high:.2f})", f"{last.n_accepted} of {last.n_drafted}", f"{milliseconds:.2f}"]
    return "| " + " | ".join([case, engine, drafts, *cells]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("server", nargs="?", help="llama-server")
    parser.add_argument("--layers", type=int, default=36, help="layers of the target")
    parser.add_argument("--noise", type=float, default=0.04, help="relative noise of its weights")
    parser.add_argument("-n", type=int, default=100, help="tokens to generate per prompt")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--target", default="", help="target, a GGUF file (default: the demo model with more layers)")
    parser.add_argument("--draft", default="", help="draft model of the target, a GGUF file (default: the demo model)")
    parser.add_argument("--head", default="", help="EAGLE-3 head of the target, a GGUF file")
    parser.add_argument("--write-target", type=Path, help="only write the target, with the demo model's layers alone")
    parser.add_argument("--kinds", default="n-grams,draft model", help=f"drafts, comma-separated: {', '.join(KINDS)}")
    parser.add_argument("--cases", default=",".join(CASES), help="texts, comma-separated")
    arguments = parser.parse_args()
    if arguments.write_target:
        write_target(arguments.write_target, 0, arguments.noise)
        return
    if not arguments.server:
        parser.error("the path of llama-server is missing")
    print("| text | engine | drafts | ratio | accepted | ms per token without |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        target = arguments.target or f"{folder}/target.gguf"
        if not arguments.target:
            write_target(Path(target), arguments.layers, arguments.noise)
        for drafts in arguments.kinds.split(","):
            for line in compared(arguments, target, drafts):
                print(line, flush=True)


def compared(arguments: argparse.Namespace, target: str, drafts: str) -> Iterator[str]:
    """Yield the rows of a kind of drafts: Pumice's, and those of each kind of llama.cpp's."""
    cases, n = arguments.cases.split(","), arguments.n
    draft = {"n-grams": "", "draft model": arguments.draft or str(pumice.demo_model_path()), "head": arguments.head}[
        drafts
    ]
    config: dict[str, Any] = {"cpu": {"threads": 1}} | ({"draft": draft} if draft else {})
    choice = "draft" if draft else "ngram"
    with pumice.load(target, backend="cpu", n_ctx=2048, n_parallel=1, config=config) as model:
        for case in cases:
            off, on = [], []
            for turn in range(arguments.repetitions + 1):
                off.append(run_pumice(model, prompts_of(case, turn), n, "off"))
                on.append(run_pumice(model, prompts_of(case, turn), n, choice))
            yield row(case, "Pumice", f"{drafts}, `{choice}`", off, on)
    types = {"draft model": ["draft-simple"], "head": ["draft-eagle3"]}.get(drafts, LLAMA_NGRAMS)
    for kind in types:
        with_drafts = ["-m", target, "--spec-type", kind, *(["-md", draft] if draft else [])]
        with (
            llama_server(arguments.server, ["-m", target]) as plain,
            llama_server(arguments.server, with_drafts) as drafting,
        ):
            for case in cases:
                off, on = [], []
                for turn in range(arguments.repetitions + 1):
                    off.append(plain.run(prompts_of(case, turn), n))
                    on.append(drafting.run(prompts_of(case, turn), n))
                yield row(case, "llama.cpp", f"`{kind}`", off, on)


if __name__ == "__main__":
    main()
