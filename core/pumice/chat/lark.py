"""Write grammars in llguidance's Lark dialect (https://github.com/guidance-ai/llguidance, docs/syntax.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pumice.chat.schemas import ANY_TEXT
from pumice.grammar import JSON_OPTIONS
from pumice.grammar.limits import MAX_GENERATED, check_number

_HEAD = """start: {start}
WS: / |\\n\\n? {{0,4}}/
ID: /[A-Za-z0-9_-]{{1,40}}/
NUMBER: /[0-9]{{1,3}}/
NEWLINE: /\\n/
QUOTED: /'([^'\\\\\\n]|\\\\.)*'/
"""
# Unknown keywords are ignored rather than refused: tools come from many sources.
TOOL_OPTIONS = {**JSON_OPTIONS, "lenient": True}
_MAX_MARKS = 4  # silent marks before a call or an answer
_DEFINITIONS = ("$defs", "definitions")  # keywords that hold the targets of ``$ref``


class Lark:
    """Builder of a Lark grammar. ``special``: ids of its control tokens by their text."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = special
        self._rules: dict[str, str] = {}  # names of the rules by their definitions
        self._size = 0  # characters of all definitions

    def source(self, start: str) -> str:
        rules = (name + text for text, name in self._rules.items())
        return _HEAD.format(start=start) + "\n".join(rules)

    def rule(self, text: str) -> str:
        """Return the name of a rule; equal definitions share one rule."""
        return self._named(f": {text}")

    def literal(self, text: str) -> str:
        """Return a literal of a text, in which control tokens are referred to by id."""
        if not text:
            return ""
        marks = sorted(self._special, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, marks))})", text) if marks else [text]
        return " ".join(
            f"<[{self._special[part]}]>" if part in self._special else json.dumps(part) for part in parts if part
        )

    def text_until(self, word: str, regex: str = ANY_TEXT) -> str:
        """Return a rule for text that matches ``regex``, followed by ``word``."""
        if not word or any(mark in word for mark in self._special):
            return f"/{regex}/ {self.literal(word)}"
        return self._named(f"[suffix={json.dumps(word)}]: /{regex}/")

    def any_of(self, rules: Sequence[str]) -> str:
        """Return a rule for a few repetitions of any of ``rules``; unlimited ones would let a weak model loop."""
        return f"({' | '.join(f'({rule} WS?)' for rule in rules)}){{0,{_MAX_MARKS}}}" if rules else ""

    def sequence(self, parts: Sequence[tuple[bool, str]], comma: str, may_be_empty: bool = True) -> str:
        """Return a rule for parts in order, each given with True if it is required, separated by ``comma``."""
        rules = [(needed, self.rule(part)) for needed, part in parts]
        first = next((i for i, (needed, _) in enumerate(rules) if needed), None)
        if first is not None:
            before = " ".join(f"({rule} {comma})?" for _, rule in rules[:first])
            return f"{before} {rules[first][1]} {_others(rules[first + 1 :], comma)}"
        firsts = [f"({rule} {_others(rules[i + 1 :], comma)})" for i, (_, rule) in enumerate(rules)]
        return f"({' | '.join(firsts)}){'?' * may_be_empty}" if firsts else '""'

    def _named(self, text: str) -> str:
        if text not in self._rules:
            self._size += len(text)
            check_number("tools", "characters of the grammar of all calls", self._size, MAX_GENERATED)
            self._rules[text] = f"rule_{len(self._rules)}"
        return self._rules[text]


def json_of(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> str:
    """Return a rule for JSON that fits a schema; ``root`` is the schema that contains it."""
    guided = {**schema, "x-guidance": TOOL_OPTIONS}
    text = json.dumps(guided)
    if root and '"$ref"' in text:
        text = json.dumps({**definitions(root), **guided})
    return f"%json {text}"


def definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definitions of a schema, which its parts may reference."""
    return {key: value for key, value in schema.items() if key in _DEFINITIONS}


def _others(rules: Sequence[tuple[bool, str]], comma: str) -> str:
    return " ".join(f"{comma} {rule}" if needed else f"({comma} {rule})?" for needed, rule in rules)
