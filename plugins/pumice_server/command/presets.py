"""Read llama-server's presets: an INI file with a section for each model, whose keys are options of the command."""

from __future__ import annotations

import configparser
import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import click

from pumice.cli.output import echo
from pumice_server.command.arguments import OPTIONS
from pumice_server.command.environment import PREFIX, argument_of, option_of
from pumice_server.limits import MAX_MODELS

_SHARED = "*"
_TOP = "\0"  # section of the keys before the first one
_NONE = "\0\0"  # section whose keys the others would have
_VERSION = "1"
_MAX_BYTES = 1 << 20
_CONTROL = re.compile("[^\\t\\n -~\xa0-\U0010ffff]|[\u2028\u2029]")  # of terminals, and ends of lines in messages
_THEIRS = {
    "load-on-startup": "models load on first use",
    "stop-timeout": "engines end at once",
    "dedup-cache-models": "only named models are listed",
}
"""Keys that are no options, and why they have no meaning here."""


def read_presets(path: Path, params: Sequence[click.Parameter], server_wide: Collection[str]) -> dict[str, list[str]]:
    """Return the arguments of the models of a file, by their names.

    Args:
        path: INI file.
        params: Parameters of the command.
        server_wide: Names of parameters that no single model has.

    Raises:
        UsageError: The file cannot be read, or a key is unknown or has no meaning for one model.
    """
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), default_section=_NONE)
    parser.optionxform = str  # type: ignore[assignment]  # keys keep their case
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise click.UsageError(f"--models-preset: {path}: more than {_MAX_BYTES >> 20} MiB")
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        if control := _CONTROL.search(text):
            raise click.UsageError(f"--models-preset: {path}: the character {control[0]!r} is not allowed; remove it")
        parser.read_string(f"[{_TOP}]\n{text}", str(path))
    except configparser.ParsingError as error:
        number, line = error.errors[0]  # the first line of what was read is none of the file
        raise click.UsageError(
            f"--models-preset: {path}: line {number - 1}: expected [name] or key = value, not {line:.80}"
        ) from None
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--models-preset: {path}: not UTF-8: byte {error.start}") from None
    except (OSError, configparser.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).replace("\0", "").split())
        raise click.UsageError(f"--models-preset: {path}: {reason}") from None
    version = parser[_TOP].pop("version", _VERSION)
    if version != _VERSION:
        raise click.UsageError(f"--models-preset: {path}: version {version!r:.60} is unknown; expected {_VERSION}")
    for key in parser[_TOP]:
        raise click.UsageError(
            f"--models-preset: {path}: {key} stands before the first section; put it into [{_SHARED}], for all models"
        )
    reader = _Reader(path, params, server_wide)
    shared = reader.arguments(_SHARED, parser[_SHARED]) if parser.has_section(_SHARED) else []
    names = [name for name in parser.sections() if name not in (_TOP, _SHARED)]
    if not names:
        raise click.UsageError(f"--models-preset: {path}: there is no section, such as [name]")
    if len(names) > MAX_MODELS:
        raise click.UsageError(f"--models-preset: {path}: {len(names)} sections; at most {MAX_MODELS} are read")
    return {name: [*shared, *reader.arguments(name, parser[name])] for name in names}


class _Reader:
    """Turns keys of one file into arguments."""

    def __init__(self, path: Path, params: Sequence[click.Parameter], server_wide: Collection[str]) -> None:
        self._path = path
        self._options = {name: param for param in params for name in (*param.opts, *param.secondary_opts)}
        self._server_wide = server_wide
        flags = {name: int(not getattr(param, "is_flag", False)) for name, param in self._options.items()}
        translated = {name: translation.n_values for name, translation in OPTIONS.translations.items()}
        self._n_values = {**flags, **OPTIONS.ignored, **translated}

    def arguments(self, section: str, keys: Mapping[str, str]) -> list[str]:
        """Return the arguments of a section. Raises UsageError."""
        arguments: list[str] = []
        for key, value in keys.items():
            where = f"--models-preset: {self._path}: [{section}] {key}"
            if key in _THEIRS:
                echo(f"warning: {where} is ignored: {_THEIRS[key]}", err=True)
                continue
            name = self._name(key)
            if name in OPTIONS.refused:
                raise click.UsageError(f"{where}: {OPTIONS.refused[name]}")
            if name not in self._n_values:
                close = difflib.get_close_matches(name, self._options, 1)
                hint = f"; did you mean {close[0].lstrip('-')!r}?" if close else ""
                raise click.UsageError(f"{where}: unknown option{hint}")
            param = self._options.get(name)
            if param is not None and (param.name in self._server_wide or not _is_of_a_model(param)):
                raise click.UsageError(f"{where}: the option applies to the whole server; give it on the command line")
            arguments += argument_of(name, value, self._n_values, OPTIONS.refused, where)
        return arguments

    def _name(self, key: str) -> str:
        """Return the option of a key, which has its name without hyphens, or that of its variable."""
        if key.startswith(PREFIX):
            return option_of(key)
        bare = re.sub("^-+", "", key).replace("_", "-")
        short = f"-{bare}"
        return short if short in self._n_values or short in OPTIONS.refused else f"--{bare}"


def _is_of_a_model(param: click.Parameter) -> bool:
    """Return False for options that act at once, on the process."""
    return getattr(param, "group", "") != "Security" and param.name not in ("list_devices", "help", "verbose")
