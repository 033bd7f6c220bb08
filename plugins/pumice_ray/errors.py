"""What Ray raises, as errors of Pumice."""

from __future__ import annotations

import ray

import pumice


def explain(error: Exception) -> Exception:
    """What Ray raised, as an error of Pumice: what an actor raised itself, or that it died."""
    cause = getattr(error, "cause", None)
    if isinstance(error, pumice.PumiceError) or isinstance(cause, pumice.PumiceError):
        return cause or error
    if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(cause, ray.exceptions.RayError):
        return pumice.EngineError(f"{type(cause).__name__}: {cause}")
    return pumice.EngineDiedError(f"the engine's actor is gone: {str(error).strip().splitlines()[0]}")
