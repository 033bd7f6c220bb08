"""Constraints of a JSON schema on the strings of a text, by their path."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any

from pumice.grammar.alphabet import Alphabet, UnknownRule, sets_of_pattern, sets_of_text
from pumice.grammar.forms import JSON_OPTIONS, SPACED_OPTIONS
from pumice.grammar.json_position import Path

logger = logging.getLogger("pumice")

_KNOWN = frozenset(
    """type properties required additionalProperties items prefixItems minItems maxItems minProperties maxProperties
    minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf enum const anyOf
    oneOf allOf $ref $defs definitions title description default examples $schema $comment deprecated readOnly
    writeOnly""".split()  # noqa: SIM905
)  # keywords whose effect on strings is understood here
_LIMITS = ("minLength", "maxLength", "pattern", "format")  # keywords that constrain strings
_BESIDE = ("anyOf", "oneOf", "allOf")  # keywords with schemas for the same value
_LENGTHS = {"minLength", "maxLength"}
_CONSTRAINING = {*_LIMITS, "enum", "const"}  # keywords that constrain a string
_DELEGATING = {*_BESIDE, "$ref"}  # keywords of schemas that delegate to other schemas
# The characters that a format distinguishes: RFC 1123, section 2.1.
_FORMAT_ALPHABETS = {"hostname": sets_of_pattern(r"[A-Za-z][0-9]-\.")}
_COUNTED = re.compile(r"\{(\d+),(\d+)\}")
_ARRAY_KEYWORDS = frozenset(["items", "prefixItems"])
_OTHER = ""  # stands for the members that a schema does not name
_ANYTHING: Mapping[str, Any] = {}
_PATHS = 1024  # paths whose rules are cached
_FIRST_PATHS = 256  # paths whose alphabets are determined when the grammar is compiled
_RANGES = 256  # maximum ranges in an alphabet
_ALPHABETS = 8  # maximum alphabets of a schema
_NODES = 256  # maximum schemas for one string


@dataclass(eq=False)
class StringRule:
    """The constraints on a string by one schema, alternatives, or several schemas together.

    Attributes:
        alphabet: sets of characters that the constraints distinguish.
        lengths: minimum and maximum number of characters, if they are the only constraint; otherwise None.
        by_words: make masks from words, since counting characters up to a maximum makes walks through the vocabulary
            slow.
    """

    alphabet: Alphabet
    lengths: tuple[int, int] | None
    by_words: bool


class SchemaStrings:
    """The constraints on all strings of a schema.

    Attributes:
        alphabets: alphabets of the strings whose masks are made from words, among the first paths of the schema.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # "$id" would change the base of references.
        self._schema = {key: value for key, value in schema.items() if key != "$id"}
        self._rules: dict[frozenset[int], StringRule | None] = {}
        self._understood: set[int] = set()  # ids of supported schemas
        self.alphabets = frozenset(itertools.islice(dict.fromkeys(self._bounded()), _ALPHABETS))
        self.rule = lru_cache(_PATHS)(self._chosen)

    def _chosen(self, path: Path) -> StringRule | None:
        """Return ``_rule``, by words only if the words were made when the grammar was compiled."""
        rule = self._rule(path)
        if rule and rule.by_words and rule.alphabet not in self.alphabets:
            rule = replace(rule, by_words=False)
        masks = "words" if rule and rule.by_words else "the vocabulary"
        logger.debug("grammar: strings at %s: masks from %s", list(path), masks)
        return rule

    def _rule(self, path: Path) -> StringRule | None:
        """Return the rule of the strings at a path; None if it is unknown, or only lists allowed strings."""
        try:
            nodes = self._nodes(path)
            key = frozenset(map(id, nodes))
            if key not in self._rules:
                self._rules[key] = _rule_of(nodes)
            return self._rules[key]
        except UnknownRule:
            return None

    def _nodes(self, path: Path) -> list[Mapping[str, Any]]:
        """Return the schemas of the values at a path. Raises UnknownRule."""
        nodes = self._beside([self._schema])
        for name in path:
            nodes = self._beside(inner for node in nodes for inner in _inner(node, name))
        return nodes

    def _bounded(self) -> Iterator[Alphabet]:
        """Yield the alphabets of strings whose masks should be made from words, in breadth-first order."""
        paths, visited = list[Path]([()]), set[frozenset[int]]()
        for path in paths:
            try:
                nodes = self._nodes(path)
            except UnknownRule:
                continue
            key = frozenset(map(id, nodes))
            if key not in visited:
                visited.add(key)
                rule = self._rule(path)
                if rule and rule.by_words:
                    yield rule.alphabet
                names = dict.fromkeys(name for node in nodes for name in _names(node))
                paths += ((*path, name) for name in itertools.islice(names, _FIRST_PATHS - len(paths)))

    def _beside(self, nodes: Iterable[Any]) -> list[Mapping[str, Any]]:
        """Return schemas and all further schemas for the same value. Raises UnknownRule."""
        schemas: dict[int, Mapping[str, Any]] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node is False or id(node) in schemas:
                continue
            if node is True:
                node = _ANYTHING
            if len(schemas) == _NODES or not self._understands(node):
                raise UnknownRule(node)
            schemas[id(node)] = node
            waiting += [inner for key in _BESIDE for inner in node.get(key, ())]
            waiting += [self._target(node["$ref"])] if "$ref" in node else []
        return list(schemas.values())

    def _understands(self, node: Any) -> bool:
        if id(node) not in self._understood and _is_understood(node):
            self._understood.add(id(node))
        return id(node) in self._understood

    def _target(self, pointer: Any) -> Any:
        """Return the target of a reference. Raises UnknownRule."""
        root, *names = str(pointer).split("/")
        try:
            if root != "#" or set(str(pointer)) & set("~%"):
                raise KeyError(pointer)
            return reduce(lambda node, name: node[int(name) if isinstance(node, list) else name], names, self._schema)
        except (LookupError, TypeError, ValueError):
            raise UnknownRule(pointer) from None


