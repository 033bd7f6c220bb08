"""Tokens chosen on the device: its candidates against NumPy, what it picks of them, and whole generations."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from adapters import write_case
from gguf_files import tiny_llama
from graphs import picked, step_of, table_program
from nightly import variants
from pumice.backend.pick import Ask, Pick, Restriction
from pumice.backend.step import LATEST, Batch, Limits, Pending, Step
from pumice.config import Config, load_config
from pumice.engine.loop import lookahead
from pumice.engine.placement.runner import Runner
from pumice.local_engine import load_model
from pumice.sampler import Chain, SamplerContext, mask
from pumice_samplers import SAMPLERS
from pumice_vulkan import VulkanBackend
from tiny_zoo import ZOO

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")

N_SEQS = 3
LIMITS = Limits(n_ctx=64, n_batch=8, n_outputs=8, n_seqs=N_SEQS, block_size=8, n_blocks={}, kv_type="f32")
rng = np.random.default_rng(11)


def batch(tokens: list[int]) -> Batch:
    each = np.arange(len(tokens), dtype=np.int32)
    starts = np.arange(len(tokens) + 1, dtype=np.int32)
    return Batch(np.array(tokens, np.int32), each + 5, each, starts, each, {})


def best(logits: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-logits, kind="stable")[:k]


@pytest.mark.parametrize("n_best", [1, 2, 64])
@pytest.mark.parametrize("width", [65, 2048, 2049, 5000, 140_000])
def test_the_best_of_any_width(tmp_path: Path, vulkan: VulkanBackend, width: int, n_best: int) -> None:
    table = rng.standard_normal((6, width)).astype(np.float32)
    table[1] = np.round(table[1])  # many are equal
    table[2] = 0
    table[3] = np.where(rng.random(width) < 0.5, -0.0, 0.0)
    table[4] = -np.abs(table[4]) * 1e30
    table[5, 3:] = -np.inf
    made = table_program(tmp_path, vulkan, table, LIMITS)
    for tokens in ([0], [1], [2, 3], [4, 5, 0]):
        n = len(tokens)
        found = picked(made, batch(tokens), Ask([Pick(n_best, temperature=0)] * n, numbers(1, n), n_best))
        for row, token in enumerate(tokens):
            expected = best(table[token], n_best)
            np.testing.assert_array_equal(found.ids[0, row], expected)
            np.testing.assert_array_equal(found.logits[0, row], table[token][expected])
            assert found.picked[0, row] == expected[0]


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001])
def test_nan_comes_first(tmp_path: Path, vulkan: VulkanBackend, bits: int) -> None:
    table = rng.standard_normal((1, 3000)).astype(np.float32)
    table.view(np.uint32)[0, 2500] = bits
    found = picked(table_program(tmp_path, vulkan, table, LIMITS), batch([0]), Ask([Pick(40)], numbers(1, 1), 40))
    assert found.ids[0, 0, 0] == found.picked[0, 0] == 2500
    assert np.isnan(found.logits[0, 0]).tolist() == [True] + [False] * 39


PICKS = [
    Pick(40),
    Pick(64, temperature=0.3),
    Pick(7, top_p=0.8),
    Pick(40, min_p=0.3, temperature=1.7),
    Pick(40, 0.95, 0.05, 0.8),
    Pick(20, top_p=1e-6),
    Pick(1),
]


def test_each_step_goes_on_with_what_the_one_before_picked(tmp_path: Path, vulkan: VulkanBackend) -> None:
    table = (2 * rng.standard_normal((500, 500))).astype(np.float32)
    made = table_program(tmp_path, vulkan, table, LIMITS)
    for n_steps in (1, 2, 16):
        for first in range(len(PICKS) - N_SEQS + 1):
            picks = PICKS[first : first + N_SEQS]
            drawn = numbers(n_steps, N_SEQS)
            found = picked(made, batch([9, 8, 7]), Ask(picks, drawn, 64))
            tokens = [9, 8, 7]
            for step in range(n_steps):
                for row, pick in enumerate(picks):
                    ids = best(table[tokens[row]], 64)
                    np.testing.assert_array_equal(found.ids[step, row], ids)
                    at = ids.tolist().index(found.picked[step, row])
                    low, high = interval(pick, table[tokens[row]][ids], at)
                    assert low - 1e-5 <= drawn[step, row] <= high + 1e-5
                tokens = found.picked[step].tolist()


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


@pytest.mark.parametrize("width", [70, 5000])
def test_restrictions_hold_for_one_token(tmp_path: Path, vulkan: VulkanBackend, width: int) -> None:
    """Masks and biases of a step, behind penalties; without them nothing of the step before is left."""
    table = rng.standard_normal((20, width)).astype(np.float32)
    table[7, 3] = 50.0
    made = table_program(tmp_path, vulkan, table, LIMITS)
    few, most = mask.from_tokens([1, 40, 69], width), mask.from_tokens(range(4, width), width)
    restrictions = [Restriction(few), Restriction(most, [(4, 9.0), (5, -1.5)]), Restriction()]
    picks = [Pick(40, temperature=0, restricted=True), Pick(40, restricted=True), Pick(40, temperature=0)]
    drawn = numbers(1, 3)
    found = picked(made, batch([5, 6, 7]), Ask(picks, drawn, 40, [[], [], []], 0, restrictions))
    first, second = (table[token].copy() for token in (5, 6))
    first[~mask.allows(few, np.arange(width))] = -np.inf
    second[[4, 5]] += np.float32([9.0, -1.5])
    second[:4] = -np.inf
    assert found.picked[0, 0] == best(first, 1)[0]
    assert found.ids[0, 0, :3].tolist() == best(first, 3).tolist()
    assert (found.logits[0, 0, 3:] == -np.inf).all()
    np.testing.assert_array_equal(found.ids[0, 1], best(second, 40))
    low, high = interval(picks[1], second[found.ids[0, 1]], found.ids[0, 1].tolist().index(found.picked[0, 1]))
    assert low - 1e-5 <= drawn[0, 1] <= high + 1e-5
    assert found.picked[0, 2] == 3
    again = picked(made, batch([5, 6, 7]), Ask([Pick(1, temperature=0)] * 3, drawn, 1))
    assert again.picked[0].tolist() == [int(table[token].argmax()) for token in (5, 6, 7)]


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


@pytest.mark.parametrize("width", [65, 5000, 140_000])
@pytest.mark.parametrize("n_steps", [1, 4])
def test_logits_as_they_were(tmp_path: Path, vulkan: VulkanBackend, width: int, n_steps: int) -> None:
    """Before biases, penalties and masks: the likeliest, the one picked, and the logarithm of the sum."""
    table = (3 * rng.standard_normal((4, width))).astype(np.float32)
    table[:, 4:] -= np.float32(90.0)  # tokens stay below 4, biased and penalised as they are
    table[1, 5:] = -np.inf
    made = table_program(tmp_path, vulkan, table, LIMITS)
    picks = [
        Pick(1, temperature=0),
        Pick(40, biases=((0, -30.0), (1, -30.0), (2, -30.0)), last_n=20, repeat_penalty=1.5),
        Pick(8, last_n=4, repeat_penalty=1.2, presence_penalty=1.0, restricted=n_steps == 1),
    ]
    allowed = Restriction(mask.from_tokens([2, 3], width), [(2, -4.0)])
    restrictions = [Restriction(), Restriction(), allowed] if n_steps == 1 else ()
    pasts = [[], [3, 3, 0], [2, 1]]
    found = picked(made, batch([1, 2, 3]), Ask(picks, numbers(n_steps, 3), 8, pasts, 20, restrictions))
    assert found.raw is not None
    tokens = [1, 2, 3]
    for step in range(n_steps):
        for row, token in enumerate(tokens):
            logits = table[token]
            np.testing.assert_array_equal(found.raw.ids[step, row], best(logits, 20))
            np.testing.assert_array_equal(found.raw.logits[step, row], logits[best(logits, 20)])
            assert found.raw.picked[step, row] == logits[found.picked[step, row]]
            total = np.log(np.exp(logits.astype(np.float64)).sum())
            np.testing.assert_allclose(found.raw.totals[step, row], total, rtol=2e-6, atol=2e-6)
        tokens = found.picked[step].tolist()


def chain(parameters: dict[str, Any], past: list[int]) -> Chain:
    made = Chain.build(SAMPLERS, list(SAMPLERS), parameters, SamplerContext(50))
    for token in past:
        made.accept(token)
    return made


def test_steps_follow_others_that_nobody_has_seen(tmp_path: Path, vulkan: VulkanBackend) -> None:
    table = rng.standard_normal((500, 500)).astype(np.float32)
    made, drawn = table_program(tmp_path, vulkan, table, LIMITS), numbers(12, 2)
    picks = [Pick(20, temperature=0.9), Pick(30, last_n=5, repeat_penalty=1.5)]
    pasts = [[], [9, 8, 7]]
    expected = picked(made, batch([3, 7]), Ask(picks, drawn, 1, pasts=pasts)).picked
    if not made.capabilities.registers:
        pytest.skip("a driver that waits for each commit")
    pending = [made.submit(step_of(batch([3, 7]), Ask(picks, drawn[:4], 1, pasts)))]
    found = []
    for start in (4, 8, None):
        if start:
            ask = Ask(picks, drawn[start : start + 4], 1)
            pending.append(made.submit(step_of(batch([LATEST, LATEST]), ask)))
        found.append(next(pending.pop(0).tokens()).picked)
    assert np.concatenate(found).tolist() == expected.tolist()


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


def interval(pick: Pick, logits: np.ndarray, at: int) -> tuple[float, float]:
    """The numbers that pick candidate ``at``."""
    p = np.exp(logits[: pick.top_k].astype(np.float64) - logits[0])
    n = min(int(np.searchsorted(np.cumsum(p) / p.sum(), pick.top_p)) + 1, int((p >= pick.min_p).sum()))
    sums = np.concatenate([[0], np.cumsum(p[:n] ** (1 / pick.temperature))])
    return sums[at] / sums[-1], sums[at + 1] / sums[-1]


def numbers(n_steps: int, n_seqs: int) -> np.ndarray:
    return rng.random((n_steps, n_seqs), np.float32)


SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"seed": 5},
    {"seed": 6, "temperature": 1.6, "top_k": 60, "top_p": 0.99, "min_p": 0.0},
]
OTHERS = ["gemma3", "gpt-oss", "deepseek2", "rope-yarn-temperature", "mamba", "lfm2-window", "qwen35"]
KINDS_OF_SAMPLING = [
    pytest.param(SAMPLING[0], id="greedy", marks=pytest.mark.nightly),
    pytest.param(SAMPLING[1], id="default", marks=pytest.mark.nightly),
    pytest.param(SAMPLING[2], id="wild"),
]


@pytest.mark.parametrize("sampling", KINDS_OF_SAMPLING)
def test_the_same_text_as_a_token_at_a_time(
    tmp_path: Path, driver: str, sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "SECONDS", 1e9)
    path = tiny_llama(tmp_path / "tiny.gguf", n_vocab=2500)
    prompts = ["a", "the cat sat on the mat", "one two three four five"]
    results = []
    for ahead in (False, True):
        config = {"vulkan": {"driver": driver}}
        settings = load_config({"backend": "vulkan", "n_ctx": 192, "n_parallel": 3, **config})
        with load_model(path, looking(settings, ahead)) as model:
            model.tokenizer.eog = frozenset()
            program = model.engine.runner.program
            calls = count_calls(program, monkeypatch)
            alone = model.generate(prompts[1], max_tokens=50, **sampling)
            in_runs = sum(n for n in calls if n > 1)  # of one sequence: others arrive between any two steps
            made = program._shared.device.n_allocations
            several = model.generate_many(prompts, max_tokens=50, **sampling)
            assert program._shared.device.n_allocations == made
            results.append([alone.tokens, *(each.tokens for each in several)])
    assert results[0] == results[1]
    assert len(results[0][0]) == 50
    assert in_runs > 40, "most tokens of a sequence come in runs of several steps"


@pytest.mark.parametrize("sampling", KINDS_OF_SAMPLING)
def test_the_same_text_where_steps_of_prompts_wait_for_none(
    tmp_path: Path, driver: str, sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
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
        with (
            monkeypatch.context() as patch,
            load_model(path, load_config({**options, "vulkan": {"driver": driver}})) as model,
        ):
            model.tokenizer.eog = frozenset()
            patch.setattr(Runner, "submit", noted)
            if waits:
                patch.setattr(Runner, "has_registers", False)
            results.append([each.tokens for each in model.generate_many(prompts, max_tokens=12, **sampling)])
            assert any(after) != (waits or not model.engine.runner.capabilities.registers)
    assert results[0] == results[1]


GRAMMAR = r"""root ::= "{" item ("," item){2,5} "}"
item ::= "\"name\":" [0-9]{1,3} | "\"the_long_one\":" [a-z]{2,6}
"""
LATE: dict[str, dict[str, Any]] = {
    "grammar": {"grammar": GRAMMAR, "temperature": 0.0},
    "logprobs": {"grammar": GRAMMAR, "seed": 3, "repeat_penalty": 1.3, "temperature": 1.5, "logprobs": 3},
    "warm": {"grammar": GRAMMAR, "seed": 5, "temperature": 1.5},
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1, "seed": 4, "temperature": 0.7},
    "raw": {"seed": 6, "logprobs": 5, "frequency_penalty": 0.5, "logit_bias": {100: 5.0}},
    "sampled": {"seed": 6, "logprobs": 5, "logprobs_sampled": True, "presence_penalty": 0.5},
    "greedy": {"temperature": 0.0, "logprobs": 0},
}


@pytest.mark.parametrize("case", variants(LATE, ["logprobs", "dry", "sampled"]))
def test_nobody_sees_all_logits(tmp_path: Path, driver: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks, DRY and log-probabilities: the device picks, from the first token on, and all is as the host has it."""
    options, path = LATE[case], tiny_llama(tmp_path / "tiny.gguf", n_vocab=2500)
    prompts = ["a", "the cat sat on the mat", "one two three four five"]
    settings = load_config(
        {"backend": "vulkan", "kv_type": "f32", "n_ctx": 256, "n_parallel": 3, "vulkan": {"driver": driver}}
    )
    results = []
    for ahead in (False, True):
        with load_model(path, looking(settings, ahead)) as model:
            if ahead:
                submit = model.engine.runner.submit

                def picking(
                    batch: Batch, ask: Ask | None = None, *more: Any, submit: Any = submit, **options: Any
                ) -> Any:
                    assert ask, "all logits were asked for"
                    return submit(batch, ask, *more, **options)

                monkeypatch.setattr(model.engine.runner, "submit", picking)
            alone = model.generate(prompts[1], max_tokens=20, **options)
            results.append([alone, *model.generate_many(prompts, max_tokens=20, **options)])
    host, device = results
    assert [each.tokens for each in device] == [each.tokens for each in host]
    assert [each.finish_reason for each in device] == [each.finish_reason for each in host]
    for one, other in zip(device, host, strict=True):
        assert (one.logprobs is None) == (other.logprobs is None) == ("logprobs" not in options)
        for mine, its in zip(one.logprobs or [], other.logprobs or [], strict=True):
            assert mine.logprob == pytest.approx(its.logprob, abs=1e-4)
            assert [token for token, _ in mine.top] == [token for token, _ in its.top]
            np.testing.assert_allclose([p for _, p in mine.top], [p for _, p in its.top], atol=1e-4)


