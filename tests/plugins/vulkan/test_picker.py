"""Tokens chosen on the device: its candidates against NumPy, what it picks of them, and whole generations."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import pumice
from adapters import write_case
from gguf_files import tiny_llama
from graphs import picked, step_of, table_program
from nightly import crossed, variants
from picking_tests import LIMITS, PickingTests, batch, best, numbers, rng
from pumice.backend.pick import Ask, Pick, Restriction
from pumice.backend.step import LATEST, Batch, Pending, Step
from pumice.config import load_config
from pumice.engine.loop import lookahead
from pumice.engine.placement.runner import Runner
from pumice.local_engine import load_model
from pumice.sampler import Chain, SamplerContext, mask
from pumice_samplers import SAMPLERS
from pumice_vulkan import VulkanBackend
from tiny_zoo import ZOO

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines", "unmeasured_steps")


@pytest.mark.parametrize("n_steps", [1, 4])
def test_logits_are_adjusted_as_samplers_do(tmp_path: Path, vulkan: VulkanBackend, n_steps: int) -> None:
    table = rng.standard_normal((50, 50)).astype(np.float32)
    made = table_program(tmp_path, vulkan, table, LIMITS)
    pasts = [[3, 4, 3, 9, 9, 9, 17], [1], [*range(10), *range(5)]]
    parameters: list[dict[str, Any]] = [
        {"repeat_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2, "logit_bias": {9: -0.5}},
        {"logit_bias": dict.fromkeys(range(40), -np.inf)},
        {"repeat_penalty": 1.7, "repeat_last_n": 6},
    ]
    chains = [chain({**each, "temperature": 0.0}, past) for each, past in zip(parameters, pasts, strict=True)]
    picks = [each.pick for each in chains]
    assert all(pick.exact and pick.adjusts for pick in picks)
    kept = [past[-pick.last_n :] if pick.last_n else [] for pick, past in zip(picks, pasts, strict=True)]
    tokens = [past[-1] for past in pasts]
    found = picked(made, batch(tokens), Ask(picks, numbers(n_steps, 3), 1, pasts=kept))
    for step in range(n_steps):
        expected = [each.sample(table[token]) for each, token in zip(chains, tokens, strict=True)]
        assert found.picked[step].tolist() == expected
        tokens = expected
        for each, token in zip(chains, tokens, strict=True):
            each.accept(token)


def test_restrictions_come_behind_the_layers(tmp_path: Path, vulkan: VulkanBackend) -> None:
    """Each says what the token before it allows; the layers of the next step are submitted before it is known."""
    table = rng.standard_normal((100, 100)).astype(np.float32)
    made, pick = table_program(tmp_path, vulkan, table, LIMITS), Pick(1, temperature=0, restricted=True)
    if not made.capabilities.registers:
        pytest.skip("a driver that waits for each commit")
    token, expected, found = 3, [], []
    for _ in range(6):
        allowed = [(token * 7 + i) % 100 for i in range(10)]
        token = max(allowed, key=lambda each: table[token][each])
        expected.append(token)
    layers = made.submit(step_of(batch([3]), Ask([pick], numbers(1, 1), 1, [[]])))
    token = 3
    for _ in range(6):
        allowed = mask.from_tokens([(token * 7 + i) % 100 for i in range(10)], 100)
        waiting = layers
        waiting.restrict([Restriction(allowed)])
        layers = made.submit(step_of(batch([LATEST]), Ask([pick], numbers(1, 1), 1)))
        token = int(next(waiting.tokens()).picked[0, 0])
        found.append(token)
    layers.restrict([Restriction()])
    next(layers.tokens())
    assert found == expected


def test_the_best_are_of_few_invocations(tmp_path: Path, vulkan: VulkanBackend) -> None:
    """Whatever logits an invocation reads, the 64 best are found."""
    width = 8192
    table = rng.standard_normal((2, width)).astype(np.float32)
    table[0, np.arange(width) % 512 < 63] += 100  # all logits of 63 invocations are better than the best of the 64th
    made = table_program(tmp_path, vulkan, table, LIMITS)
    found = picked(made, batch([0, 1]), Ask([Pick(64, temperature=0)] * 2, numbers(1, 2), 64))
    for row in range(2):
        np.testing.assert_array_equal(found.ids[0, row], best(table[row], 64))


class TestPicking(PickingTests):
    options: ClassVar[dict[str, Any]] = {"backend": "vulkan"}

    @pytest.fixture
    def backend(self, vulkan: VulkanBackend) -> VulkanBackend:
        return vulkan

    @pytest.mark.parametrize(("width", "n_steps"), crossed([65, 5000, 140_000], [1, 4]))
    def test_logits_as_they_were(self, tmp_path: Path, vulkan: VulkanBackend, width: int, n_steps: int) -> None:
        """Before biases, penalties and masks, in each of several steps."""
        table = (3 * rng.standard_normal((4, width))).astype(np.float32)
        table[:, 4:] -= np.float32(90.0)  # tokens stay below 4, biased and penalised as they are
        table[1, 5:] = -np.inf
        made = table_program(tmp_path, vulkan, table, LIMITS)
        biased = Pick(40, biases=((0, -30.0), (1, -30.0), (2, -30.0)), last_n=20, repeat_penalty=1.5)
        other = Pick(8, last_n=4, repeat_penalty=1.2, presence_penalty=1.0, restricted=n_steps == 1)
        allowed = Restriction(mask.from_tokens([2, 3], width), [(2, -4.0)])
        restrictions = [Restriction(), Restriction(), allowed] if n_steps == 1 else ()
        ask = Ask([Pick(1, temperature=0), biased, other], numbers(n_steps, 3), 8, [[], [3, 3, 0], [2, 1]], 20)
        found, tokens = picked(made, batch([1, 2, 3]), replace(ask, restrictions=restrictions)), [1, 2, 3]
        for step in range(n_steps):
            raw = SimpleNamespace(**{name: values[[step]] for name, values in vars(found.raw).items()})
            self.check_raw(raw, table[tokens], found.picked[step], 20)
            tokens = found.picked[step].tolist()


def chain(parameters: dict[str, Any], past: list[int]) -> Chain:
    made = Chain.build(SAMPLERS, list(SAMPLERS), parameters, SamplerContext(50))
    for token in past:
        made.accept(token)
    return made


def test_steps_take_tokens_of_one_that_nobody_has_seen(tmp_path: Path, vulkan: VulkanBackend) -> None:
    table = rng.standard_normal((500, 500)).astype(np.float32)
    made, greedy = table_program(tmp_path, vulkan, table, LIMITS), Pick(1, temperature=0.0)
    if not made.capabilities.registers:
        pytest.skip("a driver that waits for each commit")

    def ask(n: int) -> Ask:
        return Ask([greedy] * n, numbers(1, n), 1, [()] * n)

    tops = np.argmax(table, axis=1)
    first = made.submit(step_of(batch([3, 7, 11]), ask(3)))
    swapped = batch([LATEST, 20, LATEST])
    swapped.slots = swapped.slots[[2, 1, 0]]
    second = made.submit(step_of(swapped, ask(3)))
    picked_first = next(first.tokens()).picked[0]
    last = batch([30, LATEST])
    third = made.submit(step_of(last, ask(2)))
    picked_second = next(second.tokens()).picked[0]
    assert picked_first.tolist() == tops[[3, 7, 11]].tolist()
    assert picked_second.tolist() == tops[[picked_first[2], 20, picked_first[0]]].tolist()
    assert next(third.tokens()).picked[0].tolist() == tops[[30, picked_second[1]]].tolist()


WILD: dict[str, Any] = {"seed": 6, "temperature": 1.6, "top_k": 60, "top_p": 0.99, "min_p": 0.0}
OTHERS = ["gemma3", "gpt-oss", "deepseek2", "rope-yarn-temperature", "mamba", "lfm2-window", "qwen35"]


def test_the_same_text_where_steps_of_prompts_wait_for_none(tmp_path: Path, driver: str, monkeypatch: Any) -> None:
    path, results = tiny_llama(tmp_path / "tiny.gguf", n_vocab=2500), []
    prompts = ["a", "the cat sat on the mat", "one two three four five", "some other words of a longer text"]
    options = {"backend": "vulkan", "n_ctx": 256, "n_parallel": 4, "n_batch": 16, "prefill_tokens": 16}
    submit: Callable[..., Pending] = Runner.submit
    after: list[bool] = []  # whether each step of several tokens of a sequence takes some of slots

    def noted(self: Runner, batch: Batch, *args: Any, **more: Any) -> Pending:
        after.append(batch.takes_from_slots and len(batch.tokens) > len(batch.slots))
        return submit(self, batch, *args, **more)

    for waits in (True, False):
        after.clear()
        loaded = load_model(path, load_config({**options, "vulkan": {"driver": driver}}))
        with monkeypatch.context() as patch, loaded as model:
            model.tokenizer.eog = frozenset()
            patch.setattr(Runner, "submit", noted)
            if waits:
                patch.setattr(Runner, "has_registers", False)
            results.append([each.tokens for each in model.generate_many(prompts, max_tokens=12, **WILD)])
            assert any(after) != (waits or not model.engine.runner.capabilities.registers)
    assert results[0] == results[1]


@pytest.mark.parametrize("name", variants(OTHERS, ["gpt-oss", "deepseek2", "rope-yarn-temperature", "qwen35"]))
def test_models_with_windows_experts_and_states(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrent states are taken back after wrong guesses."""
    monkeypatch.setattr(lookahead, "SECONDS", 1e9)
    path, results = ZOO[name].write(tmp_path / "model.gguf"), []
    for ahead in (False, True):
        options = {"backend": "vulkan", "kv_type": "f32", "n_ctx": 128, "n_batch": 4, "lookahead": -ahead}
        with load_model(path, load_config(options)) as model:
            assert model.engine.runner.capabilities.max_steps
            found = model.generate_many([[3, 5, 7], [1]], max_tokens=32, top_k=12, temperature=1.2, seed=1)
            results.append([each.tokens for each in found])
    assert results[0] == results[1]


