"""Proposers of speculative decoding, which guess next tokens: the contract, and the bundled proposers."""

from pumice.proposers.contract import Proposal, Proposer, ProposerContext

PROPOSERS = {
    "prediction": "pumice.proposers.prediction:Prediction",
    "ngram": "pumice.proposers.ngram:Ngram",
    "ngram-simple": "pumice.proposers.llama_ngrams:NgramSimple",
    "ngram-map-k": "pumice.proposers.llama_ngrams:NgramMapK",
    "ngram-map-k4v": "pumice.proposers.llama_ngrams:NgramMapK4V",
    "ngram-mod": "pumice.proposers.llama_ngrams:NgramMod",
    "ngram-cache": "pumice.proposers.llama_ngrams:NgramCache",
}
"""Bundled proposers by name."""

CHOICES = ("auto", "off", "draft", "mtp")
"""Values of ``speculate`` other than names of proposers."""

__all__ = ["CHOICES", "PROPOSERS", "Proposal", "Proposer", "ProposerContext"]
