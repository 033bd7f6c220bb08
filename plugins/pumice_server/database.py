"""SQLite databases of the server: opened or created, and recognized by their tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pumice

_LOCK_SECONDS = 10.0  # to wait for another process that writes to the file


def open_database(path: Path, schema: str, version: int, tables: list[str], content: str) -> sqlite3.Connection:
    """Open or create a database, for all threads.

    Args:
        path: File of the database.
        schema: Statements that create its tables.
        version: Number of the schema.
        tables: Names of the tables, sorted; the file has no other tables, views or triggers.
        content: What it holds, for errors.

    Raises:
        PumiceError: The file cannot be used.
    """
    try:
        database = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("PRAGMA trusted_schema = OFF")
        written = database.execute("PRAGMA user_version").fetchone()[0]
        if written == 0:
            database.executescript(f"BEGIN; {schema} PRAGMA user_version = {version}; COMMIT;")
        listed = database.execute("SELECT type, name FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        is_ours = listed.fetchall() == [("table", name) for name in tables]
    except sqlite3.Error as error:
        raise pumice.PumiceError(f"{content} cannot be kept in {path}: {error}") from None
    if written in (0, version) and not is_ours:  # views and triggers of another could run for ever
        raise pumice.PumiceError(f"{path} is a database of something else: name another file")
    if written not in (0, version):
        raise pumice.PumiceError(f"{path} holds {content} of another version of Pumice: {written}")
    return database
