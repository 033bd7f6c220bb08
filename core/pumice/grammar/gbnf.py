"""Translate GBNF, llama.cpp's notation of grammars, to llguidance's dialect of Lark.

GBNF is defined in llama.cpp's grammars/README.md. Line breaks are white space: a rule ends where the next ``name ::=``
begins. One pass splits the text into tokens, and one translates the tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pumice.grammar.limits import MAX_COUNT, MAX_DEPTH, MAX_ELEMENTS, MAX_RULES, MAX_TEXT, check_number

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
    | (?P<rule>[\w-]++)\s*+::=
    | (?P<name>[\w-]++)
    | "(?P<literal>(?:[^"\\]|\\.)*)"
    | \[(?P<class>(?:[^\]\\]|\\.)*)\]
    | \{\s*+(?P<least>\d++)\s*+(?P<comma>,?)\s*+(?P<most>\d*+)\s*+\}
    | (?P<mark>[.()|*+?])
    """,
    re.VERBOSE | re.DOTALL,
)
_CHARACTER = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([][\"\\nrt^-]))|([^\\])", re.DOTALL
)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}
_ANY = r"/[^\x00]/"  # a dot matches any character, line breaks included


@dataclass
class _Rule:
    """A rule under construction: ``parts`` is Lark, in which tuples stand for names of rules."""

    name: str
    parts: list[str | tuple[str]] = field(default_factory=list)
    depth: int = 0
    repeatable: bool = False  # the last part is an element without a repetition
    empty: bool = True  # the current alternative has no elements yet
    elements: int = 0
    begins: list[int] = field(default_factory=list)  # positions of the open parentheses
    last: int = 0  # position of the last element

    def add(self, part: str | tuple[str]) -> None:
        """Append an element."""
        self.elements += 1
        check_number(f"grammar: rule {self.name!r}", "elements", self.elements, MAX_ELEMENTS)
        self.last = len(self.parts)
        self.parts.append(part)
        self.repeatable, self.empty = True, False

    def open(self) -> None:
        self.depth += 1
        check_number(f"grammar: rule {self.name!r}", "levels of parentheses", self.depth, MAX_DEPTH)
        self.elements += 1
        self.begins.append(len(self.parts))
        self.parts.append("(")
        self.repeatable, self.empty = False, True

    def close(self) -> None:
        if not self.depth:
            raise ValueError(f"rule {self.name!r}: ')' without '('")
        self.depth -= 1
        self._end_alternative()
        self.parts.append(")")
        self.last = self.begins.pop()
        self.repeatable, self.empty = True, False

    def either(self) -> None:
        self._end_alternative()
        check_number(f"grammar: rule {self.name!r}", "elements", self.elements + 1, MAX_ELEMENTS)
        self.elements += 1
        self.parts.append("|")
        self.repeatable, self.empty = False, True

    def repeat(self, suffix: str) -> None:
        if not self.repeatable:
            raise ValueError(f"rule {self.name!r}: {suffix!r} does not follow an element")
        if suffix in ("{0}", "{0,0}"):  # unknown to Lark: nothing stands for it
            self.parts[self.last :] = ['""']
        else:
            self.parts.append(suffix)
        self.repeatable = False

    def end(self) -> None:
        if self.depth:
            raise ValueError(f"rule {self.name!r}: '(' without ')'")
        self._end_alternative()

    def _end_alternative(self) -> None:
        if self.empty:
            self.parts.append('""')

    @property
    def names(self) -> Iterator[str]:
        """The names of the rules that this rule references."""
        return (part[0] for part in self.parts if isinstance(part, tuple))


def gbnf_to_lark(text: str) -> str:
    """Return the Lark grammar of a GBNF text. Raises ValueError for invalid GBNF, RequestError beyond a limit."""
    rules = _read(text)
    if "root" not in rules:
        raise ValueError("the grammar has no rule 'root', with which it must begin")
    for rule in rules.values():
        if missing := next((name for name in rule.names if name not in rules), None):
            raise ValueError(f"rule {rule.name!r}: unknown rule {missing!r}")
    names = _lark_names(rules)
    lines = [
        f"{names[rule.name]}: {' '.join(names[part[0]] if isinstance(part, tuple) else part for part in rule.parts)}"
        for rule in rules.values()
    ]
    return "%llguidance {}\n" + "\n".join(lines) + "\n"


