"""Messages on standard error: errors, log records and warnings, each in one line."""

from __future__ import annotations

import functools
import os
import re
import sys
import traceback
import warnings
from typing import TYPE_CHECKING

import click

from pumice.cli.output import echo

if TYPE_CHECKING:
    import logging

_FILE = re.compile(r"[^ :]*[./][^:]*: ")  # before the message of a file's key
INTERRUPTED = 130  # the status a shell gives a program that Ctrl-C ended


def say(kind: str, message: object) -> None:
    """Write ``kind: message`` to standard error as a single line."""
    echo(f"{kind}: {' '.join(str(message).split())}", err=True)


def show_logs(verbose: bool = False) -> None:
    """Show log records of the library and its plugins: warnings, information if ``verbose``, all if debugging."""
    import logging

    logger = logging.getLogger("pumice")
    logger.setLevel(logging.DEBUG if debugging() else logging.INFO if verbose else logging.WARNING)
    logger.propagate = False
    logger.handlers = [_handler()]
    warnings.showwarning = lambda message, *_: say("warning", message)


def in_flags(message: str) -> str:
    """Replace names of options, such as ``n_ctx``, by what was typed, else by the first long flag.

    Names in quotes and lists of known names stay, and keys after a colon, which are those of a file.
    """
    message, known, names = message.removeprefix("arguments: ").partition(" (known: ")
    flags = _flags()
    single = "|".join(name for name in flags if "_" not in name)
    others = "|".join(name for name in flags if "_" in name)
    pattern = rf"^(?:{single}|{others})(?=: )|(?<![\w'\".-])(?<!: )(?:{others})\b(?![\w'\".(]|: )=?"

    def flag_of(match: re.Match[str]) -> str:
        name = match[0].removesuffix("=")
        words = {argument.partition("=")[0] for argument in sys.argv[1:]}
        typed = [flag for flag in flags[name] if flag in words] or [f"--set {name}" for word in words if word == name]
        long = [flag for flag in flags[name] if flag.startswith("--")]
        return [*typed, *long, *flags[name]][0] + (" " if match[0] != name else "")

    return re.sub(pattern, flag_of, message) + known + names


@functools.cache
def _flags() -> dict[str, tuple[str, ...]]:
    """Return the flags of each option by its name in Python."""
    from pumice.options import CHAT, ENGINE, REQUEST, SAMPLING

    options = [*REQUEST.values(), *CHAT.values(), *SAMPLING.values(), *ENGINE.values()]
    return {option.name: option.flags for option in options if option.flags}


def _handler() -> logging.Handler:
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.levelname.lower(), in_flags(record.getMessage()))
            if record.exc_info:
                echo(logging.Formatter().formatException(record.exc_info), err=True)

    return Handler()


def debugging() -> bool:
    return os.environ.get("PUMICE_DEBUG") == "1"


def require_streams() -> None:
    """Replace closed streams: standard input is empty, standard error discards. Standard output must be open."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - it lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it lives as long as the process
    if sys.stdout is None:
        raise click.ClickException("standard output is closed")


def report(error: Exception | KeyboardInterrupt) -> int:
    """Write the error, and return the exit status: 2 for wrong usage, else 1."""
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return INTERRUPTED
    if debugging():
        raise error
    message, status = explain(error)
    say("error", message)
    if isinstance(error, OSError) and sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # buffered output would fail again at exit
    return status


def _is_of_output(error: OSError) -> bool:
    """Return True if ``click.echo`` raised the error, by which commands and Click's help write to standard output."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__") == "click.utils"


def explain(error: Exception) -> tuple[str, int]:
    """Return the message for an error, and the exit status."""
    from pumice.errors import ConfigError, NoChatTemplateError, PumiceError

    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "pumice"
        return f"{error.format_message().rstrip('.')} (see `{command} --help`)", error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, NoChatTemplateError):
        return error.in_commands, 1
    if isinstance(error, PumiceError):  # one of a configuration file has the keys that stand there
        is_of_file = isinstance(error, ConfigError) and _FILE.match(str(error))
        return str(error) if is_of_file else in_flags(str(error)), 1
    if isinstance(error, MemoryError):
        return "out of memory; try a smaller model, --ctx-size or --batch-size", 1
    if isinstance(error, OSError) and error.strerror:
        if error.filename is not None:
            return f"{error.filename}: {error.strerror.lower()}", 1
        if _is_of_output(error):
            return f"cannot write to standard output: {error.strerror.lower()}", 1
        return f"{error.strerror.lower()}; set PUMICE_DEBUG=1 to see where", 1
    return f"internal error: {type(error).__name__}: {error}; set PUMICE_DEBUG=1 for the traceback", 1
