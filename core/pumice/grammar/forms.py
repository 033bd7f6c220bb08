"""Convert each form in which users describe the structure of an answer to the form that llguidance compiles.

The forms are a JSON schema, a regular expression in the syntax of Rust's crate regex, choices, and grammars in
llama.cpp's GBNF or llguidance's Lark (https://github.com/guidance-ai/llguidance, docs/syntax.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from pumice.errors import RequestError
from pumice.grammar.closed import close_objects
from pumice.grammar.keywords import enforceable
from pumice.grammar.limits import MAX_DEPTH, MAX_ELEMENTS, MAX_SOURCE, MAX_TEXT, check_number
from pumice.grammar.schema_limits import check_regex, check_schema
from pumice.options import OUTPUT
from pumice.wording import json_problem, show_value

MAX_TRIGGERS = 16  # texts that begin a form
MAX_TRIGGER = 256  # characters of one
_MAX_CACHED = 64  # converted schemas and grammars
_LARK = re.compile(r"^[ \t]*(%llguidance\b|start\s*:(?!:))", re.MULTILINE)
_REGEX_PART = re.compile(r"\\.|[/\n]", re.DOTALL)
_ESCAPED = {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}  # characters that end a regular expression in Lark

JSON_OPTIONS: dict[str, Any] = {"whitespace_flexible": False, "key_separator": ": ?", "item_separator": ", ?"}
"""llguidance's options for compact JSON. Weak models would fill their answers with other white space."""

SPACED_OPTIONS: dict[str, Any] = {"whitespace_pattern": r"( |\n[ \t]{0,20})?"}
"""llguidance's options for indented JSON: a space, or a line break and 20 spaces, between tokens."""


def grammar_source(
    grammar: str | None = None,
    json_schema: Any = None,
    regex: str | None = None,
    choices: Sequence[str] | None = None,
    response_format: Mapping[str, Any] | None = None,
    json_whitespace: bool = False,
) -> str | None:
    """Return the llguidance grammar of the single given form; None without one.

    Args:
        grammar: grammar in GBNF or Lark.
        json_schema: schema as a dictionary or JSON text, or a Pydantic model class.
        regex: regular expression of the whole answer.
        choices: texts, one of which is the answer.
        response_format: as in OpenAI's chat completions, of the type "text", "json_object" or "json_schema".
        json_whitespace: allow indented JSON.

    Raises:
        RequestError: several forms are given, or one has the wrong type or size. Its meaning is not checked.
    """
    OUTPUT["json_whitespace"].check(json_whitespace)
    makers: dict[str, tuple[Any, Callable[[Any], str | None]]] = {
        "grammar": (grammar, _from_grammar),
        "json_schema": (json_schema, partial(_from_schema, spaced=json_whitespace)),
        "regex": (regex, _from_regex),
        "choices": (choices, _from_choices),
        "response_format": (response_format, partial(_from_response_format, spaced=json_whitespace)),
    }
    forms = {name: (value, make) for name, (value, make) in makers.items() if value is not None}
    if len(forms) > 1:
        raise RequestError(f"{' and '.join(forms)} exclude each other; give only one")
    for value, make in forms.values():
        return make(value)
    return None


def read_triggers(triggers: Sequence[str] | None, source: str | None) -> Sequence[str]:
    """Return the checked texts that begin a form (``source``); none without the option. Raises RequestError."""
    OUTPUT["grammar_triggers"].check(triggers)
    if triggers is None:
        return ()
    if source is None:
        raise RequestError("grammar_triggers: nothing to trigger; add a grammar, json_schema, regex or choices")
    if not 0 < len(triggers) <= MAX_TRIGGERS:
        raise RequestError(f"grammar_triggers: expected 1 to {MAX_TRIGGERS} texts, not {len(triggers)}")
    if not all(0 < len(trigger) <= MAX_TRIGGER for trigger in triggers):
        raise RequestError(f"grammar_triggers: each text must have 1 to {MAX_TRIGGER} characters")
    return triggers


