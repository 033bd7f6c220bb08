"""Render chat templates by MiniJinja, in the environment of transformers and within limits.

The environment follows ``transformers.utils.chat_template_utils``: trimmed blocks, loop controls, ``tojson`` without
HTML escapes, ``raise_exception``, ``strftime_now``. Templates cannot reach Python objects.
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
from pumice.wording import printable

MAX_SOURCE = 1 << 20  # characters of a template
MAX_OUTPUT = 1 << 26  # characters of a rendered prompt
FUEL = 200_000  # instructions of MiniJinja for any rendering
FUEL_PER_VALUE = 2_000  # additional instructions per value of the context

# Kimi K2's templates change lists by methods. MiniJinja's values are immutable, so assignments replace them.
_APPEND = re.compile(r"\{%([-+]?)\s*set\s+_\s*=\s*([\w.]+)\.append\(([^()]*)\)\s*([-+]?)%\}")
_POP_FIRST = re.compile(r"\{%([-+]?)\s*set\s+(\w+)\s*=\s*([\w.]+)\.pop\(0\)\s*([-+]?)%\}")
_GENERATION = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")


class _Refused(Exception):
    """Raised by a template through ``raise_exception``."""


class JinjaTemplate:
    """A compiled template. Raises ModelError if the source is not valid Jinja."""

    def __init__(self, source: str) -> None:
        import minijinja

        if len(source) > MAX_SOURCE:
            raise ModelError(f"the chat template has {len(source)} characters, but the limit is {MAX_SOURCE}")
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
        self._environment.fuel = 1  # enough to detect syntax errors
        try:
            self._environment.render_template("chat")
        except minijinja.TemplateError as error:
            if error.kind == "SyntaxError":
                raise ModelError(f"the chat template is not valid Jinja: {_first_line(error)}") from None

    def render(self, context: Mapping[str, Any]) -> str:
        """Return the text for a context of plain values. Raises RequestError if the template refuses or fails."""
        import minijinja

        self._environment.fuel = FUEL + FUEL_PER_VALUE * measure(context, sys.maxsize)[0]
        try:
            text = self._environment.render_template("chat", **context)
        except _Refused as refusal:
            said = printable(" ".join(str(refusal).split()))
            raise RequestError(f"the chat template refuses these messages: {said}") from None
        except minijinja.TemplateError as error:
            raise RequestError(f"the chat template fails: {_first_line(error)}") from None
        except (TypeError, ValueError, AttributeError) as error:  # raised by Python filters and methods
            raise RequestError(f"the chat template fails: {error}") from None
        if len(text) > MAX_OUTPUT:
            raise RequestError(f"the chat template wrote {len(text)} characters, but the limit is {MAX_OUTPUT}")
        return text


@lru_cache(maxsize=8)
def compiled(source: str) -> JinjaTemplate:
    """Return the compiled template of a source, cached. Call it in workers only: a source can crash the process."""
    return JinjaTemplate(source)


def _first_line(error: Exception) -> str:
    """Return the first line of an error: cause and position, without the excerpt of the source."""
    return str(error).partition("\n")[0]


def _without_generation(source: str) -> str:
    """Replace ``{% generation %}``, which selects text for training, by a block without effect."""
    return _GENERATION.sub(lambda m: f"{{%{m[1]} {'endif' if m[2] else 'if true'} {m[3]}%}}", source)


def _without_changes(source: str) -> str:
    """Replace ``append`` and ``pop(0)`` of lists by assignments."""
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
    """Return the length of a value; 0 for None, as for Jinja's undefined."""
    return 0 if value is None else len(value)


def _is_iterable(value: Any) -> bool:
    return hasattr(value, "__iter__")


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent lines like Jinja2's filter, which keeps a line break at the end."""
    prefix = width if isinstance(width, str) else " " * width
    lines = text.split("\n")
    rest = [prefix + line if line or blank else line for line in lines[1:]]
    return "\n".join([prefix + lines[0] if first else lines[0], *rest])
