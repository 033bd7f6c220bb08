"""The files of a model: parts of a split one, and what links in a folder lead to."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pumice.errors import SandboxError
from pumice.gguf.split import SPLIT_NAME

_WEIGHTS = (".gguf", ".safetensors")
_MOST_FILES = 200

CheckPath = Callable[[Path], None]


def model_files(model: Path, named: Sequence[str] = (), check: CheckPath | None = None) -> Iterator[str]:
    """Yield the file of a model and its other parts, or its folder and the weights that links in it lead to.

    The maker of a folder may have put links to any file of the user there. A part may therefore be a link only to a
    place where the file that the user named lies, or really lies (as in the cache of huggingface_hub), or below
    ``named``. Links in a folder are followed to weights only, but for a snapshot in that cache, where all files are
    links to ``blobs``. ``check`` raises for weights elsewhere that must not be read.

    A policy is passed in a variable of the environment, which many files do not fit in. Raises SandboxError.
    """
    yield str(model)
    if not model.is_dir():
        yield from _parts(model, named)
    elif _is_snapshot(model):
        yield str(model.parents[1] / "blobs")
    else:
        targets = list(itertools.islice(linked_weights(model), _MOST_FILES + 1))
        if len(targets) > _MOST_FILES:
            raise SandboxError(
                f"{model}: more than {_MOST_FILES} links to weights elsewhere, which the sandbox does not allow; "
                "replace the links by the files"
            )
        for target in targets:
            if check:
                check(Path(target))
            yield target


def linked_weights(model: Path) -> Iterator[str]:
    """Yield files of weights elsewhere that links in a folder lead to; none for a file, or a hub's snapshot.

    Weights lie in a model's folder or in folders of it, such as a codec's. Deeper ones are not looked into, since the
    folder may be no model's: a home folder has millions of files.
    """
    if not model.is_dir() or _is_snapshot(model):
        return
    folder = os.path.realpath(model)
    entries = itertools.chain(model.glob("*"), model.glob("*/*"))
    for target in (os.path.realpath(file) for file in entries if file.is_symlink()):
        if target.endswith(_WEIGHTS) and os.path.isfile(target) and not Path(target).is_relative_to(folder):
            yield target


def _is_snapshot(folder: Path) -> bool:
    return folder.parent.name == "snapshots" and not (folder.parents[1] / "blobs").is_symlink()


def _parts(model: Path, named: Sequence[str]) -> Iterator[str]:
    """Yield all parts of a split model, or their folder if they are many. Raises SandboxError for a part elsewhere."""
    part = SPLIT_NAME.fullmatch(model.name)
    if part is None:
        return
    paths = glob.glob(str(model.parent / f"{glob.escape(part['prefix'])}-*-of-{part['count']}.gguf"))
    folders = {os.path.realpath(model.parent), os.path.dirname(os.path.realpath(model))}
    for path in paths:
        target = os.path.realpath(path)
        if os.path.dirname(target) not in folders and not any(
            map(Path(target).is_relative_to, map(os.path.realpath, named))
        ):
            raise SandboxError(
                f"{path}: a link to {target}, which is not beside {model.name}: put the file itself there, or add its "
                "folder to sandbox_read in the configuration"
            )
    yield from paths if len(paths) <= _MOST_FILES else [str(model.parent)]
