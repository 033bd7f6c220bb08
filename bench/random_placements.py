"""Load random models on a device with little memory: none may run out of it, and plans must equal allocations.

    PUMICE_VULKAN_SOFTWARE=1 python bench/random_placements.py [--cases 1000] [--seed 1]

A case is a model of random sizes (dense, experts, hybrid), a context, a type of the cache and a limit of the device's
memory (``vulkan.memory``), which the device then enforces. The model is planned, loaded, and generates. A case fails if
an allocation exceeds the limit, or if bytes differ by more than 5 % from the plan: those that the programs on the
device allocate for weights, caches and activations, and the scratch memory that is planned for them together. More
scratch memory has room in the reserve of the device, as has what else it holds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import pumice
from pumice.gguf import GGMLType, block_size
from pumice.gguf.writer import TensorInfo, Writer
from pumice.local_engine import local_engine
from pumice.plugin import Weight
from pumice_vulkan.backend import RESERVE
from pumice_vulkan.device.ledger import Ledger
from pumice_vulkan.program import DeviceProgram
from pumice_vulkan.step import SCRATCH_BYTES
from random_weights import random_rows
from tiny_models import ATTENTION, EXPERTS, LLAMA, TIED, TinyModel, tiny, weights

TYPES = ("Q4_0", "Q8_0", "F16", "F32", "Q5_1", "Q4_K", "Q6_K", "BF16")
CACHES = ("f16", "f32", "q8_0", "q4_0")
CONV = "attn_norm shortconv.in_proj.weight=3*n,n shortconv.conv.weight=n,3 shortconv.out_proj.weight=n,n"
MOST_APART = 0.05


@dataclass(frozen=True)
class Case:
    """A model, its options, and the share of the memory for all of it that the device has."""

    kind: str
    model: TinyModel
    type: GGMLType
    options: dict[str, Any]
    share: float


def random_case(rng: random.Random) -> Case:
    heads, group = rng.choice([(4, 2), (4, 4), (8, 2), (4, 1)])
    n, d, f = 256 * rng.randint(1, 4), rng.choice([32, 64]), 256 * rng.randint(1, 6)
    n_layer, kind = rng.randint(1, 6), rng.choice(["dense", "experts", "hybrid", "hybrid experts"])
    dims = {"n": n, "h": heads, "g": group, "d": d, "f": f, "V": 32 * rng.randint(1, 200), "E": rng.choice([4, 8])}
    context = {"context_length": 4096}
    experts = {"expert_count": dims["E"], "expert_used_count": 2, "expert_feed_forward_length": f}
    swiglu = LLAMA.removeprefix(ATTENTION)
    attention = f"{ATTENTION} attn_q_norm attn_k_norm"
    ends = rng.choice([TIED, f"{TIED} output"])
    if kind == "dense":
        model = tiny("llama", LLAMA, ends, n_layer=n_layer, dims=dims, **context)
    elif kind == "experts":
        model = tiny("qwen3moe", f"{attention} {EXPERTS}", ends, n_layer=n_layer, dims=dims, **experts, **context)
    else:
        is_attention = [rng.random() < 0.5 for _ in range(n_layer + 1)]
        ffn = [swiglu, *[swiglu if kind == "hybrid" else f"{EXPERTS} exp_probs_b.bias=E"] * n_layer]
        layers = [f"{attention if own else CONV} {part}" for own, part in zip(is_attention, ffn, strict=True)]
        keys: dict[str, Any] = {"attention__head_count_kv": [group * own for own in is_attention]}
        keys |= {"shortconv__l_cache": 3} | context
        if kind == "hybrid experts":
            keys |= experts | {"leading_dense_block_count": 1, "expert_gating_func": 2}
        ends = "token_embd token_embd_norm=n"
        model = tiny("lfm2" if kind == "hybrid" else "lfm2moe", layers, ends, dims=dims, **keys)
    n_ctx = 32 * rng.randint(2, 128)
    options = {
        "n_ctx": n_ctx,
        "n_batch": rng.choice([32, 128, 512]),
        "n_parallel": rng.choice([1, 1, 2, 4]),
        "kv_type": rng.choice(CACHES),
    }
    return Case(kind, model, GGMLType[rng.choice(TYPES)], options, rng.choice([0.3, 0.5, 0.7, 0.8, 0.9, 0.98, 1.05]))


def write_model(case: Case, path: Path, seed: int) -> None:
    """Write a model whose matrices have the type of the case."""
    rng = np.random.default_rng(seed)
    infos = [TensorInfo(name, _type_of(case, name, shape), shape) for name, shape in case.model.shapes.items()]
    with Writer(path, case.model.keys(), infos, force=True) as writer:
        for info in infos:
            if info.type == GGMLType.F32:
                writer.write(weights(info.name, info.shape))
            else:
                n_rows = int(np.prod(info.shape[:-1]))
                writer.write(random_rows(rng, info.type.name, n_rows, info.shape[-1]))


def _type_of(case: Case, name: str, shape: tuple[int, ...]) -> GGMLType:
    is_matrix = name.endswith(".weight") and len(shape) > 1 and "gate_inp" not in name and ".conv." not in name
    return case.type if is_matrix and shape[-1] % block_size(case.type) == 0 else GGMLType.F32


class Watch:
    """The bytes of buffers of all devices, of which no more than ``limit`` may be held."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.most = 0
        self.programs: list[DeviceProgram] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        opened, init = Ledger.opened, DeviceProgram.__init__

        def opened_within(ledger: Ledger, item: Any) -> None:
            opened(ledger, item)
            self.most = max(self.most, ledger.allocated_bytes)
            if ledger.allocated_bytes > self.limit:
                raise pumice.BackendError(f"out of memory: {ledger.allocated_bytes} of {self.limit} bytes")

        def init_watched(program: DeviceProgram, *arguments: Any) -> None:
            init(program, *arguments)
            self.programs.append(program)

        with patch.object(Ledger, "opened", opened_within), patch.object(DeviceProgram, "__init__", init_watched):
            yield

    @property
    def parts(self) -> dict[str, int]:
        """Bytes that the programs of the device hold, by purpose; ``scratch``: as much as is planned."""
        parts: Counter[str] = Counter()
        for program in self.programs:
            parts.update(program.memory)
        parts["activations"] -= self._scratch_bytes
        parts["scratch"] += SCRATCH_BYTES
        return dict(parts)

    @property
    def _scratch_bytes(self) -> int:
        return self.programs[0]._shared.scratch.nbytes

    @property
    def beyond(self) -> int:
        """Bytes of scratch memory beyond those planned, which have room in the reserve."""
        return max(self._scratch_bytes - SCRATCH_BYTES, 0)


