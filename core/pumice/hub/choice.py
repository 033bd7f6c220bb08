"""Which files of a repository make up the model that a name means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pumice.errors import UnknownModelError
from pumice.gguf.split import SPLIT_NAME
from pumice.hub.names import HubName

DEFAULT_TAGS = ("Q4_K_M", "Q8_0")  # what llama.cpp chooses where nothing else is said; the first that is there
_NO_MODEL = re.compile(r"mmproj|imatrix|^(mtp|eagle3|dflash|dspark)-")  # files that go with a model
_TAG = re.compile(r"(UD-)?(I?Q\d\w*|TQ\d_\d|BF16|F16|F32|MXFP4\w*|NVFP4)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model: one, or all parts in order."""

    files: tuple[str, ...]

    @property
    def stem(self) -> str:
        """The path without the number of the part and the ending."""
        split = SPLIT_NAME.fullmatch(self.files[0])
        return split["prefix"] if split else self.files[0].removesuffix(".gguf")

    @property
    def label(self) -> str:
        """The tag that would choose it, or its name."""
        tags = list(_TAG.finditer(PurePosixPath(self.stem).name))
        return tags[-1][0] if tags else self.files[0]

    def has_tag(self, tag: str) -> bool:
        """Whether ``tag`` ends the name, or is the whole of a directory's, in any case."""
        *directories, name = self.stem.casefold().split("/")
        tag = tag.casefold()
        return tag in directories or re.search(rf"(^|[-._]){re.escape(tag)}$", name) is not None


def models_in(files: Iterable[str]) -> list[ModelFiles]:
    """The models among the files of a repository, in their order; parts are together, incomplete sets left out."""
    groups: dict[tuple[str, int], list[str]] = {}
    for file in sorted(files):
        if not file.endswith(".gguf") or _NO_MODEL.search(PurePosixPath(file).name):
            continue
        split = SPLIT_NAME.fullmatch(file)
        key = (split["prefix"], int(split["count"])) if split else (file, 1)
        groups.setdefault(key, []).append(file)
    return [ModelFiles(tuple(group)) for (_, count), group in groups.items() if _is_whole(group, count)]


def _is_whole(group: Sequence[str], count: int) -> bool:
    """True if all parts are there, each once."""
    parts = [match["part"] for file in group if (match := SPLIT_NAME.fullmatch(file))]
    return not parts or [int(part) for part in parts] == list(range(1, count + 1))


def choose(name: HubName, models: Sequence[ModelFiles]) -> ModelFiles:
    """The model that ``name`` means. Raises UnknownModelError, with what there is, if that is none or more than one."""
    if not models:
        raise UnknownModelError(f"hf.co/{name.repo} has no GGUF file; look for a repository whose name ends in -GGUF")
    if name.file:
        found = [model for model in models if name.file in model.files]
        wanted = name.file
    elif name.tag:
        found = with_tag(models, name.tag)
        wanted = name.tag
    else:
        found = _default(models)
        wanted = DEFAULT_TAGS[0]
    if not found:
        raise UnknownModelError(f"hf.co/{name.repo} has no {wanted}; it has {_list(model.label for model in models)}")
    if len(found) > 1:
        files = _list(model.files[0] for model in found)
        raise UnknownModelError(
            f"hf.co/{name.repo} has several files for {wanted}: name one, as in {name.repo}:FILE: {files}"
        )
    return found[0]


def with_tag(models: Sequence[ModelFiles], tag: str) -> list[ModelFiles]:
    """The models of a tag; ``Q4_K_M`` is not ``UD-Q4_K_M`` where both are there."""
    exact = [model for model in models if model.label.casefold() == tag.casefold()]
    return exact or [model for model in models if model.has_tag(tag)]


def _default(models: Sequence[ModelFiles]) -> list[ModelFiles]:
    """What a name without a tag means: the first default that is there, else the first model."""
    for tag in DEFAULT_TAGS:
        if found := with_tag(models, tag):
            return found
    return [models[0]]


def _list(items: Iterable[str]) -> str:
    unique = list(dict.fromkeys(items))
    return ", ".join(unique[:30]) + (f" and {len(unique) - 30} more" if len(unique) > 30 else "")
