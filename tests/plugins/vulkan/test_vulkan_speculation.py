"""The device verifies drafts: the texts are those without, or as likely up to the rounding of a GPU."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from drafting import verify_on_device
from equal_texts import unequal, write_model
from nightly import variants
from pumice.architecture import DRAFT
from pumice.backend.step import Pending
from pumice.engine.drafts.block_tokens import BlockTokens
from pumice.engine.drafts.next_tokens import HiddenStates, NextTokens
from pumice.engine.loop.flight import Flight
from pumice.engine.requests.generation import Generation
from pumice.plugin import N_SEQS
from pumice.quantize import QuantizeOptions, quantize
from pumice_vulkan.buckets import Buckets
from pumice_vulkan.lower.rule import MOST_INVARIANT
from reference_models import check_greedy
from tiny_drafts import ALONE, FOR_TARGETS, fitted
from tiny_models import IDS
from tiny_zoo import ZOO

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")

PROMPTS = ["abcabcabcabc", "fe fe fe"]


NEAR = 0.02  # share of the range of logits by which kernels for other numbers of rows differ


def drafted_texts(path: Path, speculate: str, **config: Any) -> tuple[list[Any], int]:
    """Return the tokens of each prompt, and the number of accepted drafted tokens."""
    options: dict[str, Any] = {"n_ctx": 64, "n_batch": 8, "n_parallel": 2}
    with pumice.load(path, backend="vulkan", config={"speculate": speculate, **config}, **options) as model:
        completions = model.generate_many(PROMPTS, max_tokens=30, temperature=0)
    assert all(done.timings.drafts_exact == (not done.timings.n_drafted) for done in completions)
    return [done.tokens for done in completions], sum(done.timings.n_accepted for done in completions)


@pytest.mark.parametrize(
    ("name", "proposer", "seed"),
    variants(
        [("rope-plain", "draft", 0), ("gemma2", "ngram", 1), ("lfm2", "ngram", 2), ("mamba2", "ngram", 3)],
        [("rope-plain", "draft", 0), ("gemma2", "ngram", 1), ("mamba2", "ngram", 3)],
    ),
)
def test_random_requests_give_the_same(tmp_path: Path, name: str, proposer: str, seed: int) -> None:
    """With drafts of any proposer and without, alone and at once."""
    results = list(unequal(name, tmp_path, 8, seed, backend="vulkan", invariant=True))
    assert [request for request, *_ in results if request] == []
    assert sum(n_drafted for _, choice, n_drafted, _ in results if proposer in choice) > 0


def test_nothing_is_drafted_by_default(tmp_path: Path) -> None:
    """Since results depend on the number of rows."""
    tokens, n_accepted = drafted_texts(write_model("rope-plain", tmp_path), "auto")
    assert all(tokens)
    assert n_accepted == 0


def drafting(name: str, folder: Path) -> dict[str, Any]:
    """Return arguments of ``load`` for a model and a draft that reads its layers or caches."""
    target, draft = FOR_TARGETS[name] if name in FOR_TARGETS else ("rope-plain", ALONE[name])
    model = ZOO[target]
    path = (draft if name in FOR_TARGETS else fitted(draft, model)).write(folder / "draft.gguf")
    quantize(model.write(folder / "model.gguf"), folder / "encoded.gguf", "Q8_0")
    return {"path": folder / "encoded.gguf", "draft": str(path), "n_ctx": 256, "n_batch": MOST_INVARIANT}


@pytest.fixture
def head(tmp_path: Path) -> dict[str, Any]:
    """Arguments of ``load`` for a model and an EAGLE-3 head."""
    return drafting("eagle3", tmp_path)


TOKENS = [[*IDS[:9], *IDS[:9]], [5, 6, 7, 5, 6]]


def generated(model: pumice.Model, **options: Any) -> list[Sequence[int]]:
    options = {"max_tokens": 60, "temperature": 0, **options}
    return [done.tokens for done in model.generate_many(TOKENS, **options)]


def test_a_model_with_a_head_computes_steps_by_itself(head: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps whose hidden states the head reads are those of another graph; they verify drafts, too."""
    verify_on_device(monkeypatch)
    config = {"n_draft": 3, "draft_p_min": 0.0}
    with pumice.load(**head, backend="vulkan", n_parallel=2, config=config) as model:
        assert model.engine.runner.capabilities.max_steps > 1
        plain = generated(model, speculate="off")
        done = model.generate(TOKENS[0], max_tokens=60, temperature=0, speculate="draft")
        assert done.timings.n_drafted > 100
    with pumice.load(**head, backend="numpy", config={"speculate": "off"}) as model:
        for prompt, tokens in [*zip(TOKENS, plain, strict=True), (TOKENS[0], done.tokens)]:
            check_greedy(model, prompt, tokens, NEAR)


