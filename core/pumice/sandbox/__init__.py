"""Confining a process to what it needs: files by Landlock, system calls by seccomp, resources by limits. Linux only.

A process that reads what strangers bring (an engine, a worker) is started through ``launch`` and confines itself before
it imports anything else. Where the kernel lacks a part, the others still hold, and ``missing`` says so.
"""

from pumice.sandbox.launch import Launch, cache_homes, launch, make_cache
from pumice.sandbox.policy import (
    SWITCH,
    Access,
    Enforced,
    Policy,
    enforce,
    in_force,
    limit,
    missing,
    seal,
    switched_off,
)
from pumice.sandbox.runtime import interpreter, python_access

__all__ = [
    "SWITCH",
    "Access",
    "Enforced",
    "Launch",
    "Policy",
    "cache_homes",
    "enforce",
    "in_force",
    "interpreter",
    "launch",
    "limit",
    "make_cache",
    "missing",
    "python_access",
    "seal",
    "switched_off",
]
