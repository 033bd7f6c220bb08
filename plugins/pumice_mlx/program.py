"""Programs: a segment's nodes become lazy MLX operations, evaluated at the end of a step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Tensor, Weight
from pumice.plugin.unstable import (
    LATEST,
    OPERATIONS,
    Ahead,
    Ask,
    Batch,
    Capabilities,
    Input,
    KVState,
    Limits,
    Node,
    Pending,
    PickLimits,
    Program,
    RecurrentState,
    Restriction,
    Segment,
    State,
    Step,
    concrete,
)
from pumice_mlx import sums
from pumice_mlx.attention import ATTENTION_OPS, can_attend_paged, last_block
from pumice_mlx.compiled import Compiled, is_alike
from pumice_mlx.compiled import prepare as prepare_arrays
from pumice_mlx.device import errors, is_gpu, prepare
from pumice_mlx.fused import Fused, fusing
from pumice_mlx.joins import Joins, Results
from pumice_mlx.kv_cache import KVCache, state_bytes
from pumice_mlx.lone import LoneSteps, is_lone, stages_of
from pumice_mlx.ops import FORMULAS, MATRICES, OPS, rope, turns
from pumice_mlx.paged import Rotation
from pumice_mlx.picker import MAX_ADDED, MAX_BEST, MAX_BIASES, MAX_STEPS, Picker
from pumice_mlx.recurrent import RECURRENT_OPS, Recurrent
from pumice_mlx.step import Evaluation, NotAlike, StepArrays, uploaded
from pumice_mlx.turns import attentions_that_turn
from pumice_mlx.weights import Weights, can_multiply, in_float32

Array = NDArray[Any]
logger = logging.getLogger("pumice")

#: Abilities of programs that compute logits.
PICKS = Capabilities(
    copies_slots=True,
    max_steps=MAX_STEPS,
    picks=PickLimits(best=MAX_BEST, biases=MAX_BIASES, added=MAX_ADDED),
    registers=True,
)

#: Operations that depend on the step beyond their operands.
STEP_OPS = {"rope": rope, **ATTENTION_OPS, **RECURRENT_OPS}

#: Operations that take operands in the type of products; to others they are given in float32.
HALF_OPS = {"linear", "batched_linear", "mul_mat_id", "rope", "attention", "kv_store", "get_rows", "slice", *FORMULAS}


def claims(node: Node, limits: Limits) -> bool:
    """Return True if programs can compute a node."""
    if node.op not in OPS and node.op not in STEP_OPS and node.op != "reshape":
        return False
    if isinstance(node.state, KVState) and not limits.can_hold(node.state):
        return False
    weights = {name: tensor for name, tensor in node.inputs.items() if isinstance(tensor, Weight)}
    return all(can_multiply(weight) for name, weight in weights.items() if (node.op, name) in MATRICES)


@dataclass
class Shared:
    """Objects shared by a model's programs: weights, and the states of its sequences."""

    weights: Weights
    states: dict[State, KVCache | Recurrent]
    compiles: bool  # steps of one token of each sequence

    @classmethod
    def of(cls, activations: str, compiled: str) -> Shared:
        prepare()
        half = activations == "float16" or (activations == "auto" and is_gpu())
        compiles = compiled == "always" or (compiled == "auto" and is_gpu())
        return cls(Weights(mx.float16 if half else mx.float32), {}, compiles)

    @property
    def type(self) -> mx.Dtype:
        """The type of activations in products."""
        return self.weights.activations


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
        self._shared = shared
        self._segment = segment
        before = shared.weights.nbytes
        with errors("loading the weights"):
            for node in segment.nodes:
                for name, operand in node.inputs.items():
                    if isinstance(operand, Weight):
                        self._weight(node, name, operand)
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
        self._compiles = shared.compiles and not _has_memory(segment)
        with errors("loading the weights"):
            self._joins = Joins(segment.nodes if self._compiles else [], shared.weights)
        self._compiled, self._fused = Compiled(self._outputs, self._states, packs=True), dict[Fused, Any]()
        attentions = [node for node in segment.nodes if node.op == "attention"]
        paged = [node for node in attentions if self._compiles and self._attends_paged(node)]
        for node in paged:
            self._cache(node).prepare(limits.n_seqs * int(node.output.shape[1]))
        self._turning = attentions_that_turn(segment, paged)
        self._sums = sums.sums_with_norms(segment) if paged and sums.works(shared.type) else {}
        stages = [] if len(paged) == len(attentions) else stages_of(segment)
        self._lone = LoneSteps(self, segment, stages, shared.states) if stages else None

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
        return StepArrays(batch, inputs, self._compiles and is_alike(batch))

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
            self._compiles = False
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
        self.compute(self._segment.nodes, values, step)
        return [in_float32(values[tensor]) for tensor in self._segment.outputs]

    def compute(self, nodes: Sequence[Node], values: dict[Tensor, mx.array], step: StepArrays) -> None:
        """Add the lazy results of nodes to ``values``, and update the states."""
        sizes, joined = step.batch.sizes, Results() if self._compiles else None
        with fusing(self._fused if self._compiles else None):
            for node in nodes:
                if node.op == "reshape":
                    values[node.output] = values[node.inputs["x"]].reshape(concrete(node.output.shape, sizes))
                    continue
                if step.alike and _takes_all_rows(node, step):
                    values[node.output] = values[node.inputs["x"]]
                    continue
                if step.alike and self._compute_by_kernels(node, values):
                    continue
                result = self._compute_jointly(node, values, step, joined) if joined else None
                values[node.output] = self._compute(node, values, step) if result is None else result

    def _compute_by_kernels(self, node: Node, values: dict[Tensor, mx.array]) -> bool:
        """Return True if a node is computed with another one in steps of one token of each sequence."""
        if node in self._turning.ropes:
            values[node.output] = values[node.inputs["x"]]  # turned by its attention
        elif node in self._sums:
            norm, is_only_multiplied = self._sums[node]
            x, y = (values[tensor] for tensor in node.inputs.values())
            type = self._shared.type if is_only_multiplied else mx.float32
            weight = self.operand(norm, "weight", values)
            values[node.output], values[norm.output] = sums.add_and_norm(x, y, weight, norm.attrs["eps"], type)
        return node.output in values

    def _compute_jointly(
        self, node: Node, values: Mapping[Tensor, mx.array], step: StepArrays, joined: Results
    ) -> mx.array | None:
        """Return the result of a node that is computed with others; else None."""
        if node.op == "linear":
            return self._joins.product(node, values[node.inputs["x"]], self.operand(node, "bias", values), joined)
        if node.op == "rope":
            turn = partial(rope, positions=values[node.inputs["positions"]], evaluation=self.evaluation(node, step))
            return self._joins.turned(node, lambda x: turn(x, **node.attrs), joined)
        return None

    def _compute(self, node: Node, values: Mapping[Tensor, mx.array], step: StepArrays) -> mx.array:
        operands = {name: self.operand(node, name, values) for name in OPERATIONS[node.op].operands}
        if node.op not in HALF_OPS:
            operands = {name: in_float32(operand) for name, operand in operands.items()}
        if node.op in OPS:
            return OPS[node.op](**operands, **node.attrs)
        return STEP_OPS[node.op](**operands, evaluation=self._with_turn(node, values, step), **node.attrs)

    def _with_turn(self, node: Node, values: Mapping[Tensor, mx.array], step: StepArrays) -> Evaluation:
        """Return the evaluation of a node, with the angles of an attention that turns queries and keys itself."""
        evaluation, rope = self.evaluation(node, step), self._turning.of_attentions.get(node)
        if rope is None or not step.alike:
            return evaluation
        cos, sin = turns(values[rope.inputs["positions"]], self.evaluation(rope, step), int(rope.output.shape[-1]))
        return replace(evaluation, turn=Rotation(cos, sin, rope.attrs["neox"], len(rope.attrs["freqs"])))

    def _cache(self, node: Node) -> Any:
        return self._shared.states[node.state] if node.state else None

    def _attends_paged(self, node: Node) -> bool:
        return can_attend_paged(node, self._cache(node), self._shared.type)

    def operand(self, node: Node, name: str, values: Mapping[Tensor, mx.array]) -> Any:
        """Return an operand of a node; None if it is absent."""
        tensor = node.inputs.get(name)
        if isinstance(tensor, Weight):
            return self._weight(node, name, tensor)
        return None if tensor is None else values[tensor]

    def evaluation(self, node: Node, step: StepArrays) -> Evaluation:
        """Return the evaluation of a node that depends on its step or state."""
        return Evaluation(node, self._cache(node), step, self._shared.type)

    def _weight(self, node: Node, name: str, weight: Weight) -> Any:
        weights = self._shared.weights
        return weights.matrix(weight) if (node.op, name) in MATRICES else weights.array(weight)

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
        self._fused.clear()


def _takes_all_rows(node: Node, step: StepArrays) -> bool:
    """Return True for the output rows of a step of one token of each sequence, if they are all rows."""
    is_of_outputs = node.op == "get_rows" and node.inputs["ids"].name == "output_ids"
    return is_of_outputs and len(step.batch.output_ids) == len(step.batch.tokens)


def _has_memory(segment: Segment) -> bool:
    return any(isinstance(state, KVState) and state.is_memory for state in segment.states)


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
