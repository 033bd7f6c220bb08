"""Generation with speculative decoding and without, in turns, on texts that repeat themselves more or less.

The text that a model "writes" is given: a sampler chooses its tokens, whatever the logits are. So any model, one of
random weights too, shows how fast a text of that kind comes, and how often drafts of it are right. The case ``own`` is
what the model writes itself, greedily; ``own-story``, ``own-edit`` and ``own-json`` are for the models of
tools/draft_models, which were trained on such texts.

    python bench/speculation.py model.gguf --parallel 1,4
    python bench/speculation.py target-q8_0.gguf --draft eagle-q8_0.gguf --speculate draft --cases own-story,own-edit
    python bench/speculation.py llama-1b-q4_0.gguf --backend vulkan --speculate ngram

On a GPU, what a run without drafts is compared with is greedy text of the same length, whose tokens the device chooses.
"""

from __future__ import annotations

import argparse
import inspect
import json
import pydoc_data.topics
import random
import statistics
import sys
import textwrap
import time
import uuid
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pumice
from pumice.demo import demo_model_path
from pumice.plugin import Candidates, SamplerContext, Selector, hookimpl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.draft_models.documents import documents

TOKENIZER = pumice.load_tokenizer(
    demo_model_path()
)  # its token numbers exist in every model; random weights have no tokenizer
NAMES = ["Anna", "Bela", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana"]


@dataclass
class FixedText(Selector):
    """Selects the tokens of a text, ``token_list`` as comma-separated numbers, after the ``n_read`` of the prompt."""

    token_list: str = ""
    n_read: int = 0

    def start(self, context: SamplerContext) -> None:
        self._coming = [int(token) for token in self.token_list.split(",") if token]
        self._at = -self.n_read

    def accept(self, token: int) -> None:
        self._at += 1

    def apply(self, candidates: Candidates) -> None:
        candidates.select(self._coming[self._at])


class Bench:
    @hookimpl
    def pumice_register_samplers(self, register):  # type: ignore[no-untyped-def]
        register("fixed_text", FixedText)


def edit() -> tuple[str, str]:
    """Return a file, and its copy with a name changed and some lines removed."""
    before = inspect.getsource(textwrap)
    lines = before.replace("chunk", "piece").splitlines(keepends=True)
    return before, "".join(line for i, line in enumerate(lines) if i % 17)


def records() -> tuple[str, str]:
    """Return a prompt and 200 records in JSON."""
    chance = random.Random(1)
    people = [
        {"id": i, "name": chance.choice(NAMES), "age": chance.randrange(18, 90), "active": chance.random() < 0.5}
        for i in range(200)
    ]
    return "Write the records as JSON.\n", json.dumps(people, indent=1)


def code() -> tuple[str, str]:
    text = inspect.getsource(argparse)
    return text[:2000], text[2000:20000]


def prose() -> tuple[str, str]:
    text = pydoc_data.topics.topics["class"] + pydoc_data.topics.topics["objects"]
    return text[:500], text[500:]


def chat() -> tuple[str, str]:
    """Return questions and answers about different topics, which share few words."""
    topics = pydoc_data.topics.topics
    turns = [f"User: What is meant by {name}?\nAssistant: {text[:600]}\n" for name, text in sorted(topics.items())]
    text = "".join(turns[::3])
    return text[:2000], text[2000:]


def repeat() -> tuple[str, str]:
    """Return a paragraph, and the same many times."""
    text = prose()[1][:600]
    return text, text * 20


CASES = {"edit": edit, "repeat": repeat, "json": records, "code": code, "prose": prose, "chat": chat}


def request(case: str, n_prompt: int, n: int, seed: int) -> dict[str, Any]:
    """Return a request of a case; each seed takes a different part of its text."""
    if case == "own":
        prompts = ["Once upon a time", "The little dog", "One day, a girl named", "In the park"]
        return {"prompt": prompts[seed % len(prompts)], "temperature": 0, "max_tokens": n}
    if case.startswith("own-"):
        [document] = islice(documents(2, seed, (case.removeprefix("own-"),)), 1)
        prompt_text = document.prompt or document.answer.partition(". ")[0]
        return {"prompt": prompt_text, "temperature": 0, "max_tokens": n}
    before, after = CASES[case]()
    prompt, text = (TOKENIZER.tokenize(part, add_special=False, parse_special=False) for part in (before, after))
    prompt = prompt[:n_prompt]
    begin = 0 if case in ("edit", "repeat") else seed * n % max(1, len(text) - n)
    tokens = text[begin : begin + n]
    samplers = {"samplers": ["fixed_text"], "token_list": ",".join(map(str, tokens)), "n_read": len(prompt)}
    return {"prompt": prompt, "max_tokens": len(tokens), **samplers}


class Measured(NamedTuple):
    """A measurement: tokens/s, CPU seconds while generating, tokens drafted and accepted."""

    speed: float
    seconds: float
    n_drafted: int
    n_accepted: int


def measure(model: pumice.Model, case: str, n_seqs: int, n_prompt: int, n: int, choice: str) -> Measured:
    """Generate the texts of a case, with the prompts already in the cache."""
    requests = [request(case, n_prompt, n, seed) for seed in range(n_seqs)]
    prompts = [options.pop("prompt") for options in requests]
    if choice == "off" and model.backends[0] not in ("cpu", "numpy"):
        requests = [{"max_tokens": n, "temperature": 0, "ignore_eos": True} for _ in prompts]
    salt = uuid.uuid4().hex  # keeps earlier texts out of the cache and of speculation
    first = [{**options, "max_tokens": 1, "speculate": "off"} for options in requests]
    model.generate_many(prompts, each=first, cache_salt=salt)
    began = time.process_time()
    completions = model.generate_many(prompts, each=requests, speculate=choice, cache_salt=salt)
    seconds = time.process_time() - began
    spent = max(completion.timings.generation_seconds for completion in completions)
    return Measured(
        sum(completion.timings.generated_tokens - 1 for completion in completions) / spent,
        seconds,
        sum(completion.timings.n_drafted for completion in completions),
        sum(completion.timings.n_accepted for completion in completions),
    )


def report(case: str, n_seqs: int, off: list[Measured], on: list[Measured]) -> str:
    """Return a row of the table: medians of runs and of the ratios of neighbours, without the first pair (warm-up)."""
    pairs = list(zip(off[1:], on[1:], strict=True))
    speed = statistics.median(after.speed / before.speed for before, after in pairs)
    processor = statistics.median(before.seconds / after.seconds for before, after in pairs)
    speeds = [statistics.median(run.speed for run in runs[1:]) for runs in (off, on)]
    seconds = [statistics.median(run.seconds for run in runs[1:]) for runs in (off, on)]
    drafted, accepted = on[-1].n_drafted, on[-1].n_accepted
    return (
        f"| {case} | {n_seqs} | {speeds[0]:.0f} | {speeds[1]:.0f} | {speed:.2f} "
        f"| {seconds[0]:.2f} | {seconds[1]:.2f} | {processor:.2f} | {accepted} of {drafted} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", help="GGUF file (default: the demo model)")
    parser.add_argument("--speculate", default="auto", help="proposers, comma-separated")
    parser.add_argument("--draft", default="", help="draft model, or head of the model")
    parser.add_argument("--cases", default=",".join(["own", *CASES]), help="texts to generate, comma-separated")
    parser.add_argument("--parallel", default="1", help="numbers of concurrent sequences, comma-separated")
    parser.add_argument("--n-prompt", type=int, default=1000, help="maximum tokens of a prompt")
    parser.add_argument("-n", type=int, default=400, help="tokens to generate")
    parser.add_argument("--n-draft", type=int, default=-1, help="maximum drafted tokens per step (-1: adaptive)")
    parser.add_argument("--backend", default="cpu", help="backend of the model")
    parser.add_argument("--threads", type=int, default=0, help="threads of the CPU backend (0: all cores)")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    counts = [int(n) for n in arguments.parallel.split(",")]
    config = {"n_draft": arguments.n_draft, "cpu": {"threads": arguments.threads}, "draft": arguments.draft}
    n_ctx = (arguments.n_prompt + arguments.n + 64) * max(counts)
    options: dict[str, Any] = {"backend": arguments.backend, "n_parallel": max(counts), "config": config}
    options["n_ctx"] = n_ctx
    print("| text | sequences | tok/s without | with | ratio | processor s without | with | ratio | right |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in arguments.cases.split(","):
        for n_seqs in counts:
            with pumice.load(arguments.model, plugins=[Bench()], **options) as model:
                runs: list[list[Measured]] = [[], []]
                turns = list(zip(runs, ("off", arguments.speculate), strict=True))
                for i in range(arguments.repetitions + 1):
                    for measured, choice in turns if i % 2 else reversed(turns):
                        measured.append(measure(model, case, n_seqs, arguments.n_prompt, arguments.n, choice))
            print(report(case, n_seqs, *runs), flush=True)


if __name__ == "__main__":
    main()
