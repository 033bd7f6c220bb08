"""What the command says on standard error: errors, and what the library logs or warns of, each in one line."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import logging

INTERRUPTED = 130  # the status a shell gives a program that Ctrl-C ended


def say(kind: str, message: object) -> None:
    """``error: what happened``, whatever lines the message has."""
    click.echo(f"{kind}: {' '.join(str(message).split())}", err=True)


def show_logs(verbose: bool = False) -> None:
    """Show what the library and its plugins log: warnings, with ``verbose`` information too, and all if debugging."""
    import logging

    logger = logging.getLogger("pumice")
    logger.setLevel(logging.DEBUG if debugging() else logging.INFO if verbose else logging.WARNING)
    logger.propagate = False
    logger.handlers = [_handler()]
    warnings.showwarning = lambda message, *_: say("warning", message)


def _handler() -> logging.Handler:
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.levelname.lower(), record.getMessage())
            if record.exc_info:
                click.echo(logging.Formatter().formatException(record.exc_info), err=True)

    return Handler()


def debugging() -> bool:
    return os.environ.get("PUMICE_DEBUG") == "1"


def require_streams() -> None:
    """What is closed: standard input is empty, standard error swallows messages; of standard output it is an error."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - it lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it lives as long as the process
    if sys.stdout is None:
        raise click.ClickException("standard output is closed")


def report(error: Exception | KeyboardInterrupt) -> int:
    """Say what went wrong, and give the exit status: 2 for wrong usage, else 1."""
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return INTERRUPTED
    if debugging():
        raise error
    message, status = explain(error)
    say("error", message)
    if isinstance(error, OSError) and sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to write fails again at the end
    return status


def explain(error: Exception) -> tuple[str, int]:
    """What to tell the user about an error, and the exit status."""
    from pumice.errors import NoChatTemplateError, PumiceError

    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "pumice"
        return f"{error.format_message().rstrip('.')} (see `{command} --help`)", error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, NoChatTemplateError):
        return error.in_commands, 1
    if isinstance(error, PumiceError):
        return str(error), 1
    if isinstance(error, MemoryError):
        return "out of memory; try a smaller model, --n-ctx or --n-batch", 1
    if isinstance(error, OSError) and error.strerror and error.filename is None:
        return f"cannot write to standard output: {error.strerror}", 1
    return f"internal error: {type(error).__name__}: {error}; set PUMICE_DEBUG=1 for the traceback", 1
