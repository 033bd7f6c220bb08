"""``python -m pumice.sandbox MODULE [ARGUMENT]...``: confine this process by its policy, then run MODULE.

Nothing else is imported before, so modules that start threads or read files are confined from their first instruction.
"""

import contextlib
import dataclasses
import os
import runpy
import sys

from pumice.sandbox.launch import received
from pumice.sandbox.policy import enforce
from pumice.sandbox.runtime import python_access


def main() -> None:
    confine()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def confine() -> None:
    """Confine this process by the policy in its environment. Exits if a required protection is missing."""
    _write_only(2)
    policy = received()
    enforced = enforce(dataclasses.replace(policy, access=policy.access | python_access()))
    if policy.required and enforced.missing:
        sys.exit(f"sandbox: on, but {'; '.join(enforced.missing)}")


def _write_only(descriptor: int) -> None:
    """Reopen a terminal for writing only; the inherited descriptor would also read the user's input."""
    if os.isatty(descriptor):
        with contextlib.suppress(OSError):
            terminal = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NOCTTY)
            os.dup2(terminal, descriptor)
            os.close(terminal)


if __name__ == "__main__":
    main()
