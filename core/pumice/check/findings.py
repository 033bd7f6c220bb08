"""What checks find, and the file that they look at."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pumice.architecture import Architecture, HParams
from pumice.check.text import TEXT
from pumice.gguf import GGUFFile
from pumice.gguf.tensors import TensorSource
from pumice.hookspecs import Register, hookimpl
from pumice.registry import Registry
from pumice.tokenizers import Tokenizer, from_metadata, has_tokenizer

if TYPE_CHECKING:
    from pumice.model import Model

Progress = Callable[[int, int], None]
"""Called with the number of steps done, and their total."""

Level = Literal["error", "warning", "note"]
"""An error makes the file unusable or its results wrong; a warning probably does; a note is a measurement."""


def no_progress(done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Finding:
    """One line about a file.

    Attributes:
        level: error, warning or note.
        subject: the part of the file: a tensor, a metadata key, ``chat template``.
        message: what was found, and what to do.
    """

    level: Level
    subject: str
    message: str


@dataclass(frozen=True)
class Variant:
    """A change of a model as it is loaded; the file stays unchanged.

    Attributes:
        metadata: values of hyperparameters, by their whole keys.
        attributes: attributes of the architecture's class.
        tensors: tensors that take the place of the file's, by name.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, TensorSource] = field(default_factory=dict)

    def plugin(self, name: str, architecture: type[Architecture]) -> object:
        """Return a plugin that registers the changed architecture under ``name``."""
        variant = self

        def init(self: Architecture, hparams: HParams) -> None:
            architecture.__init__(self, HParams(ChainMap(dict(variant.metadata), hparams.metadata)))  # type: ignore[arg-type]

        def tensors(self: Architecture, given: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
            return {**architecture.tensors(self, given), **variant.tensors}

        changed = type(
            architecture.__name__, (architecture,), {"__init__": init, "tensors": tensors, **self.attributes}
        )

        class Plugin:
            @hookimpl
            def pumice_register_architectures(self, register: Register[type[Architecture]]) -> None:
                register(name, changed)

        return Plugin()


@dataclass
class Subject:
    """A file that is checked.

    Attributes:
        file: the open file.
        registry: registered plugins.
        options: keyword arguments of ``pumice.load`` for runs of the model.
        text: a text that the model should predict well.
        base: the open file of the same model before it was quantized, if any.
        progress: called with the steps done and their total while checks run.
    """

    file: GGUFFile
    registry: Registry
    options: Mapping[str, Any] = field(default_factory=dict)
    text: str = TEXT
    base: GGUFFile | None = None
    progress: Progress = no_progress

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None if the file has none. Raises TokenizerError."""
        if not has_tokenizer(self.file.metadata):
            return None
        return from_metadata(self.file.metadata, self.registry.tokenizers, self.registry.pre_tokenizers)

    def load(self, variant: Variant | None = None, file: GGUFFile | None = None) -> Model:
        """Load the model, or a variant of it or of another ``file``. Raises PumiceError."""
        from pumice.loading import load

        file = file or self.file
        name = file.architecture
        plugins = [variant.plugin(name, self.registry.architectures.find(name))] if variant else []
        return load(file.path, plugins=plugins, **self.options)


Check = Callable[[Subject], Iterator[Finding]]