SAMPLED = {"temperature": 0.7, "top_k": 4, "repeat_penalty": 1.1}


GREEDY = {"temperature": 0}
ROUNDS = [("eagle3", 5, SAMPLED, 1), ("dflash-windows", 7, GREEDY, 1), ("dspark-unsure", 3, GREEDY, 0)]
ROUNDS += [("dflash2", 5, GREEDY, 0), ("gemma4-assistant", 5, SAMPLED, 0)]
MORE = [("eagle3", 1, SAMPLED, 0), ("eagle3", 5, GREEDY, 0), ("dflash", 5, SAMPLED, 0), ("dspark", 3, SAMPLED, 0)]


@pytest.mark.parametrize(("name", "n_draft", "options", "n_skipped"), variants([*ROUNDS, *MORE], ROUNDS))
def test_rounds_stay_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, n_draft: int, options: dict[str, Any], n_skipped: int
) -> None:
    """A draft's tokens are verified before the host knows them: those that it proposes where the host reads them.

    It may begin ``n_skipped`` blocks behind the text, as after a rest.
    """
    config = {"n_draft": n_draft, "draft_p_min": 0.0, "vulkan": {"batch_invariant": True}}
    options = {"max_tokens": 30, "seed": 3, **options}
    prompts = [[*IDS, *IDS][: 33 + len(prompt)] for prompt in TOKENS] if n_skipped else TOKENS
    if n_skipped:
        monkeypatch.setattr(HiddenStates, "_skipped", lambda *_: n_skipped)
    with pumice.load(**drafting(name, tmp_path), backend="vulkan", n_parallel=2, config=config) as model:
        layer = model.engine.thread._engine.speculation.layer
        assert layer is not None
        assert layer.submits(model.engine.runner)
        rounds = _Rounds(layer, monkeypatch)
        for texts in (prompts[:1], prompts):
            plain = model.generate_many(texts, speculate="off", **options)
            for stays in (True, False):
                monkeypatch.setattr(layer, "submits", lambda _, stays=stays: stays)
                # Apart, since the layer did not read cached blocks of a text without drafts.
                drafted = model.generate_many(texts, speculate="draft", cache_salt=f"stays {stays}", **options)
                assert [done.tokens for done in drafted] == [done.tokens for done in plain]
    proposed = {text: draft for text, draft in rounds.proposed.items() if len(draft) == n_draft}
    same = proposed.keys() & rounds.drafted.keys()
    assert len(same) > 40
    assert rounds.submitted.count("submit_after") > rounds.submitted.count("submit") > 0
    assert [rounds.drafted[text] for text in same] == [proposed[text] for text in same]


