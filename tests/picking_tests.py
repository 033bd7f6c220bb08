"""Tokens that a program picks on its device, for the tests of each backend that does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama
from graphs import picked, step_of, table_program
from nightly import crossed
from pumice.backend import Backend
from pumice.backend.pick import Ask, Pick, Restriction
from pumice.backend.step import LATEST, Batch, Limits
from pumice.sampler import mask

LIMITS = Limits(n_ctx=64, n_batch=8, n_outputs=8, n_seqs=3, block_size=8, n_blocks={}, kv_type="f32")
rng = np.random.default_rng(11)

PICKS = [
    Pick(40),
    Pick(64, temperature=0.3),
    Pick(7, top_p=0.8),
    Pick(40, min_p=0.3, temperature=1.7),
    Pick(40, 0.95, 0.05, 0.8),
    Pick(20, top_p=1e-6),
    Pick(1),
]
GRAMMAR = r"""root ::= "{" item ("," item){2,5} "}"
item ::= "\"name\":" [0-9]{1,3} | "\"the_long_one\":" [a-z]{2,6}
"""
REQUESTS: dict[str, dict[str, Any]] = {
    "grammar": {"grammar": GRAMMAR, "temperature": 0.0},
    "logprobs": {"grammar": GRAMMAR, "seed": 3, "repeat_penalty": 1.3, "temperature": 1.5, "logprobs": 3},
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1, "seed": 4, "temperature": 0.7},
    "raw": {"seed": 6, "logprobs": 5, "frequency_penalty": 0.5, "logit_bias": {100: 5.0}},
    "sampled": {"seed": 6, "logprobs": 5, "logprobs_sampled": True, "presence_penalty": 0.5},
}


def batch(tokens: list[int]) -> Batch:
    each = np.arange(len(tokens), dtype=np.int32)
    starts = np.arange(len(tokens) + 1, dtype=np.int32)
    return Batch(np.array(tokens, np.int32), each + 5, each, starts, each, {})


def best(logits: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-logits, kind="stable")[:k]


def numbers(n_steps: int, n_seqs: int) -> np.ndarray:
    return rng.random((n_steps, n_seqs), np.float32)


def check_pick(pick: Pick, logits: np.ndarray, at: int, number: float) -> None:
    """Check that a number picks candidate ``at`` of descending logits."""
    p = np.exp(logits[: pick.top_k].astype(np.float64) - logits[0])
    n = min(int(np.searchsorted(np.cumsum(p) / p.sum(), pick.top_p)) + 1, int((p >= pick.min_p).sum()))
    sums = np.concatenate([[0], np.cumsum(p[:n] ** (1 / pick.temperature))])
    assert sums[at] / sums[-1] - 1e-5 <= number <= sums[at + 1] / sums[-1] + 1e-5


class PickingTests:
    """A subclass has ``backend`` as a fixture, and the options of ``load`` for models on it."""

    options: dict[str, Any]

    @pytest.mark.parametrize(("width", "n_best"), crossed([65, 2048, 2049, 5000, 140_000], [64, 1, 2]))
    def test_the_highest_of_any_number(self, tmp_path: Path, backend: Backend, width: int, n_best: int) -> None:
        table = rng.standard_normal((6, width)).astype(np.float32)
        table[1] = np.round(table[1])  # many are equal
        table[2] = 0
        table[3] = np.where(rng.random(width) < 0.5, -0.0, 0.0)
        table[4] = -np.abs(table[4]) * 1e30
        table[5, 3:] = -np.inf
        made = table_program(tmp_path, backend, table, LIMITS)
        for tokens in ([0], [1], [2, 3], [4, 5, 0]):
            n = len(tokens)
            found = picked(made, batch(tokens), Ask([Pick(n_best, temperature=0)] * n, numbers(1, n), n_best))
            for row, token in enumerate(tokens):
                expected = best(table[token], n_best)
                np.testing.assert_array_equal(found.ids[0, row], expected)
                np.testing.assert_array_equal(found.logits[0, row], table[token][expected])
                assert found.picked[0, row] == expected[0]

    @pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001])
    def test_nan_comes_first(self, tmp_path: Path, backend: Backend, bits: int) -> None:
        table = rng.standard_normal((1, 3000)).astype(np.float32)
        table.view(np.uint32)[0, 2500] = bits
        made = table_program(tmp_path, backend, table, LIMITS)
        for n_best in (1, 40):
            found = picked(made, batch([0]), Ask([Pick(n_best)], numbers(1, 1), n_best))
            assert np.isnan(found.logits[0, 0]).tolist() == [True] + [False] * (n_best - 1)

    def test_each_step_goes_on_with_what_the_one_before_picked(self, tmp_path: Path, backend: Backend) -> None:
        table = (2 * rng.standard_normal((500, 500))).astype(np.float32)
        made = table_program(tmp_path, backend, table, LIMITS)
        most = made.capabilities.max_steps
        for first in range(0, len(PICKS), LIMITS.n_seqs):
            picks = [*PICKS, *PICKS][first : first + LIMITS.n_seqs]
            n_steps = min(2 if first else 16, most)
            drawn = numbers(n_steps, LIMITS.n_seqs)
            found = picked(made, batch([9, 8, 7]), Ask(picks, drawn, 64))
            tokens = [9, 8, 7]
            for step in range(n_steps):
                for row, pick in enumerate(picks):
                    ids = best(table[tokens[row]], 64)
                    np.testing.assert_array_equal(found.ids[step, row], ids)
                    at = ids.tolist().index(found.picked[step, row])
                    check_pick(pick, table[tokens[row]][ids], at, drawn[step, row])
                tokens = found.picked[step].tolist()

    def test_steps_follow_others_that_nobody_has_seen(self, tmp_path: Path, backend: Backend) -> None:
        """Submissions, of which nobody reads one before the next, pick what a single one does."""
        table = (3 * rng.standard_normal((500, 500))).astype(np.float32)
        made, drawn = table_program(tmp_path, backend, table, LIMITS), numbers(4, 3)
        if not made.capabilities.registers:
            pytest.skip("a driver that waits for each commit")
        together = picked(made, batch([7, 100, 250]), Ask(PICKS[:3], drawn, 64))
        first = made.submit(step_of(batch([7, 100, 250]), Ask(PICKS[:3], drawn[:2], 64)))
        second = made.submit(step_of(batch([LATEST] * 3), Ask(PICKS[:3], drawn[2:], 64)))
        parts = [next(pending.tokens()) for pending in (first, second)]
        np.testing.assert_array_equal(np.concatenate([part.picked for part in parts]), together.picked)

    @pytest.mark.parametrize(("width", "waits"), crossed([300, 5000], [True, False]))
    def test_adjusted_logits(self, tmp_path: Path, backend: Backend, width: int, waits: bool) -> None:
        """Biases and masks count, also those that arrive after the layers began, but not for the model's own logits.

        Without them nothing of the step before is left.
        """
        table = rng.standard_normal((251, width)).astype(np.float32)
        made, tokens, n_best, n_raw = table_program(tmp_path, backend, table, LIMITS), [7, 100, 250], 12, 4
        allowed = [3, 31, 32, 64, 290, 299]
        picks = [
            Pick(n_best, temperature=0.0, restricted=True),
            Pick(n_best, temperature=0.0, biases=((5, 9.0), (9, -2.5)), restricted=True),
            Pick(n_best, restricted=True),
        ]
        restrictions = [Restriction(mask.from_tokens(allowed, width)), Restriction(biases=[(5, 1.0), (290, 11.5)])]
        restrictions.append(Restriction())
        drawn, later = numbers(1, 3), waits and made.capabilities.registers
        ask = Ask(picks, drawn, n_best, [[]] * 3, n_raw, restrictions=[] if later else restrictions)
        pending = made.submit(step_of(batch(tokens), ask))
        if later:
            pending.restrict(restrictions)
        (ahead,) = pending.tokens()
        adjusted = table[tokens].copy()
        adjusted[0, ~np.isin(np.arange(width), allowed)] = -np.inf
        adjusted[1, [5, 9, 290]] += np.float32([10.0, -2.5, 11.5])
        for row, logits in enumerate(adjusted):
            n_finite = min(n_best, int(np.isfinite(logits).sum()))
            ids = best(logits, n_finite)
            np.testing.assert_array_equal(ahead.ids[0, row, :n_finite], ids)
            np.testing.assert_allclose(ahead.logits[0, row, :n_finite], logits[ids], rtol=1e-6)
            assert (ahead.logits[0, row, n_finite:] == -np.inf).all()
            at = ids.tolist().index(ahead.picked[0, row])
            assert at == 0 if row < 2 else check_pick(picks[row], logits[ids], at, drawn[0, row]) is None
        self.check_raw(ahead.raw, table[tokens], ahead.picked[0], n_raw)
        again = picked(made, batch(tokens), Ask([Pick(1, temperature=0)] * 3, drawn, 1))
        assert again.picked[0].tolist() == table[tokens].argmax(axis=1).tolist()

    def check_raw(self, raw: Any, logits: np.ndarray, tokens: np.ndarray, n_raw: int) -> None:
        """Check what is told of a step's logits before adjustments."""
        assert raw is not None
        for row, own in enumerate(logits):
            np.testing.assert_array_equal(raw.ids[0, row], best(own, n_raw))
            np.testing.assert_array_equal(raw.logits[0, row], own[best(own, n_raw)])
            assert raw.picked[0, row] == own[tokens[row]]
            total = np.log(np.exp(own.astype(np.float64)).sum())
            np.testing.assert_allclose(raw.totals[0, row], total, rtol=2e-6, atol=2e-6)

    @pytest.mark.parametrize("name", REQUESTS)
    def test_texts_are_those_that_the_host_picks(self, tmp_path: Path, name: str) -> None:
        """Grammars, biases, penalties, DRY and log-probabilities, of one sequence and of several."""
        path, request = tiny_llama(tmp_path / "tiny.gguf", n_vocab=2500), REQUESTS[name]
        prompts, results = ["a", "the cat sat on the mat", "one two three four five"], []
        for lookahead in (0, -1):
            config = {"n_parallel": 3, "lookahead": lookahead, **self.options.get("config", {})}
            options = {"kv_type": "f32", "n_ctx": 256, **self.options, "config": config}
            with pumice.load(path, **options) as model:
                alone = model.generate(prompts[1], max_tokens=20, **request)
                results.append([alone, *model.generate_many(prompts, max_tokens=20, **request)])
        for host, device in zip(*results, strict=True):
            assert (device.tokens, device.finish_reason) == (host.tokens, host.finish_reason)
            assert (host.logprobs is None) == (device.logprobs is None) == ("logprobs" not in request)
            for its, mine in zip(host.logprobs or [], device.logprobs or [], strict=True):
                assert mine.logprob == pytest.approx(its.logprob, abs=1e-4)
                assert [token for token, _ in mine.top] == [token for token, _ in its.top]
                np.testing.assert_allclose([p for _, p in mine.top], [p for _, p in its.top], atol=1e-4)
