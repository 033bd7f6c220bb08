"""Persimmon (Adept 2023)."""

from pumice_architectures.nemotron import Nemotron


class Persimmon(Nemotron):
    """Queries and keys of each head have LayerNorm before RoPE, which rotates half of a head."""

    qk_norm = "before rope"
