"""Hugging Face folders: for any configuration an error, or a model with metadata and tensors."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from checkpoints import FIXTURES, write_checkpoint
from fuzz.draw import Draw
from fuzz.files import folder
from pumice.config import load_config
from pumice.errors import ConvertError, PumiceError
from pumice.model_files.opening import open_model
from pumice.registry import Registry, load_registry

MODULES = ("pumice.convert", "pumice_architectures.conversions")
MAX_LEN = 200
RUNS = 100
CASES: dict[str, Any] = json.loads((FIXTURES / "cases.json").read_text())
NAMES = [name for name in sorted(CASES) if CASES[name]["config"] and not CASES[name].get("target")]
_WORDS = (
    "rope_scaling",
    "rope_parameters",
    "layer_types",
    "vocab_size",
    "head_dim",
    "num_experts",
    "text_config",
    "architectures",
)
TOKENS = tuple(word.encode() for word in _WORDS)


def seeds() -> Iterable[bytes]:
    for number in range(0, len(NAMES), 4):
        yield bytes([number]) + b"\1\0\3\2\5" + bytes([number])
        yield bytes([number]) + b"\2\1\4\7rope\1\0\7\3\3\0\0\0\2"


@cache
def _registry() -> Registry:
    return load_registry(load_config())


@cache
def _checkpoint(name: str) -> Path:
    case = CASES[name]
    more = {key: case[key] for key in ("types", "modules") if key in case}
    return write_checkpoint(folder() / name, case["config"], case["shapes"], case["tokenizer"], **more)


def check(data: bytes) -> None:
    draw = Draw(data)
    name = draw.choice(NAMES)
    config = json.loads(json.dumps(CASES[name]["config"]))
    for _ in range(1 + draw.below(3)):
        _change(config, draw)
    path = _checkpoint(name)
    (path / "config.json").write_text(json.dumps(config))
    try:
        model = open_model(path, _registry())
    except ConvertError as error:
        assert "\n" not in str(error), str(error)
        return
    except PumiceError as error:
        raise AssertionError(f"{type(error).__name__} instead of ConvertError: {error}") from error
    for key in model.metadata:
        model.metadata.encoded(key)
    for tensor in model.tensors.values():
        assert tensor.nbytes > 0
        assert all(size > 0 for size in tensor.shape)


def _change(config: dict[str, Any], draw: Draw) -> None:
    """Change the value of a key at any level, or remove the key."""
    inside: Any = config
    while True:
        key = draw.choice(list(inside))
        if not (isinstance(inside[key], dict) and inside[key]) or draw.flag():
            break
        inside = inside[key]
    kind = draw.below(6)
    if kind == 0:
        del inside[key]
    elif kind == 1:
        inside[draw.choice(_WORDS)] = draw.json(2)
    elif kind == 2 and isinstance(inside[key], int):
        inside[key] += draw.below(5) - 2
    else:
        inside[key] = draw.json(2)
