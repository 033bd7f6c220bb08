"""Choose the models to serve, their names, and their adapters from the command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.named_models import (
    check_configuration,
    check_layer,
    check_template,
    configuration_of,
    configured_models,
    local_path,
    model_problem,
)
from pumice.cli.options import (
    ADAPTERS,
    NO_VECTOR,
    CommandFunction,
    adapter_option,
    layer_range_option,
    read_adapter,
    separated,
)
from pumice.cli.vocabulary import option, with_options

if TYPE_CHECKING:
    from pumice.plugin.unstable import ModelSpec

logger = logging.getLogger("pumice")

_ADAPTER_OPTIONS = [
    *map(adapter_option, ADAPTERS),
    option(
        "--lora-init-without-apply",
        is_flag=True,
        group="Adapters",
        advanced=True,
        help="Apply no LoRA adapter until POST /lora-adapters.",
    ),
    layer_range_option(),
]


def adapter_options(command: CommandFunction) -> CommandFunction:
    """Add the options that ``take_adapters`` reads."""
    return with_options(command, _ADAPTER_OPTIONS)


def choose_models(given: Sequence[str], options: dict[str, Any], has_others: bool = False) -> list[str]:
    """Return paths and names of models: of the command line, of a folder, of the configuration.

    Without any, that is the demo's, unless the server ``has_others``.
    """
    import pumice

    file = options.pop("hf_file")
    repositories = [f"hf.co/{repository}" + (f"/{file}" if file else "") for repository in options.pop("hf_repo")]
    if file and len(repositories) != 1:
        raise click.UsageError("-hff names a file of one repository: give -hf too")
    folder, catalogue = options.pop("models_dir"), options.pop("models_catalogue")
    paths = [*given, *options.pop("model"), *options.pop("model_url"), *repositories]
    if folder is not None:
        paths += _models_in(folder)
    if catalogue:
        paths += _catalogue()
    return list(dict.fromkeys(paths)) or ([] if has_others else [str(pumice.demo_model_path())])


def make_specs(
    paths: Sequence[str], aliases: Sequence[str], options: Mapping[str, Any], tags: Sequence[str]
) -> list[ModelSpec]:
    """Return the models to serve. Raises UsageError for two of the same name.

    Args:
        paths: Paths and names of models.
        aliases: Names of the only model; empty: by its file.
        options: Arguments of ``pumice.load`` for all of them.
        tags: Tags of all of them.
    """
    from pumice.plugin.unstable import ModelSpec

    specs = [ModelSpec(aliases or [name_of(path)], path, options, size_of(path), tags) for path in paths]
    check_names(specs)
    return specs


def check_names(specs: Sequence[ModelSpec]) -> None:
    """Raise UsageError for two models of the same name."""
    names = [name for spec in specs for name in spec.names]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"two models are called {name}; rename a file, or serve one of them")


def with_presets(specs: Sequence[ModelSpec], presets: Sequence[ModelSpec]) -> list[ModelSpec]:
    """Return models with those of presets. A preset without a model that has the name of another is its options.

    Raises UsageError for two of the same name.
    """
    by_name = {spec.names[0]: spec for spec in specs}
    chosen: list[ModelSpec] = []
    for preset in presets:
        name = preset.names[0]
        if preset.path == name and (spec := by_name.pop(name, None)):
            preset = replace(preset, path=spec.path, size=spec.size)
        chosen.append(preset)
    both = [*by_name.values(), *chosen]
    check_names(both)
    return both


def name_of(path: str) -> str:
    """Return the name of a model: the stem of a file's name, anything else unchanged."""
    return Path(path).stem if path.endswith(".gguf") and Path(path).exists() else path


def size_of(path: str) -> int:
    """Return the bytes of a file; 0 if it does not exist yet."""
    return Path(path).stat().st_size if Path(path).is_file() else 0


def _models_in(folder: Path) -> list[str]:
    """The models in a folder, of a split one the first part; other GGUF files are left out with a warning."""
    if not folder.is_dir():
        raise click.ClickException(f"--models-dir: {folder} is not a folder")
    from pumice.plugin.unstable import SPLIT_NAME

    files = [file for file in sorted(folder.glob("*.gguf")) if file.is_file() and "mmproj" not in file.name]
    later = [file for file in files if (part := SPLIT_NAME.fullmatch(file.name)) and int(part["part"]) > 1]
    problems = {str(file): model_problem(file) for file in files if file not in later}
    for problem in filter(None, problems.values()):
        logger.warning("--models-dir: left out: %s", problem)
    models = [file for file, problem in problems.items() if not problem]
    if not models:
        raise click.ClickException(f"--models-dir: {folder} has no models in GGUF")
    return models


def refuse_wrong(specs: Sequence[ModelSpec], folder: Path | None) -> None:
    """Raise for the first of several models whose options are wrong, or whose file or folder is no model.

    They load on first use, so a client would get the error. Files are judged by their headers. Those that are not on
    this machine yet are skipped, and those of ``folder``, which ``choose_models`` has checked.
    """
    for spec in specs:
        check_configuration(config := configuration_of(spec.path, spec.options))
        path = local_path(spec.path)
        if path and path.exists() and path.parent != folder and (problem := model_problem(path)):
            raise click.ClickException(problem)
        if path and path.is_file():
            check_template(path, config.chat_template)
            check_layer(path, config)


def _catalogue() -> list[str]:
    names = configured_models()
    if not names:
        raise click.ClickException("--models-catalogue: the configuration names none under `models`")
    return names


def take_adapters(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Remove the options of LoRA adapters and control vectors; return the configuration's ``adapters``."""
    layers = options.pop("control_vector_layer_range") or ()
    off = options.pop("lora_init_without_apply")
    adapters: dict[str, dict[str, Any]] = {}
    for kind in ADAPTERS:
        for argument in separated(options.pop(kind)):
            name, adapter = read_adapter(kind, argument, layers)
            if name in adapters:
                raise click.UsageError(f"--{kind.replace('_', '-')}: two adapters are called {name}; rename a file")
            adapters[name] = {**adapter, "scale": 0.0} if off and adapter["kind"] == "lora" else adapter
    if layers and not any("layers" in adapter for adapter in adapters.values()):
        raise click.UsageError(NO_VECTOR)
    return adapters
