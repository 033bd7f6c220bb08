"""The bundled samplers. Definitions, parameter names and defaults are those of llama.cpp."""

from collections.abc import Callable

from pumice.plugin import Sampler, hookimpl
from pumice_samplers.adaptive import AdaptiveP
from pumice_samplers.bias import LogitBias
from pumice_samplers.dry import Dry
from pumice_samplers.mirostat import Mirostat
from pumice_samplers.penalties import Penalties
from pumice_samplers.select import Dist, Greedy
from pumice_samplers.temperature import Temperature
from pumice_samplers.timestamps import Timestamps
from pumice_samplers.truncation import MinP, TopK, TopNSigma, TopP, TypicalP, Xtc

SAMPLERS: dict[str, type[Sampler]] = {
    "logit_bias": LogitBias,
    "penalties": Penalties,
    "dry": Dry,
    "top_n_sigma": TopNSigma,
    "top_k": TopK,
    "typical_p": TypicalP,
    "top_p": TopP,
    "min_p": MinP,
    "xtc": Xtc,
    "temperature": Temperature,
    "greedy": Greedy,
    "mirostat": Mirostat,
    "adaptive_p": AdaptiveP,
    "dist": Dist,
}
"""Bundled samplers by name, in the order of the default chain."""

OF_TRANSCRIPTS: dict[str, type[Sampler]] = {"timestamps": Timestamps}
"""Samplers of the chain that ``transcribe`` makes."""


@hookimpl
def pumice_register_samplers(register: Callable[[str, type[Sampler]], None]) -> None:
    for name, sampler in {**SAMPLERS, **OF_TRANSCRIPTS}.items():
        register(name, sampler)
