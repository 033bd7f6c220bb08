"""Configuration files of clients: an endpoint is added to the user's own settings."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import click

from pumice.cache_files import create_file, write_file
from pumice.cli.launch.clients import ENTRIES, ConfigFile, Endpoint
from pumice.file_names import real_path


def added_part(file: ConfigFile, endpoint: Endpoint) -> str:
    """Return the text that has to be in the file."""
    return _dump(file, file.add(_parse(file, ""), endpoint))


def add_endpoint(file: ConfigFile, endpoint: Endpoint) -> Path:
    """Add the endpoint to the file, and return the file's path.

    The user's own content is kept as ``.bak``: what was there before the first endpoint was added.

    Raises:
        ClickException: The file cannot be read or written, is not what the client would read, or has comments, which
            would be lost.
    """
    path = file.path()
    target = real_path(path)
    try:
        before = target.read_text(encoding="utf-8") if target.exists() else ""
        content = _parse(file, before)
        file.add(content, endpoint)
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if before else 0o600  # it holds a key
        kept = path.with_name(f"{path.name}.bak")
        if before and not os.path.lexists(kept):
            create_file(kept, before.encode(), mode)
        write_file(target, _dump(file, content).encode(), mode)
    except OSError as error:
        raise click.ClickException(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (AttributeError, TypeError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: unexpected structure: {error}") from None
    return path


def _parse(file: ConfigFile, text: str) -> dict[str, Any]:
    import yaml

    from pumice.config import parse_yaml

    path = file.path()
    try:
        content = parse_yaml(text) if _is_yaml(path) else json.loads(text or "null")
    except (ValueError, yaml.YAMLError):
        raise click.ClickException(
            f"{path}: not valid, or with comments, which would be lost; edit it by hand"
        ) from None
    if _is_yaml(path) and _has_comments(text):
        raise click.ClickException(f"{path}: its comments would be lost; edit it by hand")
    if content is None:
        content = [] if file.is_list else {}
    if not isinstance(content, list if file.is_list else dict):
        noun = "a list" if file.is_list else "a map"
        raise click.ClickException(f"{path}: it holds {type(content).__name__}, not {noun}; correct it")
    return {ENTRIES: content} if isinstance(content, list) else content


def _has_comments(text: str) -> bool:
    """True if YAML has comments: a ``#`` outside of the scanner's tokens, also behind a value."""
    import yaml

    marks = [(token.start_mark.index, token.end_mark.index) for token in yaml.scan(text)]
    tokens = {index for start, end in marks for index in range(start, end)}
    return any(character == "#" and index not in tokens for index, character in enumerate(text))


def _dump(file: ConfigFile, content: dict[str, Any]) -> str:
    if _is_yaml(file.path()):
        import yaml

        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return json.dumps(content[ENTRIES] if file.is_list else content, indent=2, ensure_ascii=False) + "\n"


def _is_yaml(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")
