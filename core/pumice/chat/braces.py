"""Arguments as Gemma writes them, in Lark: ``{city:<|"|>Paris<|"|>,days:3}``, held to a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Braces:
    """How parts are written in Lark: a ``literal`` text, a ``quoted`` one (None: any), the JSON of a schema."""

    literal: Callable[[str], str]
    quoted: Callable[[str | None], str]
    json: Callable[[Mapping[str, Any]], str]

    def object(self, schema: Mapping[str, Any]) -> str:
        """Properties that have to come stand first; where a schema names none it is any JSON object."""
        properties, required = schema.get("properties"), schema.get("required", ())
        if not isinstance(properties, Mapping) or not properties:
            return self.json({**schema, "type": "object"}) if schema.get("additionalProperties", True) else '"{}"'
        rules = {name: f"{self.literal(f'{name}:')} {self._value(part)}" for name, part in properties.items()}
        needed = [rules[name] for name in rules if name in required]
        optional = [rules[name] for name in rules if name not in required]
        if needed:
            return f'"{{" {_COMMA.join(needed)} {_rest(optional)} "}}"'
        firsts = [f"({rule} {_rest(optional[i + 1 :])})" for i, rule in enumerate(optional)]
        return f'"{{" ({" | ".join(firsts)})? "}}"'

    def _value(self, schema: Any) -> str:
        schema = schema if isinstance(schema, Mapping) else {}
        kind, choices = schema.get("type"), schema.get("enum")
        if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
            return f"({' | '.join(self.quoted(choice) for choice in choices)})"
        if kind == "string":
            return self.quoted(None)
        if kind == "object":
            return self.object(schema)
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            item = self._value(schema["items"])
            return f'"[" ({item} ("," {item})*)? "]"'
        return self.json(schema)


_COMMA = ' "," '


def _rest(rules: Sequence[str]) -> str:
    return " ".join(f'("," {rule})?' for rule in rules)
