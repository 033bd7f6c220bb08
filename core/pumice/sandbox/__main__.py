"""``python -m pumice.sandbox MODULE [ARGUMENT]...``: confine this process by the policy it was given, then run MODULE.

Nothing else is imported before: the modules that start threads, and those that read files, are confined from their
first instruction.
"""

import dataclasses
import runpy
import sys

from pumice.sandbox.launch import received
from pumice.sandbox.policy import enforce
from pumice.sandbox.runtime import python_access


def main() -> None:
    policy = received()
    enforced = enforce(dataclasses.replace(policy, access=policy.access | python_access()))
    if policy.required and enforced.missing:
        sys.exit(f"sandbox: on, but {'; '.join(enforced.missing)}")
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