@pytest.mark.parametrize("name", variants(OTHERS, ["gpt-oss", "deepseek2", "rope-yarn-temperature", "qwen35"]))
def test_models_with_windows_experts_and_states(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrent states are taken back after wrong guesses."""
    monkeypatch.setattr(lookahead, "SECONDS", 1e9)
    path, results = ZOO[name].write(tmp_path / "model.gguf"), []
    for ahead in (False, True):
        settings = load_config({"backend": "vulkan", "kv_type": "f32", "n_ctx": 128, "n_batch": 4})
        with load_model(path, looking(settings, ahead)) as model:
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
            calls = count_calls(model.engine.runner.program, monkeypatch)
            found = model.generate_many([[3, 5, 7]] * 4, each=each, max_tokens=80, top_k=12, seed=1)
            results.append([each.tokens for each in found])
    assert results[0] == results[1]
    assert len({tuple(tokens) for tokens in results[0]}) == 4
    assert max(calls) in (4, 8, 16)


def looking(settings: Config, ahead: bool) -> Config:
    """The settings with or without steps that the device takes by itself."""
    return replace(settings, lookahead=-1 if ahead else 0)


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


TWO_DEVICES, THREE_DEVICES = ({"vulkan": {"devices": [0] * n}} for n in (2, 3))
ANOTHER_BACKEND = {"n_gpu_layers": 1}


@pytest.mark.parametrize(
    ("where", "sampling"),
    [
        pytest.param(THREE_DEVICES, SAMPLING[0], id="three devices, greedy"),
        pytest.param(TWO_DEVICES, SAMPLING[1], id="two devices, default", marks=pytest.mark.nightly),
        pytest.param(ANOTHER_BACKEND, SAMPLING[0], id="another backend, greedy", marks=pytest.mark.nightly),
        pytest.param(ANOTHER_BACKEND, SAMPLING[2], id="another backend, wild"),
    ],
)
def test_the_last_of_several_devices_picks(
    tmp_path: Path, where: dict[str, Any], sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "SECONDS", 1e9)
    path = tiny_llama(tmp_path / "tiny.gguf", n_vocab=2500)
    options = {"backend": "vulkan", "kv_type": "f32", "n_ctx": 192, "n_parallel": 3, "n_batch": 4}
    prompts = ["a", "the cat sat on the mat", "one two three four five"]
    with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=192) as model:
        expected = model.generate("a", max_tokens=20, temperature=0).tokens
    results = []
    for ahead in (False, True):
        with load_model(path, looking(load_config({**options, **where}), ahead)) as model:
            model.tokenizer.eog = frozenset()
            program = model.engine.runner.program
            calls = count_calls(program, monkeypatch)
            alone = model.generate(prompts[1], max_tokens=50, **sampling)
            in_runs = sum(n for n in calls if n > 1)  # of one sequence: others arrive between any two steps
            several = model.generate_many(prompts, max_tokens=50, **sampling)
            results.append([alone.tokens, *(each.tokens for each in several)])
            if sampling == {"temperature": 0.0}:
                assert model.generate("a", max_tokens=20, temperature=0).tokens[: len(expected)] == expected
    assert results[0] == results[1]
    assert in_runs > 40, "most tokens of a sequence come in runs of several steps"
