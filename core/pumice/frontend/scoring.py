"""Scores: log-probabilities of the tokens of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from pumice.engine.messages import Logprobs, Score, Terms, check_adapters
from pumice.engine.requests.arguments import NO_PREDICTION
from pumice.errors import PromptTooLongError, RequestError
from pumice.frontend.answer import Answer
from pumice.frontend.engine import ModelEngine, check_open
from pumice.frontend.prompts import prompt_ids
from pumice.options import REQUEST
from pumice.wording import show_python


def scores(
    engine: ModelEngine,
    prompt: str | Sequence[int],
    n_top: int,
    adapters: Mapping[str, float] | None,
    cache_salt: str,
    terms: Terms,
) -> Answer[Sequence[Logprobs]]:
    """Return the answer of ``Model.score``."""

    def begin() -> Future[Sequence[Logprobs]]:
        check_open(engine)
        if not engine.facts.generates or engine.facts.fills_masks:
            raise RequestError(NO_PREDICTION)
        if type(n_top) is not int or n_top < 0:
            raise RequestError(f"n_top must be an integer, at least 0, not {show_python(n_top)}")
        REQUEST["cache_salt"].check(cache_salt)
        ids, n_ctx = prompt_ids(engine, prompt), engine.facts.n_ctx
        if len(ids) > n_ctx:
            raise PromptTooLongError(len(ids), n_ctx)
        check_adapters(adapters)
        if len(ids) < 2:  # nothing predicts the first
            future: Future[Sequence[Logprobs]] = Future()
            future.set_result([])
            return future
        return engine.client.ask(Score, ids, n_top, adapters, cache_salt, terms)

    return Answer(begin, list)
