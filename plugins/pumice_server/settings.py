"""Settings of the server, and the checks before it listens."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

import pumice
from pumice_server.keys import APIKeys
from pumice_server.limits import MAX_BODY

if TYPE_CHECKING:
    from pumice.mcp import McpServer

LOCAL = "localhost"
"""Stands for all pages of this machine among origins."""

_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")


@dataclass(frozen=True)
class Settings:
    """Settings of the server, from its command line.

    Attributes:
        host: Addresses to listen on, separated by commas.
        port: Port of all addresses.
        keys: API keys, one of which each request needs; without keys everybody is admitted.
        hosts: Names accepted in the Host header, besides loopback names.
        origins: Origins of trusted web pages; ``*``: all, ``localhost``: those of this machine.
        max_body: Maximum bytes of a request's body.
        max_sequences: Maximum completions of one request.
        timeout: Seconds for a request, including its time in the queue.
        drain: Seconds that running requests have to finish when the server stops.
        keep_alive: Seconds that an idle model stays loaded.
        max_models: Maximum number of loaded models (0 = unlimited).
        context_shift: Drop the older half of a full context and continue, instead of ending the answer.
        max_tokens: Maximum tokens of an answer (-1 = unlimited).
        stop: Texts that end an answer, for requests without such texts.
        pooling: Pooling of embeddings; None: the model's.
        max_requests: Maximum requests per minute per API key (0 = unlimited).
        max_tokens_per_minute: Maximum tokens per minute per API key (0 = unlimited).
        chat: Default options of ``Model.chat``.
        output: Grammar or JSON schema for requests that give neither, and no tools.
        slot_folder: Folder of saved slots; None disables saving.
        adapter_folder: Folder of adapters that clients may add; None disables adding.
        allow_pull: Allow clients to fetch models.
        uploads: Folder of model files that clients upload; None refuses them.
        upload_bytes: Maximum bytes of all uploaded files.
        voices: Voices of `/v1/audio/speech` by name.
        media_hosts: Hosts from which images are fetched that requests name by URL.
        max_memory: Maximum bytes of all loaded models (0 = unlimited).
        tls_key: PEM file of the key; needs ``tls_certificate``.
        tls_certificate: PEM file of the certificate.
        conversations: Database of the page's conversations; None keeps them in browsers.
        batches: Folder of files and batches; None keeps none.
        compat: Answer as llama-server does where clients of other servers would be misled.
        page: Serve the page at ``/``.
        slots: Serve ``/slots``.
        hidden_states: Serve ``/hidden-states``.
        metrics: Serve ``/metrics``.
        verbose: With ``compat``, add ``__verbose`` to chats.
        predict_route: Path of Vertex AI's predictions; None disables them.
        mcp_servers: MCP servers by name, with the tools that the server runs for clients.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    keys: APIKeys | Sequence[str] = field(default_factory=APIKeys)
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
    output: Mapping[str, str] = field(default_factory=dict)
    slot_folder: Path | None = None
    adapter_folder: Path | None = None
    allow_pull: bool = False
    uploads: Path | None = None
    upload_bytes: int = 0
    voices: Mapping[str, pumice.Voice | pumice.Audio] = field(default_factory=dict)
    media_hosts: Sequence[str] = ()
    max_memory: int = 0
    tls_key: Path | None = None
    tls_certificate: Path | None = None
    conversations: Path | None = None
    batches: Path | None = None
    compat: bool = False
    page: bool = True
    slots: bool = True
    hidden_states: bool = False
    metrics: bool = True
    verbose: bool = False
    predict_route: str | None = None
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.keys, APIKeys):
            object.__setattr__(self, "keys", APIKeys(self.keys))

    @property
    def read(self) -> list[str]:
        """Paths to read: the key file, and its folder for a later replacement unless that is a home folder."""
        assert isinstance(self.keys, APIKeys)
        file = self.keys.file
        if file is None:
            return []
        folder = Path(os.path.abspath(file)).parent
        is_own = not Path(os.path.expanduser("~")).is_relative_to(folder) and folder != Path.cwd()
        return [os.path.abspath(file), *([str(folder)] if is_own else [])]

    @property
    def written(self) -> list[str]:
        """Files and folders that requests change, with SQLite's two further files."""
        folder = [path for path in (self.slot_folder, self.batches, self.uploads) if path is not None]
        database = self.conversations
        files = [] if database is None else [database.with_name(database.name + end) for end in ("", "-wal", "-shm")]
        return [os.path.abspath(path) for path in (*folder, *files)]

    @property
    def addresses(self) -> list[str]:
        """Addresses to listen on."""
        return [address.strip() for address in self.host.split(",") if address.strip()]

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        return all(map(_is_loopback, self.addresses))

    @property
    def pages(self) -> Sequence[str]:
        """Trusted origins. With ``compat`` the default is all of them with keys, else those of this machine."""
        if self.origins or not self.compat:
            return self.origins
        return ["*"] if self.keys else [LOCAL]

    def check(self, insecure: bool) -> None:
        """Raise UsageError for unprotected access from the network, malformed origins and missing TLS files."""
        if not self.addresses or self.host.endswith(".sock"):
            raise click.UsageError(
                "--host must be an address, or several separated by commas; a reverse proxy can add UNIX sockets"
            )
        if (self.tls_key is None) != (self.tls_certificate is None):
            raise click.UsageError("TLS needs both --ssl-key-file and --ssl-cert-file")
        for option, file in {"--ssl-key-file": self.tls_key, "--ssl-cert-file": self.tls_certificate}.items():
            if file is not None and not file.is_file():
                raise click.UsageError(f"{option}: there is no file {file}")
        for origin in self.origins:
            if origin != LOCAL and not _ORIGIN.fullmatch(origin):
                raise click.UsageError(f"--cors-origins: expected https://NAME, {LOCAL}, or * for all, not {origin!r}")
        kept = self.conversations and self.conversations.absolute().parent
        for option, folder in {"--conversations": kept, "--slot-save-path": self.slot_folder}.items():
            if folder is not None and not folder.is_dir():
                raise click.UsageError(f"{option}: there is no folder {folder}; create it first")
        for option, folder in {"--batches": self.batches, "--allow-uploads": self.uploads}.items():
            try:
                if folder is not None:
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise click.UsageError(f"{option}: {folder}: {error.strerror}") from None
        if not (self.is_loopback or self.keys or insecure):
            raise click.UsageError(
                f"--host {self.host} admits other machines: set --api-key or --api-key-file, or allow it by --insecure"
            )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
