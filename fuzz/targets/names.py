"""Model names: paths, repositories, addresses; a name survives a round trip."""

from collections.abc import Iterable
from pathlib import Path

from pumice.errors import HubError
from pumice.hub.names import HubName, WebName, parse_name

MODULES = ("pumice.hub.names",)
MAX_LEN = 300
TOKENS = (
    b"hf.co/", b"hf://", b"https://", b"http://", b"huggingface.co", b"localhost", b"127.0.0.1", b"[::1]", b"/resolve/",
    b"/blob/main/", b".gguf", b":Q4_K_M", b":latest", b"@main", b"@refs", b"%2F", b"%2e%2e", b"..", b"~", b"\\", b"?",
    b"#",
)  # fmt: skip

_SEEDS = (
    "model.gguf", "folder/model.gguf", "qwen3:4b", "hf.co/owner/name", "hf.co/owner/name:Q4_K_M",
    "owner/name@v1/file.gguf", "https://huggingface.co/owner/name/resolve/main/sub/file.gguf",
    "hf://owner/name:file.gguf", "https://host/m.gguf?x=1", "http://localhost:8080/m.gguf", "~user/model",
    "owner/name:latest", "https://user:pass@host/m", "http://[::1]/m",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    return (text.encode() for text in _SEEDS)


def check(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    try:
        name = parse_name(text, lambda candidate: candidate == "qwen3:4b")
    except HubError as error:
        assert str(error).isprintable()
        return
    if isinstance(name, HubName):
        assert parse_name(str(name)) == name, str(name)
        assert ".." not in name.repo.split("/")
        assert name.repo.count("/") == 1
    elif isinstance(name, WebName):
        assert name.url == text
        assert text.startswith(("https://", "http://"))
    else:
        assert isinstance(name, Path) or text == "qwen3:4b"
