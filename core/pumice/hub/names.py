"""Parse names of models: paths, repositories of the Hugging Face Hub, web addresses, names of the catalogue."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pumice.errors import HubError, UnknownModelError
from pumice.file_names import is_safe_file_name
from pumice.wording import show_python

_PART = r"[A-Za-z0-9][\w.-]*"  # an owner, or a repository
_REPOSITORY = re.compile(rf"(?P<repo>{_PART}/{_PART})(?:@(?P<revision>[A-Za-z0-9][\w.-]*))?(?P<rest>/.*)?", re.ASCII)
_TAG = re.compile(r"[\w.-]*", re.ASCII)
LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class HubName:
    """A model in a repository of the Hub: a given file, or the one that a quantization's tag selects."""

    repo: str  # owner/name
    file: str = ""  # path of the file in the repository
    tag: str = ""  # e.g. Q4_K_M
    revision: str = "main"  # a branch, a tag or a commit

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return f"hf.co/{self.repo}{revision}{self.file and '/' + self.file}{self.tag and ':' + self.tag}"


@dataclass(frozen=True)
class WebName:
    """A file anywhere on the web."""

    url: str

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class CatalogueName:
    """A name of the catalogue."""

    name: str


ParsedName = Path | HubName | WebName | CatalogueName


def parse_name(
    text: str | Path, is_known: Callable[[str], bool] = lambda name: False, *, paths: bool = True
) -> ParsedName:
    """Parse the name of a model.

    A text is a path if the file exists or it cannot be anything else; ``~`` is expanded.

    Args:
        text: name, path or address.
        is_known: returns True for names of the catalogue.
        paths: allow paths; otherwise the file system is not accessed.

    Raises:
        UnknownModelError: the address is not one of a model, or a path is not allowed.
    """
    if isinstance(text, Path):
        return text
    if not isinstance(text, str):
        raise UnknownModelError(f"a model is a path or a name, not {show_python(text)}")
    if not text.strip():
        raise UnknownModelError(
            "the name of the model is empty; give a path, a name like hf.co/owner/repository, or an address"
        )
    if "\0" in text:
        raise UnknownModelError(f"{_shown(text)}: not a name of a model: it contains a NUL character")
    scheme, separator, rest = text.partition("://")
    if separator:
        return _address(text, scheme, rest)
    path = Path(os.path.expanduser(text))  # Path.expanduser raises for an unknown user
    if paths and os.path.exists(path):  # False for names that are too long, too
        return path
    if is_known(text):
        return CatalogueName(text)
    host, _, rest = text.partition("/")
    if host in _hub_hosts():
        return _hub_name(text, rest)
    bare, _, selector = text.partition(":")
    if re.fullmatch(f"{_PART}/{_PART}", bare, re.ASCII) and (selector or not bare.endswith(".gguf")):
        return _hub_name(text, text)
    if not paths:
        raise UnknownModelError(f"{_shown(text)}: not the name of a model, such as hf.co/owner/repository:Q4_K_M")
    return path


def _address(text: str, scheme: str, rest: str) -> HubName | WebName:
    if scheme == "hf":
        return _hub_name(text, rest)
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:  # an invalid IPv6 address or port
        url, port = urlsplit(""), None
    if scheme not in ("https", "http") or not url.hostname or port == 0 or "\\" in text or not text.isprintable():
        raise UnknownModelError(f"{_shown(text)}: not an address of a model; those begin with hf:// or https://")
    if url.hostname in _hub_hosts():
        return _hub_name(text, _without_verb(unquote(url.path).lstrip("/")))
    if scheme == "http" and url.hostname not in LOCAL_HOSTS:
        raise UnknownModelError(f"{_shown(text)}: anybody on the way could change what http:// brings; use https://")
    return WebName(text)


def _hub_hosts() -> set[str]:
    """Return the hosts whose addresses name repositories: the Hub's own, and that of ``$HF_ENDPOINT``.

    Raises HubError if that is no address. The value may have a password, and the message reach a server's client.
    """
    hosts = {"hf.co", "huggingface.co", "www.huggingface.co"}
    if mirror := os.environ.get("HF_ENDPOINT"):
        with contextlib.suppress(ValueError):  # an invalid IPv6 address or port
            url = urlsplit(mirror)
            if url.scheme in ("https", "http") and url.hostname and url.port != 0:
                return hosts | {url.hostname}
        raise HubError("HF_ENDPOINT is not an address such as https://huggingface.co; correct or unset it")
    return hosts


def _without_verb(path: str) -> str:
    """Rewrite ``owner/name/resolve/main/file``, as in links of the Hub, to ``owner/name@main/file``."""
    owner, _, rest = path.partition("/")
    name, *more = rest.split("/")
    if len(more) >= 2 and more[0] in ("resolve", "blob", "tree", "raw"):
        return "/".join([owner, f"{name}@{more[1]}", *more[2:]])
    return path


def _hub_name(text: str, path: str) -> HubName:
    """Parse ``owner/name[@revision][/file][:tag or file]``."""
    path, _, selector = path.partition(":")
    match = _REPOSITORY.fullmatch(path.rstrip("/"))
    file = (match["rest"] or "").strip("/") if match else ""
    if not match or (file and selector):
        raise UnknownModelError(
            f"{_shown(text)}: expected hf.co/owner/repository, optionally followed by :QUANTIZATION or /FILE.gguf"
        )
    if selector.endswith(".gguf"):
        file, selector = selector, ""
    if file and not file.endswith(".gguf"):
        raise UnknownModelError(f"{_shown(text)}: {_shown(file)} is not a GGUF file")
    if file and not is_safe_file_name(file):
        raise UnknownModelError(f"{_shown(text)}: {_shown(file)} is not the path of a file in a repository")
    if not _TAG.fullmatch(selector):
        raise UnknownModelError(f"{_shown(text)}: {_shown(selector)} is not a quantization such as Q4_K_M")
    return HubName(match["repo"], file, "" if selector == "latest" else selector, match["revision"] or "main")


def _shown(text: str) -> str:
    """Return a name for a message, printable and in one line."""
    return text if text.isprintable() else repr(text)
