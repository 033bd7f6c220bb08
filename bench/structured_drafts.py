"""Drafts of structured output: tokens per second with drafts and without, in turns, with a grammar and without.

A proposer knows the text that the model writes without drafts, and proposes its tokens; ``--wrong 4`` makes every
fourth of them wrong. So any model, one of random weights too, shows what drafts of a quality gain.

    python bench/structured_drafts.py llama-1b-q4_0.gguf --sequences 1,4 --n-draft=-1,7,15
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import device_drafts
from device_drafts import integers

import pumice
from pumice.plugin import Proposer, ProposerContext, hookimpl

RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "active": {"type": "boolean"},
        "role": {"enum": ["author", "editor", "reader"]},
    },
    "required": ["name", "age", "active", "role"],
    "additionalProperties": False,
}
FORMS: dict[str, dict[str, Any]] = {
    "none": {},
    "records": {"json_schema": {"type": "array", "items": RECORD, "minItems": 200}},
    "string": {"json_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
    "pattern": {"regex": "[A-Za-z ]+"},
}


class Known(Proposer):
    """Proposes the tokens of a known text."""

    texts: ClassVar[dict[tuple[int, ...], list[int]]] = {}
    wrong: ClassVar[int] = 0

    def start(self, context: ProposerContext) -> None:
        self._text: list[int] | None = None
        self._at = 0

    def accept(self, tokens: Sequence[int]) -> None:
        if self._text is None:
            self._text = self.texts.get(tuple(tokens), [])
        else:
            self._at += len(tokens)

    def propose(self, n: int) -> Sequence[int]:
        tokens = (self._text or [])[self._at : self._at + n]
        if self.wrong:
            tokens = [token + (not (self._at + i + 1) % self.wrong) for i, token in enumerate(tokens)]
        return tokens


class Bench:
    @hookimpl
    def pumice_register_proposers(self, register: Callable[[str, type[Proposer] | str], None]) -> None:
        register("known", Known)


def write(model: pumice.Model, n_seqs: int, turn: int, options: dict[str, Any]) -> tuple[float, list[Any]]:
    """Return the seconds of texts at once, and the completions."""
    seconds, done = device_drafts.write(model, n_seqs, turn, options)
    if options["speculate"] == "off":
        prompts = device_drafts.prompts(n_seqs, turn)
        Known.texts.update((tuple(prompt), list(item.tokens)) for prompt, item in zip(prompts, done, strict=True))
    return seconds, done


def compare(model: pumice.Model, n_seqs: int, repetitions: int, options: dict[str, Any]) -> str:
    """Return tokens per second without and with drafts, the ratio of times, and accepted tokens."""
    speeds, ratios, n_drafted, n_accepted, n_unequal = [], [], 0, 0, 0
    for turn in range(repetitions + 1):
        plain, before = write(model, n_seqs, turn, options | {"speculate": "off"})
        drafting, after = write(model, n_seqs, turn, options | {"speculate": "known"})
        if turn:  # the first pair warms up
            n_tokens = sum(len(item.tokens) for item in before)
            speeds.append((n_tokens / plain, n_tokens / drafting))
            ratios.append(plain / drafting)
            n_drafted += sum(item.timings.n_drafted for item in after)
            n_accepted += sum(item.timings.n_accepted for item in after)
            n_unequal += sum(one.tokens != other.tokens for one, other in zip(before, after, strict=True))
    without, with_drafts = (statistics.median(column) for column in zip(*speeds, strict=True))
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    return (
        f"{without:,.0f} | {with_drafts:,.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) "
        f"| {n_accepted:,} of {n_drafted:,} | {n_unequal}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--backend", default="vulkan")
    parser.add_argument("--forms", default=",".join(FORMS), help="kinds of text, comma-separated")
    parser.add_argument("--sequences", type=integers, default="1", help="texts at once, comma-separated")
    parser.add_argument(
        "--n-draft", type=integers, default="-1,7,15", help="drafted tokens, with commas; -1: as measured"
    )
    parser.add_argument("--wrong", type=integers, default="0", help="every which drafted token is wrong; 0: none")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("-n", type=int, default=256, help="tokens of a text")
    parser.add_argument("--seconds", type=float, default=1e9, help="time after which no measurement begins")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    numbers, at_once, wrongs = arguments.n_draft, arguments.sequences, arguments.wrong
    print("| form | at once | `n_draft` | wrong | tok/s without | with | ratio | accepted | unequal |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    options = {"max_tokens": arguments.n, "temperature": arguments.temperature}
    for n_draft in numbers:
        config: dict[str, Any] = {"n_draft": n_draft}
        sizes = {"n_ctx": arguments.n + 64, "n_parallel": max(at_once)}
        with pumice.load(
            arguments.model, backend=arguments.backend, plugins=[Bench()], config=config, **sizes
        ) as model:
            model.engine.runner.placed.wait_until_prepared()
            write(model, 1, 99, options | {"speculate": "off"})
            write(model, 1, 99, options | {"speculate": "known"})  # begins to prepare steps with drafts
            model.engine.runner.placed.wait_until_prepared()
            for n_seqs in at_once:
                for form in arguments.forms.split(","):
                    for Known.wrong in wrongs:
                        if time.monotonic() < end:
                            result = compare(model, n_seqs, arguments.repetitions, FORMS[form] | options)
                            print(f"| {form} | {n_seqs} | {n_draft} | {Known.wrong} | {result} |", flush=True)


if __name__ == "__main__":
    main()
