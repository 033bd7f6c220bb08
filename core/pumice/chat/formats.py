"""Chat formats: how a family of models writes reasoning and tool calls, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from pumice.chat.calls import Keys
from pumice.chat.pattern import Pattern

_MAX_SHOWN = 2000  # characters of all marks; those of published templates have up to 154


@dataclass(frozen=True)
class ChatFormat:
    """How a model writes what is not plain content.

    Attributes:
        marks: texts that a template of this family has, all of them; without any it is only chosen by name.
        reasoning: what begins and ends reasoning.
        calls: patterns of a call (``pumice.chat.pattern``), tried in this order. One that begins with ``{json}`` or
            ``{python}`` is read only where the answer begins.
        variants: patterns of what models write instead: they are read, and never asked for.
        heads: texts that begin a call, where those are not the first marks of its patterns.
        param: the pattern of an argument, for ``{params}``.
        section: what stands around all calls, if anything does.
        keys: how JSON calls name their parts.
        quote: what is around texts, for ``{braces}``.
        silent: marks that mean nothing to who reads the answer; ``{name}`` in one is each tool's.
        after_reasoning: what is written after the end of a reasoning that was cut short, or left out.
    """

    marks: tuple[str, ...] = ()
    reasoning: tuple[str, str] = ("<think>", "</think>")
    calls: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    param: str = ""
    section: tuple[str, str] = ("", "")
    keys: Keys = field(default_factory=Keys)
    quote: str = ""
    silent: tuple[str, ...] = ()
    after_reasoning: str = "\n\n"

    def problem(self) -> str:
        """What is wrong with it, in a line; empty if nothing is."""
        if not all(self.reasoning):
            return "its reasoning must have a beginning and an end"
        return next((problem for pattern in self.patterns if (problem := pattern.problem())), "")

    @property
    def is_sound(self) -> bool:
        """True if its marks are as short as marks are, and it has no problem: one that a template shows may not be."""
        keys = (self.keys.name, self.keys.arguments, self.keys.id)
        texts = (*self.reasoning, *self.calls, self.param, *self.section, *keys, self.after_reasoning)
        return sum(map(len, texts)) <= _MAX_SHOWN and not self.problem()

    @cached_property
    def patterns(self) -> list[Pattern]:
        """All that are read."""
        return [Pattern(call, self.param, self.keys) for call in (*self.calls, *self.variants)]

    @property
    def asked(self) -> list[Pattern]:
        """Those to which a model is held."""
        return self.patterns[: len(self.calls)]

    @cached_property
    def begins(self) -> tuple[str, ...]:
        """Texts that begin a call, or a section of them."""
        others = [*self.reasoning, *self.silent]
        texts = [self.section[0], *(text for pattern in self.patterns for text in pattern.heads(others))]
        return self.heads or tuple(dict.fromkeys(text for text in texts if text))

    def silent_for(self, names: Iterable[str]) -> list[str]:
        """The silent marks, where tools have these names."""
        marks = {
            mark.replace("{name}", name): None for mark in self.silent for name in (names if "{name}" in mark else [""])
        }
        return list(marks)

    @cached_property
    def literals(self) -> frozenset[str]:
        """Every literal of the format: special tokens among them are part of the text."""
        patterns = [Pattern(text) for text in (*self.calls, *self.variants, self.param) if text]
        words = {word for pattern in patterns for kind, word in pattern.elements if kind == "literal"}
        return frozenset(words | {text for text in (*self.reasoning, *self.section, *self.silent, self.quote) if text})

    def reasons_after(self, opening: str) -> bool:
        """Whether the answer goes on in reasoning where the prompt has written ``opening`` of it."""
        return is_open(opening, *self.reasoning)


def is_open(text: str, begin: str, end: str) -> bool:
    """Whether the last ``begin`` in a text has no ``end`` behind it."""
    return text.rfind(begin) > text.rfind(end)


def detect(template: str, formats: Iterable[ChatFormat]) -> ChatFormat | None:
    """The format whose marks are all in a template; of several the one with most characters of marks."""
    known = [form for form in formats if form.marks and all(mark in template for mark in form.marks)]
    return max(known, key=lambda form: sum(map(len, form.marks)), default=None)
