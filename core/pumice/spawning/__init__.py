"""Child processes (engines, workers), started by this process or, where it may start none itself, by a spawner.

Whoever wants one names its kind and gives an order, bytes. Its command line, environment and policy are made where the
process is started, so that a process that was taken over starts nothing else, and nothing that is not confined.
"""

from pumice.spawning.child import Child, describe_status
from pumice.spawning.client import Spawner, spawner, spawns, start

__all__ = ["Child", "Spawner", "describe_status", "spawner", "spawns", "start"]