def run(case: Case, path: Path) -> str:
    """Plan, load and run a case; return planned and allocated bytes. Raises AssertionError and PumiceError."""
    needed = planned_bytes(pumice.plan(path, **case.options))
    limit = RESERVE + int(case.share * needed)
    options = case.options | {"config": {"vulkan": {"memory": str(limit), "prepare": "never"}}}
    plan = pumice.plan(path, **options)
    predicted = planned_bytes(plan)
    if not predicted:
        return "nothing fits the device"
    watch = Watch(limit)
    with watch.watching(), pumice.load(path, **options) as model:
        prompt = [i % model.n_vocab for i in range(min(case.options["n_batch"], case.options["n_ctx"] - 8))]
        model.generate(prompt, max_tokens=4, temperature=0)
        held = watch.parts
        held["weights"] -= bytes_in_place(model)
    error = sum(held.values()) / predicted - 1
    about = f"{plan.n_gpu_layers}/{plan.n_layers} layers, {predicted} bytes planned, {held}, {watch.most} of {limit}"
    assert abs(error) <= MOST_APART, f"{error:+.1%}: {about}"
    assert watch.beyond <= RESERVE // 2, f"{watch.beyond} bytes of scratch memory: {about}"
    return f"{error:+.2%} {about}"


def bytes_in_place(model: pumice.Model) -> int:
    """Return the bytes of the weights that the device reads in host memory."""
    runner = local_engine(model).runner
    backend = dict(runner.placed.backends)["vulkan"]
    nodes = [node for item in runner.placed.main.placed if item.backend == "vulkan" for node in item.nodes]
    operands = {tensor for node in nodes for part in node.parts() for tensor in part.operands()}
    weights = {tensor.name: tensor for tensor in operands if isinstance(tensor, Weight)}
    return sum(backend.host_footprint(weight, runner.limits) for weight in weights.values())


def planned_bytes(plan: pumice.ModelPlan) -> int:
    return sum(device.bytes for device in plan.devices if device.is_gpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    arguments = parser.parse_args()
    kinds, failed = Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        for number in range(arguments.first, arguments.first + arguments.cases):
            case = random_case(random.Random(f"{arguments.seed} {number}"))
            write_model(case, path, number)
            about = f"case {number}: {case.kind} {case.type.name} {case.options} {case.share:.0%}"
            try:
                result = run(case, path)
            except (AssertionError, pumice.PumiceError) as error:
                failed += 1
                print(f"{about}: {error}", flush=True)
            else:
                kinds[case.kind] += 1
                if arguments.verbose:
                    print(f"{about}: {result}", flush=True)
            path.unlink()
    print(f"{arguments.cases} cases, {failed} failed; {dict(kinds)}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
