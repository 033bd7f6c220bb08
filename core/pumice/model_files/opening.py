"""Opening of models by path: a GGUF file, or a Hugging Face folder, which is converted in memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pumice.config import Config, load_config
from pumice.errors import ConfigError, ConvertError, GGUFError, ModelError
from pumice.file_names import why_absent
from pumice.gguf import GGUFFile
from pumice.gguf.kinds import why_no_model
from pumice.gguf.metadata import override_metadata
from pumice.hub.projectors import OFF
from pumice.registry import Registry, load_registry
from pumice.wording import did_you_mean

if TYPE_CHECKING:
    from pumice.convert import Conversion, ConvertOptions, Folder
    from pumice.registry.names import Names
    from pumice.tokenizers import Tokenizer

logger = logging.getLogger("pumice")
C = TypeVar("C", bound="Conversion")

LONGEST_CONTEXT = 1 << 20  # tokens for which models are checked; longer ones give the same tensors and larger masks


def check_files(config: Config) -> None:
    """Raise ConfigError for an option that names an absent file, or a folder where there must be a file."""
    named = [
        (f"--{adapter.kind.replace('_', '-')}" if adapter.kind else f"adapters.{name}", adapter.file)
        for name, adapter in config.adapters.items()
    ]
    named += [("draft", config.draft), ("mmproj", config.mmproj), ("vocoder", config.vocoder)]
    for option, path in named:
        if path and path != OFF:
            is_folder = option in ("mmproj", "vocoder") and os.path.isdir(path)
            if reason := "expected a GGUF file, but this is a directory" if is_folder else why_absent(path):
                raise ConfigError(f"{option}: {path}: {reason}")


def open_configured(path: str | os.PathLike[str], registry: Registry, config: Config) -> GGUFFile:
    """Open a model with the metadata that the configuration overrides.

    Raises:
        PumiceError: As ``open_model``, and ConfigError for a value that does not fit.
    """
    return configure(open_model(path, registry, mapped=config.mmap), config)


def configure(file: GGUFFile, config: Config) -> GGUFFile:
    """Override metadata of a model as the configuration says. Raises ConfigError for a value that does not fit."""
    if not config.override_kv:
        return file
    stands_for = f"{file.architecture}."
    values = {stands_for + key[2:] if key.startswith("*.") else key: value for key, value in config.override_kv.items()}
    for key, value in values.items():
        logger.info("%s: %s is %r, as configured, instead of %.80r", file.path, key, value, file.metadata.get(key))
    try:
        file.metadata = override_metadata(file.metadata, values)
    except GGUFError as error:
        raise ConfigError(f"override_kv: {error}") from None
    return file


def open_model(
    path: str | os.PathLike[str],
    registry: Registry | None = None,
    options: ConvertOptions | None = None,
    mapped: bool = True,
) -> GGUFFile:
    """Open a GGUF file, or convert a folder in memory.

    Args:
        path: GGUF file or Hugging Face folder.
        registry: Registered plugins; None loads those of the configuration.
        options: Options of the conversion of a folder.
        mapped: Map a GGUF file into memory; False reads it.

    Raises:
        PumiceError: GGUFError or ConvertError.
    """
    path = Path(path)
    if not os.path.isdir(path):
        return GGUFFile.open(path, mapped)
    from pumice.convert import Folder, convert

    try:
        folder = Folder(path)
        if options and options.mmproj:
            return convert(folder, _projector_conversion(folder, registry), options)
        conversion = _conversion(folder, registry)
        if conversion.is_draft and options and options.target:
            conversion.target = _conversion(Folder(options.target), registry)
        return convert(folder, conversion, options)
    except OSError as error:
        raise ConvertError(f"{error.filename or path}: {(error.strerror or str(error)).lower()}") from None


def open_draft(path: str | os.PathLike[str], target: GGUFFile, registry: Registry | None = None) -> GGUFFile:
    """Open the draft of a model, a GGUF file or a folder; a folder needs a ``target`` that is a folder too."""
    if not Path(path).is_dir():
        return GGUFFile.open(path)
    from pumice.convert import ConvertOptions

    return open_model(path, registry, ConvertOptions(target=target.path if target.path.is_dir() else None))


def open_adapter(
    path: str | os.PathLike[str], registry: Registry | None = None, base: str | os.PathLike[str] | None = None
) -> GGUFFile:
    """Open an adapter: a GGUF file, or a folder of the package peft, converted in memory.

    Args:
        path: GGUF file or folder of peft.
        registry: Registered plugins; None loads those of the configuration.
        base: Folder of the base model; None takes the one that the adapter names.

    Raises:
        PumiceError: GGUFError or ConvertError.
    """
    path = Path(path)
    if not os.path.isdir(path):
        return GGUFFile.open(path)
    from pumice.convert.adapter import AdapterFolder, base_folder, convert_adapter

    folder = AdapterFolder(path)
    model = base_folder(folder, Path(base) if base is not None and Path(base).is_dir() else None)
    return convert_adapter(folder, _conversion(model, registry))


def _conversion(folder: Folder, registry: Registry | None) -> Conversion:
    """Return the Conversion registered for a folder's model class. Raises ConvertError if none is."""
    registry = registry or load_registry(load_config())
    conversion = _made(folder, registry)
    conversion.known_pre_tokenizers = registry.pre_tokenizers
    return conversion


