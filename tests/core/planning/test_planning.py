"""Plans: everything is placed once, no device holds more than it has, and more memory is never worse."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import pumice
from pumice.backend.step import Limits
from pumice.cli import cli
from pumice.cli.fit import command
from pumice.engine.placement.overrides import host_layers
from pumice.engine.placement.placement import PlacementRules, find_placement
from pumice.engine.placement.sizing import EngineSizes, devices_in_use, held_by, make_limits
from pumice.errors import ConfigError
from pumice.gguf import GGMLType, row_bytes
from pumice.graph import Graph, GraphBuilder, Weight
from pumice.planning import Held
from pumice.planning.machine import RESERVE, PlannedGPUs
from pumice_numpy import NumpyBackend
from tiny_models import N_CTX
from tiny_zoo import ZOO

TYPES = [GGMLType.Q4_0, GGMLType.Q8_0, GGMLType.F16]


@dataclass(eq=False)
class Described:
    """A tensor without data."""

    type: GGMLType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape[:-1])) * row_bytes(self.type, self.shape[-1])


class Tensors(dict[str, Any]):
    """Tensors of any name and shape, described when they are first asked for."""

    def describe(self, name: str, *shape: int, type: GGMLType) -> str:
        self.setdefault(name, Described(type, shape))
        return name


def random_graph(rng: random.Random) -> Graph:
    """A decoder of random sizes: attention, with or without a window, and dense layers or experts."""
    n, n_ff, heads = 64 * rng.randint(1, 16), 64 * rng.randint(1, 32), rng.choice([1, 2, 4])
    n_layer, n_vocab, n_expert = rng.randint(1, 6), 32 * rng.randint(1, 200), rng.choice([0, 4, 16])
    type, window = rng.choice(TYPES), rng.choice([0, 64])
    tensors = Tensors()
    g = GraphBuilder(tensors, n_layer, 1024)

    def linear(x: Any, name: str, rows: int) -> Any:
        return g.linear(x, g.weight(tensors.describe(f"{name}.weight", rows, int(x.shape[-1]), type=type)))

    def routed(x: Any, name: str, rows: int, ids: Any) -> Any:
        shape = (n_expert, rows, int(x.shape[-1]))
        return g.mul_mat_id(x, g.weight(tensors.describe(f"{name}_exps.weight", *shape, type=type)), ids)

    x = g.embedding(g.weight(tensors.describe("token_embd.weight", n_vocab, n, type=type)), g.tokens)
    for index in range(n_layer):
        with g.layer(index) as blk:
            q, k, v = (linear(x, f"{blk}attn_{name}", n).reshape("n_tokens", heads, n // heads) for name in "qkv")
            y = g.attention(q, k, v, scale=1.0, window=window if index % 2 else 0)
            x = x + linear(y.reshape("n_tokens", n), f"{blk}attn_output", n)
            if n_expert:
                logits = linear(x, f"{blk}ffn_gate_inp", n_expert)
                ids = g.expert_ids(logits, None, n_used=2, gate="softmax")
                hidden = g.silu(routed(x.reshape("n_tokens", 1, n), f"{blk}ffn_up", n_ff, ids))
                weights = g.expert_weights(logits, ids, gate="softmax")
                x = x + g.expert_sum(routed(hidden, f"{blk}ffn_down", n, ids), weights)
            else:
                x = x + linear(g.silu(linear(x, f"{blk}ffn_up", n_ff)), f"{blk}ffn_down", n)
    return g.finish(linear(g.get_rows(x, g.output_ids), "output", n_vocab))


def random_plan(rng: random.Random) -> tuple[Graph, Limits, PlacementRules]:
    graph = random_graph(rng)
    sizes = EngineSizes(32 * rng.randint(1, 64), rng.choice([32, 256]), rng.randint(1, 4), rng.choice(["f16", "q8_0"]))
    overrides = tuple(host_layers(rng.choice([0, 0, -1, 2]), rng.choice([0, 0, 1])))
    rules = PlacementRules(rng.choice([-1, -1, 1, 5]), overrides, kv_offload=rng.random() < 0.8)
    return graph, make_limits({"main": graph}, sizes), rules


def planned(
    graph: Graph, limits: Limits, rules: PlacementRules, gpus: list[int]
) -> tuple[int, list[Held], PlannedGPUs]:
    backend = PlannedGPUs([RESERVE + n_bytes for n_bytes in gpus])
    backends = [("gpu", backend), ("cpu", NumpyBackend())]
    placement = find_placement([graph], backends, limits, rules)
    uses = devices_in_use(placement.segments, dict(backends), limits)
    return placement.n_offloaded, held_by(uses, placement.segments[0], dict(backends), limits), backend


@pytest.mark.parametrize("seed", range(2))
def test_random_plans(seed: int) -> None:
    for case in range(50):
        rng = random.Random(1000 * seed + case)
        graph, limits, rules = random_plan(rng)
        weights = {t.name: t for node in graph.nodes for t in node.operands() if isinstance(t, Weight)}
        expected = {
            "weights": sum(weight.nbytes for weight in weights.values()),
            "states": sum(limits.state_bytes(state) for state in graph.states),
        }
        room = expected["weights"] + expected["states"]
        before = -1
        for free in sorted(rng.choices(range(2 * room), k=2)):
            gpus = [free] if case % 3 else [free // 3, free - free // 3]
            n_layers, held, backend = planned(graph, limits, rules, gpus)
            for number, n_bytes in enumerate(backend.free_memory()):
                assert sum(item.n_bytes for item in held if item.device == ("gpu", number)) <= (n_bytes or 0), case
            states = sum(item.n_bytes for item in held if item.part == "kv_cache")
            activations = sum(item.n_bytes for item in held if item.part == "activations")
            assert states == expected["states"], case
            assert sum(item.n_bytes for item in held) - states - activations == expected["weights"], case
            assert n_layers >= before, case
            before = n_layers


def test_plans_agree_with_what_loading_allocates(tmp_path: Path) -> None:
    for name in ("qwen3moe", "mamba2", "gemma2", "lfm2-window"):
        path = ZOO[name].write(tmp_path / f"{name}.gguf")
        options: dict[str, Any] = {"backend": "numpy", "n_ctx": N_CTX, "n_batch": 64}
        plan = pumice.plan(path, **options)
        with pumice.load(path, **options) as model:
            memory = model.engine.runner.placed.memory
            (found,) = model.facts.devices
        (device,) = plan.devices
        assert (found.name, found.parts, found.layers) == (device.name, device.parts, device.layers)
        assert device.bytes == pytest.approx(sum(memory.values()), rel=0.05)
        states = device.parts.get("kv_cache", 0) + device.parts.get("recurrent_state", 0)
        assert (states, device.parts["activations"]) == (memory["kv_cache"], memory["activations"])


def test_a_plan_for_another_machine(tmp_path: Path) -> None:
    path = ZOO["qwen3moe"].write(tmp_path / "model.gguf")
    options: dict[str, Any] = {"n_ctx": 64, "n_batch": 8}
    whole = pumice.plan(path, memory="1GiB", ram="1GiB", **options)
    assert [(device.name, device.is_gpu) for device in whole.devices] == [("gpu0", True)]
    assert (whole.n_gpu_layers, whole.n_layers, whole.fits, whole.n_ctx_max) == (3, 3, True, N_CTX)
    split = pumice.plan(path, memory={"big": "1GiB", "small": "300MiB"}, **options)
    assert [device.name for device in split.devices] == ["big", "small"]
    read = pumice.plan(path, memory="1GiB", ram="1GiB", n_cpu_moe=-1, **options)
    assert (read.n_gpu_layers, set(read.devices[1].parts)) == (3, {"embeddings", "experts"}), "the GPU reads them there"
    options["moe_in_place"] = "off"
    experts = pumice.plan(path, memory="1GiB", ram="1GiB", n_cpu_moe=-1, **options)
    assert "experts" in experts.devices[1].parts
    assert "experts" not in experts.devices[0].parts
    moved = pumice.plan(path, memory="1GiB", ram="1GiB", override_tensors=["exps=CPU", "attn_q=Vulkan0"], **options)
    assert [device.parts for device in moved.devices] == [device.parts for device in experts.devices]
    tight = pumice.plan(path, memory=RESERVE + 1, ram="1GiB", **options)
    assert [device.name for device in tight.devices] == ["cpu"]
    assert not tight.n_gpu_layers
    small = pumice.plan(path, memory=0, ram="100KiB", **options)
    assert not small.fits
    assert small.n_ctx_max == 0
    large = pumice.plan(path, memory=0, ram="10MiB", **{**options, "n_ctx": 10**7})
    assert (large.fits, large.n_ctx_max) == (False, N_CTX)
    with pytest.raises(pumice.ConfigError, match=r"memory: 12\.5 is a number of bytes; give a unit"):
        pumice.plan(path, memory=12.5, **options)
    assert json.loads(json.dumps(whole.to_dict()))["devices"][0]["bytes"] == whole.devices[0].bytes


@pytest.mark.parametrize("more", [{"memory": 0}, {"memory": "1GiB", "n_cpu_moe": -1, "moe_in_place": "off"}])
def test_the_largest_context_of_scarce_host_memory(tmp_path: Path, more: dict[str, Any]) -> None:
    """A plan that fits has at least its own context, and one that fits with more has more."""
    path = ZOO["qwen3moe"].write(tmp_path / "model.gguf")

    def host_bytes(n_ctx: int) -> int:
        plan = pumice.plan(path, n_batch=8, ram="1GiB", n_ctx=n_ctx, **more)
        return next(device.bytes for device in plan.devices if not device.is_gpu)

    for n_ctx in (64, 128):
        tight = pumice.plan(path, n_batch=8, ram=host_bytes(n_ctx), n_ctx=64, **more)
        assert tight.fits
        assert tight.n_ctx_max == (n_ctx if host_bytes(128) > host_bytes(64) else N_CTX)
    assert not pumice.plan(path, n_batch=8, ram=host_bytes(64) - 1, n_ctx=64, **more).fits


def test_the_command(tmp_path: Path) -> None:
    path = str(ZOO["qwen3moe"].write(tmp_path / "model.gguf"))
    common = ["fit", path, "-c", "64", "-b", "8"]
    done = CliRunner().invoke(cli, [*common, "--memory", "1GiB", "--ram", "1GiB", "-cmoe"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "3 of 3 layers on gpu0, experts of 2 in host memory" in done.stdout
    assert done.stdout.splitlines()[-1].split()[0] == "cpu"
    small = CliRunner().invoke(cli, [*common, "--memory", "0", "--ram", "100KiB"], catch_exceptions=False)
    assert small.exit_code == 1
    assert "does not fit: cpu has 100.0 KiB free and would need" in small.stdout
    assert "64 tokens; none fits" in small.stdout
    parsed = json.loads(CliRunner().invoke(cli, [*common, "--json"], catch_exceptions=False).stdout)
    assert parsed["architecture"] == "qwen3moe"
    assert parsed["fits"]
    wrong = CliRunner().invoke(cli, [*common, "--memory", "much"])
    assert isinstance(wrong.exception, ConfigError)
    assert str(wrong.exception).startswith("memory: 'much' is not a size of memory")
    wrong = CliRunner().invoke(cli, [*common, "--memory", "24GiB,12"])
    assert isinstance(wrong.exception, ConfigError)
    assert str(wrong.exception) == "memory: 12 is a number of bytes; give a unit, such as 12GiB or 512MiB"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"memory": 1 + 2j}, "memory: '(1+2j)' is not a size of memory, such as 12GiB or 512MiB"),
        ({"memory": {1: "12GiB"}}, "memory: the name of a GPU is a text, not 1"),
    ],
)
def test_wrong_arguments_of_plans(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        pumice.plan(**options)
    assert str(error.value) == problem


def test_options_of_placement_are_read() -> None:
    arguments = "-ts 3/1 -ot exps=CPU,attn=Vulkan1 -dev Vulkan0,Vulkan1 -sm layer -mg 1 -nkvo -fit off -fitt 512 -cmoe"
    params = command.make_context("fit", [*arguments.split(), "-ncffn", "2", "-fitc", "64"]).params
    assert {name: params[name] for name in ("tensor_split", "override_tensors", "devices", "split_mode")} == {
        "tensor_split": [3.0, 1.0],
        "override_tensors": ["exps=CPU", "attn=Vulkan1"],
        "devices": ["Vulkan0", "Vulkan1"],
        "split_mode": "layer",
    }
    numbers = ("main_gpu", "kv_offload", "fit", "fit_target", "fit_ctx", "n_cpu_moe", "n_cpu_ffn")
    assert [params[name] for name in numbers] == [1, False, False, 512, 64, -1, 2]
    untouched = command.make_context("fit", []).params
    assert [untouched[name] for name in ("tensor_split", "override_tensors", "devices", *numbers)] == [None] * 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-sm", "row"], "splits single matrices over GPUs, which no backend does"),
        (["-fit", "maybe"], "expected on or off, not 'maybe'"),
        (["-sm", "tensor"], "splits single matrices over GPUs, which no backend does"),
        (["-sm", "both"], "expected none, layer or auto"),
        (["-ts", "a"], "expected numbers from 0 with commas between"),
    ],
)
def test_wrong_options_of_placement_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        command.make_context("fit", arguments)