def _read(text: str) -> dict[str, _Rule]:
    """Return the rules by name; the last definition of a name counts, as in llama.cpp."""
    rules: dict[str, _Rule] = {}
    rule, position = None, 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(
                f"line {text.count(chr(10), 0, position) + 1}: {text[position : position + 20]!r} is not GBNF"
            )
        position = token.end()
        if token["rule"]:
            if rule:
                rule.end()
            rule = rules[token["rule"]] = _Rule(token["rule"])
            check_number("grammar", "rules", len(rules), MAX_RULES)
        elif token.lastgroup != "space":
            if rule is None:
                raise ValueError(f"expected a rule, 'name ::= ...', not {token[0][:20]!r}")
            _take(rule, token)
    if rule:
        rule.end()
    return rules


def _take(rule: _Rule, token: re.Match[str]) -> None:
    """Append a token to a rule."""
    mark = token["mark"]
    check_number(f"grammar: rule {rule.name!r}", "characters of one element", len(token[0]), MAX_TEXT)
    if token["name"]:
        rule.add((token["name"],))
    elif token["literal"] is not None:
        rule.add(json.dumps("".join(chr(code) for code, _ in _codes(token["literal"]))))
    elif token["class"] is not None:
        rule.add(_class(token["class"]))
    elif token["least"]:
        rule.repeat(_repetition(rule, token))
    elif mark == ".":
        rule.add(_ANY)
    elif mark == "(":
        rule.open()
    elif mark == ")":
        rule.close()
    elif mark == "|":
        rule.either()
    else:
        rule.repeat(mark)


def _repetition(rule: _Rule, token: re.Match[str]) -> str:
    digits = token["least"], token["most"]
    least, most = (int(text[:20] or 0) for text in digits)
    check_number(f"grammar: rule {rule.name!r}", "repetitions", max(least, most), MAX_COUNT)
    if not token["comma"]:
        if token["most"]:
            raise ValueError(f"rule {rule.name!r}: {token[0]!r} has no comma between its numbers")
        return f"{{{least}}}"
    if token["most"] and most < least:
        raise ValueError(f"rule {rule.name!r}: {token[0]!r} has a maximum below its minimum")
    return f"{{{least},{most if token['most'] else ''}}}"


def _codes(text: str) -> Iterator[tuple[int, bool]]:
    """Yield the code points of a literal or class, each with True if it was escaped."""
    position = 0
    while position < len(text):
        character = _CHARACTER.match(text, position)
        if character is None:
            raise ValueError(f"unknown escape {text[position : position + 2]!r} in {text[:40]!r}")
        position = character.end()
        digits = character[1] or character[2] or character[3]
        code = (
            int(digits, 16) if digits else ord(_NAMED.get(character[4], character[4]) if character[4] else character[5])
        )
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError(f"\\u{code:04X} is not a Unicode character")
        yield code, character[5] is None


def _class(text: str) -> str:
    """Return a class as a regular expression between slashes."""
    codes = list(_codes(text))
    negated = codes[:1] == [(ord("^"), False)]
    ranges, position = [], int(negated)
    while position < len(codes):
        is_range = codes[position + 1 : position + 2] == [(ord("-"), False)] and position + 2 < len(codes)
        low, high = codes[position][0], codes[position + 2 if is_range else position][0]
        if high < low:
            raise ValueError(f"class {f'[{text}]'!r:.60}: the range {chr(low)!r}-{chr(high)!r} is empty")
        ranges.append(f"\\x{{{low:x}}}-\\x{{{high:x}}}" if is_range else f"\\x{{{low:x}}}")
        position += 3 if is_range else 1
    if not ranges:
        raise ValueError(f"class {f'[{text}]'!r:.60}: it has no characters")
    return f"/[{'^' * negated}{''.join(ranges)}]/"


def _lark_names(rules: dict[str, _Rule]) -> dict[str, str]:
    """Return the names in Lark. Rules without recursion get upper-case names, which makes them terminals."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    waits = dict.fromkeys(rules, 0)  # number of referenced rules not yet known to be regular
    for rule in rules.values():
        for name in set(rule.names):
            users[name].append(rule.name)
            waits[rule.name] += 1
    regular = [name for name, n in waits.items() if not n and name != "root"]
    for name in regular:
        for user in users[name]:
            waits[user] -= 1
            if not waits[user] and user != "root":
                regular.append(user)
    names = {name: f"r{number}_{re.sub(r'[^a-z0-9]', '_', name.lower())}" for number, name in enumerate(rules)}
    return {**names, **{name: names[name].upper() for name in regular}, "root": "start"}
