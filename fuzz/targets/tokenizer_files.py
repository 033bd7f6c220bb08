"""Tokenizer files of Hugging Face folders: an error, or metadata of a working tokenizer."""

import json
from collections.abc import Iterable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from checkpoints import FIXTURES, write_checkpoint
from fuzz.draw import Draw
from fuzz.files import folder
from pumice.config import load_config
from pumice.errors import ConvertError, TokenizerError
from pumice.model_files.opening import open_model
from pumice.registry import Registry, load_registry
from pumice.tokenizers import from_metadata, has_tokenizer

MODULES = ("pumice.convert.vocabulary",)
MAX_LEN = 400
RUNS = 150
_CASES: dict[str, Any] = json.loads((FIXTURES / "cases.json").read_text())
_KINDS = ("bpe", "gemma4", "plamo", "rwkv", "spm", "unigram", "wordpiece")
_FILES = {kind: sorted(path.name for path in (FIXTURES / kind).iterdir()) for kind in _KINDS}
_WORDS = (
    '"vocab"', '"merges"', '"added_tokens"', '"model"', '"type"', '"unk_id"', '"byte_fallback"', '"special"', '"id"',
    '"content"', '"normalizer"', '"pre_tokenizer"', '"chat_template"', '"bos_token"', '"eos_token"', "null", "true",
    "-1", "[]", "{}", "1e999", '"\\ud800"', "\n", "b'a'", "'a'", "99999999999", "\\x00", "[[",
)  # fmt: skip
TOKENS = tuple(word.encode() for word in _WORDS)


def seeds() -> Iterable[bytes]:
    for number, kind in enumerate(_KINDS):
        for index in range(len(_FILES[kind])):
            for position in (0, 3, 40, 200):
                yield bytes([number, index, 0, position, 4, 2]) + b"null"


@cache
def _registry() -> Registry:
    return load_registry(load_config())


@cache
def _checkpoint(kind: str) -> Path:
    case = next(case for case in _CASES.values() if case["tokenizer"] == kind and case["config"])
    return write_checkpoint(folder() / kind, case["config"], case["shapes"], kind, case.get("types"))


def check(data: bytes) -> None:
    draw = Draw(data)
    kind = draw.choice(_KINDS)
    path, name = _checkpoint(kind), draw.choice(_FILES[kind])
    original = (FIXTURES / kind / name).read_bytes()
    content = bytearray(original)
    for _ in count():
        position = int.from_bytes(draw.bytes(2), "big") % (len(content) + 1)
        length, removed = draw.below(16), draw.below(8)
        content[position : position + removed] = draw.bytes(length)
        if not draw.left:
            break
    (path / name).write_bytes(content)
    try:
        _convert(path)
    finally:
        (path / name).write_bytes(original)


def _convert(path: Path) -> None:
    try:
        metadata = open_model(path, _registry()).metadata
    except ConvertError as error:
        assert "\n" not in str(error), str(error)
        return
    if has_tokenizer(metadata):
        try:
            tokenizer = from_metadata(metadata)
            tokenizer.detokenize(tokenizer.tokenize("Hello a\x00ü"))
        except TokenizerError as error:
            assert "\n" not in str(error), str(error)
