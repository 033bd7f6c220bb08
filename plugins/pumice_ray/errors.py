"""Translation of Ray's exceptions to Pumice's errors."""

from __future__ import annotations

import ray

import pumice


def explain(error: Exception) -> Exception:
    """Return Ray's exception as an error of Pumice: the actor's own error, or that the actor died."""
    cause = getattr(error, "cause", None)
    if isinstance(error, pumice.PumiceError) or isinstance(cause, pumice.PumiceError):
        return cause or error
    if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(cause, ray.exceptions.RayError):
        return pumice.EngineError(f"{type(cause).__name__}: {cause}")
    return pumice.EngineDiedError(f"the engine's actor died: {str(error).strip().splitlines()[0]}")
