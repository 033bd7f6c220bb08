"""Sampling: the contract of a sampler, and the chain that runs samplers over the candidates of a token."""

from pumice.sampler.candidates import Candidates
from pumice.sampler.chain import Chain, make_masks
from pumice.sampler.contract import MaskSampler, Plan, PlannedSampler, Sampler, SamplerContext, Selector

__all__ = [
    "Candidates",
    "Chain",
    "MaskSampler",
    "Plan",
    "PlannedSampler",
    "Sampler",
    "SamplerContext",
    "Selector",
    "make_masks",
]
