"""Checks of a model's file: is it, its template, its vocabulary or its quantization broken?

A check is a function of a ``Subject`` that yields findings. Each kind of check is a module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pumice.check.answers import check_answers
from pumice.check.findings import Check, Finding, Level, Progress, Subject, no_progress
from pumice.check.metadata import check_metadata
from pumice.check.prediction import check_prediction
from pumice.check.quantization import check_quantization
from pumice.check.template import check_template
from pumice.check.text import TEXT
from pumice.check.vocabulary import check_vocabulary
from pumice.check.weights import check_weights
from pumice.errors import PumiceError
from pumice.gguf import GGUFFile
from pumice.gguf.kinds import MODEL, kind_of, why_no_model
from pumice.model_files.opening import open_model
from pumice.model_graphs import make_architecture
from pumice.registry import Registry
from pumice.tokenizers import has_tokenizer

__all__ = ["Finding", "Level", "Plan", "check"]

OF_FILE: tuple[Check, ...] = (check_metadata, check_vocabulary, check_template, check_weights)
N_CTX = 1024  # tokens of context for runs, in which the built-in text fits


@dataclass(frozen=True)
class Plan:
    """What to check with.

    Attributes:
        text: text that the model should predict well.
        base: file of the same model before it was quantized.
        runs: run the model, if the file itself has no errors.
        n_calls: number of questions for a tool, of each kind.
    """

    text: str = TEXT
    base: Path | None = None
    runs: bool = True
    n_calls: int = 1


def check(
    path: Path, registry: Registry, options: Mapping[str, Any], plan: Plan = Plan(), progress: Progress = no_progress
) -> Iterator[Finding]:
    """Yield what is wrong with a model, a GGUF file or a Hugging Face folder, and measurements.

    ``options``: keyword arguments of ``pumice.load`` for runs. ``progress`` is called with the steps done and their
    total, for each check that takes time.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_model(path, registry))
            other = stack.enter_context(open_model(plan.base, registry)) if plan.base else None
        except PumiceError as error:
            yield Finding("error", "file", str(error))
            return
        if not isinstance(file.metadata.get("general.architecture"), str) and kind_of(file.metadata) == MODEL:
            message = "the key is missing or not a string, so no program knows how to run the model"
            yield Finding("error", "general.architecture", message)
            return
        given = {key: value for key, value in options.items() if value is not None}
        settings = {"n_ctx": _context(file), "n_parallel": 1, **given}
        subject = Subject(file, registry, settings, plan.text, other, progress)
        broken = False
        for run in OF_FILE:
            for finding in run(subject):
                broken |= finding.level == "error"
                yield finding
        if not plan.runs or broken:
            return
        if reason := _why_not_run(subject):
            yield Finding("note", "file", f"{reason}; the file was checked, but not run")
            return
        try:
            for run in (check_prediction, partial(check_answers, n_calls=plan.n_calls), check_quantization):
                yield from run(subject)
        except PumiceError as error:
            yield Finding("error", "run", str(error))


def _why_not_run(subject: Subject) -> str:
    """Return why a file cannot predict texts, or ``""``."""
    file = subject.file
    if reason := why_no_model(file.metadata):
        return reason
    if not file.tensors:
        return "a file without tensors, of which only the vocabulary can be used"
    if make_architecture(file, subject.registry).decoder_start is not None:
        return "a model whose decoder continues what its encoder has read, such as speech"
    if not has_tokenizer(file.metadata):
        return "a model without a tokenizer, which reads token ids alone"
    return ""


def _context(file: GGUFFile) -> int:
    trained = file.metadata.get(f"{file.metadata.get('general.architecture')}.context_length")
    return min(N_CTX, trained) if isinstance(trained, int) and trained > 0 else N_CTX
