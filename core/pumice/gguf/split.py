"""Models split over several files, `name-00001-of-0000N.gguf`, as llama.cpp's gguf-split writes them.

Every part has its number (`split.no`, from 0) and the number of parts (`split.count`); the first has the metadata.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pumice.errors import GGUFError
from pumice.gguf.parser import ParsedFile, parse

SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS = "split.no", "split.count", "split.tensors.count"
SPLIT_NAME = re.compile(r"(?P<prefix>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def parse_parts(path: Path, mapped: bool = True) -> list[ParsedFile]:
    """Return the file at `path` or, if it is a part of a split model, all parts in order. ``mapped`` as for `parse`.

    Raises:
        GGUFError: a part is missing, or the parts are inconsistent.
    """
    file = parse(path, mapped)
    count = _number(file, SPLIT_COUNT, default=1)
    if count <= 1:  # llama-gguf-split writes 0 into merged files
        return [file]
    paths = _part_paths(file, count)
    parts = [file if part == path else parse(part, mapped) for part in paths]
    for index, part in enumerate(parts):
        _expect(part, SPLIT_NO, index)
        _expect(part, SPLIT_COUNT, count)
    _check_tensors(parts)
    return parts


def part_path(path: Path, index: int, count: int) -> Path:
    """Return the path of part ``index``, from 0, of the model ``name.gguf``."""
    return path.with_name(f"{path.name.removesuffix('.gguf')}-{index + 1:05}-of-{count:05}.gguf")


def _part_paths(file: ParsedFile, count: int) -> list[Path]:
    """Return the paths of all parts, derived from one of them."""
    part = _number(file, SPLIT_NO) + 1
    name = SPLIT_NAME.fullmatch(file.path.name)
    if not name or (int(name["part"]), int(name["count"])) != (part, count):
        raise GGUFError(f"{file.path}: this is part {part} of {count}; name it like NAME-{part:05}-of-{count:05}.gguf")
    paths = [part_path(file.path.with_name(f"{name['prefix']}.gguf"), i, count) for i in range(count)]
    for i, path in enumerate(paths, 1):
        if not path.is_file():
            raise GGUFError(f"{path}: no such file; it is part {i} of {count} of {file.path.name}")
    return paths


def _check_tensors(parts: Sequence[ParsedFile]) -> None:
    owner: dict[str, ParsedFile] = {}
    for part in parts:
        for name in part.tensors:
            if name in owner:
                raise GGUFError(f"{part.path}: tensor {name!r} is also in {owner[name].path.name}")
            owner[name] = part
    if SPLIT_TENSORS in parts[0].metadata:
        _expect(parts[0], SPLIT_TENSORS, len(owner), "the parts together have")


def _expect(part: ParsedFile, key: str, expected: int, because: str = "its name and the other parts say") -> None:
    value = _number(part, key)
    if value != expected:
        raise GGUFError(f"{part.path}: metadata key {key!r} is {value} but {because} {expected}")


def _number(part: ParsedFile, key: str, default: int | None = None) -> int:
    value: Any = part.metadata.get(key, default)
    if type(value) is not int or value < 0:
        raise GGUFError(f"{part.path}: metadata key {key!r} is {'missing' if value is None else repr(value)}")
    return value
