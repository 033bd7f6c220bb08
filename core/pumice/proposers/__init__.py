"""Proposers of speculative decoding, which guess next tokens: the contract, and the bundled proposers."""

from typing import Any

from pumice.proposers.contract import Proposer, ProposerContext

PROPOSERS = {
    "prediction": "pumice.proposers.ngram:Prediction",
    "ngram": "pumice.proposers.ngram:Ngram",
    "ngram-simple": "pumice.proposers.llama_ngrams:NgramSimple",
    "ngram-map-k": "pumice.proposers.llama_ngrams:NgramMapK",
    "ngram-map-k4v": "pumice.proposers.llama_ngrams:NgramMapK4V",
    "ngram-mod": "pumice.proposers.llama_ngrams:NgramMod",
    "ngram-cache": "pumice.proposers.llama_ngrams:NgramCache",
}
"""Bundled proposers by name."""

ALONE = ("auto", "off")
"""Values of ``speculate`` that choose all proposers and none, and stand alone."""

COMPUTED = ("draft", "mtp")
"""Proposers that run layers: a draft model, and a layer of the model."""

CHOICES = (*ALONE, *COMPUTED)
"""Values of ``speculate`` other than names of registered proposers."""


def choice_of(value: Any) -> Any:
    """Return a value of ``speculate`` with ``auto`` for True and ``off`` for False; other values as they are."""
    return {True: "auto", False: "off"}[value] if isinstance(value, bool) else value


def names_of(choice: str) -> list[str]:
    """Return the names in a value of ``speculate``, the preferred first."""
    return [name.strip() for name in choice.split(",")]


__all__ = [
    "ALONE",
    "CHOICES",
    "COMPUTED",
    "PROPOSERS",
    "Proposer",
    "ProposerContext",
    "choice_of",
    "names_of",
]
