"""Plans of all models of a repository of the Hub, from their headers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pumice.config import Config
from pumice.errors import PumiceError
from pumice.hub.headers import ReadRange, RemoteModels, read_models
from pumice.model_files.opening import configure
from pumice.planning.machine import PlannedMachine
from pumice.planning.plan import ModelPlan, plan_file
from pumice.registry import Registry


@dataclass(frozen=True)
class Quantization:
    """A model of a repository, and how it would fit.

    Attributes:
        name: name that loads it: ``hf.co/owner/repository:Q4_K_M``.
        label: its quantization.
        plan: its plan.
    """

    name: str
    label: str
    plan: ModelPlan

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON's types, without devices."""
        fields = asdict(self.plan)
        summary = {key: value for key, value in fields.items() if key not in ("model", "devices", "held")}
        return {"name": self.name, "label": self.label, **summary}


def plan_repository(
    remote: RemoteModels,
    read: ReadRange,
    config: Config,
    registry: Registry,
    machine: PlannedMachine,
) -> Iterator[Quantization]:
    """Yield the plans of a repository's models, that of the selected one first.

    Args:
        remote: the models of the repository.
        read: reads bytes of their files.
        config: options of the context, the cache and the placement.
        registry: registered plugins.
        machine: machine to plan for.

    Raises:
        PumiceError: as ``plan_file``, for the selected model; other models that cannot be planned are left out.
    """
    for model, file in read_models(remote, read):
        name = f"hf.co/{remote.name.repo}:{model.label}"
        try:
            with file:
                plan = plan_file(configure(file, config), config, registry, machine, model=name)
        except PumiceError:
            if model is remote.chosen:
                raise
            continue
        yield Quantization(name, model.label, plan)
