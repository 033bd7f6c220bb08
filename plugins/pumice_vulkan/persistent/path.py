"""The path of one dispatch per token: its dispatches, the probe of the device, and the switch that turns it off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import BackendError, Weight
from pumice.plugin.unstable import Segment
from pumice_vulkan.buckets import Bucket
from pumice_vulkan.device import Device
from pumice_vulkan.interface import Numbers
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.lower.attended import cache_of
from pumice_vulkan.lower.matrices import Matrix, matrix
from pumice_vulkan.lower.rope import pairs, turns
from pumice_vulkan.lower.rule import Dispatch, Lowering, SegmentMemory
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.persistent.division import ADDRESS_FLAGS, FLAGS, Shape
from pumice_vulkan.persistent.pattern import Decoder, Layer, find_decoder
from pumice_vulkan.persistent.shape import computes, shapes

KERNEL = "persistent"
BUCKET = Bucket(1, 1, lone=True)  # the steps that the shader computes
FEATURES = {
    "vulkan_memory_model_device",
    "integer_dot_product",
    "storage16",
    "subgroup_shuffle",
    "subgroup_arithmetic",
    "buffer_address",
}

MOST_ROWS = 8  # of a step
FASTER_ROWS = {2048: 4}  # of the largest steps that take less time than by dispatches, by the values of a row
FEWEST_FASTER = 2  # those of wider ones

LIMIT = 1 << 18  # polls of a word until the path gives up; each takes about a microsecond
PROBE_LIMIT = 1 << 13
BEST = "best logits of workgroups"  # name of the scratch memory: a key and a token of each

logger = logging.getLogger("pumice")


def is_wanted(setting: str, device: Device) -> bool:
    """Return True if a device may use the path.

    ``auto`` takes it where it was measured: on NVIDIA's GPUs, for the shapes of ``FAMILIES``.
    """
    asked = setting == "always" or (setting == "auto" and device.description.vendor == "NVIDIA")
    return asked and device.features >= FEATURES and device.description.driver == "native"


@dataclass(frozen=True)
class _Tables:
    """Data of all layers on the device."""

    weights: list[BufferSlice]  # whole buffers
    places: BufferSlice  # the table by which weights are found
    have_addresses: bool
    norms: BufferSlice
    cache: BufferSlice  # whole buffer of the first layer's; others may lie in other buffers


class Repeatable(Protocol):
    """A step that has begun."""

    def repeat(self, restores: bool) -> None:
        """Commit the step again, with a dispatch per operation; ``restores``: from the tokens that it began with."""


class PersistentPath:
    """Lowers a step of one token, or of a few, to the embedding's dispatches and one more.

    The path is used once ``works`` has found workgroups that all run at the same time. If a token fails nevertheless,
    ``failed`` turns it off for good.
    """

    def __init__(self, memory: SegmentMemory, kernels: Kernels, decoder: Decoder, most_rows: int | None = 1) -> None:
        self._memory = memory
        self._kernels = kernels
        self._decoder = decoder
        self._off = False
        self._flights: dict[int, Repeatable] = {}  # by the turn of their host memory, the earliest first
        self._working: dict[int, Shape] = {}  # the shape that works, by the rows of a step
        self._tables = _tables(Lowering(memory, *BUCKET), decoder)
        if most_rows is None:
            most_rows = FASTER_ROWS.get(decoder.sizes["width"], FEWEST_FASTER)
        self.most_rows = most_rows  # of a step in one dispatch
        sizes = range(1, most_rows + 1) if self._tables.have_addresses else ()
        self._shapes = {rows: list(shapes(decoder, memory.limits, memory.device, rows)) for rows in sizes}
        self._flag = memory.device.new_buffer(64, host=True)  # last, so that a failure above leaves no buffer
        self._flag.contents[:] = 0

    @classmethod
    def of(
        cls,
        memory: SegmentMemory,
        kernels: Kernels,
        segment: Segment,
        most_rows: int | None = 1,
    ) -> PersistentPath | None:
        """Return the path of a segment whose weights are on the device; None if the shader does not compute it.

        ``most_rows``: the most tokens of a step that it computes; None: those that are faster so.
        """
        decoder = find_decoder(segment)
        if decoder is None or not computes(decoder, memory.limits, memory.device):
            return None
        return cls(memory, kernels, decoder, most_rows)

    def works(self, rows: int = 1) -> bool:
        """Return True if the path can be used for steps of ``rows`` tokens; the first call compiles and probes."""
        candidates = self._shapes.get(rows, [])
        while rows not in self._working and candidates and not self._off:
            if self._probe(candidates[0]):
                self._working[rows] = candidates[0]
            else:
                logger.info("vulkan: %d workgroups do not run at the same time", candidates[0].groups)
                del candidates[0]
        return rows in self._working and not self._off

    def probing(self, rows: int) -> Dispatch | None:
        """Return the dispatch that ``works`` runs first for steps of ``rows`` tokens, whose pipeline it compiles.

        Raises BackendError if the device has no memory for it.
        """
        candidates = self._shapes.get(rows, [])
        return self._probing(candidates[0]) if candidates and not self._off else None

    @property
    def is_off(self) -> bool:
        return self._off

    def begin(self, step: Repeatable, turn: int) -> None:
        """Record a step until it has ended; ``turn`` is the number of its host memory."""
        self._flights.pop(turn, None)
        self._flights[turn] = step

    def ended(self, step: Repeatable) -> bool:
        """Forget a step that has ended; return True if it failed and has been committed again.

        The steps behind it ran on wrong tokens, so they are repeated, too, before others are committed.
        """
        turn = next((turn for turn, flight in self._flights.items() if flight is step), None)
        if turn is None:
            return False
        failed = self.failed()
        if failed:
            for index, flight in enumerate(self._flights.values()):
                flight.repeat(restores=index == 0)
            self._flights.clear()
        else:
            del self._flights[turn]
        return failed

    def failed(self) -> bool:
        """Return True if a token that has ended failed; the path is off from then on."""
        code = int(self._flag.contents.view(np.uint32)[0])
        if code and not self._off:
            self._off = True
            reason = "workgroups waited in vain" if code == 1 else "a value exceeds float16"
            logger.warning("vulkan: tokens in one dispatch are off from now on: %s", reason)
        return code != 0

    def dispatches(self, bucket: Bucket = BUCKET, shape: Shape | None = None, probe: bool = False) -> list[Dispatch]:
        """Return the dispatches of a step.

        Args:
            bucket: size of the step.
            shape: division of the work (default: the one that works, or the first to try).
            probe: find out only whether all workgroups run at the same time; the result is the flag of failures.
        """
        shape = shape or self._working.get(bucket.n_tokens) or self._shapes[bucket.n_tokens][0]
        lowering = Lowering(self._memory, *bucket)
        for node in self._decoder.before:
            lowering.lower(node)
        tables = self._tables
        zeros = lowering.constant(("act", id(self), shape), lambda: np.zeros(shape.act_words, np.uint32))
        epochs = lowering.constant(("epochs", id(self), shape), lambda: np.zeros(shape.groups, np.uint32))
        lowering.dispatch(
            shape.kernel,
            count=self._decoder.x,
            reads={
                "a": tables.weights[0],
                "b": tables.weights[-1],
                "places": tables.places,
                "norms": tables.norms,
                "turns": turns(
                    lowering, *(layer.rope for layer in (self._decoder.lasting, self._decoder.windowed) if layer)
                ),
                "x": lowering.place(self._decoder.x),
            },
            writes={
                "cache": tables.cache,
                "act": zeros,
                "epochs": epochs,
                "failed": BufferSlice(self._flag, 0, 1),
                "y": lowering.place(self._decoder.logits),
                **(
                    {"spilled": lowering.scratch("spilled", shape.spilled_bytes)}
                    if shape.rows > 1
                    else {"best": self._best(lowering, shape)}
                ),
            },
            push=self._push(lowering, shape, probe),
            constants=shape.constants,
            grid=(shape.groups, 1, 1),
            full_subgroups=True,
            label=f"{'token' if shape.rows == 1 else f'{shape.rows} tokens'} of {shape.layers} layers",
        )
        return lowering.dispatches

    def _push(self, lowering: Lowering, shape: Shape, probe: bool) -> dict[str, Numbers]:
        """Return the push constants of a step."""
        first, steps = self._decoder.layers[0], self._memory.layout
        lasting = self._decoder.lasting
        layout, _ = cache_of(lowering, lasting.state)
        return {
            "positions": steps.positions,
            "table": steps.tables[lasting.window],
            "v_cache": layout.v_offset,
            "n_rot": 2 * len(first.rope.attrs["freqs"]),
            "second_distance": pairs(first.rope)[1],
            "magnitude": first.rope.attrs["magnitude"],
            "scale": first.attention.attrs["scale"],
            "eps": self._decoder.eps,
            "limit": PROBE_LIMIT if probe else LIMIT,
            "probe": int(probe),
            **(self._row_words(lowering) if shape.rows > 1 else {}),
        }

    def best(self, lowering: Lowering) -> BufferSlice | None:
        """Return the place of the best logit of each workgroup behind a step; None for steps of several tokens."""
        shape = self._working.get(lowering.n_tokens)
        return self._best(lowering, shape) if shape and shape.rows == 1 else None

    def _best(self, lowering: Lowering, shape: Shape) -> BufferSlice:
        return lowering.scratch(BEST, 8 * shape.groups)

    def _row_words(self, lowering: Lowering) -> dict[str, Numbers]:
        """Return what the shader for several rows looks up besides: indices in the step block."""
        steps = self._memory.layout
        return {
            "n_logits": lowering.count_word(self._decoder.logits),
            "sequences": steps.sequences,
            "seq_starts": steps.seq_starts,
            "output_ids": steps.output_ids,
            "table_width": steps.table_width,
        }

    def close(self) -> None:
        self._flag.close()

    def _probing(self, shape: Shape) -> Dispatch:
        return self.dispatches(Bucket(shape.rows, 1, lone=shape.rows == 1), shape, probe=True)[-1]

    def _probe(self, shape: Shape) -> bool:
        """Return True if all workgroups run at the same time, with the registers that the pipeline takes."""
        try:
            dispatch = self._probing(shape)
            self._memory.weights.finish()
            pipeline = self._kernels.pipeline(dispatch)
        except BackendError as error:
            logger.info("%s", error)
            return False
        if shape.groups == 1:
            return True
        command = self._memory.device.new_command_buffer()
        encoder = command.encoder()
        encoder.set_pipeline(pipeline)
        for index, buffer in enumerate(dispatch.buffers):
            encoder.set_buffer(index, buffer)
        encoder.set_bytes(dispatch.push)
        encoder.barrier()
        encoder.dispatch_threadgroups(*dispatch.grid)
        encoder.end()
        command.commit_and_wait()
        command.close()
        flag = self._flag.contents.view(np.uint32)
        together = not flag[0]
        flag[0] = 0
        return together


def _tables(lowering: Lowering, decoder: Decoder) -> _Tables:
    matrices = [[matrix(lowering, weight) for weight in layer.matrices] for layer in decoder.layers]
    output = matrix(lowering, decoder.output)
    routers = [[] if (router := layer.block.router) is None else [matrix(lowering, router)] for layer in decoder.layers]
    used = [output, *(item for layer in (*matrices, *routers) for item in layer)]
    places = {id(item.place.buffer): item.place for item in used}
    caches = [cache_of(lowering, layer.state)[1] for layer in decoder.layers]
    cells = [_address(place) + (layer.window > 0) for place, layer in zip(caches, decoder.layers, strict=True)]
    rows: list[list[Matrix | int]] = [
        [*row, cell, *router] for row, cell, router in zip(matrices, cells, routers, strict=True)
    ]
    usual = matrices[0][0].format
    last: list[Matrix | int] = [replace(output, format=usual)]  # its type is the variant's, so it has no flag
    table = [*rows, [*last, *_window(lowering, decoder.windowed)]]
    key = (KERNEL, id(decoder.output.source), decoder.output.name, len(matrices))

    def address(item: Matrix) -> int:
        name = item.format.name
        is_usual = item.format.dense or item.format is usual
        return _address(item.place) + (0 if is_usual else FLAGS.index(name) if name in FLAGS else ADDRESS_FLAGS)

    return _Tables(
        [_whole(place) for place in places.values()],
        lowering.constant((*key, "addresses"), partial(_table, table, address)),
        all(place.buffer.address for place in places.values()),
        lowering.constant((*key, "norms"), lambda: _vectors(decoder)),
        replace(caches[0], offset=0, size=caches[0].buffer.n_bytes // 4),
    )


def _table(rows: Sequence[Sequence[Matrix | int]], locate: Callable[[Matrix], int]) -> NDArray[np.uint32]:
    """Return the shader's table of 64-bit numbers: a row for each layer, and one for the output.

    Args:
        rows: matrices, and numbers that the table has as they are, such as the address of a layer's cache.
        locate: returns the number by which the shader finds a matrix.
    """
    table = np.zeros((len(rows), max(map(len, rows))), np.uint64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = [item if isinstance(item, int) else locate(item) for item in row]
    return table.reshape(-1).view(np.uint32)


def _vectors(decoder: Decoder) -> NDArray[np.float32]:
    """Return all vectors in the order of the shader's constants that end with ``_AT``, behind the norms of rows."""
    layers = decoder.layers
    numbers = [_row(weight) for layer in layers for weight in layer.norms]
    numbers.append(np.float32(decoder.logit_scale) * _row(decoder.norm))
    numbers += [_row(node.weight("weight")) for layer in layers for node in layer.head_norms]
    numbers += [_row(weight) for layer in layers for weight in layer.biases]
    numbers += [_row(node.weight("weight")) for layer in layers for node in layer.post_norms]
    return np.concatenate(numbers)


def _window(lowering: Lowering, layer: Layer | None) -> list[Matrix | int]:
    """Return where layers with a window find the block table, and the words from keys to values in their caches."""
    if layer is None:
        return []
    return [lowering.memory.layout.tables[layer.window], cache_of(lowering, layer.state)[0].v_offset]


def _row(weight: Weight) -> NDArray[np.float32]:
    return np.asarray(weight.dequantize(), np.float32)


def _address(place: BufferSlice) -> int:
    return place.buffer.address + 4 * place.offset


def _whole(place: BufferSlice) -> BufferSlice:
    return BufferSlice(place.buffer, 0, place.buffer.n_bytes // 4, constant=True)
