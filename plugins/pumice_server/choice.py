"""Which models are served, the names of each, and the adapters."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pumice.cli.options import configured_models, model_problem, split_scale

logger = logging.getLogger("pumice")


def choose_models(given: Sequence[str], options: dict[str, Any]) -> list[str]:
    """Models as ``pumice.load`` takes them: those given, of a folder, of the configuration; else the demo's."""
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
    return list(dict.fromkeys(paths)) or [str(pumice.demo_model_path())]


def make_specs(
    paths: Sequence[str], aliases: Sequence[str], options: Mapping[str, Any], tags: Sequence[str] = ()
) -> list[Any]:
    """``aliases`` are names of the only model, ``tags`` those of each. Raises UsageError for two of the same name."""
    from pumice_server.entry import Spec

    specs = [Spec(aliases or [name_of(path)], path, options, size_of(path), tags) for path in paths]
    names = [spec.names[0] for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"two models are called {name}: rename a file")
    return specs


def name_of(path: str) -> str:
    """What a model is called: a file by its name alone, anything else as it is."""
    return Path(path).stem if path.endswith(".gguf") and Path(path).exists() else path


def size_of(path: str) -> int:
    """Bytes of a file; 0 where there is none of that name yet."""
    return Path(path).stat().st_size if Path(path).is_file() else 0


def _models_in(folder: Path) -> list[str]:
    """The models in a folder, of a split one the first part; other GGUF files are left out with a warning."""
    if not folder.is_dir():
        raise click.ClickException(f"--models-dir: {folder} is not a folder")
    files = [file for file in sorted(folder.glob("*.gguf")) if file.is_file() and "mmproj" not in file.name]
    problems = {str(file): model_problem(file) for file in files if not _is_later_part(file)}
    for problem in filter(None, problems.values()):
        logger.warning("--models-dir: left out: %s", problem)
    models = [file for file, problem in problems.items() if not problem]
    if not models:
        raise click.ClickException(f"--models-dir: {folder} has no models in GGUF")
    return models


def _is_later_part(file: Path) -> bool:
    """Whether it is called ``name-00002-of-00003.gguf``, or any but the first of these."""
    parts = file.stem.split("-")
    return len(parts) > 3 and parts[-2] == "of" and parts[-3].isdigit() and int(parts[-3]) > 1


def _catalogue() -> list[str]:
    names = configured_models()
    if not names:
        raise click.ClickException("--models-catalogue: the configuration names none under `models`")
    return names


def take_adapters(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Remove the options of LoRA adapters and control vectors; the configuration's ``adapters``."""
    layers = list(options.pop("control_vector_layer_range") or [])
    off = options.pop("lora_init_without_apply")
    adapters: dict[str, dict[str, Any]] = {}
    for option in ("lora", "lora_scaled", "control_vector", "control_vector_scaled"):
        for each in _separated(options.pop(option)):
            path, scale = split_scale(each) if option.endswith("scaled") else (each, 1.0)
            name = Path(path).stem
            if name in adapters:
                raise click.UsageError(f"two adapters are called {name}: rename a file")
            is_lora = option.startswith("lora")
            only = {} if is_lora else {"layers": layers}
            adapters[name] = {"file": path, "scale": 0.0 if off and is_lora else scale, **only}
    return adapters


def _separated(values: Iterable[str]) -> list[str]:
    return [each.strip() for value in values for each in value.split(",") if each.strip()]
