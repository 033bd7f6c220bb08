"""Plans: where a model's weights, caches and activations would live, before it is loaded."""

from pumice.engine.placement.sizing import Held
from pumice.planning.machine import PlannedMachine
from pumice.planning.plan import DevicePlan, ModelPlan, plan_file
from pumice.planning.repository import Quantization, plan_repository

__all__ = [
    "DevicePlan",
    "Held",
    "ModelPlan",
    "PlannedMachine",
    "Quantization",
    "plan_file",
    "plan_repository",
]
