"""A backend whose devices are stages: actors on machines of the cluster, each with some of a model's layers.

The engine is placed, scheduled and sampled like any other, and sends each stage the batch of a step. Intermediate
results go directly from actor to actor. Actors execute calls in order, so steps follow each other through the stages.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

import pumice
from pumice.plugin import BackendError
from pumice.plugin.unstable import (
    Backend,
    Batch,
    Capabilities,
    Limits,
    MemoryPlan,
    Node,
    Pending,
    Program,
    Replicas,
    Segment,
    Step,
    concrete,
)
from pumice.process.stage import Compiled, Hop, fingerprint, memory_of, stages_needed
from pumice_ray.stage_actor import NAME, StageActor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_DEATH_SECONDS = 5.0  # timeout of a stage's liveness check


@dataclass
class StagesOptions:
    """Configuration section ``stages``; ``arguments`` are those of ``pumice.load`` on the stages' machines."""

    model: str = ""
    count: Annotated[int, Ge(1)] = 2
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    memory: Annotated[int, Ge(0)] = 0  # bytes for the weights and states of each stage; 0: the free memory of its GPUs
    arguments: dict[str, Any] = field(default_factory=dict)


class StagesBackend(Backend):
    """Compiles a graph to a pipeline of actors that share the layers in proportion to their memory."""

    Options = StagesOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.stages: list[Any] = []
        self._routes: Mapping[str, Sequence[Hop]] = {}

    @classmethod
    def unavailable(cls) -> str | None:
        ray = sys.modules.get("ray")
        return None if ray is not None and ray.is_initialized() else "requires a Ray cluster; see --stages"

    def supports(self, node: Node, limits: Limits) -> bool:
        return True  # each stage selects its own backends

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        if not self.stages:
            self._begin(limits)
        name = fingerprint(segment.nodes)
        if name not in self._routes:
            raise BackendError(
                "the stages built another graph than this machine; use the same model file and Pumice version"
            )
        compiled = self.asked("compile", name, limits)
        return StagesProgram(self, segment, name, self._routes[name], compiled)

    def _begin(self, limits: Limits) -> None:
        """Start the actors on machines with room, and divide the layers among them."""
        options, group = self.options, _group()
        for number in range(options.count):
            self.stages.append(_start(number, options, group))
        memory = self.asked("open", options.model, options.arguments, limits, options.memory, options.count)
        stage_of = self.asked("share", memory, only=0)
        first, *others = self.asked("take", stage_of)
        if any(routes != first for routes in others):
            raise BackendError("the stages built different graphs; use the same model file and Pumice version")
        self._routes = first

    def asked(self, method: str, *arguments: Any, only: int | None = None) -> Any:
        """Return the replies of all stages, or of one. Raises their errors, and EngineDiedError."""
        import ray

        stages = self.stages if only is None else [self.stages[only]]
        try:
            replies = ray.get([getattr(stage, method).remote(*arguments) for stage in stages])
        except Exception as error:
            raise self.explain(error) from None
        return replies if only is None else replies[0]

    def explain(self, error: Exception) -> Exception:
        """Return the cause of a failed step: the error of a stage, or its death."""
        from pumice_ray.errors import explain

        explained = explain(error)
        if not isinstance(explained, pumice.EngineDiedError):
            return explained
        gone = [number + 1 for number, stage in enumerate(self.stages) if not _answers(stage)]
        which = f"stage {' and '.join(map(str, gone))} of {len(self.stages)} died" if gone else "a stage died"
        return pumice.EngineDiedError(f"{which}, and its part of the cache is lost; load the model again")

    def close(self) -> None:
        import ray

        for stage in self.stages:
            with contextlib.suppress(Exception):  # the stage died, or Ray is shut down
                ray.kill(stage)
        self.stages = []


class _Results(Pending):
    """Pending results of the last stages."""

    def __init__(self, results: Callable[[], Mapping[str, Array]]) -> None:
        self._results = results

    def outputs(self) -> Mapping[str, Array]:
        return self._results()


