"""Programs: one segment on one device, a step at a time or several in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from pumice.plugin import (
    Ahead,
    Ask,
    Batch,
    KernelTime,
    Limits,
    MemoryPlan,
    Program,
    Restriction,
    Segment,
    State,
    Tensor,
    Weight,
)
from pumice_vulkan.buckets import Bucket, Buckets
from pumice_vulkan.device import Device
from pumice_vulkan.fuse import parts
from pumice_vulkan.host import HostMemory
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.lower import RULES
from pumice_vulkan.lower.rule import Dispatch, Lowering, Memory
from pumice_vulkan.memory import Arena, Weights
from pumice_vulkan.picker import MAX_BEST, Choice, Picker
from pumice_vulkan.recorder import Part, Recorder, Recording, SlotCopies
from pumice_vulkan.restrictions import MAX_ADDED
from pumice_vulkan.step import MAX_BIASES, MAX_PAST, MAX_STEPS, StepLayout, reads_memory

Values = Mapping[str, NDArray[Any]]
Pending = Callable[[], Values]


@dataclass
class Shared:
    """What the programs of a model have in common on one device."""

    device: Device
    kernels: Kernels
    weights: Weights
    cache: Arena
    int8: bool = False
    cooperative: bool = False
    states: dict[State, Any] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  # names of the weights that are there


class DeviceProgram(Program):
    """A fused segment, lowered and recorded for a bucket when it is first needed; for two of them when made.

    Those are the largest, which needs most memory, and that of single tokens: weights have all their layouts then.

    The host writes what changes from step to step into one buffer that every command buffer begins by copying to
    the device, and finds the results in another. Where the segment gives logits, it can take several steps in a row.
    """

    def __init__(self, shared: Shared, segment: Segment, plan: MemoryPlan, limits: Limits) -> None:
        self._shared = shared
        self._segment = segment
        self._arena = Arena(shared.device, plan.size)
        self._scratch = Arena(shared.device, 1 << 20)
        self._memory = self._new_memory(plan, limits)
        self._host = HostMemory(self._memory, segment.inputs, segment.outputs)
        self._buckets = Buckets(limits)
        new = self._new_weights()
        shared.weights.expect(_weight_bytes(new))
        self._weights_nbytes = sum(source.nbytes for source in {weight.source for weight in new})
        cache_bytes = shared.cache.nbytes
        self._lowered: dict[Bucket, list[Dispatch]] = {}
        for bucket in (self._buckets.all[-1], self._buckets.all[0]):
            self._lower(bucket)
        self._cache_bytes = shared.cache.nbytes - cache_bytes
        self._picker = Picker(self._memory, segment.outputs[0]) if segment.gives_logits else None
        self._recorder = Recorder(self._memory, shared.kernels, self._host, self._lower, self._picker)
        self._copies = SlotCopies(shared.device, segment.states, shared.states)

    def run(self, inputs: Values, batch: Batch) -> Values:
        return self.submit(inputs, batch)()

    def submit(self, inputs: Values, batch: Batch) -> Pending:
        return self._prepare(batch, 0)(inputs)

    def prepare(self, batch: Batch) -> Callable[[Values], Pending]:
        return self._prepare(batch, self._recorder.other_turn, hold=True)

    def _prepare(self, batch: Batch, turn: int, hold: bool = False) -> Callable[[Values], Pending]:
        host, sizes = self._host, batch.sizes
        self._recorder.free(turn)
        host.write_step(batch, turn)
        room, outputs = host.input_room(sizes, turn), host.results(sizes)
        command = self._recorder.command(Recording(self._buckets.of(sizes), turn=turn))
        if hold:
            command.hold()

        def begin(inputs: Values) -> Pending:
            host.write_inputs(inputs, room, turn)
            command.commit()
            return results

        def results() -> Values:
            command.wait()
            return outputs

        return begin

    @property
    def max_steps(self) -> int:
        return (MAX_STEPS if self._host.goes_on else 1) if self._picker else 0

    @property
    def max_best(self) -> int:
        return MAX_BEST if self._picker else 0

    @property
    def decides(self) -> bool:
        return self._picker is not None

    @property
    def max_adjustments(self) -> tuple[int, int]:
        return MAX_BIASES, MAX_PAST

    @property
    def follows(self) -> bool:
        return self._host.goes_on and self._picker is not None and self._shared.device.runs_behind

    @property
    def max_added(self) -> int:
        return MAX_ADDED

    def run_ahead(self, batch: Batch, ask: Ask, inputs: Values | None = None) -> Ahead:
        recording = self._prepare_ahead(batch, ask)
        self._bring(batch, recording.turn, inputs)
        return self._choose(recording, ask)()

    def prepare_ahead(self, batch: Batch, ask: Ask) -> Callable[[Values], Ahead]:
        host, turn = self._host, self._recorder.other_turn
        recording = self._prepare_ahead(batch, ask, turn)
        room = host.input_room(batch.sizes, turn)
        self._recorder.command(recording).hold()

        def run(inputs: Values) -> Ahead:
            host.write_inputs(inputs, room, turn)
            return self._choose(recording, ask)()

        return run

    def submit_ahead(self, batch: Batch, ask: Ask, follows: bool = False) -> Callable[[], Ahead]:
        turn = self._recorder.other_turn if follows else 0
        recording = self._prepare_ahead(batch, ask, turn, follows)
        self._bring(batch, turn)
        return self._choose(recording, ask)

    def submit_layers(
        self, batch: Batch, ask: Ask, follows: bool = False
    ) -> Callable[[Sequence[Restriction]], Callable[[], Ahead]]:
        turn = self._recorder.other_turn if follows else 0
        recording = self._prepare_ahead(batch, ask, turn, follows)
        self._bring(batch, turn)
        self._recorder.commit(recording._replace(part=Part.LAYERS))
        behind = recording._replace(part=Part.CHOICE, follows=False)
        return lambda restrictions: self._choose(behind, replace(ask, restrictions=restrictions))

    def _prepare_ahead(self, batch: Batch, ask: Ask, turn: int = 0, follows: bool = False) -> Recording:
        """Have the next commit, of what is given, find what its steps start from."""
        self._recorder.free(turn)
        self._host.write_step(batch, turn)
        words, layout = self._host.words(turn), self._memory.layout
        layout.write_picks(words, ask.picks, ask.numbers, turn)
        choice = Choice(
            n_best=1 if ask.n_best == 1 else MAX_BEST,
            adjusts=any(pick.adjusts for pick in ask.picks),
            restricted=any(pick.restricted for pick in ask.picks),
            raw=ask.n_raw > 0,
        )
        if choice.adjusts and not follows:
            layout.write_pasts(words, ask.pasts)
        return Recording(self._buckets.of(batch.sizes), len(ask.numbers), choice, follows, turn)

    def _bring(self, batch: Batch, turn: int, inputs: Values | None = None) -> None:
        """Write the inputs that are given, or where steps can follow each other those of the batch."""
        if inputs is None and self._host.goes_on:
            inputs = self._host.inputs_of(batch)
        if inputs:
            self._host.write_inputs(inputs, self._host.input_room(batch.sizes, turn), turn)

    def _choose(self, recording: Recording, ask: Ask) -> Callable[[], Ahead]:
        """Commit what picks tokens, and give what waits for them."""
        assert self._picker is not None
        picker = self._picker
        picker.restrictions.write(ask.restrictions, recording.turn)
        command = self._recorder.commit(recording)

        def results() -> Ahead:
            command.wait()
            found = picker.results(recording.turn, recording.n_steps, recording.choice, recording.bucket.n_outputs)
            return found.part(len(ask.picks), ask.n_best, ask.n_raw)

        return results

    @property
    def copies_slots(self) -> bool:
        return True

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copies.copy(pairs)

    def profile(self) -> list[KernelTime]:
        """Runs the last step once more, of several the first; recurrent states go on from there."""
        return self._recorder.profile()

    @property
    def memory(self) -> dict[str, int]:
        return {
            "weights": self._weights_nbytes,
            "kv_cache": self._cache_bytes,
            "activations": self._arena.nbytes + self._scratch.nbytes,
        }

    def close(self) -> None:
        for part in (self._recorder, self._copies, self._arena, self._scratch, self._memory.step, self._host):
            part.close()
        if self._picker:
            self._picker.close()

    def _new_memory(self, plan: MemoryPlan, limits: Limits) -> Memory:
        shared = self._shared
        layout = StepLayout(limits, reads_memory=any(map(reads_memory, self._segment.nodes)))
        return Memory(
            device=shared.device,
            limits=limits,
            plan=plan,
            weights=shared.weights,
            activations=self._arena.take(max(plan.size, 4)),
            step=shared.device.new_buffer(4 * layout.n_words),
            layout=layout,
            cache=shared.cache,
            scratch=self._scratch,
            int8=shared.int8,
            cooperative=shared.cooperative,
            states=shared.states,
            rules=RULES,
            kept=_kept(self._segment),
        )

    def _new_weights(self) -> list[Weight]:
        """Those that no program before this one has uploaded."""
        operands = [tensor for node in parts(self._segment) for tensor in node.operands()]
        used = {weight.name: weight for weight in operands if isinstance(weight, Weight)}
        new = [weight for name, weight in used.items() if name not in self._shared.used]
        self._shared.used |= set(used)
        return new

    def _lower(self, bucket: Bucket) -> list[Dispatch]:
        """The dispatches of a step."""
        if bucket not in self._lowered:
            at = Lowering(self._memory, *bucket)
            for node in self._segment.nodes:
                at.lower(node)
            self._shared.weights.finish()
            self._lowered[bucket] = at.dispatches
        return self._lowered[bucket]


def _kept(segment: Segment) -> set[Tensor]:
    """The outputs, and what those that are reshaped were before."""
    kept = set(segment.outputs)
    for node in reversed(parts(segment)):
        if node.op == "reshape" and node.output in kept:
            kept.add(node.inputs["x"])
    return kept


def _weight_bytes(weights: Iterable[Weight]) -> int:
    """About what weights take."""
    return sum(weight.nbytes * 33 // 32 + 4096 for weight in weights)