def test_each_sequence_has_its_adapters_in_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flights double up to 16 steps, or fewer on a busy machine, where sequences begin and end far from each other.

    Each number of sequences is measured in two single steps first, which leave fewer tokens for flights then. Of up to
    seven numbers in a row one has a dozen steps, and so flights of 4.
    """
    files = {f"a{i}": str(path) for i, (path, _) in enumerate(write_case(tmp_path, "two"))}
    path = ZOO["llama-bias"].write(tmp_path / "model.gguf")
    each = [{"adapters": scales} for scales in ({"a0": 1.0}, {"a1": 2.0}, {}, {"a0": 1.0, "a1": -1.0})]
    results = []
    for ahead in (False, True):
        options = {"lookahead": 16 if ahead else 0, "adapters": files}
        settings = load_config({"backend": "vulkan", "kv_type": "f32", "n_ctx": 128, **options})
        with load_model(path, settings) as model:
            calls = count_calls(model.engine.runner.placed.main.program, monkeypatch)
            found = model.generate_many([[3, 5, 7]] * 4, each=each, max_tokens=80, top_k=12, seed=1)
            results.append([each.tokens for each in found])
    assert results[0] == results[1]
    assert len({tuple(tokens) for tokens in results[0]}) == 4
    assert max(calls) in (4, 8, 16)


def count_calls(program: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps in a row it is asked for, as they come."""
    calls: list[int] = []

    submit = program.submit

    def counted(step: Step) -> Any:
        if step.ask:
            calls.append(len(step.ask.numbers))
        return submit(step)

    monkeypatch.setattr(program, "submit", counted)
    return calls


