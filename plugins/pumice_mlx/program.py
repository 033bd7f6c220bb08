"""Programs: a segment's nodes become lazy MLX operations, evaluated at the end of a step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Tensor
from pumice.plugin.unstable import (
    LATEST,
    Ahead,
    Ask,
    Batch,
    Capabilities,
    Input,
    KVState,
    Limits,
    Pending,
    PickLimits,
    Program,
    RecurrentState,
    Restriction,
    Segment,
    State,
    Step,
)
from pumice_mlx.attention import last_block
from pumice_mlx.compiled import Compiled, is_alike
from pumice_mlx.compiled import prepare as prepare_arrays
from pumice_mlx.device import errors
from pumice_mlx.kv_cache import KVCache, state_bytes
from pumice_mlx.lone import LoneSteps, is_lone, stages_of
from pumice_mlx.nodes import Nodes, Shared
from pumice_mlx.picker import MAX_ADDED, MAX_BEST, MAX_BIASES, MAX_STEPS, Picker
from pumice_mlx.recurrent import Recurrent
from pumice_mlx.step import NotAlike, StepArrays, uploaded
from pumice_mlx.weights import in_float32

Array = NDArray[Any]
logger = logging.getLogger("pumice")

#: Abilities of programs that compute logits.
PICKS = Capabilities(
    copies_slots=True,
    max_steps=MAX_STEPS,
    picks=PickLimits(best=MAX_BEST, biases=MAX_BIASES, added=MAX_ADDED),
    registers=True,
)


class Picked(Pending):
    """Submitted steps whose tokens are picked; ``computing``: the context in which they are computed and read."""

    def __init__(self, picker: Picker, computing: Callable[[], AbstractContextManager[None]]) -> None:
        self.picker = picker
        self._computing = computing

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        with self._computing():
            self.picker.restrict(restrictions)
            mx.async_eval(self.picker.latest)

    def tokens(self) -> Iterator[Ahead]:
        with self._computing():
            ahead = self.picker.results()
        yield ahead


class Computed(Pending):
    """A submitted step whose outputs are requested."""

    def __init__(self, outputs: Mapping[str, mx.array], computing: Callable[[], AbstractContextManager[None]]) -> None:
        self._outputs = outputs
        self._computing = computing

    def outputs(self) -> Mapping[str, Array]:
        with self._computing():
            return {name: np.array(array) for name, array in self._outputs.items()}


class MlxProgram(Program):
    """A loop over the nodes; MLX owns the arrays and reuses their memory."""

    def __init__(self, shared: Shared, segment: Segment, limits: Limits) -> None:
        self._segment = segment
        before = shared.weights.nbytes
        with errors("loading the weights"):
            self._nodes = Nodes(shared, segment)
        self._weight_bytes = shared.weights.nbytes - before
        new = [state for state in segment.states if state not in shared.states]
        with errors("allocating the states of sequences"):
            for state in new:
                shared.states[state] = _make_state(state, limits)
                mx.eval(shared.states[state].arrays)
        self._state_bytes = sum(_state_bytes(state, shared.states[state], limits) for state in new)
        self._states = [shared.states[state] for state in segment.states]
        # Steps can be chained if only tokens and positions change between them.
        picks = segment.gives_logits and all(_is_known(tensor) for tensor in segment.inputs)
        self.capabilities, self._picks = PICKS if picks else Capabilities(copies_slots=True), picks
        self._registers: dict[int, tuple[Picker, int]] = {}  # picker and row of the latest token of each slot
        self._compiled = Compiled(self._outputs, self._states, packs=True)
        stages = [] if self._nodes.prepare(limits) else stages_of(segment)
        self._lone = LoneSteps(self._nodes, segment, stages, shared.states) if stages else None

    def run(self, step: Step) -> Mapping[str, Array]:
        with self._computing():
            (inputs,) = self._upload([step.inputs])
            outputs = self._forward(inputs, self._step(step.batch, step.inputs))
            mx.eval(*outputs.values(), self._state_arrays)
            return {name: np.array(array) for name, array in outputs.items()}

    def submit(self, step: Step) -> Pending:
        if step.ask:
            return Picked(self._pick(step, step.ask), self._computing)
        if not self._picks or step.waits:
            return super().submit(step)
        return Computed(self._compute_later(step), self._computing)

    def _compute_later(self, step: Step) -> dict[str, mx.array]:
        """Submit a step of a program that picks tokens, and return its lazy outputs."""
        with self._computing():
            (inputs,) = self._upload([step.inputs], ("tokens",))
            outputs = self._forward({**inputs, "tokens": self._tokens(step.batch)}, self._step(step.batch, step.inputs))
            mx.async_eval(list(outputs.values()), self._state_arrays)
            return outputs

    def _pick(self, step: Step, ask: Ask) -> Picker:
        """Submit the steps; the host submits each step when it is built, and builds the next while the device computes.

        All arrays that the steps take from the host are copied before the first one, since a copy may wait for the
        device. The tokens that steps take from slots stay on the device.
        """
        with self._computing():
            picker, tokens = Picker(ask), self._tokens(step.batch)
            steps = [self._later(step, number) for number in range(len(ask.numbers))]
            uploads = self._upload([later.inputs for later in steps], ("tokens",))
            if steps[0].alike:
                prepare_arrays(self._parts(steps[0]), steps)
            for number, (arrays, later) in enumerate(zip(uploads, steps, strict=True)):
                (logits,) = self._forward(
                    {**arrays, "tokens": tokens if number == 0 else picker.tokens}, later
                ).values()
                picker.pick(logits)
                mx.async_eval(picker.latest, self._state_arrays)
            if ask.first_draft is None:
                batch = step.batch
                sequences = np.searchsorted(batch.seq_starts, batch.output_ids, side="right") - 1
                self._registers |= {slot: (picker, row) for row, slot in enumerate(batch.slots[sequences].tolist())}
            return picker

    def _tokens(self, batch: Batch) -> mx.array:
        """Return the tokens of a step; those of its slots are lazy, from the steps that picked them."""
        if not batch.takes_from_slots:
            return mx.array(batch.tokens)
        rows = np.flatnonzero(batch.tokens == LATEST)
        slots = batch.slots[np.searchsorted(batch.seq_starts, rows, side="right") - 1].tolist()
        sources = [self._registers[slot] for slot in slots]
        latest, places = sources[0][0].tokens, [row for _, row in sources]
        if all(picker is sources[0][0] for picker, _ in sources):
            taken = latest if places == list(range(latest.size)) else latest[mx.array(places)]
        else:
            taken = mx.stack([picker.tokens[row] for picker, row in sources])
        if len(rows) == len(batch.tokens):
            return taken
        tokens = mx.array(batch.tokens)
        tokens[mx.array(rows)] = taken.astype(tokens.dtype)
        return tokens

    def _later(self, step: Step, number: int) -> StepArrays:
        """Return the step that follows ``number`` steps later."""
        positions = step.batch.positions + np.int32(number)
        return self._step(replace(step.batch, positions=positions), {**step.inputs, "positions": positions})

    def _step(self, batch: Batch, inputs: Mapping[str, Array]) -> StepArrays:
        return StepArrays(batch, inputs, self._nodes.compiles and is_alike(batch))

    def _parts(self, step: StepArrays) -> list[Compiled]:
        """Return the compiled functions of a step."""
        return self._lone.compiled if self._lone and is_lone(step) else [self._compiled]

    @property
    def states(self) -> Sequence[KVCache | Recurrent]:
        return self._states

    @property
    def _state_arrays(self) -> list[mx.array]:
        return [array for state in self._states for array in state.arrays]

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Name the operation that fails, and leave no state partially computed."""
        try:
            with errors("computing a step"):
                yield
        except BaseException:
            self._settle()
            raise

    def _settle(self) -> None:
        """After a failed step, evaluate the updated states, or reset those that fail."""
        for state in self._states:
            try:
                mx.eval(state.arrays)
            except RuntimeError:
                state.clear()
                mx.eval(state.arrays)

    def _upload(
        self, steps: Sequence[Mapping[str, Array]], computed: Collection[str] = ()
    ) -> list[dict[str, mx.array]]:
        """Return the inputs of steps on the device by name, without those that are computed there."""
        names = [tensor.name for tensor in self._segment.inputs if tensor.name not in computed]
        columns = [uploaded([np.asarray(inputs[name]) for inputs in steps]) for name in names]
        return [{name: column[i] for name, column in zip(names, columns, strict=True)} for i in range(len(steps))]

    def _forward(self, inputs: Mapping[str, mx.array], step: StepArrays) -> dict[str, mx.array]:
        """Return the lazy outputs for inputs on the device."""
        arrays = [inputs[tensor.name] for tensor in self._segment.inputs]
        self._reserve(step)
        if not step.alike:
            return self._named(self._outputs(arrays, step))
        before = [list(state.arrays) for state in self._states]
        try:
            if self._lone and is_lone(step):
                return self._lone(inputs, step)
            return self._named(self._compiled(arrays, step))
        except NotAlike as error:
            logger.info("mlx: steps are not compiled, since they differ in %s", error)
            self._nodes.compiles = False
            for state, state_arrays in zip(self._states, before, strict=True):
                state.put(state_arrays)
            return self._named(self._outputs(arrays, StepArrays(step.batch, step.inputs)))

    def _reserve(self, step: StepArrays) -> None:
        """Make room in the caches for the keys of a step."""
        for state in self._states:
            if isinstance(state, KVCache) and not state.is_memory:
                state.reserve(last_block(step, state) + 1)

    def _named(self, outputs: Sequence[mx.array]) -> dict[str, mx.array]:
        return {tensor.name: array for tensor, array in zip(self._segment.outputs, outputs, strict=True)}

    def _outputs(self, inputs: Sequence[mx.array], step: StepArrays) -> list[mx.array]:
        """Return the lazy outputs for inputs on the device, and update the states."""
        values = dict(zip(self._segment.inputs, inputs, strict=True))
        self._nodes.compute(self._segment.nodes, values, step)
        return [in_float32(values[tensor]) for tensor in self._segment.outputs]

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        sources, targets = (mx.array(slots) for slots in zip(*pairs, strict=True))
        for state in self._states:
            if isinstance(state, Recurrent):
                state.array[targets] = state.array[sources]
                mx.eval(state.array)

    @property
    def memory(self) -> dict[str, int]:
        return {"weights": self._weight_bytes, "kv_cache": self._state_bytes, "activations": 0}

    def close(self) -> None:
        self._states = []
        self._registers.clear()
        self._compiled, self._lone = Compiled(self._outputs, []), None
        self._nodes.close()


def _is_known(tensor: Tensor) -> bool:
    """Return True if an input is known for each of several steps: a token, a position, or constant for all."""
    if tensor.name in ("tokens", "positions", "output_ids"):
        return True
    return isinstance(tensor, Input) and tensor.of_sequences


def _state_bytes(state: State, made: KVCache | Recurrent, limits: Limits) -> int:
    """Return the bytes of a state, of a cache those of its largest size."""
    if isinstance(made, Recurrent):
        return made.nbytes
    assert isinstance(state, KVState)
    return state_bytes(state, limits)


def _make_state(state: State, limits: Limits) -> KVCache | Recurrent:
    if isinstance(state, KVState):
        return KVCache(state, limits)
    assert isinstance(state, RecurrentState)
    return Recurrent(limits.n_slots, state.shape)
