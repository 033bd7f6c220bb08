"""Jinja as chat templates know it: MiniJinja with the environment that transformers gives them, and limits.

The environment is that of ``transformers.utils.chat_template_utils``: blocks trimmed, loop controls, ``tojson``
without HTML escapes, ``raise_exception``, ``strftime_now``. No Python object is reachable from a template.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from pumice.errors import ModelError, RequestError
from pumice.isolation import measure

MAX_SOURCE = 1 << 20  # characters of a template
MAX_OUTPUT = 1 << 26  # characters of a rendered prompt
FUEL = 200_000  # instructions that any rendering may take
FUEL_PER_VALUE = 2_000  # further ones for each value in what is rendered

# Methods that change a list, as templates of Kimi K2 call them: values do not change here, names are set anew.
_APPEND = re.compile(r"\{%([-+]?)\s*set\s+_\s*=\s*([\w.]+)\.append\(([^()]*)\)\s*([-+]?)%\}")
_POP_FIRST = re.compile(r"\{%([-+]?)\s*set\s+(\w+)\s*=\s*([\w.]+)\.pop\(0\)\s*([-+]?)%\}")
_GENERATION = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


class _Refused(Exception):
    """What a template says through ``raise_exception``."""


class JinjaTemplate:
    """A compiled template. Raises ModelError if it is no Jinja template."""

    def __init__(self, source: str) -> None:
        import minijinja

        if len(source) > MAX_SOURCE:
            raise ModelError(f"the chat template has {len(source)} characters; at most {MAX_SOURCE} are read")
        self.source = source
        self._environment = minijinja.Environment(
            templates={"chat": _without_changes(_without_generation(source))},
            filters={"tojson": _tojson, "length": _length, "count": _length, "indent": _indent},
            tests={"iterable": _is_iterable},
            globals={"raise_exception": _raise_exception, "strftime_now": _strftime_now},
            trim_blocks=True,
            lstrip_blocks=True,
            auto_escape_callback=lambda name: False,
            debug=False,
        )
        self._environment.fuel = 1  # enough to find mistakes of syntax
        try:
            self._environment.render_template("chat")
        except minijinja.TemplateError as error:
            if error.kind == "SyntaxError":
                raise ModelError(f"the chat template is not valid Jinja: {_first_line(error)}") from None

    def render(self, context: Mapping[str, Any]) -> str:
        """The text for a context of plain values. Raises RequestError if the template refuses or fails."""
        import minijinja

        self._environment.fuel = FUEL + FUEL_PER_VALUE * measure(context, sys.maxsize)[0]
        try:
            text = self._environment.render_template("chat", **context)
        except _Refused as refusal:
            raise RequestError(f"the chat template refuses these messages: {refusal}") from None
        except minijinja.TemplateError as error:
            raise RequestError(f"the chat template fails: {_first_line(error)}") from None
        except (TypeError, ValueError, AttributeError) as error:  # of a filter that is a function here, or a method
            raise RequestError(f"the chat template fails: {error}") from None
        if len(text) > MAX_OUTPUT:
            raise RequestError(f"the chat template wrote {len(text)} characters; at most {MAX_OUTPUT} are taken")
        return text


@lru_cache(maxsize=8)
def compiled(source: str) -> JinjaTemplate:
    """The template of a source; the last few stay compiled. For workers: a source can end the process."""
    return JinjaTemplate(source)


def _first_line(error: Exception) -> str:
    """What happened and where; a picture of the source follows."""
    return str(error).partition("\n")[0]


def _without_generation(source: str) -> str:
    """``{% generation %}`` marks what training looks at; to a prompt it means nothing."""
    return _GENERATION.sub(lambda m: f"{{%{m[1]} {'endif' if m[2] else 'if true'} {m[3]}%}}", source)


def _without_changes(source: str) -> str:
    """``append`` and ``pop(0)`` of lists as assignments."""
    source = _APPEND.sub(r"{%\1 set \2 = \2 + [\3] \4%}", source)
    return _POP_FIRST.sub(r"{%\1 set \2 = \3[0] %}{%- set \3 = \3[1:] \4%}", source)


def _raise_exception(message: str) -> None:
    raise _Refused(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _length(value: Any) -> int:
    """Nothing has no length, where Jinja's undefined has 0: templates are written for both."""
    return 0 if value is None else len(value)


def _is_iterable(value: Any) -> bool:
    return hasattr(value, "__iter__")


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """As Jinja2's: a line break at the end stays one."""
    prefix = width if isinstance(width, str) else " " * width
    lines = text.split("\n")
    rest = [prefix + line if line or blank else line for line in lines[1:]]
    return "\n".join([prefix + lines[0] if first else lines[0], *rest])
