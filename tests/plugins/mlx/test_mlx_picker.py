"""Tokens that the MLX backend picks on the device: its candidates, what it picks of them, and whole generations."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

import pumice
from gguf_files import tiny_llama
from graphs import builder, picked, step_of
from guessing_programs import Cells
from nightly import variants
from pumice.backend import Program
from pumice.backend.pick import Ask, Pick, Restriction
from pumice.backend.step import LATEST, Batch, Limits, Step
from pumice.testing import compile_graph
from pumice_mlx import pick_kernel
from pumice_mlx.backend import MlxBackend

N_VOCAB = 300
LIMITS = Limits(n_ctx=64, n_batch=8, n_outputs=8, n_seqs=3, block_size=8, n_blocks={}, kv_type="f32")
PICKS = [
    Pick(1, temperature=0.0),
    Pick(12, top_p=0.7, min_p=0.1, temperature=1.5),
    Pick(20, top_p=0.95, temperature=0.3),
]


@pytest.fixture(params=[False, True], ids=["operations", "kernel"])
def selects(request: pytest.FixtureRequest, cuda_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Select tokens by MLX's operations, and by the CUDA kernel, emulated."""
    caches = (pick_kernel._kernel, pick_kernel.works)
    if request.param and sys.platform != "linux":
        pytest.skip("threads take turns by ucontext.h")
    for cache in caches:
        cache.cache_clear()
    if request.param:
        monkeypatch.setattr(mx.fast, "cuda_kernel", cuda_kernel, raising=False)
        monkeypatch.setattr(pick_kernel, "is_available", lambda: True)
    assert pick_kernel.works() == request.param
    yield
    for cache in caches:
        cache.cache_clear()


def program(folder: Path, table: np.ndarray) -> Program:
    """The logits of a token are its row of the table."""
    g = builder(folder, {"table": table})
    with g.layer(0):
        graph = g.finish(g.get_rows(g.embedding(g.weight("table"), g.tokens), g.output_ids))
    return compile_graph(MlxBackend(), graph, LIMITS)


def batch(tokens: list[int]) -> Batch:
    each = np.arange(len(tokens), dtype=np.int32)
    starts = np.arange(len(tokens) + 1, dtype=np.int32)
    return Batch(np.array(tokens, np.int32), each + 5, each, starts, each, {})


@pytest.mark.usefixtures("selects")
def test_steps_in_a_row(tmp_path: Path) -> None:
    """Each step's candidates and picks are those of the host for the tokens that the step before picked."""
    rng = np.random.default_rng(4)
    table = (rng.standard_normal((N_VOCAB, N_VOCAB)) * 3).astype(np.float32)
    made, n_steps, n_best = program(tmp_path, table), 4, 20
    assert made.capabilities.max_steps >= n_steps
    assert made.capabilities.picks.best >= n_best
    tokens = [7, 100, 250]
    numbers = rng.random((n_steps, 3)).astype(np.float32)
    ahead = picked(made, batch(tokens), Ask(PICKS, numbers, n_best))
    host = Cells(n_steps)
    for step in range(n_steps):
        for row, pick in enumerate(PICKS):
            logits = table[tokens[row]]
            ids = np.argsort(-logits, kind="stable")[:n_best]
            np.testing.assert_array_equal(ahead.ids[step, row], ids)
            np.testing.assert_array_equal(ahead.logits[step, row], logits[ids])
            assert ahead.picked[step, row] == host.pick(pick, logits[ids], ids, numbers[step, row])
        tokens = ahead.picked[step].tolist()


@pytest.mark.usefixtures("selects")
def test_nan_logits_come_first(tmp_path: Path) -> None:
    table = np.zeros((4, 90), np.float32)
    table[1, 30] = np.nan
    made = program(tmp_path, table)
    for n_best in (1, 5):
        ahead = picked(made, batch([1]), Ask([Pick(n_best, temperature=0.0)], np.zeros((1, 1), np.float32), n_best))
        assert np.isnan(ahead.logits[0, 0, 0])


