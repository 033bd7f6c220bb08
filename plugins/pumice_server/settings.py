"""How the server is set up, and the rules that must hold before it listens."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from pumice_server.keys import Keys
from pumice_server.limits import MAX_BODY

LOCAL = "localhost"
"""Stands for the pages of this machine among origins, whatever their port."""

_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")


@dataclass(frozen=True)
class Settings:
    """What the server is told by its command line.

    Attributes:
        keys: one of them must come with each request; none: everybody may ask. A list of texts is as good.
        hosts: names that a request's Host header may have, beside those of the loopback.
        host: addresses to listen on, separated by commas.
        origins: web pages that may ask; ``*``: all, ``localhost``: those of this machine.
        max_body: bytes of a request's body; max_sequences: completions of one request.
        tls_key, tls_certificate: PEM files, both or none.
        compat: answer as llama-server does where that would be wrong for clients of others.
        page, slots, metrics: whether ``/``, ``/slots`` and ``/metrics`` are served.
        verbose: with ``compat``, chats tell how they were made (``__verbose``).
        predict_route: the path of Vertex AI's predictions; None: there are none.
        conversations: the file in which those of the page are kept; none: in browsers.
        timeout: seconds for a request, and for its body to arrive; drain: seconds that requests have to end when
            the server is stopped.
        keep_alive: seconds that a model stays loaded when nobody uses it.
        max_models: most that are loaded at once; max_memory: bytes that they may have together; 0: any number.
        context_shift: a full context forgets its older half, and the answer goes on; else it ends there.
        max_tokens: most of an answer; -1: any number.
        stop: texts that end an answer, where a request has none; pooling: of embeddings, None: the model's own.
        max_requests, max_tokens_per_minute: of each key in a minute; 0: any number.
        chat: options of ``Model.chat`` where a request does not say.
        slot_folder: where slots are saved; None: they are not.
        allow_pull: clients may have models fetched.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    keys: Keys | Sequence[str] = field(default_factory=Keys)
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    max_body: int = MAX_BODY
    max_sequences: int = 64
    timeout: float = 600.0
    drain: float = 30.0
    keep_alive: float = math.inf
    max_models: int = 4
    context_shift: bool = False
    max_tokens: int = -1
    stop: Sequence[str] = ()
    pooling: Literal["mean", "cls", "last"] | None = None
    max_requests: int = 0
    max_tokens_per_minute: int = 0
    chat: Mapping[str, Any] = field(default_factory=dict)
    slot_folder: Path | None = None
    allow_pull: bool = False
    max_memory: int = 0
    tls_key: Path | None = None
    tls_certificate: Path | None = None
    conversations: Path | None = None
    compat: bool = False
    page: bool = True
    slots: bool = True
    metrics: bool = True
    verbose: bool = False
    predict_route: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.keys, Keys):
            object.__setattr__(self, "keys", Keys(self.keys))

    @property
    def read(self) -> list[str]:
        """The file of keys, and its folder, in which another may take its place; but no home folder."""
        assert isinstance(self.keys, Keys)
        file = self.keys.file
        if file is None:
            return []
        folder = Path(os.path.abspath(file)).parent
        is_own = not Path(os.path.expanduser("~")).is_relative_to(folder) and folder != Path.cwd()
        return [os.path.abspath(file), *([str(folder)] if is_own else [])]

    @property
    def written(self) -> list[str]:
        """Files and folders that requests change; SQLite has two files more beside its own."""
        folder = [] if self.slot_folder is None else [self.slot_folder]
        database = self.conversations
        files = [] if database is None else [database.with_name(database.name + end) for end in ("", "-wal", "-shm")]
        return [os.path.abspath(path) for path in (*folder, *files)]

    @property
    def addresses(self) -> list[str]:
        """Where the server listens."""
        return [each.strip() for each in self.host.split(",") if each.strip()]

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can ask."""
        return all(map(_is_loopback, self.addresses))

    @property
    def pages(self) -> Sequence[str]:
        """Origins of pages that may ask. With ``compat`` all where a page has to know a key, else this machine's."""
        if self.origins or not self.compat:
            return self.origins
        return ["*"] if self.keys else [LOCAL]

    def check(self, insecure: bool) -> None:
        """Raises UsageError where anybody on the network could use the model, for wrong origins and files of TLS."""
        if not self.addresses or self.host.endswith(".sock"):
            raise click.UsageError("--host is an address, or several: a reverse proxy can add UNIX sockets")
        if (self.tls_key is None) != (self.tls_certificate is None):
            raise click.UsageError("TLS needs both --ssl-key-file and --ssl-cert-file")
        for file in (self.tls_key, self.tls_certificate):
            if file is not None and not file.is_file():
                raise click.UsageError(f"TLS: there is no file {file}")
        for origin in self.origins:
            if origin != LOCAL and not _ORIGIN.fullmatch(origin):
                raise click.UsageError(f"--cors-origin: expected https://NAME, {LOCAL}, or * for all, not {origin!r}")
        if self.slot_folder is not None:
            try:
                self.slot_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise click.UsageError(f"--slot-save-path: {self.slot_folder}: {error.strerror}") from None
        if not (self.is_loopback or self.keys or insecure):
            raise click.UsageError(
                f"--host {self.host} lets others on the network in: give --api-key or --api-key-file, or --insecure"
            )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
