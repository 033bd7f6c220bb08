"""The model of a chat, in whose place another one can be loaded."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pumice.cli.named_models import for_other_models, load_model
from pumice.errors import ConfigError, PumiceError

if TYPE_CHECKING:
    from pumice.config import Config
    from pumice.model import Model


class ChatModel:
    """A context with a loaded model.

    Args:
        name: Name or path of the model.
        options: Arguments of ``pumice.load``.

    Attributes:
        model: The model that is loaded now.
    """

    model: Model

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self._first, self._options = name, options
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._load(self.name)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def switch(self, name: str) -> Model:
        """Load another model, and return it; if that fails, the earlier one is loaded again.

        Raises PumiceError if the model is not on this machine, may not be read, or cannot be loaded.
        """
        _check_readable(name)
        earlier = self.name
        self._stack.close()
        try:
            self._load(name)
        except BaseException:
            self._load(earlier)
            raise
        return self.model

    def _load(self, name: str) -> None:
        options = self._options if name == self._first else for_other_models(self._options)
        self.model = self._stack.enter_context(load_model(name, options))
        self.name = name


def switchable_files() -> list[str]:
    """Return the folders of downloaded models, and the files of the configuration's models and their adapters."""
    from pumice.hub.store import stored_models

    return [*{str(model.root) for model in stored_models()}, *_configured_files()]


def _configured_files() -> list[str]:
    """Return the model files of entries."""
    from pumice.config import load_config

    return list(dict.fromkeys(_files_of_entries(load_config())))


def _files_of_entries(config: Config) -> Iterator[str]:
    from pumice.config import merge_layers
    from pumice.hub.catalogue import look_up
    from pumice.model_files.paths import model_files
    from pumice.model_files.policy import files_beside

    for name in config.models:
        with contextlib.suppress(PumiceError):  # who asks for the model reads what is wrong
            entry = look_up(name, config)
            path = Path(entry.model).expanduser()
            if _is_model(path):
                beside = files_beside(merge_layers([*config.layers, entry.options]), [path])
                for file in (path, *filter(_is_model, beside)):
                    yield from map(os.path.abspath, model_files(file))


def _is_model(path: Path) -> bool:
    """Return whether a path is a file, or the folder of a checkpoint, and no other folder."""
    return path.is_file() or (path / "config.json").is_file()


def _check_readable(name: str) -> None:
    from pumice.hub.locate import cached, resolve_name

    paths = cached(resolve_name(name)[0])
    if not paths:
        raise PumiceError(f"{name} is not on this machine; `pumice pull {shlex.quote(name)}` fetches it")
    try:
        if paths[0].is_file():
            paths[0].open("rb").close()
        else:
            os.listdir(paths[0])
    except PermissionError:
        raise PumiceError(
            f"{paths[0]}: this chat reads downloaded models and those of the configuration alone; leave it, and go on "
            f"with pumice chat {shlex.quote(name)} --resume"
        ) from None
    except OSError as error:
        raise ConfigError(f"{paths[0]}: cannot be read: {error.strerror}") from None
