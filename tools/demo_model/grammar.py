"""The story grammar: sentence patterns with slots, used by a generator and by a checker.

Every choice is uniform, so the probability of a story is a product of 1/n. Writing draws the choices from left to
right.
Reading follows every sequence of choices that produces the text and adds up their probabilities: the result is the
exact probability of the text; zero means that the text is not in the language. notation.py loads the patterns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import TypeAlias, TypeVar

from .world import World

T = TypeVar("T")


@dataclass(frozen=True)
class Slot:
    """`{fact:form}`"""

    fact: str
    form: str


@dataclass(frozen=True)
class Choice:
    """`[one|other]` or `<list>`"""

    options: tuple[Parts, ...]


Part: TypeAlias = "str | Slot | Choice"
Parts: TypeAlias = "tuple[Part, ...]"


@dataclass(frozen=True)
class Beat:
    """An event of a story, and the sentences that can describe it."""

    name: str
    events: tuple[tuple[str, ...], ...]
    patterns: tuple[Parts, ...]


@dataclass(frozen=True)
class Step:
    """A step of a plot: one of `beats`, or nothing if `optional`. `NAME:FACT` selects a beat by a fact's value."""

    beats: tuple[str, ...]
    optional: bool
    separator: str


@dataclass
class Reading:
    """The result of reading a text: its log-probability in nats, or where reading failed and what was expected."""

    log_p: float = -math.inf
    position: int = 0
    missed: set[str] = field(default_factory=set)
    plots: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.log_p > -math.inf

    def miss(self, position: int, what: str) -> None:
        if position > self.position:
            self.position, self.missed = position, set()
        if position == self.position:
            self.missed.add(what)


class Dice:
    """Uniform choices from a seed, with the sum of their log-probabilities (nats)."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed).random
        self.log_p = 0.0

    def pick(self, options: Sequence[T]) -> T:
        if len(options) == 1:
            return options[0]
        self.log_p -= math.log(len(options))
        return options[int(self._random() * len(options))]


class Grammar:
    def __init__(self, plots: Mapping[str, Sequence[Step]], beats: Mapping[str, Beat]) -> None:
        self.plots = plots
        self.beats = beats

    @cached_property
    def n_patterns(self) -> int:
        return sum(len(beat.patterns) for beat in self.beats.values())

    # -- writing

    def write(self, dice: Dice) -> str:
        """Write one story as plain text with paragraphs separated by an empty line."""
        world, out = World(), []
        for step in self.plots[dice.pick(tuple(self.plots))]:
            if step.optional and not dice.pick((True, False)):
                continue
            beat, world = self._pick_beat(dice.pick(step.beats), world, dice)
            out.append(step.separator)
            world = self._write_parts(dice.pick(beat.patterns), world, dice, out)
            for event in beat.events:
                world = world.after(event)
        return "".join(out)

    def _pick_beat(self, name: str, world: World, dice: Dice) -> tuple[Beat, World]:
        if ":" not in name:
            return self.beats[name], world
        name, fact = name.split(":")
        fact = world.resolve(fact)
        if fact not in world.facts:
            world = world.know(fact, dice.pick(world.choices(fact)))
        return self.beats[f"{name} {world.facts[fact].text}"], world

    def _write_parts(self, parts: Parts, world: World, dice: Dice, out: list[str]) -> World:
        for part in parts:
            if isinstance(part, str):
                out.append(part)
            elif isinstance(part, Choice):
                world = self._write_parts(dice.pick(part.options), world, dice, out)
            else:
                fact = world.resolve(part.fact)
                if fact not in world.facts:
                    world = world.know(fact, dice.pick(world.choices(fact)))
                out.append(world.facts[fact].form(part.form))
        return world

    # -- reading

    def read(self, text: str) -> Reading:
        """Follow every derivation of `text` and add up their probabilities."""
        reading = Reading()
        log_ps = []
        for plot, steps in self.plots.items():
            for log_p in self._read_steps(steps, 0, text, 0, World(), -math.log(len(self.plots)), reading):
                log_ps.append(log_p)
                reading.plots.append(plot)
        if log_ps:
            top = max(log_ps)
            reading.log_p = top + math.log(sum(math.exp(log_p - top) for log_p in log_ps))
        return reading

    def _read_steps(
        self, steps: Sequence[Step], i: int, text: str, position: int, world: World, log_p: float, reading: Reading
    ) -> Iterator[float]:
        if i == len(steps):
            if position == len(text):
                yield log_p
            else:
                reading.miss(position, "the end")
            return
        step = steps[i]
        if step.optional:
            log_p -= math.log(2)
            yield from self._read_steps(steps, i + 1, text, position, world, log_p, reading)
        if not text.startswith(step.separator, position):
            reading.miss(position, "more text" if position == len(text) else "wording")
            return
        position += len(step.separator)
        log_p -= math.log(len(step.beats))
        for name in step.beats:
            for beat, world_of_beat, beat_log_p in self._beats_named(name, world, log_p):
                pattern_log_p = beat_log_p - math.log(len(beat.patterns))
                for pattern in beat.patterns:
                    for end, after, new_log_p in _read_parts(
                        pattern, text, position, world_of_beat, pattern_log_p, reading
                    ):
                        for event in beat.events:
                            after = after.after(event)
                        yield from self._read_steps(steps, i + 1, text, end, after, new_log_p, reading)

    def _beats_named(self, name: str, world: World, log_p: float) -> Iterator[tuple[Beat, World, float]]:
        if ":" not in name:
            yield self.beats[name], world, log_p
            return
        name, fact = name.split(":")
        fact = world.resolve(fact)
        if fact in world.facts:
            yield self.beats[f"{name} {world.facts[fact].text}"], world, log_p
            return
        choices = world.choices(fact)
        for value in choices:
            yield self.beats[f"{name} {value.text}"], world.know(fact, value), log_p - math.log(len(choices))


State = tuple[int, World, float]


def _read_parts(parts: Parts, text: str, position: int, world: World, log_p: float, reading: Reading) -> list[State]:
    """Return every (end position, world, log-probability) for which `parts` match the text at `position`."""
    states = [(position, world, log_p)]
    for part in parts:
        states = [after for state in states for after in _read_part(part, text, *state, reading)]
        if not states:
            break
    return states


def _read_part(part: Part, text: str, position: int, world: World, log_p: float, reading: Reading) -> list[State]:
    if isinstance(part, str):
        if text.startswith(part, position):
            return [(position + len(part), world, log_p)]
        reading.miss(position, "more text" if part.startswith(text[position:]) else "wording")
        return []
    if isinstance(part, Choice):
        log_p -= math.log(len(part.options))
        return [s for option in part.options for s in _read_parts(option, text, position, world, log_p, reading)]
    fact = world.resolve(part.fact)
    if fact in world.facts:
        written = world.facts[fact].form(part.form)
        if text.startswith(written, position):
            return [(position + len(written), world, log_p)]
        reading.miss(position, f"{part.fact} {written!r}")
        return []
    choices = world.choices(fact)
    log_p -= math.log(len(choices))
    states = []
    for value in choices:
        written = value.form(part.form)
        if text.startswith(written, position):
            states.append((position + len(written), world.know(fact, value), log_p))
    if not states:
        reading.miss(position, f"a {part.fact}")
    return states
