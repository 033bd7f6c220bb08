"""Ollama's Modelfiles: instructions and their arguments, and the entry of the catalogue that they stand for.

The form: https://github.com/ollama/ollama/blob/main/docs/modelfile.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pumice.errors import ConfigError

MAX_BYTES: Final = 1 << 20
"""Maximum size of a Modelfile."""

_INSTRUCTION = re.compile(r"[ \t]*(?P<name>[A-Za-z]+)[ \t]+")
_QUOTED = re.compile(r'"""(?P<long>.*?)"""|"(?P<short>[^"\n]*)"(?=[ \t]*(?:\n|\Z))|(?P<plain>[^\n]*)', re.DOTALL)
_GO = re.compile(r"\{\{-?\s*(?:\.|\$|if\b|else\b|end\b|range\b|with\b|define\b|template\b|slice\b|len\b)")
_ROLES = ("system", "user", "assistant")
_SAMPLING: Mapping[str, type] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "typical_p": float,
    "repeat_penalty": float,
    "repeat_last_n": int,
    "presence_penalty": float,
    "frequency_penalty": float,
    "mirostat": int,
    "mirostat_tau": float,
    "mirostat_eta": float,
    "seed": int,
}
_ENGINE: Mapping[str, tuple[str, ...]] = {
    "num_ctx": ("n_ctx",),
    "num_batch": ("n_batch",),
    "num_gpu": ("n_gpu_layers",),
    "main_gpu": ("main_gpu",),
    "num_thread": ("cpu", "threads"),
}
_IGNORED = frozenset(
    ["num_keep", "low_vram", "f16_kv", "use_mmap", "use_mlock", "numa", "penalize_newline", "vocab_only"]
)


@dataclass
class Modelfile:
    """The content of a Modelfile.

    Attributes:
        base: Argument of FROM.
        parameters: Arguments of PARAMETER by name; a list for ``stop``.
        template: Argument of TEMPLATE.
        system: Argument of SYSTEM.
        messages: Arguments of MESSAGE, as messages with ``role`` and ``content``.
        adapters: Arguments of ADAPTER.
        ignored: Names of parameters that have no effect here.
    """

    base: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    template: str = ""
    system: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    adapters: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def parse_modelfile(text: str, source: str = "Modelfile") -> Modelfile:
    """Return the content of a Modelfile.

    Args:
        text: The file's text.
        source: Its name in errors.

    Raises:
        ConfigError: An instruction is unknown, twice there, or has a wrong argument; the line is named.
    """
    parsed = Modelfile()
    for line, name, argument in _instructions(text, source):
        try:
            _take(parsed, name, argument)
        except ValueError as error:
            raise ConfigError(f"{source}:{line}: {error}") from None
    if not parsed.base:
        raise ConfigError(f"{source}: FROM is missing; it names the model, such as FROM qwen3:8b or FROM ./model.gguf")
    return parsed


def catalogue_record(parsed: Modelfile, folder: Path) -> dict[str, Any]:
    """Return the entry of the catalogue, whose relative paths are made absolute.

    Args:
        parsed: A Modelfile.
        folder: Folder to which its paths are relative.
    """
    record: dict[str, Any] = {"model": _path_or_name(parsed.base, folder)}
    sampling: dict[str, Any] = {}
    chat: dict[str, Any] = {}
    for name, value in parsed.parameters.items():
        if name in _SAMPLING:
            sampling[name] = value
        elif name in _ENGINE:
            *section, key = _ENGINE[name]
            (record.setdefault(section[0], {}) if section else record)[key] = value
        else:
            chat["max_tokens" if name == "num_predict" else name] = value
    if parsed.template:
        record["chat_template"] = parsed.template
    if sampling:
        record["sampling"] = sampling
    if parsed.adapters:
        paths = [str(folder / _expanded(adapter)) for adapter in parsed.adapters]
        record["adapters"] = adapters = {Path(path).stem: path for path in paths}
        if len(adapters) < len(paths):
            raise ConfigError("two files of ADAPTER have the same name, by which requests choose them; rename one")
    chat |= {name: value for name in ("system", "messages") if (value := getattr(parsed, name))}
    return {**record, "chat": chat} if chat else record


def _instructions(text: str, source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and argument of each instruction."""
    position, counted, number = 0, 0, 1
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        if not line.strip() or line.lstrip().startswith("#"):
            position = end + 1
            continue
        number, counted = number + text.count("\n", counted, position), position
        match = _INSTRUCTION.match(text, position)
        if match is None:
            raise ConfigError(f"{source}:{number}: expected an instruction and its argument, not {line.strip()!r:.60}")
        name, begin = match["name"].upper(), match.end()
        prefix = ""
        if name in ("PARAMETER", "MESSAGE"):
            word = re.compile(r"\S+[ \t]*").match(text, begin)
            prefix, begin = (word[0].strip() + " ", word.end()) if word else ("", begin)
        argument = _QUOTED.match(text, begin)
        assert argument is not None  # the plain form matches any text
        if argument["plain"] is not None and argument["plain"].startswith('"""'):
            raise ConfigError(f'{source}:{number}: the text has no end: """ is missing')
        value = next(part for part in argument.group("long", "short", "plain") if part is not None)
        yield number, name, prefix + (value.strip() if argument["plain"] is not None else value)
        position = text.find("\n", argument.end())
        position = len(text) if position < 0 else position + 1


