"""Choosing the next token: the contract of a sampler, and the chain that runs samplers over the candidates."""

from pumice.sampler.candidates import Candidates
from pumice.sampler.chain import Chain, make_masks
from pumice.sampler.contract import Sampler, SamplerContext

__all__ = ["Candidates", "Chain", "Sampler", "SamplerContext", "make_masks"]
