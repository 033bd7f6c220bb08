"""Measurements of speculative decoding: pairs of runs in turns, and their table."""

from types import SimpleNamespace
from typing import Any, cast

from pumice.cli.bench import table_of
from pumice.engine import Timings
from pumice.evaluate import drafts
from pumice.model import Model


class Writing:
    """A model that writes twice as fast with drafts, of which two of three tokens are right."""

    def __init__(self, auto: list[str]) -> None:
        self.runs: list[tuple[str, str]] = []
        self.engine = SimpleNamespace(call=lambda generator: self._value(generator, auto))

    def _value(self, generator: Any, auto: list[str]) -> Any:
        running = generator(SimpleNamespace(speculation=SimpleNamespace(auto=auto)))
        next(running)
        try:
            next(running)
        except StopIteration as end:
            return end.value

    def generate(self, prompt: str, *, max_tokens: int, speculate: str, cache_salt: str, **options: Any) -> Any:
        self.runs.append((speculate, cache_salt))
        timings = Timings(generated_tokens=max_tokens, generation_seconds=1.0 if speculate == "off" else 0.5)
        if speculate != "off":
            timings.drafted(3, 2)
        return SimpleNamespace(timings=timings)


def test_each_proposer_is_measured_in_turns_with_none():
    writing = Writing([])
    rows = drafts.measure(cast(Model, writing), ["ngram", "draft"], 11, 3, lambda: None)
    assert [(row.text, row.proposers) for row in rows[:2]] == [("story", "ngram"), ("story", "draft")]
    assert len(rows) == 2 * len(drafts.prompts())
    assert rows[0].result() == {
        "text": "story",
        "speculate": "ngram",
        "tokens_per_second_without": 10.0,
        "tokens_per_second": 20.0,
        "ratio": 2.0,
        "drafts": 3,
        "drafted": 9,
        "accepted": 6,
    }
    first = writing.runs[:8]
    assert [choice for choice, _ in first] == ["ngram", "off", "off", "ngram", "ngram", "off", "off", "ngram"]
    assert len({salt for _, salt in first}) == 4, "a run must not know what an earlier one wrote"
    assert table_of(rows[:1]).splitlines()[1].split() == ["story", "ngram", "10.00", "20.00", "2.00", "67%", "9"]


def test_several_proposers_are_measured_alone_and_together(monkeypatch):
    monkeypatch.setattr(drafts, "local_engine", lambda model: SimpleNamespace(thread=model.engine))
    assert drafts.choices_of(cast(Model, Writing(["ngram", "mtp"])), "auto") == ["ngram", "mtp", "auto"]
    assert drafts.choices_of(cast(Model, Writing(["ngram"])), "auto") == ["ngram"]
    assert drafts.choices_of(cast(Model, Writing([])), "ngram,draft") == ["ngram", "draft", "ngram,draft"]
