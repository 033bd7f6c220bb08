"""Names of models: a path, a repository of the Hugging Face Hub, a web address, or a name of the catalogue."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pumice.errors import UnknownModelError
from pumice.file_names import is_safe_file_name

_PART = r"[A-Za-z0-9][\w.-]*"  # an owner, or a repository
_REPOSITORY = re.compile(rf"(?P<repo>{_PART}/{_PART})(?:@(?P<revision>[A-Za-z0-9][\w.-]*))?(?P<rest>/.*)?", re.ASCII)
_TAG = re.compile(r"[\w.-]*", re.ASCII)
LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class HubName:
    """A model in a repository of the Hub: one of its files, or the one that a quantization's tag chooses."""

    repo: str  # owner/name
    file: str = ""  # its path in the repository
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


Name = Path | HubName | WebName | CatalogueName


def parse_name(text: str | Path, is_known: Callable[[str], bool] = lambda name: False, *, paths: bool = True) -> Name:
    """What ``text`` names: a path where such a file exists or where it can be nothing else, ``~`` expanded.

    ``is_known`` says whether a name is one of the catalogue. Without ``paths`` none is looked for on this machine.
    Raises UnknownModelError for an address that cannot be one of a model, and for a path where it is not to be one.
    """
    if isinstance(text, Path):
        return text
    if not text.strip():
        raise UnknownModelError("the model has no name: give a path, a name like hf.co/owner/repository, or an address")
    if "\0" in text:
        raise UnknownModelError(f"{_shown(text)}: not a name of a model: it has a NUL character")
    scheme, separator, rest = text.partition("://")
    if separator:
        return _address(text, scheme, rest)
    path = Path(os.path.expanduser(text))  # Path.expanduser raises for an unknown user
    if paths and os.path.exists(path):  # False too for a name too long to be one
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
    except ValueError:  # what looks like an IPv6 address and is none, or a port that is no number
        url, port = urlsplit(""), None
    if scheme not in ("https", "http") or not url.hostname or port == 0 or "\\" in text or not text.isprintable():
        raise UnknownModelError(f"{_shown(text)}: not an address of a model; those begin with hf:// or https://")
    if url.hostname in _hub_hosts():
        return _hub_name(text, _without_verb(unquote(url.path).lstrip("/")))
    if scheme == "http" and url.hostname not in LOCAL_HOSTS:
        raise UnknownModelError(f"{_shown(text)}: anybody on the way could change what http:// brings; use https://")
    return WebName(text)


def _hub_hosts() -> set[str]:
    """Hosts whose addresses are names of repositories: the Hub's own, and the one ``$HF_ENDPOINT`` says to use."""
    mirror = urlsplit(os.environ.get("HF_ENDPOINT", "")).hostname
    return {"hf.co", "huggingface.co", "www.huggingface.co", *([mirror] if mirror else [])}


def _without_verb(path: str) -> str:
    """``owner/name/resolve/main/file``, as the pages of the Hub link it, as ``owner/name@main/file``."""
    owner, _, rest = path.partition("/")
    name, *more = rest.split("/")
    if len(more) >= 2 and more[0] in ("resolve", "blob", "tree", "raw"):
        return "/".join([owner, f"{name}@{more[1]}", *more[2:]])
    return path


def _hub_name(text: str, path: str) -> HubName:
    """``owner/name[@revision][/file][:tag or file]``."""
    path, _, selector = path.partition(":")
    match = _REPOSITORY.fullmatch(path.rstrip("/"))
    file = (match["rest"] or "").strip("/") if match else ""
    if not match or (file and selector):
        raise UnknownModelError(
            f"{_shown(text)}: expected hf.co/owner/repository, then perhaps :QUANTIZATION or /FILE.gguf"
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
    """A name in a message: one line, whatever is in it."""
    return text if text.isprintable() else repr(text)
