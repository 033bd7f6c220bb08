"""Metadata and names of tensors: keys that a family needs, values that no model has, tensors that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite

from pumice.check.findings import Finding, Subject
from pumice.gguf import GGUFFile
from pumice.gguf.kinds import MODEL, kind_of
from pumice.model_files.opening import architecture_problems

RANGES: Mapping[str, tuple[float, float]] = {
    "context_length": (64, 1e8),
    "attention.layer_norm_rms_epsilon": (1e-15, 1e-3),
    "attention.layer_norm_epsilon": (1e-15, 1e-3),
    "attention.group_norm_epsilon": (1e-15, 1e-2),
    "attention.scale": (1e-4, 10),
    "rope.freq_base": (1e3, 1e12),
    "rope.freq_base_swa": (1e3, 1e12),
    "rope.scaling.factor": (0, 1024),
    "expert_weights_scale": (0, 100),
    "final_logit_softcapping": (0, 1000),
}
"""Lowest and highest value of published models with a wide margin, by the key without the architecture's name."""


def check_metadata(subject: Subject) -> Iterator[Finding]:
    """Find missing keys, strange values, and tensors that are missing or unused."""
    file = subject.file
    if kind_of(file.metadata) != MODEL:
        return
    yield from _ranges(file)
    if file.tensors:
        yield from _architecture(subject)


def _ranges(file: GGUFFile) -> Iterator[Finding]:
    for key, (low, high) in RANGES.items():
        name = f"{file.architecture}.{key}"
        value = file.metadata.get(name)
        if isinstance(value, int | float) and not (isfinite(value) and low <= value <= high):
            yield Finding("error", name, f"is {value:g}; published models have {low:g} to {high:g}")


def _architecture(subject: Subject) -> Iterator[Finding]:
    """Compare keys and tensors with those that the family needs."""
    file, known = subject.file, subject.registry.architectures
    if file.architecture not in known:
        yield Finding("error", "general.architecture", known.unknown(file.architecture))
    for problem in architecture_problems(file, subject.registry):
        yield Finding("error", "architecture", problem)
