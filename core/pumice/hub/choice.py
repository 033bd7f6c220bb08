"""Choose the files of a repository that form the model of a given name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pumice.errors import UnknownModelError
from pumice.gguf.split import SPLIT_NAME
from pumice.hub.names import HubName

DEFAULT_TAGS = ("Q4_K_M", "Q8_0")  # llama.cpp's defaults; the first available one counts
_NO_MODEL = re.compile(r"mmproj|imatrix|^(mtp|eagle3|dflash|dspark)-")  # files that accompany a model
_TAG = re.compile(r"(UD-)?(I?Q\d\w*|TQ\d_\d|BF16|F16|F32|MXFP4\w*|NVFP4)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model: a single file, or all parts in order."""

    files: tuple[str, ...]

    @property
    def stem(self) -> str:
        """The path without the part's number and the suffix."""
        split = SPLIT_NAME.fullmatch(self.files[0])
        return split["prefix"] if split else self.files[0].removesuffix(".gguf")

    @property
    def label(self) -> str:
        """The tag that selects the model, or its name."""
        tags = list(_TAG.finditer(PurePosixPath(self.stem).name))
        return tags[-1][0] if tags else self.files[0]

    def has_tag(self, tag: str) -> bool:
        """Return True if ``tag`` ends the file's name or is a directory's name, ignoring case."""
        *directories, name = self.stem.casefold().split("/")
        tag = tag.casefold()
        return tag in directories or re.search(rf"(^|[-._]){re.escape(tag)}$", name) is not None


def models_in(files: Iterable[str]) -> list[ModelFiles]:
    """Return the models among the files of a repository, in order; split models with missing parts are left out."""
    groups: dict[tuple[str, int], list[str]] = {}
    for file in sorted(files):
        if not file.endswith(".gguf") or _NO_MODEL.search(PurePosixPath(file).name):
            continue
        split = SPLIT_NAME.fullmatch(file)
        key = (split["prefix"], int(split["count"])) if split else (file, 1)
        groups.setdefault(key, []).append(file)
    return [ModelFiles(tuple(group)) for (_, count), group in groups.items() if _is_whole(group, count)]


def _is_whole(group: Sequence[str], count: int) -> bool:
    """Return True if every part is present exactly once."""
    parts = [match["part"] for file in group if (match := SPLIT_NAME.fullmatch(file))]
    return not parts or [int(part) for part in parts] == list(range(1, count + 1))


def choose(name: HubName, models: Sequence[ModelFiles]) -> ModelFiles:
    """Return the model that ``name`` selects. Raises UnknownModelError, which lists the models, unless it is unique."""
    if not models:
        raise UnknownModelError(f"hf.co/{name.repo} has no GGUF file; try a repository whose name ends in -GGUF")
    if name.file:
        matches = [model for model in models if name.file in model.files]
        selector = name.file
    elif name.tag:
        matches = with_tag(models, name.tag)
        selector = name.tag
    else:
        matches = _default(models)
        selector = DEFAULT_TAGS[0]
    if not matches:
        raise UnknownModelError(f"hf.co/{name.repo} has no {selector}; it has {_list(model.label for model in models)}")
    if len(matches) > 1:
        files = _list(model.files[0] for model in matches)
        raise UnknownModelError(
            f"hf.co/{name.repo} has several files for {selector}; name one as {name.repo}:FILE: {files}"
        )
    return matches[0]


def with_tag(models: Sequence[ModelFiles], tag: str) -> list[ModelFiles]:
    """Return the models with a tag; an exact match, such as Q4_K_M, excludes others, such as UD-Q4_K_M."""
    exact = [model for model in models if model.label.casefold() == tag.casefold()]
    return exact or [model for model in models if model.has_tag(tag)]


def _default(models: Sequence[ModelFiles]) -> list[ModelFiles]:
    """Return the model for a name without a tag: the first available default, else the first model."""
    for tag in DEFAULT_TAGS:
        if matches := with_tag(models, tag):
            return matches
    return [models[0]]


def _list(items: Iterable[str]) -> str:
    unique = list(dict.fromkeys(items))
    return ", ".join(unique[:30]) + (f" and {len(unique) - 30} more" if len(unique) > 30 else "")