def schema_source(schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the grammar of a checked JSON schema; ``options`` are llguidance's."""
    return json.dumps({"grammars": [{"json_schema": {**schema, "x-guidance": options}}]})


def regex_source(regex: str) -> str:
    """Return the grammar of a checked regular expression."""
    escaped = _REGEX_PART.sub(lambda part: _ESCAPED.get(part[0], part[0]), regex)
    return json.dumps({"grammars": [{"lark_grammar": f"start: /{escaped}/"}]})


def _from_grammar(text: Any) -> str:
    """Return the source of a grammar in GBNF, recognized by ``::=``, or in Lark."""
    _check_text("grammar", text)
    return _source_of_grammar(text)


@lru_cache(_MAX_CACHED)
def _source_of_grammar(text: str) -> str:
    from pumice.grammar.gbnf import gbnf_to_lark
    from pumice.grammar.lark_limits import check_lark

    if "::=" in text and not _LARK.search(text):
        try:
            text = gbnf_to_lark(text)
        except ValueError as error:
            raise RequestError(f"grammar: {error}") from None
    if text.lstrip().startswith("{"):  # llguidance's own form, whose limits are not checked
        raise RequestError("grammar: expected GBNF or Lark, not JSON; pass a JSON schema as json_schema")
    check_lark(text)
    return text


def _from_schema(schema: Any, spaced: bool) -> str:
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    if isinstance(schema, str):
        _check_text("json_schema", schema)
        schema = _parse("json_schema", schema)
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}  # JSON Schema's definition of true and false
    if not isinstance(schema, Mapping):
        raise RequestError(f"json_schema: expected a JSON object, not {show_value(schema)}")
    text = _dump("json_schema", schema)
    _check_text("json_schema", text)
    return _source_of_schema(text, spaced)


@lru_cache(_MAX_CACHED)
def _source_of_schema(text: str, spaced: bool) -> str:
    """Convert the text of a schema; cached, since clients send the same schema repeatedly."""
    schema = json.loads(text)
    check_schema("json_schema", schema)
    closed = close_objects("json_schema", enforceable(schema))
    return schema_source(closed, SPACED_OPTIONS if spaced else JSON_OPTIONS)


def _from_regex(regex: Any) -> str:
    _check_text("regex", regex)
    check_regex("regex", regex)
    return regex_source(regex)


def _from_choices(choices: Any) -> str:
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not all(isinstance(c, str) for c in choices):
        raise RequestError(f"choices: expected a list of texts, not {show_value(choices)}")
    if not all(choices) or not 0 < len(choices) <= MAX_ELEMENTS:
        raise RequestError(f"choices: expected 1 to {MAX_ELEMENTS} texts, none of them empty")
    for number, choice in enumerate(choices):
        check_number(f"choices: text {number}", "characters", len(choice), MAX_TEXT)
    lark = "start: " + " | ".join(_dump("choices", choice) for choice in choices)
    _check_text("choices", lark)
    return lark


def _from_response_format(response_format: Any, spaced: bool) -> str | None:
    if not isinstance(response_format, Mapping):
        raise RequestError(f"response_format: expected an object with a type, not {show_value(response_format)}")
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        schemas = (response_format.get(name) for name in ("schema", "value"))  # of llama-server and TGI
        return _from_schema(next((value for value in schemas if value is not None), {"type": "object"}), spaced)
    if kind != "json_schema":
        raise RequestError(f"response_format.type: expected text, json_object or json_schema, not {show_value(kind)}")
    inner = response_format.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, Mapping) else response_format.get("schema")
    if schema is None:
        raise RequestError("response_format.json_schema.schema: missing; give a JSON schema")
    return _from_schema(schema, spaced)


def _check_text(name: str, text: Any) -> None:
    if not isinstance(text, str) or not (text if name == "regex" else text.strip()):
        raise RequestError(f"{name}: expected a non-empty text, not {show_value(text)}")
    if len(text) > MAX_SOURCE:
        raise RequestError(f"{name}: {len(text)} characters, but the limit is {MAX_SOURCE}")


def _too_deep(name: str) -> RequestError:
    return RequestError(f"{name}: nested deeper than {MAX_DEPTH} levels")


def _parse(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{name}: not valid JSON: {json_problem(error)}") from None


def _dump(name: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except RecursionError:
        raise _too_deep(name) from None
    except (TypeError, ValueError) as error:
        raise RequestError(f"{name}: cannot be represented in JSON: {json_problem(error)}") from None
