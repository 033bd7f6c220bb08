"""Check the limits of a Lark grammar on its tokens, without compiling it.

All regular expressions here match in linear time, even if a quote or a bracket is missing. The dialect is llguidance's
(docs/syntax.md), which embeds schemas after ``%json``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from pumice.errors import RequestError
from pumice.grammar.limits import (
    MAX_COUNT,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_RULES,
    MAX_TEXT,
    check_chain,
    check_number,
)
from pumice.grammar.schema_limits import check_regex, check_schema

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|\#[^\n]*)
    | "(?P<literal>(?:[^"\\\n]|\\.)*+)(?:"|\n|\\?\Z)
    | /(?P<regex>(?:[^/\\\n]|\\.)++)(?:/|\n|\\?\Z)
    | %(?P<directive>\w+)
    | (?P<name>[A-Za-z_@][\w-]*)
    | (?P<number>\d+)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s*")
_OPENING, _CLOSING = "([{", ")]}"


@dataclass
class _Rules:
    """The rules of one grammar: the names that each references, and the size of the current one."""

    names: dict[str, list[str]] = field(default_factory=dict)
    current: str = ""
    where: str = "grammar"
    elements: int = 0

    def begin(self, name: str) -> None:
        self.current, self.elements, self.where = name, 0, f"grammar: rule {name!r}"
        self.names.setdefault(name, [])
        check_number("grammar", "rules", len(self.names), MAX_RULES)

    def add(self, name: str = "") -> None:
        """Count an element of the current rule; ``name`` is given if it references a rule."""
        self.elements += 1
        check_number(self.where, "elements", self.elements, MAX_ELEMENTS)
        if name:
            self.names.setdefault(self.current, []).append(name)

    def check(self) -> None:
        """Check the depth of references, from the start rule and from the rules that it does not reach."""
        names = {"": ["start", *self.names], **self.names}
        check_chain("grammar", "rules", "", lambda name: names.get(name, ()), str)


def check_lark(text: str) -> None:
    """Raise RequestError if a grammar exceeds a limit."""
    rules, head, depth, position = _Rules(), "", 0, 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        assert token
        position, mark = token.end(), token["mark"]
        if token["space"]:
            continue
        where = rules.where
        if token["literal"] is not None:
            check_number(where, "characters of a literal", len(token["literal"]), MAX_TEXT)
            rules.add()
        elif token["regex"]:
            check_regex(where, token["regex"])
            rules.add()
        elif token["directive"] in ("json", "regex"):
            position = _check_json(where, text, position)
            rules.add()
        elif token["name"]:
            check_number("grammar", "characters of a name", len(token["name"]), MAX_TEXT)
            head = token["name"] if not depth else head
            rules.add(token["name"])
        elif token["number"]:
            check_number(where, "repetitions", int(token["number"][:20]), MAX_COUNT)
        elif mark == ":" and not depth:
            rules.begin(head)
        elif mark and mark in _OPENING:
            depth += 1
            check_number(where, "levels of parentheses", depth, MAX_DEPTH)
        elif mark and mark in _CLOSING:
            depth = max(0, depth - 1)
        elif mark == "|":
            rules.add()
    rules.check()


def _check_json(where: str, text: str, position: int) -> int:
    """Check an embedded JSON value, a schema or a regular expression's options. Return the position after it."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, _SPACE.match(text, position).end())  # type: ignore[union-attr]
    except RecursionError:
        raise RequestError(f"{where}: its JSON is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        return position  # the compiler reports the problem
    check_schema(where, value, compiled_as_is=True)
    return end