@pytest.mark.usefixtures("selects")
@pytest.mark.parametrize(
    ("n_vocab", "n_best"), variants([(5000, 20), (5001, 64), (90, 64), (64, 64)], [(5000, 20), (5001, 64), (64, 64)])
)
def test_the_highest_of_many(tmp_path: Path, n_vocab: int, n_best: int) -> None:
    """Ids in descending order of their logits, ties by id, though few groups of logits are sorted."""
    table = np.random.default_rng(1).integers(0, 200, (3, n_vocab)).astype(np.float32)
    ask = Ask([Pick(n_best, temperature=0.0)] * 3, np.zeros((1, 3), np.float32), n_best)
    ahead = picked(program(tmp_path, table), batch([0, 1, 2]), ask)
    ids = np.argsort(-table, axis=-1, kind="stable")[:, :n_best]
    np.testing.assert_array_equal(ahead.ids[0], ids)
    np.testing.assert_array_equal(ahead.logits[0], np.take_along_axis(table, ids, -1))


@pytest.mark.usefixtures("selects")
def test_steps_behind_others_go_on_from_their_tokens(tmp_path: Path) -> None:
    """Two submissions, of which nobody reads the first one before the second, pick what one of both does."""
    rng = np.random.default_rng(4)
    made = program(tmp_path, (rng.standard_normal((N_VOCAB, N_VOCAB)) * 3).astype(np.float32))
    numbers, tokens = rng.random((4, 3)).astype(np.float32), [7, 100, 250]
    together = picked(made, batch(tokens), Ask(PICKS, numbers, 20))
    first = made.submit(step_of(batch(tokens), Ask(PICKS, numbers[:2], 20)))
    second = made.submit(step_of(batch([LATEST] * 3), Ask(PICKS, numbers[2:], 20)))
    parts = [next(pending.tokens()) for pending in (second, first)]
    np.testing.assert_array_equal(np.concatenate([parts[1].picked, parts[0].picked]), together.picked)


