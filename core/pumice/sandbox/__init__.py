"""Confine a process: files by Landlock, system calls by seccomp, resources by limits. Linux only.

A process that reads untrusted data (an engine, a worker) is started through ``launch`` and confines itself before it
imports anything else. If the kernel lacks a part, the others are still enforced, and ``missing`` names it.
"""

from pumice.sandbox.kernel import end_numpy_threads, is_single_threaded
from pumice.sandbox.launch import Launch, cache_homes, launch, make_cache
from pumice.sandbox.policy import (
    SWITCH,
    Access,
    Enforced,
    Policy,
    enforce,
    granted,
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
    "end_numpy_threads",
    "enforce",
    "granted",
    "in_force",
    "interpreter",
    "is_single_threaded",
    "launch",
    "limit",
    "make_cache",
    "missing",
    "python_access",
    "seal",
    "switched_off",
]