def _projector_conversion(folder: Folder, registry: Registry | None) -> Conversion:
    """Return the conversion of a folder's encoders or speech model. Raises ConvertError if there is none."""
    from pumice.convert.folder import CONFIG

    registry = registry or load_registry(load_config())
    conversions = registry.projector_conversions
    if not folder.has(CONFIG):
        return _recognised(folder, conversions)
    name = folder.config.outer_class
    if name not in conversions and name in registry.conversions:
        problem = f"models of class {name!r} have no projector to convert; docs/media_types.md lists models with one"
        raise ConvertError(f"{folder.config.path}: {problem}")
    return _made_by_class(folder, name, conversions, "projectors", "docs/media_types.md lists those that can")


def _made(folder: Folder, registry: Registry) -> Conversion:
    from pumice.convert.folder import CONFIG

    known = registry.conversions
    if not folder.has(CONFIG):
        return _recognised(folder, known)
    name = folder.model_class
    if name not in known and name in registry.projector_conversions:
        name = folder.config.text_class or name
    classes = f"docs/model_classes.md lists the {len(list(known))} classes that can, a plugin can add another"
    return _made_by_class(folder, name, known, "models", classes)


def _made_by_class(folder: Folder, name: str, conversions: Names[type[C]], things: str, known: str) -> Conversion:
    """Return the conversion registered for a class's name. ``known``: the part of the error about other classes."""
    from pumice.convert.folder import understood

    if name not in conversions:
        raise ConvertError(
            f"{folder.config.path}: {things} of class {name!r} cannot be converted{did_you_mean(name, conversions)}; "
            f"{known}"
        )
    with understood(folder.config):
        return conversions.find(name).made_for(folder)


def _recognised(folder: Folder, known: Names[type[C]]) -> Conversion:
    """Return the Conversion that recognizes a folder without ``config.json``. Raises ConvertError if none does."""
    from pumice.convert.folder import understood

    conversion = next((cls for cls in map(known.find, known) if cls.recognises(folder)), None)
    if conversion is None:
        raise folder.unknown()
    with understood(folder.config):
        return conversion(folder)


def check_model(file: GGUFFile, target: str | os.PathLike[str] | None = None) -> None:
    """Check that a model could run: a complete tokenizer, and the tensors of its architecture.

    A tokenizer that disagrees with a folder's ``tokenizer.json`` causes a warning. Unknown architectures are skipped.

    Args:
        file: The model.
        target: Model that this one drafts for; without it the tensors of a draft are not checked.

    Raises:
        PumiceError: TokenizerError or ModelError.
    """
    from pumice.architecture import HParams
    from pumice.graph.builder import NoTargetError
    from pumice.tokenizers import from_metadata, has_tokenizer
    from pumice.tracing import trace

    registry = load_registry(load_config())
    if has_tokenizer(file.metadata):
        tokenizer = from_metadata(file.metadata, registry.tokenizers, registry.pre_tokenizers)
        if target is None and file.path.is_dir():
            _compare_tokens(file.path, tokenizer)
    if not file.tensors or file.architecture not in registry.architectures:
        return
    architecture = registry.architectures.find(file.architecture)(HParams(file.metadata))
    if target is None:
        with suppress(NoTargetError):
            trace(file, architecture, min(architecture.n_ctx_train, LONGEST_CONTEXT))
        return
    with open_model(target, registry) as whole:
        main = registry.architectures.find(whole.architecture)(HParams(whole.metadata))
        trace(whole, main, min(main.n_ctx_train, LONGEST_CONTEXT), draft=(file, architecture))


def architecture_problems(file: GGUFFile, registry: Registry | None = None) -> Iterator[str]:
    """Yield a line if an architecture cannot run a model, or has no use for tensors. Unknown ones are skipped."""
    from pumice.architecture import HParams
    from pumice.graph.builder import NoTargetError
    from pumice.tracing import unread_message, unused_tensors

    registry = registry or load_registry(load_config())
    if not file.tensors or why_no_model(file.metadata) or file.architecture not in registry.architectures:
        return
    try:
        architecture = registry.architectures.find(file.architecture)(HParams(file.metadata))
        unread = unused_tensors(file, architecture, min(architecture.n_ctx_train, LONGEST_CONTEXT))
    except NoTargetError:
        return
    except ModelError as error:
        yield str(error).removeprefix(f"{file.path}: ")
        return
    if unread:
        yield unread_message(unread, file.architecture)


def check_projector(file: GGUFFile) -> None:
    """Check the tensors of a projector, or of a speech model, by tracing its graphs. Raises ModelError."""
    from pumice.engine.media.encoders import ProjectorParts, trace_projector
    from pumice.engine.speech import trace_speech

    registry, parts = load_registry(load_config()), ProjectorParts.of(file.metadata)
    if parts.speech:
        trace_speech(file, registry)
    if parts.media or not parts.speech:
        trace_projector(file, registry)


def _compare_tokens(path: Path, tokenizer: Tokenizer) -> None:
    from pumice.convert.folder import Folder
    from pumice.convert.vocabulary.difference import first_difference

    if difference := first_difference(Folder(path), tokenizer):
        logger.warning("%s: %s", path, difference)
