"""Opening a model by its path: a GGUF file, or a Hugging Face model's folder, which is converted in memory."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.config import load_config
from pumice.errors import ConvertError
from pumice.gguf import GGUFFile
from pumice.registry import Registry, load_registry
from pumice.suggest import did_you_mean

if TYPE_CHECKING:
    from pumice.convert import Conversion, Folder, Options
    from pumice.registry.names import Names
    from pumice.tokenizers import Tokenizer

logger = logging.getLogger("pumice")

LONGEST_CONTEXT = 1 << 20  # tokens, for which models are checked; longer ones make no other tensors, but larger masks


def open_model(
    path: str | os.PathLike[str], registry: Registry | None = None, options: Options | None = None
) -> GGUFFile:
    """A GGUF file, or the model that a folder becomes; ``options``: of the latter, as `convert` has them.

    Raises GGUFError or ConvertError.
    """
    path = Path(path)
    if not os.path.isdir(path):
        return GGUFFile.open(path)
    from pumice.convert import Folder, convert

    try:
        folder = Folder(path)
        conversion = _conversion(folder, registry)
        if conversion.is_draft and options and options.target:
            conversion.target = _conversion(Folder(options.target), registry)
        return convert(folder, conversion, options)
    except OSError as error:
        raise ConvertError(f"{error.filename or path}: {(error.strerror or str(error)).lower()}") from None


def open_draft(path: str | os.PathLike[str], target: GGUFFile, registry: Registry | None = None) -> GGUFFile:
    """What drafts for a model, a GGUF file or a folder; a folder needs the model to be one, too."""
    if not Path(path).is_dir():
        return GGUFFile.open(path)
    from pumice.convert import Options

    return open_model(path, registry, Options(target=target.path if target.path.is_dir() else None))


def open_adapter(
    path: str | os.PathLike[str], registry: Registry | None = None, base: str | os.PathLike[str] | None = None
) -> GGUFFile:
    """A GGUF file, or what a folder of the package peft becomes.

    base: the folder of the model that it changes, where the adapter names none that is on this machine.
    Raises GGUFError or ConvertError.
    """
    path = Path(path)
    if not os.path.isdir(path):
        return GGUFFile.open(path)
    from pumice.convert.adapter import AdapterFolder, base_folder, convert_adapter

    folder = AdapterFolder(path)
    model = base_folder(folder, Path(base) if base is not None and Path(base).is_dir() else None)
    return convert_adapter(folder, _conversion(model, registry))


def _conversion(folder: Folder, registry: Registry | None) -> Conversion:
    """That of a folder's model class. ConvertError if nobody brings it."""
    registry = registry or load_registry(load_config())
    conversion = _made(folder, registry.conversions)
    conversion.known_pre_tokenizers = registry.pre_tokenizers
    return conversion


def _made(folder: Folder, known: Names[type[Conversion]]) -> Conversion:
    from pumice.convert.folder import CONFIG, understood

    if not folder.has(CONFIG):
        return _recognised(folder, known)
    name = folder.config.model_class
    if name not in known:
        raise ConvertError(
            f"{folder.config.path}: models of class {name!r} cannot be converted{did_you_mean(name, known)}; "
            f"docs/model_classes.md lists the {len(list(known))} classes that can, a plugin can add another"
        )
    with understood(folder.config):
        return known.find(name).made_for(folder)


def _recognised(folder: Folder, known: Names[type[Conversion]]) -> Conversion:
    """That of a folder without ``config.json``. ConvertError if it is nobody's."""
    from pumice.convert.folder import understood

    found = next((each for each in map(known.find, known) if each.recognises(folder)), None)
    if found is None:
        raise folder.unknown()
    with understood(folder.config):
        return found(folder)


def is_lora(path: str | os.PathLike[str]) -> bool:
    """Whether an adapter is one of LoRA, not a control vector, which is always a file."""
    from pumice.adapters import is_control_vector

    if os.path.isdir(path):
        return True
    with GGUFFile.open(path) as file:
        return not is_control_vector(file)


def check_model(file: GGUFFile, registry: Registry | None = None, target: str | os.PathLike[str] | None = None) -> None:
    """Whether a model could run: its tokenizer is complete, its tensors are those of its architecture.

    Warns where the tokenizer makes other tokens of text than a folder's ``tokenizer.json``.

    target: the model that this one drafts for; without one a draft's tensors are not checked.
    Raises TokenizerError or ModelError. An architecture that nobody registered is not checked.
    """
    from pumice.architecture import HParams
    from pumice.engine.tracing import trace
    from pumice.graph.builder import NoTargetError
    from pumice.tokenizers import from_metadata, has_tokenizer

    registry = registry or load_registry(load_config())
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


def _compare_tokens(path: Path, tokenizer: Tokenizer) -> None:
    from pumice.convert.folder import Folder
    from pumice.convert.vocabulary.difference import first_difference

    if difference := first_difference(Folder(path), tokenizer):
        logger.warning("%s: %s", path, difference)
