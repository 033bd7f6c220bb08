"""Programs: one segment on one device, run for one step or several in succession."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import BackendError, Tensor, Weight
from pumice.plugin.unstable import (
    LATEST,
    Ahead,
    Ask,
    Batch,
    CacheForm,
    Capabilities,
    KernelTime,
    KVState,
    Limits,
    MemoryPlan,
    Pending,
    PickLimits,
    Program,
    Restriction,
    Segment,
    Sizes,
    Step,
)
from pumice_vulkan.buckets import Bucket, Buckets
from pumice_vulkan.cache_moves import SLOTS, CacheMoves
from pumice_vulkan.device import CommandBuffer
from pumice_vulkan.fuse import parts
from pumice_vulkan.host_memory import HostMemory
from pumice_vulkan.lower import RULES
from pumice_vulkan.lower.rule import SegmentMemory
from pumice_vulkan.lowered import LoweredSegment
from pumice_vulkan.memory import Arena
from pumice_vulkan.passing import copies_of
from pumice_vulkan.persistent import PersistentPath
from pumice_vulkan.picker import MAX_BEST, Choice, GoesOn, Picker
from pumice_vulkan.preparation import Preparation
from pumice_vulkan.recorder import (
    RecordedPart,
    Recorder,
    Recording,
    SlotCopies,
)
from pumice_vulkan.restrictions import MAX_ADDED
from pumice_vulkan.settling import settled_places
from pumice_vulkan.shared import Shared
from pumice_vulkan.step import (
    MAX_BIASES,
    MAX_DRAFTED,
    MAX_PAST,
    MAX_STEPS,
    StepLayout,
    most_drafted,
    reads_memory,
)

REHEARSED = 128  # tokens of a prompt that is computed before the first request
Values = Mapping[str, NDArray[Any]]


@dataclass
class Computed(Pending):
    """A pending step whose outputs are copied to host memory."""

    host: HostMemory
    sizes: Sizes
    recorder: Recorder
    recording: Recording
    results: Values
    path: PersistentPath | None
    command: CommandBuffer
    room: Values | None = None  # of its inputs in host memory
    has_ended: bool = False  # the host has waited for it

    def begin(self, inputs: Values) -> None:
        if self.room is None:
            self.room = self.host.input_room(self.sizes, self.recording.turn)
        self.host.write_inputs(inputs, self.room, self.recording.turn)
        if self.path and self.recording.persistent:
            self.path.begin(self, self.recording.turn)
        self.command.commit()

    def repeat(self, restores: bool) -> None:
        self.recording = self.recording._replace(persistent=False, restores=restores)
        self.command = self.recorder.commit(self.recording)

    def outputs(self) -> Values:
        self.command.wait()
        if self.path and self.path.ended(self):
            self.command.wait()
        self.has_ended = True
        return self.results


@dataclass
class Picked(Pending):
    """Pending steps that select tokens. Without restrictions yet, layers are committed first, then the selection."""

    host: HostMemory
    sizes: Sizes
    recorder: Recorder
    picker: Picker
    recording: Recording
    ask: Ask
    path: PersistentPath | None
    command: CommandBuffer | None = None
    has_ended: bool = False  # the host has waited for it

    def begin(self, inputs: Values) -> None:
        self.host.write_inputs(inputs, self.host.input_room(self.sizes, self.recording.turn), self.recording.turn)
        if self.path and self.recording.persistent:
            self.path.begin(self, self.recording.turn)
        if self._is_split:
            self.recorder.commit(self.recording._replace(part=RecordedPart.LAYERS))
        else:
            self.restrict(self.ask.restrictions)

    @property
    def _is_split(self) -> bool:
        return self.recording.choice.restricted and not self.ask.restrictions

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        self.picker.restrictions.write(restrictions, self.recording.turn)
        part = self.recording._replace(part=RecordedPart.CHOICE, follows=False) if self._is_split else self.recording
        self.command = self.recorder.commit(part)

    def repeat(self, restores: bool) -> None:
        self.recording = self.recording._replace(persistent=False, restores=restores)
        if self.command is None:  # restrictions will come
            self.recorder.commit(self.recording._replace(part=RecordedPart.LAYERS))
        else:
            self.command = self.recorder.commit(self.recording)

    def tokens(self) -> Iterator[Ahead]:
        assert self.command is not None, "it waits for restrictions"
        self.command.wait()
        if self.path and self.path.ended(self):
            self.command.wait()
        self.has_ended = True
        recording, ask = self.recording, self.ask
        results = self.picker.results(recording.turn, recording.n_steps, recording.choice, recording.bucket.n_outputs)
        ahead = results.part(len(ask.picks) * (1 + ask.n_drafted), ask.n_best, ask.n_raw)
        n_taken = ahead.n_taken
        yield ahead if n_taken is None else replace(ahead, n_taken=n_taken[:, : len(ask.picks)])

    def outputs(self) -> Values:
        assert self.command is not None, "it waits for restrictions"
        self.command.wait()
        self.has_ended = True
        return self.host.results(self.sizes)


class DeviceProgram(Program):
    """A fused segment, lowered and recorded for each bucket when it is first needed, or ahead by a preparer.

    The constructor lowers the largest bucket, which needs most memory, and the bucket of single tokens; together they
    upload the weights in all layouts.

    The host writes the fields of a step to one buffer, which each command buffer first copies to the device, and reads
    the results from another. A segment that computes logits can run several steps in succession.
    """

    def __init__(self, shared: Shared, segment: Segment, plan: MemoryPlan, limits: Limits) -> None:
        self._shared = shared
        self._segment = segment
        self._arena = Arena(shared.device, plan.size if segment.gives_logits else 0)
        self._memory = self._new_memory(plan, limits)
        fed = segment.loop[1:] if segment.loop else None
        self.host = HostMemory(self._memory, segment.inputs, segment.outputs, fed, segment.stays)
        self._buckets = Buckets(limits)
        self._last: Computed | Picked | None = None  # the step that was submitted last
        self._latest: tuple[NDArray[np.int32], int] | None = None  # slots that a step may go on with, and its drafts
        new = _new_weights(segment, shared.used)
        in_place = [weight for weight in new if limits.is_in_place(weight.name)]
        shared.weights.expect(_weight_bytes(new) - _weight_bytes(in_place), _weight_bytes(in_place))
        self._weights_nbytes = sum(source.nbytes for source in {weight.source for weight in new})
        cache_bytes = shared.cache.nbytes
        self.lowered = LoweredSegment(shared, self._memory, segment, self._weights_nbytes)
        for bucket in (self._buckets.all[-1], self._buckets.all[0]):
            self.lowered.dispatches(bucket)
        self._cache_bytes = shared.cache.nbytes - cache_bytes
        logits = segment.outputs[0] if segment.gives_logits else segment.logits
        self._picker = Picker(self._memory, logits, GoesOn.of(segment)) if logits else None
        if self.lowered.recurrent and self._picker:
            self._memory.state_inputs = settled_places(self._memory, segment, self._most_drafted)
        self._persistent = (
            PersistentPath.of(self._memory, shared.kernels, segment, shared.most_rows) if shared.persistent else None
        )
        shared.weights.finish()
        lower, path = self.lowered.dispatches, self._persistent
        self._recorder = Recorder(self._memory, shared.kernels, self.host, lower, self._picker, shared.making, path)
        self._copies = SlotCopies(shared.device, segment.states, shared.states)
        kept = [state for state in segment.states if state in shared.states]
        self._moves = CacheMoves(shared.device, kept, shared.states, limits, _computed_by(shared))
        self.capabilities = self._capabilities()
        drafting = [
            bucket for bucket in _whole(self._buckets) if self._drafted and 1 < bucket.n_tokens <= self._most_drafted
        ]
        picks, takes = self._picker is not None, self.capabilities.registers
        self.preparation = Preparation(
            self._buckets, self.lowered, self._recorder, path, drafting, picks=picks, takes=takes
        )
        shared.programs.append(self)

    def _capabilities(self) -> Capabilities:
        gives_more = len(self._segment.outputs) > 1 and not self._segment.loop
        if not self._picker or gives_more:  # with a picker it verifies drafts all the same
            return Capabilities(
                copies_slots=True,
                invariant=self._shared.invariant,
                drafted=self._drafted,
                registers=self._shared.device.runs_behind,
                picks=PickLimits(rows=self._max_picked),
            )
        return Capabilities(
            copies_slots=True,
            invariant=self._shared.invariant,
            max_steps=MAX_STEPS if self.host.goes_on else 1,
            picks=PickLimits(MAX_BEST, MAX_BIASES, MAX_PAST, MAX_ADDED, self._max_picked),
            registers=self._shared.device.runs_behind and (self.host.goes_on or self._segment.block is not None),
            drafted=self._drafted,
            drafted_rows=self._most_drafted,
        )

    @property
    def _max_picked(self) -> int:
        """Maximum output rows of a block after which a step picks tokens."""
        limits = self._memory.limits
        return max(limits.n_seqs, most_drafted(limits)) if self._picker and self._segment.block else 0

    @property
    def _drafted(self) -> tuple[int, ...]:
        """Numbers of drafted tokens for whose rows there is a bucket without others."""
        if not self._picker or not self.host.goes_on or self.host.fed:
            return ()
        if self.lowered.recurrent and not self._memory.state_inputs:
            return ()
        rows = [bucket.n_tokens for bucket in _whole(self._buckets)]
        return tuple(n - 1 for n in rows if 1 < n <= MAX_DRAFTED and n.bit_count() == 1)

    @property
    def _most_drafted(self) -> int:
        """Maximum rows of all sequences in a step with drafts; more do not have the same bits as one."""
        limits = self._memory.limits
        most = MAX_DRAFTED if self._shared.invariant else most_drafted(limits)
        return min(most, limits.n_batch, limits.n_outputs)

    def run(self, step: Step) -> Values:
        return self.submit(step).outputs()

    def submit(self, step: Step) -> Pending:
        batch = step.batch
        from_slots = not step.waits and batch.takes_from_slots
        is_behind = self._last is not None and not self._last.has_ended
        turn = self._recorder.other_turn if step.waits or from_slots or is_behind else 0
        self._recorder.free(turn)
        self.host.write_step(batch, turn)
        exact = batch.exact or (step.ask and step.ask.n_drafted)
        bucket = self._buckets.of(batch.sizes, None if exact else self.preparation.ready)
        follows = from_slots and step.ask is not None and self._goes_on(batch, step.ask)
        self._latest = (batch.slots, step.ask.n_drafted) if step.ask and _may_go_on(batch, step.ask) else None
        recording = Recording(
            bucket,
            turn=turn,
            persistent=not step.waits and self.preparation.is_one_dispatch(bucket.n_tokens),
            follows=follows,
            takes=from_slots and not (follows and int(batch.tokens.min()) == LATEST),
            relative=batch.relative and not follows,
            copies=tuple(copies_of(batch.passed, self.host, bucket.n_tokens)),
        )
        self._last = self._picking(step, step.ask, recording) if step.ask else self._computing(step, recording)
        return self._last

    def _goes_on(self, batch: Batch, ask: Ask) -> bool:
        """Return True if a step goes on with all sequences of the one before, whose fields are on the device.

        Raises BackendError for a step with drafts from slots of other sequences.
        """
        is_latest = bool((batch.tokens[batch.seq_starts[:-1]] == LATEST).all()) and ask.first_draft is None
        before = self._latest if is_latest else None
        follows = before is not None and before[1] == ask.n_drafted and np.array_equal(before[0], batch.slots)
        if batch.relative and ask.n_drafted and not follows:
            raise BackendError("vulkan: a step with drafts goes on with other sequences than the step before")
        return follows

    def _computing(self, step: Step, recording: Recording) -> Computed:
        """Submit a step whose outputs are requested."""
        outputs = self.host.results(step.batch.sizes)
        command = self._recorder.command(recording)
        computed = Computed(self.host, step.batch.sizes, self._recorder, recording, outputs, self._persistent, command)
        if step.waits:
            computed.command.hold()
        else:
            computed.begin(step.inputs)
        return computed

    def _picking(self, step: Step, ask: Ask, recording: Recording) -> Picked:
        """Submit one or several steps, each followed by the selection of tokens."""
        assert self._picker is not None
        words, layout = self.host.words(recording.turn), self._memory.layout
        layout.write_picks(words, ask.picks, ask.numbers, recording.turn, ask.n_drafted)
        if ask.n_drafted:
            words[layout.text_length :][: len(ask.picks)] = step.batch.positions[step.batch.seq_starts[:-1]] + 1
        choice = Choice(
            n_best=1 if ask.n_best == 1 else MAX_BEST,
            adjusts=any(pick.adjusts for pick in ask.picks),
            restricted=any(pick.restricted for pick in ask.picks),
            raw=ask.n_raw > 0,
            drafted=1 + ask.n_drafted if ask.n_drafted else 0,
        )
        if choice.adjusts and not recording.follows:
            layout.write_pasts(words, ask.pasts)
        recording = recording._replace(n_steps=len(ask.numbers), choice=choice, first_draft=ask.first_draft)
        picked = Picked(self.host, step.batch.sizes, self._recorder, self._picker, recording, ask, self._persistent)
        if step.waits:
            self._recorder.command(recording).hold()
        else:
            picked.begin(step.inputs)
        return picked

    def wait_until_prepared(self) -> None:
        self.preparation.wait()
        if self._shared.prepares and not self._recorder.last:
            self._rehearse()

    def wait_until_settled(self) -> None:
        self.wait_until_prepared()
        self.preparation.join()

    def _rehearse(self) -> None:
        """Compute a prompt and the token behind it before the first request, since a driver's first steps are slow.

        Caches are empty then. Models whose steps have other inputs, or recurrent states, do without.
        """
        limits = self._memory.limits
        cells = limits.block_size * min(limits.n_blocks.values(), default=0)
        n_tokens = min(REHEARSED, limits.n_batch, limits.n_ctx - 1, cells - 1)
        kept = any(not isinstance(state, KVState) or state.is_memory for state in self._segment.states)
        if kept or self.host.inputs or not self._segment.gives_logits or n_tokens < 1:
            return
        for first, count in ((0, n_tokens), (n_tokens, 1)):
            blocks = np.arange(-(-(first + count) // limits.block_size), dtype=np.int32)[None]
            batch = Batch(
                tokens=np.zeros(count, np.int32),
                positions=np.arange(first, first + count, dtype=np.int32),
                output_ids=np.array([count - 1], np.int32),
                seq_starts=np.array([0, count], np.int32),
                slots=np.zeros(1, np.int32),
                block_tables=dict.fromkeys(limits.n_blocks, blocks),
            )
            self.submit(Step(batch)).outputs()

    def prepare_drafts(self) -> None:
        self.preparation.prepare_drafts()

    @property
    def prepares_drafts(self) -> bool:
        return self.preparation.prepares_drafts

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copies.copy(pairs)

    @property
    def cache_form(self) -> CacheForm:
        return self._moves.form

    def read_blocks(self, window: int, blocks: Sequence[int]) -> NDArray[np.uint8]:
        return self._moves.read(window, blocks)

    def write_blocks(self, window: int, blocks: Sequence[int], data: NDArray[np.uint8]) -> None:
        self._moves.write(window, blocks, data)

    def read_slots(self, slots: Sequence[int]) -> NDArray[np.uint8]:
        return self._moves.read(SLOTS, slots)

    def write_slots(self, slots: Sequence[int], data: NDArray[np.uint8]) -> None:
        self._moves.write(SLOTS, slots, data)

    def profile(self) -> list[KernelTime]:
        """Run the last step again (the first of several) with timestamps; recurrent states advance."""
        return self._recorder.profile()

    @property
    def memory(self) -> dict[str, int]:
        is_first = self._shared.programs[:1] == [self]
        shared = self._shared.scratch.nbytes + self._shared.arenas.nbytes if is_first else 0
        return {
            "weights": self._weights_nbytes,
            "kv_cache": self._cache_bytes,
            "activations": self._arena.nbytes + shared,
        }

    def close(self) -> None:
        if self in self._shared.programs:
            self._shared.programs.remove(self)
        self.preparation.close()
        for part in (self._recorder, self._copies, self._moves, self._arena, self._memory.step, self.host):
            part.close()
        if self._picker:
            self._picker.close()
        if self._persistent:
            self._persistent.close()

    def _new_memory(self, plan: MemoryPlan, limits: Limits) -> SegmentMemory:
        shared = self._shared
        n_bytes = max(plan.size, 4)
        own = self._segment.gives_logits
        activations = self._arena.take(n_bytes) if own else shared.arenas.take("activations", n_bytes)
        layout = StepLayout(limits, reads_memory=any(map(reads_memory, parts(self._segment))))
        return SegmentMemory(
            device=shared.device,
            limits=limits,
            plan=plan,
            weights=shared.weights,
            activations=activations,
            step=shared.device.new_buffer(4 * layout.n_words),
            layout=layout,
            cache=shared.cache,
            scratch=shared.scratch,
            int8=shared.int8,
            half=shared.half,
            cooperative=shared.cooperative,
            lanes=shared.lanes,
            sums_by_rows=shared.sums_by_rows,
            invariant=shared.invariant,
            states=shared.states,
            rules=RULES,
            kept=_kept(self._segment),
        )


def _may_go_on(batch: Batch, ask: Ask) -> bool:
    """Return True if a step may go on with the sequences of this one: it has one token of each, or drafts."""
    is_single = len(batch.tokens) == len(batch.slots) == len(batch.output_ids)
    return ask.first_draft is None and (ask.n_drafted > 0 or is_single)


def _whole(buckets: Buckets) -> list[Bucket]:
    """Return the buckets of sequences with several tokens, each with a row of logits."""
    return [bucket for bucket in buckets.all if bucket.n_tokens == bucket.n_outputs and not bucket.lone]


def _new_weights(segment: Segment, used: set[tuple[int, str]]) -> list[Weight]:
    """Return the weights of a segment that are not in ``used``, and add them."""
    operands = [tensor for node in parts(segment) for tensor in node.operands()]
    weights = {(id(weight.source), weight.name): weight for weight in operands if isinstance(weight, Weight)}
    new = [weight for key, weight in weights.items() if key not in used]
    used |= set(weights)
    return new


def _computed_by(shared: Shared) -> str:
    """Return what decides the values in a device's caches besides the model; see ``CacheForm``."""
    device = shared.device.description
    matrices = shared.cooperative and (shared.cooperative.m, shared.cooperative.n, shared.cooperative.k)
    kernels = f"int8 {shared.int8} cooperative {matrices} lanes {shared.lanes} persistent {shared.persistent}"
    kernels += (" invariant" if shared.invariant else "") + (" half" if shared.half else "")
    return f"vulkan {device.name} {device.uuid} {device.driver} {device.vulkan_driver} {kernels}"


def _kept(segment: Segment) -> set[Tensor]:
    """Return the outputs, and the operands of reshapes among them."""
    kept = set(segment.outputs)
    for node in reversed(parts(segment)):
        if node.op == "reshape" and node.output in kept:
            kept.add(node.inputs["x"])
    return kept


def _weight_bytes(weights: Iterable[Weight]) -> int:
    """Return the approximate bytes of weights."""
    return sum(weight.nbytes * 33 // 32 + 4096 for weight in weights)
