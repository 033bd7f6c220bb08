"""Chat formats: the syntax in which a family of models writes reasoning and tool calls, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from pumice.chat.calls import Keys
from pumice.chat.pattern import Pattern

_UNMARKED = ("{json}", "```json {json} ```")
_MAX_MARKS_LENGTH = 2000  # characters of all marks of a detected format; published templates have up to 154


@dataclass(frozen=True)
class ChatFormat:
    """The syntax of a model's reasoning and tool calls.

    Attributes:
        marks: substrings that together identify a template of this family. A format without marks is never detected.
        reasoning: start and end marks of reasoning.
        calls: patterns of a call (``pumice.chat.pattern``), tried in this order. Patterns that begin with ``{json}`` or
            ``{python}`` match only where the answer begins.
        variants: patterns that models write instead: they are parsed, but grammars do not produce them.
        heads: texts that begin a call, if they differ from the first marks of its patterns.
        param: pattern of an argument, for ``{params}``.
        section: marks before and after all calls, if the format has them.
        keys: names of the parts of a JSON call.
        quote: mark around strings, for ``{braces}``.
        silent: marks that are dropped from the answer; ``{name}`` in a mark stands for any tool's name.
        after_reasoning: text that follows the end mark when reasoning is cut short or skipped.
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
        """Return what is wrong with the format in one line; empty if it is valid."""
        for name in ("marks", "calls", "variants", "heads", "silent"):
            texts: object = getattr(self, name)
            if not isinstance(texts, tuple) or not all(isinstance(text, str) and text for text in texts):
                return f"{name}: expected a tuple of texts, such as ('<call>',), not {texts!r:.100}"
        if len(self.reasoning) != 2 or not all(self.reasoning):
            return "reasoning: give both a start mark and an end mark"
        return next((problem for pattern in self.patterns if (problem := pattern.problem())), "")

    @property
    def is_sound(self) -> bool:
        """True if the format is valid and its marks are short; formats that a template shows may not be."""
        keys = (self.keys.name, self.keys.arguments, self.keys.id)
        texts = (*self.reasoning, *self.calls, self.param, *self.section, *keys, self.after_reasoning)
        return sum(map(len, texts)) <= _MAX_MARKS_LENGTH and not self.problem()

    @cached_property
    def patterns(self) -> list[Pattern]:
        """Patterns that the parser recognizes."""
        return [Pattern(call, self.param, self.keys) for call in (*self.calls, *self.variants)]

    @property
    def asked(self) -> list[Pattern]:
        """Patterns that grammars allow."""
        return self.patterns[: len(self.calls)]

    @cached_property
    def bare(self) -> list[Pattern]:
        """Patterns that begin with a field, and match only where the answer begins; none in a format with a section."""
        return [] if self.section[0] else [pattern for pattern in self.patterns if not pattern.opening]

    @cached_property
    def bare_or_forgotten(self) -> list[Pattern]:
        """Like ``bare``, with what models write that forget their marks: JSON, often in a fence of Markdown."""
        return self.bare if self.section[0] else [*self.bare, *(Pattern(text, keys=self.keys) for text in _UNMARKED)]

    @cached_property
    def begins(self) -> tuple[str, ...]:
        """Texts that begin a call or a section of calls."""
        others = [*self.reasoning, *self.silent]
        texts = [self.section[0], *(text for pattern in self.patterns for text in pattern.heads(others))]
        return self.heads or tuple(dict.fromkeys(text for text in texts if text))

    def silent_for(self, names: Iterable[str]) -> list[str]:
        """Return the silent marks for tools with these names."""
        marks = {
            mark.replace("{name}", name): None for mark in self.silent for name in (names if "{name}" in mark else [""])
        }
        return list(marks)

    @cached_property
    def literals(self) -> frozenset[str]:
        """All literals of the format; special tokens among them are part of the answer's text."""
        patterns = [Pattern(text) for text in (*self.calls, *self.variants, self.param) if text]
        words = {word for pattern in patterns for kind, word in pattern.elements if kind == "literal"}
        return frozenset(words | {text for text in (*self.reasoning, *self.section, *self.silent, self.quote) if text})

    def reasons_after(self, opening: str) -> bool:
        """Return True if ``opening``, the part of the answer in the prompt, ends inside reasoning."""
        return is_open(opening, *self.reasoning)


def is_open(text: str, begin: str, end: str) -> bool:
    """Return True if no ``end`` follows the last ``begin`` in a text."""
    return text.rfind(begin) > text.rfind(end)


def detect(template: str, formats: Iterable[ChatFormat]) -> ChatFormat | None:
    """Return the format whose marks a template contains, or None; if several fit, the one with the longest marks."""
    candidates = [form for form in formats if form.marks and all(mark in template for mark in form.marks)]
    return max(candidates, key=lambda form: sum(map(len, form.marks)), default=None)
