"""Programs: one segment on one device, a step at a time or several in a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from pumice.plugin import (
    Ahead,
    Ask,
    Capabilities,
    KernelTime,
    Limits,
    MemoryPlan,
    Pending,
    Program,
    Restriction,
    Segment,
    Sizes,
    State,
    Step,
    Tensor,
    Weight,
)
from pumice_vulkan.buckets import Bucket, Buckets
from pumice_vulkan.device import CommandBuffer, Device
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


@dataclass
class Computed(Pending):
    """A step whose outputs are copied to memory of the host."""

    host: HostMemory
    sizes: Sizes
    command: CommandBuffer
    turn: int
    results: Values

    def begin(self, inputs: Values) -> None:
        self.host.write_inputs(inputs, self.host.input_room(self.sizes, self.turn), self.turn)
        self.command.commit()

    def outputs(self) -> Values:
        self.command.wait()
        return self.results


@dataclass
class Picked(Pending):
    """Steps that pick tokens. Without their restrictions the layers are committed alone, and then the choice."""

    host: HostMemory
    sizes: Sizes
    recorder: Recorder
    picker: Picker
    recording: Recording
    ask: Ask
    command: CommandBuffer | None = None

    def begin(self, inputs: Values) -> None:
        self.host.write_inputs(inputs, self.host.input_room(self.sizes, self.recording.turn), self.recording.turn)
        if self.recording.choice.restricted and not self.ask.restrictions:
            self.recorder.commit(self.recording._replace(part=Part.LAYERS))
            self.recording = self.recording._replace(part=Part.CHOICE, follows=False)
        else:
            self.restrict(self.ask.restrictions)

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        self.picker.restrictions.write(restrictions, self.recording.turn)
        self.command = self.recorder.commit(self.recording)

    def tokens(self) -> Iterator[Ahead]:
        assert self.command is not None, "it waits for restrictions"
        self.command.wait()
        recording, ask = self.recording, self.ask
        found = self.picker.results(recording.turn, recording.n_steps, recording.choice, recording.bucket.n_outputs)
        yield found.part(len(ask.picks), ask.n_best, ask.n_raw)


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
        self.capabilities = self._capabilities()

    def _capabilities(self) -> Capabilities:
        if not self._picker:
            return Capabilities(copies_slots=True)
        return Capabilities(
            copies_slots=True,
            max_steps=MAX_STEPS if self._host.goes_on else 1,
            max_best=MAX_BEST,
            decides=True,
            follows=self._host.goes_on and self._shared.device.runs_behind,
            max_biases=MAX_BIASES,
            max_last_n=MAX_PAST,
            max_added=MAX_ADDED,
        )

    def run(self, step: Step) -> Values:
        return self.submit(step).outputs()

    def submit(self, step: Step) -> Pending:
        turn = self._recorder.other_turn if step.waits or step.behind else 0
        self._recorder.free(turn)
        self._host.write_step(step.batch, turn)
        recording = Recording(self._buckets.of(step.batch.sizes), turn=turn)
        return self._picking(step, step.ask, recording) if step.ask else self._computing(step, recording)

    def _computing(self, step: Step, recording: Recording) -> Pending:
        """A step whose outputs are wanted."""
        outputs = self._host.results(step.batch.sizes)
        computed = Computed(self._host, step.batch.sizes, self._recorder.command(recording), recording.turn, outputs)
        if step.waits:
            computed.command.hold()
        else:
            computed.begin(step.inputs)
        return computed

    def _picking(self, step: Step, ask: Ask, recording: Recording) -> Pending:
        """One step or several, behind each of which tokens are picked."""
        assert self._picker is not None
        words, layout = self._host.words(recording.turn), self._memory.layout
        layout.write_picks(words, ask.picks, ask.numbers, recording.turn)
        choice = Choice(
            n_best=1 if ask.n_best == 1 else MAX_BEST,
            adjusts=any(pick.adjusts for pick in ask.picks),
            restricted=any(pick.restricted for pick in ask.picks),
            raw=ask.n_raw > 0,
        )
        if choice.adjusts and not step.behind:
            layout.write_pasts(words, ask.pasts)
        recording = recording._replace(n_steps=len(ask.numbers), choice=choice, follows=step.behind is not None)
        picked = Picked(self._host, step.batch.sizes, self._recorder, self._picker, recording, ask)
        if step.waits:
            self._recorder.command(recording).hold()
        else:
            picked.begin(step.inputs)
        return picked

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
