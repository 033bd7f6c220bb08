"""Measure speculative decoding: how fast a model writes with drafts and without, and how many of them it accepts."""

from __future__ import annotations

import inspect
import statistics
import textwrap
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from pumice.engine import Engine, Timings
from pumice.local_engine import local_engine
from pumice.model import Model
from pumice.proposers import names_of

PEOPLE = ["Anna is 31 and lives in Oslo", "Bela is 54 and lives in Rome", "Chen is 27 and lives in Kyoto"]


def prompts() -> dict[str, str]:
    """Return a prompt of each kind of text; continuations copy more or less of it."""
    code = inspect.getsource(textwrap.indent)
    return {
        "story": "Once upon a time",
        "prose": "A short history of the bicycle.\n\nThe first bicycles",
        "code": 'class Stack:\n    """A stack of numbers."""\n\n    def __init__(self):',
        "json": f'{". ".join(PEOPLE)}.\n\nThe same as JSON:\n\n[\n {{"name": "Anna", "age": 31, "city": "Oslo"}},\n',
        "edit": f"A Python function:\n\n{code}\n\nThe same function, with `prefix` named `start`:\n\ndef indent(",
        "repeat": "one two three four five six seven eight\n" * 8,
    }


@dataclass
class Drafts:
    """Measurements of one text with one choice of proposers."""

    text: str
    proposers: str
    speeds: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    steps: int = 0

    def add(self, without: Timings, with_drafts: Timings) -> None:
        """Add a pair of runs."""
        self.plain.append(without.generation_per_second)
        self.speeds.append(with_drafts.generation_per_second)
        self.drafted += with_drafts.n_drafted
        self.accepted += with_drafts.n_accepted
        self.steps += with_drafts.n_drafts

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios."""
        return statistics.median(after / before for after, before in zip(self.speeds, self.plain, strict=True))

    def result(self) -> dict[str, str | float | int]:
        """Return the measurements as JSON has them."""
        return {
            "text": self.text,
            "speculate": self.proposers,
            "tokens_per_second_without": statistics.median(self.plain),
            "tokens_per_second": statistics.median(self.speeds),
            "ratio": self.ratio,
            "drafts": self.steps,
            "drafted": self.drafted,
            "accepted": self.accepted,
        }


def choices_of(model: Model, choice: str) -> list[str]:
    """Return the proposers of a choice one by one, and all of them together if they are several."""

    def auto(engine: Engine) -> Generator[None, None, list[str]]:
        yield
        return engine.speculation.auto

    names = local_engine(model).thread.call(auto) if choice == "auto" else names_of(choice)
    return [*names, choice] if len(names) > 1 else names


def measure(
    model: Model, choices: Sequence[str], n_tokens: int, repetitions: int, progress: Callable[[], None]
) -> list[Drafts]:
    """Return a row for each text and choice of proposers.

    Each choice generates in turns with ``speculate: off``, greedily, after a pair of runs that warm up. The numbers of
    drafts are sums over the repetitions.
    """
    rows = []
    for text, prompt in prompts().items():
        for choice in choices:
            row = Drafts(text, choice)
            for number in range(1 + repetitions):
                progress()
                salt = uuid.uuid4().hex  # what was written before must not be known
                order = ["off", choice] if number % 2 else [choice, "off"]
                runs = {speculate: _timings(model, prompt, n_tokens, speculate, salt) for speculate in order}
                if number and runs["off"].generated_tokens > 1:
                    row.add(runs["off"], runs[choice])
            if row.plain:
                rows.append(row)
    return rows


def _timings(model: Model, prompt: str, n_tokens: int, choice: str, salt: str) -> Timings:
    done = model.generate(prompt, max_tokens=n_tokens, temperature=0, speculate=choice, cache_salt=salt)
    assert not isinstance(done, list)
    return done.timings