class _Rounds:
    """What a layer drafts behind each text: in rounds, and for the host."""

    def __init__(self, layer: NextTokens, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drafted: dict[tuple[int, ...], Sequence[int]] = {}
        self.proposed: dict[tuple[int, ...], Sequence[int]] = {}
        self.submitted: list[str] = []
        self._layer = layer
        self._picked: list[list[list[int]]] = []
        self._propose, self._take = layer.propose, Flight._take_tokens
        self._pending: list[Pending] = []
        monkeypatch.setattr(layer, "propose", self.propose)
        for name in ("submit", "submit_after"):
            monkeypatch.setattr(layer, name, partial(self.submit, getattr(layer, name)))
        monkeypatch.setattr(Flight, "_take_tokens", lambda *args: self.take(*args))
        submit_step = layer._runner.submit
        monkeypatch.setattr(layer._runner, "submit", partial(self.submit_step, submit_step))

    def propose(self, sequences: Any, n: Any) -> Any:
        texts = [tuple(running.tokens) for running in sequences]
        drafts = self._propose(sequences, n)
        self.proposed.update(zip(texts, drafts, strict=True))
        return drafts

    def submit_step(self, submit: Any, *args: Any, **options: Any) -> Pending:
        pending: Pending = submit(*args, **options)
        if options.get("graph") == DRAFT:
            self._pending.append(pending)
        return pending

    def submit(self, submit: Any, sequences: Any, *args: Any) -> None:
        self._pending.clear()
        submit(sequences, *args)
        picked = [next(item.tokens()).picked for item in self._pending]
        is_block = isinstance(self._layer, BlockTokens)
        rows = picked[0].reshape(len(sequences), -1) if is_block else np.concatenate(picked).T
        self._picked.append(rows.tolist())
        self.submitted.append(submit.__name__)

    def take(self, flight: Flight, rows: Any) -> set[Generation]:
        if flight.round:
            texts = [tuple(running.tokens) for running in flight.whole]
            self.drafted.update(zip(texts, self._picked.pop(0), strict=True))
        return self._take(flight, rows)


@pytest.mark.parametrize(("name", "n_draft"), variants([("eagle3", 3), ("dflash", 1)], [("eagle3", 3)]))
def test_rounds_of_many_sequences_stay_on_the_device(tmp_path: Path, monkeypatch: Any, name: str, n_draft: int) -> None:
    """Of more than eight, whose steps have more rows than those that ``batch_invariant`` keeps alike.

    All steps of several sequences are as large as the largest, as while a GPU prepares smaller ones.
    """
    of = Buckets.of
    monkeypatch.setattr(Buckets, "of", lambda all, sizes, ready: all.all[-1] if sizes[N_SEQS] > 1 else of(all, sizes))
    verify_on_device(monkeypatch)
    files = {**drafting(name, tmp_path), "n_ctx": 10 * 128, "n_batch": 128}
    prompts = [IDS[i : i + 6] for i in range(10)]  # read in one step
    config = {"n_draft": n_draft, "draft_p_min": 0.0}
    with pumice.load(**files, backend="vulkan", n_parallel=10, config=config) as model:
        layer = model.engine.thread._engine.speculation.layer
        assert layer is not None
        sizes: list[int] = []
        submit = layer.submit
        monkeypatch.setattr(layer, "submit", lambda items, n: sizes.append(len(items)) or submit(items, n))
        drafted = model.generate_many(prompts, max_tokens=24, temperature=0, speculate="draft")
    assert max(sizes) > 8
    assert sum(done.timings.n_drafted for done in drafted) > 80 * n_draft
    with pumice.load(files["path"], backend="numpy", n_ctx=128) as model:
        for prompt, done in zip(prompts, drafted, strict=True):
            check_greedy(model, prompt, done.tokens, NEAR)


@pytest.mark.parametrize(
    ("n_draft", "options"), variants([(1, SAMPLED), (5, SAMPLED), (5, {"temperature": 0})], [(5, SAMPLED)])
)
def test_rounds_of_a_draft_model_stay_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_draft: int, options: dict[str, Any]
) -> None:
    """A draft model's tokens are verified before the host knows them; they are right as often as its proposals."""
    path, other = write_model("rope-plain", tmp_path), tmp_path / "other.gguf"
    quantize(path, other, "Q4_0", options=QuantizeOptions(allow_requantize=True))
    config = {"n_draft": n_draft, "draft_p_min": 0.0, "vulkan": {"batch_invariant": True}, "draft": str(other)}
    options = {"max_tokens": 40, "seed": 3, **options}
    with pumice.load(path, backend="vulkan", n_parallel=2, config=config, n_ctx=128, n_batch=MOST_INVARIANT) as model:
        drafter = model.engine.thread._engine.speculation.drafters["draft"]
        assert drafter.submits(model.engine.runner)
        plain, n_accepted = model.generate_many(PROMPTS, **options, speculate="off"), []
        for method in ("propose", "submit"):
            with monkeypatch.context() as patch:
                patch.setattr(drafter, method, None)
                patch.setattr(drafter, "submits", lambda _, method=method: method == "propose")
                done = model.generate_many(PROMPTS, **options, speculate="draft")
            assert [item.tokens for item in done] == [item.tokens for item in plain]
            assert sum(item.timings.n_drafted for item in done) > 20
            n_accepted.append(sum(item.timings.n_accepted for item in done))
    assert n_accepted[0] > 10
    assert abs(n_accepted[0] - n_accepted[1]) <= n_draft * len(PROMPTS)  # at the end of each text
