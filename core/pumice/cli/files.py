"""Types of arguments and options that name files, from which a confined command derives what it may open."""

from __future__ import annotations

import csv
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from pumice.file_names import real_path

STANDARD_INPUT = "-"
_NAMED = re.compile(r"hf\.co/[^/\s]+/\S+$|[\w.-]+:[\w.-]+$")  # hf.co/owner/repository:Q4_K_M, qwen3:4b


class WrittenFiles(NamedTuple):
    """Files that a command writes: the folder, a pattern of the names, and whether they replace existing files."""

    folder: Path
    pattern: re.Pattern[str]
    force: bool = False


class ModelName(click.types.StringParamType):
    """A model's file or folder, or a name in the cache, the catalogue or on the web."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class NamedPath(click.Path):
    """A path with a name, which an empty text would make that of the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not value.strip():
            self.fail(f"expected {getattr(param, 'metavar', None) or 'a path'}, not {value!r:.60}", param, ctx)
        return super().convert(value, param, ctx)


class InputFile(NamedPath):
    """A file or folder to read, with all parts of a split model.

    Args:
        paths: returns the files that a value names; None: the value is the file.
        replaceable: an output of the command may have the same name.
    """

    def __init__(
        self, paths: Callable[[str], Iterable[str]] | None = None, *, replaceable: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self._paths = paths
        self.replaceable = replaceable

    def inputs(self, value: Any) -> Iterator[str]:
        if str(value) != STANDARD_INPUT:
            yield from self._paths(value) if self._paths else [str(value)]


class ModelPath(InputFile):
    """A model's file; names of models, which other commands take, are not looked up."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and _NAMED.match(value) and not Path(value).exists():
            self.fail(
                f"{value}: no such file; `pumice pull {shlex.quote(value)}` prints the path of a named model",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class MediaFiles(InputFile):
    """An image, a sound or a video to read, or several with commas between, as a tuple.

    A value is one path if a file has that name, else a row of CSV, as in llama.cpp.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if re.match(r"(?i)(https?|file|data):", value):
            self.fail(f"{value[:80]!r} is no file: addresses are not fetched; download it first", param, ctx)
        if "," not in value or os.path.lexists(value):
            return (super().convert(value, param, ctx),)
        paths = _csv_row(value)
        for path in paths:
            if not path or not os.path.lexists(path):
                self.fail(f"no file is named {value!r}, and none {path!r}, as one of a list with commas", param, ctx)
        return tuple(super(MediaFiles, self).convert(path, param, ctx) for path in paths)


class OutputFile(NamedPath):
    """A file to write, with the parts of a split model."""

    def outputs(self, value: Any, ctx: click.Context) -> Iterator[WrittenFiles]:
        path = real_path(value)
        pattern = rf"{re.escape(path.name)}(\.at_\d+)?|{_parts(path)}"
        yield WrittenFiles(path.parent, re.compile(pattern), ctx.params.get("force", False))


class OutputPrefix(OutputFile):
    """The beginning of the names of a split model's parts, which an existing file or folder may have as its name."""

    def outputs(self, value: Any, ctx: click.Context) -> Iterator[WrittenFiles]:
        path = real_path(value)
        yield WrittenFiles(path.parent, re.compile(_parts(path)), ctx.params.get("force", False))


class EditedFile(ModelPath, OutputFile):
    """A file to change in place or replace, unless ``out`` names another."""

    def __init__(self) -> None:
        super().__init__(replaceable=True)

    def edited(self, value: Any, ctx: click.Context) -> Iterator[Path]:
        if ctx.params["out"] is None:
            yield real_path(value)

    def outputs(self, value: Any, ctx: click.Context) -> Iterator[WrittenFiles]:
        for path in self.edited(value, ctx):
            yield WrittenFiles(path.parent, re.compile(re.escape(path.name)), force=True)


def _csv_row(text: str) -> list[str]:
    """Return the values between commas; quotes enclose values that contain commas."""
    try:
        return next(csv.reader([text]))
    except csv.Error:  # a line break outside quotes
        return text.split(",")


def _parts(path: Path) -> str:
    """Return a pattern of the names of a split model's parts."""
    return rf"{re.escape(path.name.removesuffix('.gguf'))}-\d{{5}}-of-\d{{5}}\.gguf"


def values(ctx: click.Context, kind: type) -> Iterator[tuple[Any, Any]]:
    """Yield the type and each value of all parameters of a kind."""
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if isinstance(param.type, kind) and value is not None:
            yield from ((param.type, item) for item in (value if isinstance(value, tuple) else (value,)))


def check_outputs(ctx: click.Context) -> None:
    """Raise UsageError for an output that is named twice, or is a file that the command reads, even with --force."""
    named = [path for kind, value in values(ctx, InputFile) if not kind.replaceable for path in kind.inputs(value)]
    read = {real_path(path) for path in (*named, *(name for _, name in values(ctx, ModelName))) if os.path.isfile(path)}
    written = set[Path]()
    for kind, value in values(ctx, OutputFile):
        if isinstance(kind, (InputFile, OutputPrefix)):  # changed in place; no file's whole name
            continue
        if (path := real_path(value)) in written:
            raise click.UsageError(f"{value}: two outputs have this name; give each its own")
        if path in read:
            raise click.UsageError(
                f"{value}: the command reads this file, which would be overwritten; give another name"
            )
        written.add(path)
