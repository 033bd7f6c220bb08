"""Configuration files: an error that names the file, or settings that survive a round trip through YAML."""

from collections.abc import Iterable
from functools import cache

import yaml

from fuzz import ROOT
from fuzz.files import scratch
from pumice.config import Layer, _read, merge_layers
from pumice.errors import ConfigError

MODULES = ("pumice.config",)
MAX_LEN = 1000
_KEYS = (
    "backend", "n_ctx", "kv_type", "samplers", "sampling", "temperature", "plugins", "disabled", "prefer", "adapters",
    "file", "scale", "layers", "models", "draft", "chat_template", "cpu", "prefill_tokens", "n_gpu_layers",
)  # fmt: skip
TOKENS = (
    *(f"{key}: ".encode() for key in _KEYS), b"\n  ", b"- ", b"[", b"{", b"&a ", b"*a", b"<<: ", b"!!python/none",
    b"!!binary ", b"2001-13-45", b"0x_", b".inf", b".nan", b"~", b"? ", b"%YAML 9.9", b"---\n", b"1:60", b"=", b"1e309",
    b"0b_", b"!!int x",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    yield b"n_ctx: 4096\nsampling:\n  temperature: 0.5\nsamplers: [top_k, dist]\n"
    yield b"plugins:\n  disabled: [x]\n  prefer:\n    backends: {cpu: y}\nkv_type: q8_0\ncpu:\n  threads: 4\n"
    yield b"adapters:\n  a: file.gguf\n  b: {file: x, scale: .5, layers: [1, 2]}\nmodels:\n  m: {n_ctx: 1}\n"
    yield b"a: &a {b: 1}\nc:\n  <<: *a\nd: 2001-12-14\ne: !!set {x, y}\nf: !!binary aGk=\n"


@cache
def _defaults() -> Layer:
    return _read(ROOT / "registry.yaml")


def check(data: bytes) -> None:
    path = scratch("pumice.yaml", data)
    try:
        layer = _read(path)
        config = merge_layers([_defaults(), layer])
    except ConfigError as error:
        assert str(error).isprintable(), str(error)
        assert str(error).startswith((str(path), str(ROOT))), str(error)
        return
    config.adapter_scales  # noqa: B018
    config.sections  # noqa: B018
    again = _read(scratch("again.yaml", yaml.safe_dump(layer.data, sort_keys=False).encode()))
    assert repr(again.data) == repr(Layer(again.source, layer.data).data)