@pytest.mark.usefixtures("selects")
@pytest.mark.parametrize("waits", [False, True])
def test_adjusted_logits(tmp_path: Path, waits: bool) -> None:
    """Biases and masks apply before tokens are picked, also if they arrive after the layers began, but not to `raw`."""
    rng = np.random.default_rng(2)
    table = rng.standard_normal((N_VOCAB, N_VOCAB)).astype(np.float32)
    made, tokens, n_best, n_raw = program(tmp_path, table), [7, 100, 250], 12, 4
    mask = np.zeros(-(-N_VOCAB // 32), np.uint32)
    allowed = np.array([3, 31, 32, 64, 290, 299])
    np.bitwise_or.at(mask, allowed // 32, np.uint32(1) << (allowed % 32).astype(np.uint32))
    picks = [
        Pick(n_best, temperature=0.0, restricted=True),
        Pick(n_best, temperature=0.0, biases=((5, 9.0), (9, -2.5)), restricted=True),
        Pick(n_best, temperature=0.0, restricted=True),
    ]
    restrictions = [Restriction(mask), Restriction(biases=[(5, 1.0), (290, 11.5)]), Restriction()]
    ask = Ask(picks, np.zeros((1, 3), np.float32), n_best, n_raw=n_raw, restrictions=[] if waits else restrictions)
    pending = made.submit(step_of(batch(tokens), ask))
    if waits:
        pending.restrict(restrictions)
    (ahead,) = pending.tokens()
    adjusted = table[tokens].copy()
    adjusted[0, ~np.isin(np.arange(N_VOCAB), allowed)] = -np.inf
    adjusted[1, [5, 9, 290]] += np.float32([10.0, -2.5, 11.5])
    for row, logits in enumerate(adjusted):
        n_finite = min(n_best, int(np.isfinite(logits).sum()))
        ids = np.argsort(-logits, kind="stable")[:n_finite]
        np.testing.assert_array_equal(ahead.ids[0, row, :n_finite], ids)
        np.testing.assert_allclose(ahead.logits[0, row, :n_finite], logits[ids], rtol=1e-6)
        assert (ahead.logits[0, row, n_finite:] == -np.inf).all()
        assert ahead.picked[0, row] == ids[0]
    assert ahead.raw is not None
    raw = table[tokens]
    ids = np.argsort(-raw, axis=-1, kind="stable")[:, :n_raw]
    np.testing.assert_array_equal(ahead.raw.ids[0], ids)
    np.testing.assert_array_equal(ahead.raw.logits[0], np.take_along_axis(raw, ids, -1))
    np.testing.assert_array_equal(ahead.raw.picked[0], raw[range(3), ahead.picked[0]])
    np.testing.assert_allclose(ahead.raw.totals[0], np.log(np.exp(raw).sum(-1)), rtol=1e-6)


GRAMMAR = r"""root ::= "{" item ("," item){2,5} "}"
item ::= "\"name\":" [0-9]{1,3} | "\"the_long_one\":" [a-z]{2,6}
"""
OPTIONS: dict[str, dict[str, Any]] = {
    "grammar": {"grammar": GRAMMAR, "temperature": 0.0},
    "warm grammar": {"grammar": GRAMMAR, "seed": 5, "temperature": 1.5, "logprobs": 3},
    "penalties": {"grammar": GRAMMAR, "seed": 3, "repeat_penalty": 1.3, "temperature": 1.5},
    "bias": {"seed": 6, "logprobs": 5, "logit_bias": {100: 5.0}},
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1, "seed": 4, "temperature": 0.7},
    "raw": {"temperature": 0.0, "logprobs": 0},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_adjusted_generations_are_those_of_the_host(tmp_path: Path, options: dict[str, Any]) -> None:
    """Grammars, biases, penalties and log-probabilities, of one sequence and of several."""
    path = tiny_llama(tmp_path / "tiny.gguf", n_vocab=2500)
    prompts, results = ["a", "the cat sat on the mat", "one two three four five"], []
    for most in (0, -1):
        config: dict[str, Any] = {"n_parallel": 3, "lookahead": most, "mlx": {"activations": "float32"}}
        with pumice.load(path, backend="mlx", kv_type="f32", n_ctx=768, config=config) as model:
            alone = model.generate(prompts[1], max_tokens=32, **options)
            results.append([alone, *model.generate_many(prompts, max_tokens=32, **options)])
    for host, device in zip(*results, strict=True):
        assert device.tokens == host.tokens
        assert device.finish_reason == host.finish_reason
        for its, mine in zip(host.logprobs or [], device.logprobs or [], strict=True):
            assert mine.logprob == pytest.approx(its.logprob, abs=1e-4)
            assert [token for token, _ in mine.top] == [token for token, _ in its.top]


@pytest.mark.parametrize("name", ["gemma3", "mamba", "deepseek2-v3"])
def test_generations_are_those_of_the_host(tiny_file: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One sequence and several, sampled and greedy; most steps are taken ahead, with guesses that are right."""
    from pumice_mlx.program import MlxProgram

    behind: list[bool] = []
    submit = MlxProgram.submit

    def counted(self: MlxProgram, step: Step) -> Any:
        if step.ask:
            behind.append(step.batch.takes_from_slots)
        return submit(self, step)

    monkeypatch.setattr(MlxProgram, "submit", counted)
    prompts, texts = [[1, 2, 3], [4, 5], [9] * 20], []
    for backend in ("numpy", "mlx"):
        options = {"backend": backend, "kv_type": "f32", "n_ctx": 512, "n_parallel": 3}
        config = {"mlx": {"activations": "float32"}} if backend == "mlx" else {}
        with pumice.load(tiny_file(name), config=config, **options) as model:
            sampled = model.generate(prompts[0], max_tokens=60, temperature=0.8, seed=3).tokens
            greedy = [each.tokens for each in model.generate_many(prompts, max_tokens=40, temperature=0)]
            texts.append([sampled, *greedy])
    assert texts[0] == texts[1]
    assert any(behind), "steps are submitted before the tokens of earlier ones are read"
