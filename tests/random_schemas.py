"""Random JSON schemas, of what clients send: objects, arrays, texts, numbers, choices between them."""

from typing import Any

import numpy as np

WORDS = ["name", "age", "city", "tags", "kind", "é", "a b", 'quo"te', "x-1", "$id_"]


def random_schema(rng: np.random.Generator, depth: int = 3) -> dict[str, Any]:
    """A schema that some value fits."""
    leaves = [_string, _integer, _number, _enum, _const, _simple]
    return (leaves if depth == 0 else [*leaves, _object, _object, _array, _any_of])[
        int(rng.integers(len(leaves) if depth == 0 else len(leaves) + 4))
    ](rng, depth - 1)


def _object(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    names = list(rng.permutation(WORDS)[: rng.integers(1, 5)])
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {str(name): random_schema(rng, depth) for name in names},
        "required": [str(name) for name in names if rng.random() < 0.6],
    }
    if rng.random() < 0.7:
        schema["additionalProperties"] = False
    return schema


def _array(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    low = int(rng.integers(0, 3))
    return {
        "type": "array",
        "items": random_schema(rng, depth),
        "minItems": low,
        "maxItems": low + int(rng.integers(0, 4)),
    }


def _any_of(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    return {"anyOf": [random_schema(rng, depth) for _ in range(int(rng.integers(1, 4)))]}


def _string(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    if rng.random() < 0.3:
        return {"type": "string", "pattern": str(rng.choice(["^a+b?$", "[0-9]{2}", "^(x|yz)*$", "^[^\\s]{1,5}$"]))}
    low = int(rng.integers(0, 5))
    return {"type": "string", "minLength": low, "maxLength": low + int(rng.integers(0, 20))}


def _integer(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    low = int(rng.integers(-200, 200))
    return {"type": "integer", "minimum": low, "maximum": low + int(rng.integers(0, 1000))}


def _number(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    low = round(float(rng.normal()), 2)
    return {"type": "number", "exclusiveMinimum": low, "maximum": round(low + 1 + float(rng.random()), 2)}


def _enum(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    values: list[Any] = [1, "one", None, True, 2.5, ["x"], {"k": 1}, "", WORDS[7]]
    return {"enum": [values[i] for i in rng.permutation(len(values))[: rng.integers(1, 5)]]}


def _const(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    return {"const": [WORDS[int(rng.integers(len(WORDS)))], 7, None, [1, 2]][int(rng.integers(4))]}


def _simple(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    return {"type": [["boolean"], ["null"], ["string", "null"], ["integer", "boolean"]][int(rng.integers(4))]}


_CLASSES = [
    "[a-z]", "[A-Za-z ]", "[^a-m]", "[^\\s\"]", r"\w", r"\d", r"\S", r"\W", ".", "[0-9a-f]", r"[\w.+-]", "[à-ÿ]",
    "[^\x00-\x7f]", "[一-鿿ぁ-ん]", r"[\u00e9\x41-\x5a]", r"[!-~]", r"[\n\t ]", "[a-zé😀]", r"\.", "-", "é", "x", " ",
    r"\/", r'["\\]', "(?:ab|c)", "e", "the",
]  # fmt: skip


def random_pattern(rng: np.random.Generator) -> str:
    """A regular expression of classes that come so many times."""

    def part() -> str:
        low = int(rng.integers(0, 4))
        times = ["", "?", "*", "+", f"{{{low + 1}}}", f"{{{low},{low + int(rng.integers(1, 20))}}}", f"{{{low},}}"]
        return str(rng.choice(_CLASSES)).join(["(?:", ")"]) + str(rng.choice(times))

    text = "|".join("".join(part() for _ in range(rng.integers(1, 4))) for _ in range(rng.integers(1, 3)))
    return f"^(?:{text})$" if rng.random() < 0.8 else text


def random_rules(rng: np.random.Generator) -> dict[str, Any]:
    """A schema of a long list, in which strings of random patterns and lengths stand beside other values."""

    def string() -> dict[str, Any]:
        low = int(rng.integers(0, 5))
        lengths = {"minLength": low, "maxLength": low + int(rng.integers(1, 30))}
        pattern = {"pattern": random_pattern(rng)}
        both = {**pattern, "maxLength": 40}
        kinds: list[dict[str, Any]] = [lengths, pattern, pattern, both, {"format": "hostname"}, {}]
        return {"type": "string", **kinds[int(rng.integers(len(kinds)))]}

    def value(depth: int) -> dict[str, Any]:
        kind = int(rng.integers(10 if depth else 6))
        if kind < 6:
            return string()
        if kind == 6:
            return {"anyOf": [value(depth - 1), value(depth - 1)]}
        if kind == 7:
            return random_schema(rng, 0)
        if kind == 8:
            return {"type": "array", "items": value(depth - 1), "minItems": 1, "maxItems": 3}
        names = [str(name) for name in rng.permutation(WORDS)[:3]]
        others = [False, True, value(0)][int(rng.integers(3))]
        members = {name: value(depth - 1) for name in names}
        return {"type": "object", "properties": members, "additionalProperties": others}

    return {"type": "array", "items": value(2), "minItems": 200}
