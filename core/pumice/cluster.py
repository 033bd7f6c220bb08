"""The contract of clusters: machines that answer together what one machine answers alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice.running import Running


@dataclass(frozen=True)
class Replicas:
    """Copies of a model in a cluster: ``least`` to ``most`` of them, as the work needs, each with CPUs and GPUs.

    Each has its layers on ``n_stages`` machines, if that is more than one, or on as many as it takes where each gives
    it ``stage_bytes``; CPUs and GPUs are then those of each stage. There may be no room for them for ``wait_seconds``.
    """

    least: int = 1
    most: int = 1
    n_cpus: float = 1.0
    n_gpus: float = 0.0
    n_stages: int = 1
    stage_bytes: int = 0
    wait_seconds: float = math.inf

    @property
    def staged(self) -> bool:
        """Whether layers may be on several machines."""
        return self.n_stages > 1 or self.stage_bytes > 0


class Cluster(ABC):
    """Registered under the name of the option of commands that selects it: ``ray`` for ``--ray [ADDRESS]``.

    ``address``: of a cluster; empty: the one that this machine is of, else a cluster of this machine alone.
    Methods raise PumiceError where it cannot be had.
    """

    def __init__(self, address: str = "") -> None:
        self.address = address

    @abstractmethod
    def connected(self) -> AbstractContextManager[None]:
        """Everything else happens within."""

    @abstractmethod
    def answer(self, spec: Any, rows: Iterable[Any], n_in_flight: int, replicas: Replicas) -> Iterator[dict[str, Any]]:
        """One result of each row of a batch, as they come.

        Args:
            spec: the model, a ``Spec`` of the server; its path is a file on every machine, or a name of the hub.
            rows: ``Row`` of a batch.
            n_in_flight: rows that a replica has in hand at once.
        """

    @abstractmethod
    def load(self, spec: Any, replicas: Replicas, deliver: Callable[..., object]) -> Any:
        """A ``pumice.LinkedModel`` whose engine is its replicas; closing it ends them.

        ``deliver`` as in ``pumice.load_process``.
        """

    @abstractmethod
    def running(self) -> list[Running]:
        """The replicas of models in the cluster."""
