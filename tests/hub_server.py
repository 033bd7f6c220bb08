"""A small Hugging Face Hub on loopback: repositories in memory, contents on a second address, faults on demand."""

import hashlib
import json
import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

TOKEN = "hf_secret"
_sleep = time.sleep


def content(n_bytes: int, seed: int = 0) -> bytes:
    """A GGUF file of random numbers: one key with an array of bytes."""
    head = b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"x", 9, 0, n_bytes - 49)
    return head + random.Random(seed).randbytes(n_bytes - len(head))


@dataclass
class Repository:
    """A repository of one commit."""

    files: dict[str, bytes]
    gated: bool = False
    small: bool = False  # files are git's own, not of LFS
    commit: str = "c" * 40
    etag: str = ""  # instead of the checksum
    checksum: dict[str, str] = field(default_factory=dict)  # checksums that are said instead of the right ones


@dataclass
class Faults:
    """Faults of the server, for a number of requests or for good."""

    status: int = 0  # of every answer about a repository
    cut_after: list[int] = field(default_factory=list)  # bytes of each next content, then the connection ends
    slow: float = 0.0  # seconds before each 64 KiB of a content
    ignore_range: bool = False


class Hub:
    """The server's state: what it has, what it does wrong, and what was asked of it."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults = Faults()
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # method, path, headers with lowercase names
        self.sent: list[tuple[str, int]] = []  # path of a content, its bytes that were sent
        self.url = ""
        self.content_url = ""

    def asked(self, method: str, part: str) -> int:
        return sum(verb == method and part in path for verb, path, _ in self.requests)


@contextmanager
def serve() -> Iterator[Hub]:
    """A hub at ``http://127.0.0.1``, its contents at ``http://localhost``."""
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # clients that leave are part of the tests
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    hub.content_url = f"http://localhost:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def environment(hub: Hub, directory: Path) -> dict[str, str]:
    """The variables by which a process asks ``hub`` and keeps what it fetches in ``directory``."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(directory / "hub"),
        "HF_HOME": str(directory / "hf"),
        "XDG_CACHE_HOME": str(directory / "cache"),
    }


def use(hub: Hub, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set ``environment`` in this process, in which ``huggingface_hub`` may have read its variables."""
    from huggingface_hub import constants

    for name, value in environment(hub, directory).items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(directory / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(directory / "hf" / "token"))
    monkeypatch.setattr("pumice.hub.download._PAUSE_SECONDS", 0.0)


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.requests.append((self.command, path, headers))
        parts = path.strip("/").split("/")
        if parts[0] == "content":
            self._content(parts[1])
        elif parts[0] == "plain":
            self._plain("/".join(parts[1:]))
        elif parts[:2] == ["api", "models"]:
            self._about("/".join(parts[2:4]), parts[-1] if len(parts) > 4 else "main")
        elif len(parts) < 5:
            self._send(404)
        else:
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))

    def _repository(self, repo: str, revision: str) -> Repository | None:
        """The repository, or None when the reason why not was sent."""
        found = self.state.repositories.get(repo)
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.state.faults.status:
            self._send(self.state.faults.status)
        elif self.headers.get("Authorization") not in (None, f"Bearer {TOKEN}"):
            self._send(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif found is None:
            self._send(401 if not allowed else 404, {"X-Error-Code": "RepoNotFound"})
        elif found.gated and not allowed:
            self._send(401, {"X-Error-Code": "GatedRepo"})
        elif revision not in ("main", found.commit):
            self._send(404, {"X-Error-Code": "RevisionNotFound"})
        else:
            return found
        return None

    def _about(self, repo: str, revision: str) -> None:
        found = self._repository(repo, revision)
        if found is None:
            return
        siblings = [self._sibling(found, name) for name in found.files]
        self._send(200, {}, json.dumps({"id": repo, "sha": found.commit, "siblings": siblings}).encode())

    def _sibling(self, repository: Repository, name: str) -> dict[str, object]:
        """A file as the Hub describes it; models are large files, in LFS."""
        data = repository.files[name]
        lfs = {"lfs": {"sha256": self._sha256(repository, name), "size": len(data), "pointerSize": 100}}
        blob = repository.checksum.get(name) or hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        facts = {"rfilename": name, "size": len(data), "blobId": blob}
        return {**facts, **lfs} if name.endswith(".gguf") and not repository.small else facts

    def _resolve(self, repo: str, revision: str, file: str) -> None:
        found = self._repository(repo, revision)
        if found is None:
            return
        if file not in found.files:
            self._send(404, {"X-Error-Code": "EntryNotFound"})
            return
        checksum = self._sha256(found, file)
        headers = {
            "X-Repo-Commit": found.commit,
            "X-Linked-Etag": f'"{found.etag or checksum}"',
            "ETag": f'"{found.etag or checksum}"',
            "X-Linked-Size": str(len(found.files[file])),
            "Location": f"{self.state.content_url}/content/{hashlib.sha256(found.files[file]).hexdigest()}",
        }
        self._send(302, headers)

    def _content(self, digest: str) -> None:
        contents = [data for repository in self.state.repositories.values() for data in repository.files.values()]
        self._send_range(next(data for data in contents if hashlib.sha256(data).hexdigest() == digest))

    def _plain(self, name: str) -> None:
        """Any file of the repository ``plain/web``, as an ordinary web server has it."""
        data = self.state.repositories["plain/web"].files.get(name)
        if data is None:
            self._send(404)
        else:
            self._send_range(data, {"ETag": f'"{hashlib.md5(data).hexdigest()}"'})

    def _send_range(self, data: bytes, headers: dict[str, str] | None = None) -> None:
        faults = self.state.faults
        start, stop = 0, len(data)
        status = 200
        headers = dict(headers or {})
        asked = self.headers.get("Range")
        if asked and not faults.ignore_range:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1, len(data)) if last else len(data)
            status = 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        body = data[start:stop]
        cut = faults.cut_after.pop(0) if faults.cut_after and self.command == "GET" else None
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        body = body if cut is None else body[:cut]
        self.state.sent.append((self.path, len(body)))
        for begin in range(0, len(body), 1 << 16):
            _sleep(faults.slow)
            self.wfile.write(body[begin : begin + (1 << 16)])
        if cut is not None:
            self.close_connection = True

    @staticmethod
    def _sha256(repository: Repository, name: str) -> str:
        return repository.checksum.get(name) or hashlib.sha256(repository.files[name]).hexdigest()

    def _send(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