def _take(parsed: Modelfile, name: str, argument: str) -> None:
    """Add an instruction. Raises ValueError for a wrong one."""
    if not argument.strip():
        raise ValueError(f"{name} has no argument")
    match name:
        case "FROM" if parsed.base:
            raise ValueError("FROM is there twice")
        case "FROM":
            parsed.base = argument
        case "PARAMETER":
            _take_parameter(parsed, *_split(name, argument))
        case "TEMPLATE" if _GO.search(argument):
            raise ValueError(
                "TEMPLATE is a program of Go, which is not run here; leave it out for the model's own template, or "
                "give a name such as chatml or a template in Jinja"
            )
        case "TEMPLATE":
            parsed.template = argument
        case "SYSTEM":
            parsed.system = argument
        case "MESSAGE":
            role, content = _split(name, argument)
            if role not in _ROLES:
                raise ValueError(f"the role of MESSAGE must be one of {', '.join(_ROLES)}, not {role!r:.40}")
            parsed.messages.append({"role": role, "content": content})
        case "ADAPTER":
            parsed.adapters.append(argument)
        case "LICENSE" | "REQUIRES":
            pass
        case _:
            raise ValueError(
                f"unknown instruction {name!r:.40} (known: FROM, PARAMETER, TEMPLATE, SYSTEM, MESSAGE, ADAPTER, "
                "LICENSE)"
            )


def _split(name: str, argument: str) -> tuple[str, str]:
    first, _, rest = argument.partition(" ")
    if not rest:
        raise ValueError(f"{name} takes two arguments")
    return first, rest


def _take_parameter(parsed: Modelfile, name: str, text: str) -> None:
    name = name.lower()
    if name == "stop":
        parsed.parameters.setdefault("stop", []).append(text)
    elif name in _IGNORED:
        parsed.ignored.append(name)
    elif name in _SAMPLING or name in _ENGINE or name == "num_predict":
        number = _SAMPLING.get(name, int)
        try:
            parsed.parameters[name] = number(text)
        except ValueError:
            kind = "an integer" if number is int else "a number"
            raise ValueError(f"PARAMETER {name} must be {kind}, not {text!r:.40}") from None
    else:
        parameters = ", ".join([*_SAMPLING, *_ENGINE, "num_predict", "stop"])
        raise ValueError(f"unknown PARAMETER {name!r:.40} (known: {parameters})")


def _path_or_name(base: str, folder: Path) -> str:
    path = folder / _expanded(base)
    try:
        return str(path) if base.startswith((".", "/", "~")) or path.is_file() else base
    except OSError as error:
        raise ConfigError(f"FROM {base!r:.60}: {error.strerror}") from None


def _expanded(path: str) -> Path:
    if not path.isprintable():
        raise ConfigError(f"the path {path!r:.60} has characters that cannot be printed")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"the home folder of {path!r:.60} is not known") from None
