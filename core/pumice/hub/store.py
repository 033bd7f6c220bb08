"""List and remove the fetched models on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pumice.hub.choice import ModelFiles, models_in
from pumice.hub.names import HubName
from pumice.hub.repository import FOLDER, cache_directory
from pumice.hub.web import source_of, web_directory


@dataclass
class StoredModel:
    """A model in one of the caches, with all of its versions."""

    name: str  # name that loads the model
    root: Path  # directory of its repository or address
    files: list[Path] = field(default_factory=list)  # newest version first
    size: int = 0  # bytes on the disk
    modified: float = 0.0  # seconds since 1970
    unfinished: bool = False  # True for the parts of an interrupted download


def stored_models() -> list[StoredModel]:
    """Return all fetched models and interrupted downloads, sorted by name."""
    models = [*_from_hub(), *_from_web(), *_unfinished()]
    return sorted(models, key=lambda model: (model.name.casefold(), model.unfinished))


def remove(model: StoredModel) -> None:
    """Delete the files of a model, and everything that only they need. Raises OSError."""
    if model.root.is_relative_to(web_directory()):
        shutil.rmtree(model.root)
        return
    for file in model.files:
        content = _content(file)
        file.unlink()
        if content.is_relative_to(model.root) and not any(
            _content(other) == content for other in model.root.glob("snapshots/*/**/*")
        ):
            content.unlink(missing_ok=True)
    _tidy(model.root)


def _tidy(repository: Path) -> None:
    """Remove empty versions, references to them, and an empty repository."""
    for directory, _, _ in os.walk(repository / "snapshots", topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    if not (repository / "snapshots").exists():
        shutil.rmtree(repository)
        return
    for ref in repository.glob("refs/**/*"):
        if ref.is_file() and not (repository / "snapshots" / ref.read_text()).exists():
            ref.unlink()


def _from_hub() -> Iterator[StoredModel]:
    for repository in sorted(cache_directory().glob(f"{FOLDER}*--*")):
        repo = _repo(repository)
        versions = sorted(repository.glob("snapshots/*"), key=lambda path: path.stat().st_mtime, reverse=True)
        models_by_name: dict[str, StoredModel] = {}
        for version in versions:
            models = models_in(
                path.relative_to(version).as_posix() for path in version.rglob("*.gguf") if path.exists()
            )
            for model in models:
                name = _hub_name(repo, model, models)
                _add(
                    models_by_name.setdefault(name, StoredModel(name, repository)),
                    [version / file for file in model.files],
                )
        yield from models_by_name.values()


def _hub_name(repo: str, model: ModelFiles, models: list[ModelFiles]) -> str:
    """Return the shortest name that selects ``model`` among the models on this machine."""
    label = model.label
    unique = sum(other.label == label for other in models) == 1 and not label.endswith(".gguf")
    return str(HubName(repo, tag=label) if unique else HubName(repo, model.files[0]))


def _from_web() -> Iterator[StoredModel]:
    for directory in sorted(web_directory().glob("*/*/")):
        versions = sorted(directory.glob("*/"), key=lambda path: path.stat().st_mtime, reverse=True)
        files = [file for version in versions for file in sorted(version.glob("*.gguf"))]
        if files:
            model = StoredModel(source_of(directory), directory)
            _add(model, files)
            yield model


def _unfinished() -> Iterator[StoredModel]:
    roots = [*cache_directory().glob(f"{FOLDER}*--*"), *web_directory().glob("*/*/")]
    for root in sorted(roots):
        hub = root.is_relative_to(cache_directory())
        if files := sorted(root.glob("blobs/*.incomplete" if hub else "*/*.incomplete")):
            model = StoredModel(f"hf.co/{_repo(root)}" if hub else source_of(root), root, unfinished=True)
            _add(model, files)
            yield model


def _repo(repository: Path) -> str:
    return repository.name.removeprefix(FOLDER).replace("--", "/", 1)


def _add(model: StoredModel, files: list[Path]) -> None:
    contents = {_content(file) for file in model.files}
    model.files += files
    for content in {_content(file) for file in files} - contents:
        status = content.stat()
        model.size += status.st_size
        model.modified = max(model.modified, status.st_mtime)


def _content(file: Path) -> Path:
    """Return the blob that a file of a snapshot links to, or the file itself."""
    return Path(os.path.normpath(file.parent / os.readlink(file))) if file.is_symlink() else file
