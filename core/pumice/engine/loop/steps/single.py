"""Submit a single step of any batch: the program picks the next tokens, or the host chooses them from the logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from pumice.backend.step import Batch
from pumice.engine.drafts.drafts import Draft
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight
from pumice.engine.loop.steps.picked import PickedSteps, ask_of
from pumice.engine.loop.steps.sampled import SampledStep
from pumice.engine.requests.batches import Part, batch_after, batch_of
from pumice.engine.requests.generation import Members, Running


class SingleSteps:
    """Submits single steps."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._plain: tuple[list[int], Batch | None] = [], None  # the latest step, with versions of its tables

    def submit(self, members: Members, drafts: Mapping[Running, Draft], hears: bool) -> Flight:
        """Submit a step; recurrent states are restored after a wrong drafted token.

        ``hears``: whether a layer that drafts may want its hidden states.
        """
        context, can, start = self._context, self._context.can, self._context.now()
        whole = [running for running, n_new in members if running.pending == n_new]
        drafted = {running: draft.tokens for running, draft in drafts.items()}
        with ExitStack() as stack:
            if drafted:
                rows = [(item, n_new + len(drafted[item])) for item, n_new in members if item in drafted]
                stack.enter_context(context.states.taking_back(rows))
            batch = self._batch([running.part(n_new, drafted.get(running, ())) for running, n_new in members])
            graph = context.listening(members, batch) if hears else None
            ask = ask_of(context, batch, whole) if can.max_steps and not drafts and graph is None else None
            pending = context.runner.submit(batch, ask, graph=graph) if graph else context.runner.submit(batch, ask)
            for running, _ in members if can.n_in_flight > 1 else ():
                running.n_ahead = 1
            is_taken = ask is not None or (not whole and can.registers and graph is None)
            submitted = context, start, members, whole, batch, pending, ask
            return (PickedSteps if is_taken else SampledStep)(
                *submitted,
                drafts=drafts,
                repeats=any(running.n_again for running, _ in members),
                hears=graph is not None,
                restoring=stack.pop_all(),
            )

    def _batch(self, parts: Sequence[Part]) -> Batch:
        """Return the batch of a step; it shares arrays with the step before if tokens and positions alone differ."""
        is_plain = not self._context.can.max_steps and all(map(_is_plain, parts))
        versions = [part.place.tables.version for part in parts] if is_plain else []
        last, before = self._plain
        if before is not None and versions == last:
            batch = batch_after(before, parts)
        else:
            batch = batch_of(self._context.cache, parts)
        self._plain = versions, batch if is_plain else None
        return batch


def _is_plain(part: Part) -> bool:
    """Return True if a part is the last token of a text, and nothing else."""
    is_single = len(part.tokens) == len(part.output_rows) == 1
    return is_single and not (part.adapter_scales or part.media or part.place.memory)
