"""Tokens that the MLX backend picks on the device: its candidates, what it picks of them, and whole generations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from graphs import builder, picked
from guessing_programs import Cells
from pumice.backend import Program
from pumice.backend.pick import Ask, Pick
from pumice.backend.step import Batch, Limits, Step
from pumice.testing import compile_graph
from pumice_mlx.backend import MlxBackend

LIMITS = Limits(n_ctx=64, n_batch=8, n_outputs=8, n_seqs=3, block_size=8, n_blocks={}, kv_type="f32")
PICKS = [
    Pick(1, temperature=0.0),
    Pick(12, top_p=0.7, min_p=0.1, temperature=1.5),
    Pick(20, top_p=0.95, temperature=0.3),
]


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


def test_steps_in_a_row(tmp_path: Path) -> None:
    """Each step's candidates and picks are those of the host for the tokens that the step before picked."""
    rng = np.random.default_rng(4)
    table = (rng.standard_normal((300, 300)) * 3).astype(np.float32)
    made, n_steps, n_best = program(tmp_path, table), 8, 20
    assert made.capabilities.max_steps >= n_steps
    assert made.capabilities.max_best >= n_best
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


def test_what_is_not_a_number_comes_first(tmp_path: Path) -> None:
    table = np.zeros((4, 90), np.float32)
    table[1, 30] = np.nan
    made = program(tmp_path, table)
    for n_best in (1, 5):
        ahead = picked(made, batch([1]), Ask([Pick(n_best, temperature=0.0)], np.zeros((1, 1), np.float32), n_best))
        assert np.isnan(ahead.logits[0, 0, 0])


@pytest.mark.parametrize("name", ["gemma3", "mamba", "deepseek2-v3"])
def test_generations_are_those_of_the_host(tiny_file: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One sequence and several, sampled and greedy; most steps are taken ahead, with guesses that are right."""
    from pumice_mlx.program import MlxProgram

    steps: list[int] = []
    submit = MlxProgram.submit

    def counted(self: MlxProgram, step: Step) -> Any:
        if step.ask:
            steps.append(len(step.ask.numbers))
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
    assert steps