def strings_of(source: str) -> SchemaStrings | None:
    """Return the string constraints of a grammar, if it is a schema that limits strings; else None."""
    if not any(f'"{key}"' in source for key in _LIMITS):
        return None
    try:
        [grammar] = json.loads(source)["grammars"]
        schema = grammar["json_schema"]
        options = schema.pop("x-guidance")
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return SchemaStrings(schema) if options in (JSON_OPTIONS, SPACED_OPTIONS) else None


def _names(node: Mapping[str, Any]) -> Iterator[str | None]:
    """Yield the names of known members, one name for all others, and None for array elements."""
    if not node.keys().isdisjoint(_ARRAY_KEYWORDS):
        yield None
    yield from node.get("properties", ())
    if isinstance(node.get("additionalProperties"), Mapping):
        yield _OTHER


def _inner(node: Mapping[str, Any], name: str | None) -> Iterator[Any]:
    """Yield the schemas of an object's member, or of an array's elements if ``name`` is None."""
    if name is None:
        yield from node.get("prefixItems", ())
        yield node.get("items", True)
    elif "\\" in name:  # the same name has several spellings
        raise UnknownRule(name)
    elif name in node.get("properties", {}):
        yield node["properties"][name]
    else:
        yield node.get("additionalProperties", True)


def _rule_of(nodes: Iterable[Mapping[str, Any]]) -> StringRule | None:
    nodes = [node for node in nodes if _may_be_string(node)]
    if not any(key in node for node in nodes for key in _LIMITS):
        return None
    texts = "".join(text for node in nodes for text in _literals(node) if isinstance(text, str))
    patterns = [node["pattern"] for node in nodes if "pattern" in node]
    formats = [node["format"] for node in nodes if "format" in node]
    if not set(formats) <= _FORMAT_ALPHABETS.keys():
        raise UnknownRule(formats)
    alphabet = sets_of_text(texts).union(
        *map(sets_of_pattern, patterns), *(_FORMAT_ALPHABETS[name] for name in formats)
    )
    if sum(map(len, alphabet)) > _RANGES:
        raise UnknownRule(alphabet)
    lengths, has_maximum = _lengths_of(nodes), any("maxLength" in node for node in nodes)
    return StringRule(alphabet, lengths, has_maximum or bool(formats) or any(map(_has_range, patterns)))


def _has_range(pattern: str) -> bool:
    """Return True if a pattern has a repetition with different minimum and maximum."""
    return any(least != most for least, most in _COUNTED.findall(pattern))


def _lengths_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Return minimum and maximum length if a single schema constrains the string, and only by them."""
    deciding = [node for node in nodes if not node.keys() & _DELEGATING or node.keys() & _CONSTRAINING]
    if len(deciding) != 1 or deciding[0].keys() & (_CONSTRAINING | _DELEGATING) - _LENGTHS:
        return None
    least, most = deciding[0].get("minLength", 0), deciding[0].get("maxLength")
    return (least, most) if isinstance(least, int) and isinstance(most, int) else None


def _may_be_string(node: Mapping[str, Any]) -> bool:
    kinds = node.get("type", "string")
    return "string" in ([kinds] if isinstance(kinds, str) else kinds)


def _literals(node: Mapping[str, Any]) -> list[Any]:
    """Return the values to which a schema restricts a value."""
    return [*node.get("enum", ()), *([node["const"]] if "const" in node else ())]


def _is_understood(node: Any) -> bool:
    if not isinstance(node, Mapping) or not node.keys() <= _KNOWN:
        return False
    return not any(isinstance(value, dict | list) for value in _literals(node))
