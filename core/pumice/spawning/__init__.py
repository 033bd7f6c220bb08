"""Child processes (engines, workers), started by this process or, if it may not start any, by a spawner.

A request names a kind of child and contains an order in bytes. Command line, environment and policy are made by the
process that starts the child, so a compromised process cannot start anything else, or anything unconfined.
"""

from pumice.spawning.child import Child, describe_status, end
from pumice.spawning.client import Spawner, claim, discard_prepared, prepare, spawner, spawns, start, start_ahead

__all__ = [
    "Child",
    "Spawner",
    "claim",
    "describe_status",
    "discard_prepared",
    "end",
    "prepare",
    "spawner",
    "spawns",
    "start",
    "start_ahead",
]