class StagesProgram(Program):
    """The hops of a graph from stage to stage. Up to one step per stage may be in flight."""

    def __init__(
        self, backend: StagesBackend, segment: Segment, name: str, route: Sequence[Hop], compiled: Sequence[Compiled]
    ) -> None:
        self._backend = backend
        self._name = name
        self._route = route
        self._compiled = compiled
        self._outputs = segment.outputs
        self._logits = segment.outputs[-1] if segment.gives_logits else None
        self._let_go: deque[Any] = deque()
        self._lost = False
        self._gone: Exception | None = None
        copies = all(part.copies_slots for part in compiled if part.recurrent)
        self.capabilities = Capabilities(copies_slots=copies, n_in_flight=len(backend.stages))

    def run(self, step: Step) -> Mapping[str, Array]:
        return self.submit(step).outputs()

    def submit(self, step: Step) -> Pending:
        """Submit a step. Steps without requested logits are not awaited, up to one per stage."""
        if self._gone:
            raise self._gone
        self._lost = False
        refs = self._send(step.inputs, step.batch)
        if self._logits is not None and len(step.batch.output_ids) == 0:
            empty = np.empty(concrete(self._logits.shape, step.batch.sizes), np.float32)
            self._let_go.append(refs[self._logits.name])
            self._await(self.capabilities.n_in_flight)
            return _Results(lambda: {self._outputs[-1].name: empty})
        names = [tensor.name for tensor in self._outputs]
        return _Results(lambda: dict(zip(names, self._get([refs[name] for name in names]), strict=True)))

    def finish(self) -> None:
        self._await(0)

    @property
    def lost(self) -> bool:
        return self._lost

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        for stage, compiled in zip(self._backend.stages, self._compiled, strict=True):
            if compiled.recurrent:
                stage.copy_slots.remote(self._name, pairs)

    @property
    def memory(self) -> dict[str, int]:
        return memory_of(self._compiled)

    def _send(self, inputs: Mapping[str, Array], batch: Batch) -> dict[str, Any]:
        """Call every stage for its part; inputs from earlier parts are promises."""
        values: dict[str, Any] = dict(inputs)
        batch = replace(batch, inputs={})
        for number, hop in enumerate(self._route):
            ask = self._backend.stages[hop.stage].run.options(num_returns=len(hop.outputs))
            promises = ask.remote(self._name, number, batch, *(values[name] for name in hop.inputs))
            values |= zip(hop.outputs, promises if len(hop.outputs) > 1 else [promises], strict=True)
        return values

    def _await(self, most: int) -> None:
        """Wait until at most ``most`` submitted steps are in flight."""
        while len(self._let_go) > most:
            try:
                self._get([self._let_go.popleft()])
            except Exception:
                self._let_go.clear()
                self._lost = True
                raise

    def _get(self, refs: Sequence[Any]) -> list[Array]:
        import ray

        try:
            arrays: list[Array] = ray.get(list(refs))
        except Exception as error:
            explained = self._backend.explain(error)
            if isinstance(explained, pumice.EngineDiedError):
                self._gone = explained
            raise explained from None
        return arrays


def staged(path: str, options: Mapping[str, Any], room: Replicas) -> tuple[dict[str, Any], Replicas]:
    """Return arguments of ``pumice.load`` for an engine with stages; determines the number of machines."""
    if not room.staged:
        return dict(options), room
    count = room.n_stages
    if room.stage_bytes:
        count = stages_needed(path, options, room.stage_bytes)
    stages = {
        "model": path,
        "count": count,
        "num_cpus": room.n_cpus,
        "num_gpus": room.n_gpus,
        "memory": room.stage_bytes,
        "arguments": dict(options),
    }
    config = {**options.get("config", {}), "stages": stages}
    return {**options, "backend": "stages", "config": config}, replace(room, n_stages=count)


def bundles(room: Replicas) -> list[dict[str, float]]:
    """Return the resources to reserve for an engine, or each of its stages; the engine shares the first stage's."""
    bundle = {"CPU": room.n_cpus, "GPU": room.n_gpus, "memory": float(room.stage_bytes if not room.n_gpus else 0)}
    return [{name: n for name, n in bundle.items() if n}] * room.n_stages


def _start(number: int, options: StagesOptions, group: Any) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    where: Any = "SPREAD"
    memory = options.memory if not options.num_gpus else 0
    if group is not None:  # the engine shares the first bundle with the last stage, which returns the logits
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=options.count - 1 - number)
    make = ray.remote(StageActor).options(
        name=f"{NAME}{time.time_ns()}-{number}",  # noqa: TID251 (a name)
        num_cpus=options.num_cpus,
        num_gpus=options.num_gpus,
        memory=memory or None,
        max_restarts=0,
        scheduling_strategy=where,
    )
    return make.remote(number)


def _group() -> Any:
    """Return the placement group of this actor, if the process is an actor in one."""
    import ray

    return ray.util.get_current_placement_group()


def _answers(stage: Any) -> bool:
    import ray

    try:
        ray.get(stage.__ray_ready__.remote(), timeout=_DEATH_SECONDS)
    except ray.exceptions.GetTimeoutError:
        return True
    except ray.exceptions.RayError:
        return False
    return True