@pytest.mark.parametrize(
    ("where", "sampling"),
    [({}, WILD), ({"devices": [0] * 3}, {"temperature": 0.0}), ({"n_gpu_layers": 1}, WILD)],
    ids=["wild", "three devices, greedy", "another backend, wild"],
)
def test_the_same_text_as_a_token_at_a_time(
    tmp_path: Path, driver: str, where: dict[str, Any], sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of several devices picks; steps allocate nothing."""
    monkeypatch.setattr(lookahead, "SECONDS", 1e9)
    path = tiny_llama(tmp_path / "tiny.gguf", n_vocab=2500)
    options = {"backend": "vulkan", "kv_type": "f32", "n_ctx": 192, "n_parallel": 3, "n_batch": 4}
    options["vulkan"] = {"driver": driver, "devices": where.get("devices", [0])}
    options["n_gpu_layers"] = where.get("n_gpu_layers", -1)
    prompts = ["a", "the cat sat on the mat", "one two three four five"]
    with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=192) as model:
        expected = model.generate("a", max_tokens=20, temperature=0).tokens
    results = []
    for ahead in (False, True):
        with load_model(path, load_config(options | {"lookahead": -ahead})) as model:
            model.tokenizer.eog = frozenset()
            program = model.engine.runner.placed.main.program
            calls = count_calls(program, monkeypatch)
            alone = model.generate(prompts[1], max_tokens=50, **sampling)
            in_runs = sum(n for n in calls if n > 1)  # of one sequence: others arrive between any two steps
            made = 0 if where else program._shared.device.n_allocations
            several = model.generate_many(prompts, max_tokens=50, **sampling)
            assert where or program._shared.device.n_allocations == made
            results.append([alone.tokens, *(each.tokens for each in several)])
            if sampling == {"temperature": 0.0}:
                assert model.generate("a", max_tokens=20, temperature=0).tokens[: len(expected)] == expected
    assert results[0] == results[1]
    assert len(results[0][0]) == 50
    assert in_runs > 40, "most tokens of a sequence come in runs of several steps"
