"""Grammars in Lark as llguidance reads it (https://github.com/guidance-ai/llguidance, docs/syntax.md)."""

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
TOOL_OPTIONS = {**JSON_OPTIONS, "lenient": True}  # tools are many: a keyword that is not known is left out
_MOST_MARKS = 4  # that mean nothing, before a call or an answer
_DEFINITIONS = ("$defs", "definitions")  # where a schema keeps what its ``$ref`` name


class Lark:
    """A grammar that is being written. ``special``: ids of control tokens in it, by their spelling."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = special
        self._rules: dict[str, str] = {}  # names, by what they are for
        self._size = 0  # characters of the rules

    def source(self, start: str) -> str:
        rules = (name + text for text, name in self._rules.items())
        return _HEAD.format(start=start) + "\n".join(rules)

    def rule(self, text: str) -> str:
        """The name of a rule; the same for the same text."""
        return self._named(f": {text}")

    def literal(self, text: str) -> str:
        """A text; what are control tokens in it are named by their ids."""
        if not text:
            return ""
        marks = sorted(self._special, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, marks))})", text) if marks else [text]
        return " ".join(
            f"<[{self._special[part]}]>" if part in self._special else json.dumps(part) for part in parts if part
        )

    def text_until(self, word: str, regex: str = ANY_TEXT) -> str:
        """Text that fits a regular expression up to ``word``, and ``word``."""
        if not word or any(mark in word for mark in self._special):
            return f"/{regex}/ {self.literal(word)}"
        return self._named(f"[suffix={json.dumps(word)}]: /{regex}/")

    def any_of(self, rules: Sequence[str]) -> str:
        """Any of some rules, a few times: a weak model would go on for ever."""
        return f"({' | '.join(f'({rule} WS?)' for rule in rules)}){{0,{_MOST_MARKS}}}" if rules else ""

    def sequence(self, parts: Sequence[tuple[bool, str]], comma: str, may_be_empty: bool = True) -> str:
        """Parts in their order, each with whether it has to come, and commas between them."""
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
    """JSON that fits a schema; ``root``: the schema of which it is a part."""
    whole = {**schema, "x-guidance": TOOL_OPTIONS}
    text = json.dumps(whole)
    if root and '"$ref"' in text:
        text = json.dumps({**definitions(root), **whole})
    return f"%json {text}"


def definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What parts of a schema may refer to."""
    return {key: value for key, value in schema.items() if key in _DEFINITIONS}


def _others(rules: Sequence[tuple[bool, str]], comma: str) -> str:
    return " ".join(f"{comma} {rule}" if needed else f"({comma} {rule})?" for needed, rule in rules)
