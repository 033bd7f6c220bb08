"""Plans: where a model's weights, caches and activations would live, and how fast it would be, before it is loaded."""

from pumice.engine.placement.costs import NodeCost
from pumice.engine.placement.held import Held
from pumice.engine.placement.rates import Rates
from pumice.planning.machine import PlannedMachine
from pumice.planning.plan import DevicePlan, ModelPlan, plan_file
from pumice.planning.repository import Quantization, plan_repository

__all__ = [
    "DevicePlan",
    "Held",
    "ModelPlan",
    "NodeCost",
    "PlannedMachine",
    "Quantization",
    "Rates",
    "plan_file",
    "plan_repository",
]
