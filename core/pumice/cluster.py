"""The contract of clusters: machines that answer together what one machine answers alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pumice.process_list import RunningModel

LoadedModel_co = TypeVar("LoadedModel_co", covariant=True)
"""The type of a loaded model, ``pumice.Model``: this contract stands below it and cannot name it."""


@dataclass(frozen=True)
class ModelSpec:
    """A model to serve, and how it is loaded.

    Attributes:
        names: Names of the model in requests; answers carry the first.
        path: Path or name of the model, as ``pumice.load`` takes it.
        options: Further arguments of ``pumice.load``.
        size: Bytes that the model takes, as far as they are known before it is loaded.
        tags: Words that lists of models show with it.
    """

    names: Sequence[str]
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class BatchRow:
    """One request of a batch: its name, which is unique in the batch, the endpoint's path, and the request's fields."""

    custom_id: str
    url: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Replicas:
    """Replicas of a model in a cluster: ``least`` to ``most`` of them by load, each with CPUs and GPUs.

    The layers of a replica are split over ``n_stages`` machines, or over as many as it takes if each stage gets at most
    ``stage_bytes``; CPUs and GPUs then count for each stage. Starting waits up to ``wait_seconds`` for room.
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
        """True if the layers of a replica may be on several machines."""
        return self.n_stages > 1 or self.stage_bytes > 0


class Cluster(ABC, Generic[LoadedModel_co]):
    """A cluster, registered under the name of the option that selects it: ``ray`` for ``--ray [ADDRESS]``.

    ``address`` is the cluster's; empty means the cluster that this machine belongs to, else one of this machine alone.
    Methods raise PumiceError if the cluster cannot be reached.
    """

    def __init__(self, address: str = "") -> None:
        self.address = address

    @abstractmethod
    def connected(self, *, start: bool = True) -> AbstractContextManager[None]:
        """Return the connection to the cluster, within which the other methods are called.

        With ``start`` False the context raises PumiceError if no cluster runs, where it would start one otherwise.
        """

    @abstractmethod
    def answer(
        self, spec: ModelSpec, rows: Iterable[BatchRow], n_in_flight: int, replicas: Replicas
    ) -> Iterator[dict[str, Any]]:
        """Yield the result of each row of a batch, as a JSON object, in the order in which they end.

        Args:
            spec: The model; its path is a file on every machine, or a name of the hub.
            rows: Rows of the batch.
            n_in_flight: Rows that a replica computes at once.
            replicas: How many replicas, and the room of each.
        """

    @abstractmethod
    def load(self, spec: ModelSpec, replicas: Replicas, deliver: Callable[..., object]) -> LoadedModel_co:
        """Return a model whose engine is its replicas; closing it ends them.

        ``deliver`` is as in ``pumice.load_process``.
        """

    @abstractmethod
    def running(self) -> list[RunningModel]:
        """Return the replicas of models in the cluster, oldest first."""
