"""Speculative decoding: draft the next tokens of sequences, and verify them in one step (arXiv:2211.17192).

A draft is a guess of the tokens that the sampler chain will choose. The chain chooses every token from the model's
logits, with or without drafts; if its choice equals the drafted token, the logits of the next position exist already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.backend.step import Batch, Limits, Pending
from pumice.engine.acceptance import CERTAIN
from pumice.engine.device_drafts import DeviceDrafts
from pumice.engine.draft_length import LOOKED_UP, MOST_PACED, PACED_REST, DraftLength, Rest
from pumice.engine.draft_model import DraftModel, ModelProposer
from pumice.engine.draft_steps import Drafter
from pumice.engine.drafts import Draft, draft_of, forced_draft, held_drafts, may_draft, most_drafted
from pumice.engine.generation import Generation, Running
from pumice.engine.host_drafts import HostDrafts, Names
from pumice.engine.kv_cache import KVCache
from pumice.engine.next_tokens import MOST_ROWS, NextTokens
from pumice.engine.rounds import Rounds
from pumice.engine.runner import Runner
from pumice.engine.schedule import Members
from pumice.engine.sequence_proposers import DRAFT_MODEL, NEVER, NGRAM, PREDICTION, ProposerPool, SequenceProposers
from pumice.proposers import COMPUTED, Proposal, Proposer

ENOUGH = 4.0  # expected accepted tokens of a draft above which no further proposer is asked
UNMEASURED = 15  # drafted tokens where results depend on the number of rows, unless ``n_draft`` is set
MEASURING, RECORDING, STARTING, CLOSING = " measuring", " recording", " starting", " closing"
"""Work whose time is charged like that of proposers."""
LISTENED = 48  # steps before the end of a rest, or tokens of a prompt, whose hidden states a drafting layer keeps


class Speculation:
    """Creates the proposers of each sequence, and chooses the drafts of each step.

    Proposers whose drafts do not pay rest: those that look them up by sequence, those that compute them for all
    sequences. A step in which all rest costs nothing: texts are passed to proposers when they are asked next.

    Args:
        proposers: factories of proposers by name.
        auto: names of the proposers that the choice ``auto`` selects.
        default: choice of requests without their own.
        n_draft: drafted tokens per sequence and step; -1: as many as measurements recommend.
        is_invariant: whether results are independent of the number of rows. If not, measured lengths could change a
            text from run to run, so -1 means ``UNMEASURED``, unless the program ``runs_ahead``.
        next_tokens: the drafting layer of the model or of its draft model, if there is one.
        runs_ahead: whether the program computes several steps by itself. Then drafts of the host are limited to where
            they pay beside these (``HostDrafts``), and lengths are measured, unless ``n_draft`` is set.

    Attributes:
        clock: measures the seconds of steps and proposers.
        is_exact: True if texts are the same with drafts and without.
        model: the draft model, if there is one.
        runners: those of the model and its draft model, which count steps of new sizes.
    """

    def __init__(
        self,
        proposers: Mapping[str, Callable[[], Proposer]],
        auto: Sequence[str] = (),
        default: str = "off",
        n_draft: int = -1,
        is_invariant: bool = False,
        next_tokens: NextTokens | None = None,
        runs_ahead: bool = False,
    ) -> None:
        self.length = DraftLength(n_draft if n_draft >= 0 or is_invariant or runs_ahead else UNMEASURED)
        self.device = DeviceDrafts(n_draft)
        self.host = HostDrafts() if runs_ahead and n_draft < 0 else None
        self.rounds = Rounds()
        self.model: DraftModel | None = None
        self.clock: Callable[[], float] = time.thread_time
        self.runners: Sequence[Runner] = ()
        self.next_tokens = next_tokens
        self.is_exact = is_invariant
        self._pool = ProposerPool(proposers, auto, default, next_tokens, self.length)
        self._rests = {name: Rest() for name in COMPUTED}
        self._asked: dict[str, list[Generation]] = {}  # sequences for which the current step asked, by kind of proposer
        self._reading = 0.0  # seconds that the layer read since it was asked
        self.gives_up = False  # True if the current step's proposers were not asked, since no draft of theirs can pay
        self._is_measured = False  # True if the current step's time is recorded
        self._n_steps = 0
        self._n_recorded = 0  # number of the latest recorded step
        self._wakes = 0  # number of the next step of the same sequences in which a proposer may be asked
        self._seen: list[int] = []  # identities of the last step's sequences

    @property
    def names(self) -> Collection[str]:
        """Names of proposers that requests may choose."""
        return self._pool.factories

    @property
    def auto(self) -> list[str]:
        """Names of the proposers that the choice ``auto`` selects."""
        return self._pool.auto

    @property
    def is_default(self) -> bool:
        """True if requests without a choice of their own have proposers."""
        return bool(self._pool.chosen())

    def prepare(self, drafter: DraftModel | None) -> None:
        """Prepare drafts of the layer or of a draft model, if the program computes steps by itself beside them."""
        if self.host is None and self.length.fixed < 0:
            return
        lengths = self.length.paced_lengths
        for name, model in (
            (DRAFT_MODEL, drafter),
            (self.next_tokens.name if self.next_tokens else "", self.next_tokens),
        ):
            if model is not None and lengths and name in self._pool.chosen():
                model.prepare(lengths)

    @property
    def n_started(self) -> int:
        """Number of sizes of steps that were computed, the first of which contains preparation that is done once."""
        return sum(runner.n_started for runner in self.runners)

    def wake(self) -> None:
        """Ask in the next step that there is credit for: a sequence was admitted, whose proposers do not rest."""
        self._wakes = min(self._wakes, self._n_steps + self.length.recovers)

    @property
    def n_free(self) -> int:
        """The number of steps, from the current one on, after whose first no proposer is asked; at least one."""
        return max(1, self._wakes - self._n_steps)

    def chosen(self, members: Members) -> Names:
        """Return the names of the proposers of all members."""
        return frozenset(name for running, _ in members for name in self._pool.names(running.generation))

    def lone_layer(self, members: Members) -> NextTokens | None:
        """Return the layer that drafts if no other computes drafts of members, and it passes them on the device."""
        layer = self.next_tokens
        if layer is None or any(self._pool.computing(running.generation) != [layer.name] for running, _ in members):
            return None
        return layer if layer.submits() else None

    def drafter(self, members: Members) -> Drafter | None:
        """Return what drafts in rounds if no other computes drafts of members: the layer, or the draft model."""
        if layer := self.lone_layer(members):
            return layer
        if self.model is None or any(self._pool.computing(item.generation) != [DRAFT_MODEL] for item, _ in members):
            return None
        return _ModelRounds(self, self.model) if self.model.submits(self.runners[0]) else None

    def looks_up(self, members: Members) -> bool:
        """Return True if a draft that is looked up promises enough, so that none is to be computed."""
        sequences = [running for running, _ in members]
        if all(set(self._pool.names(running.generation)) <= set(COMPUTED) for running in sequences):
            return False
        self._read_texts([running.generation for running in sequences])
        return max(list(map(self._looks_up, sequences)))  # of all, whose texts are up to date then

    def _looks_up(self, running: Running) -> bool:
        """Return True if a draft that is looked up for a sequence promises enough.

        Otherwise it is compared with the tokens that follow, and proposers that found nothing rest.
        """
        own, most = self._pool[running.generation], min(MOST_PACED, max(0, most_drafted(running)))
        if own.rest.wakes > self._n_steps or not most:
            return False
        best = Draft(CERTAIN, ())
        for name in [name for name in own.by_name if name not in COMPUTED]:
            draft = draft_of(name, self._pool.ask(name, [running], [most])[0], running.generation)
            best = max(best, draft, key=lambda item: self._promise(item, own))
        if not best.tokens:
            own.rest.sleep(self._n_steps, PACED_REST)
            return False
        own.rest.end()
        own.unverified, own.n_before = best, len(running.generation.generated)
        return self._promise(best, own) >= ENOUGH

    def model_proposers(self, sequences: Sequence[Running]) -> list[ModelProposer] | None:
        """Return the draft model's proposers of sequences, with all tokens; None after an error of one."""
        generations = [running.generation for running in sequences]
        self._read_texts(generations)
        proposers = [self._pool.updated(generation).model for generation in generations]
        of_model = [proposer for proposer in proposers if proposer]
        return of_model if len(of_model) == len(proposers) else None

    def round_length(self, sequences: Sequence[Running], kind: Hashable, lengths: Sequence[int]) -> int:
        """Return the number of tokens that the layer drafts of each sequence in a round; 0: none.

        ``lengths``: numbers that the program verifies, ascending.
        """
        most = max(lengths, default=0)
        for running in sequences:
            generation = running.generation
            room = generation.n_ctx - len(generation.tokens)
            most = min(most, room, most if generation.request.n_draft is None else generation.request.n_draft)
        possible = [n for n in lengths if n <= min(most, self.length.longest)]
        if self.length.fixed > self.length.longest:  # more than the layer drafts
            return max(possible, default=0)
        return min(self.length.fixed, most) if self.length.fixed >= 0 else self.rounds.length(kind, possible)

    def guessed(self, running: Running, tokens: Sequence[int]) -> None:
        """Note tokens that the draft model has in its cache behind the text of a sequence."""
        own = self._pool.get(running.generation)
        if own and own.model and own.model.place is not None:
            own.model.guessed = list(tokens)

    def drop_drafter(self, drafter: Drafter, sequences: Sequence[Running], error: Exception) -> None:
        """Let sequences go on without what drafts in rounds, the layer or the draft model, after an error of it."""
        name = drafter.name if isinstance(drafter, NextTokens) else DRAFT_MODEL
        for running in sequences:
            if isinstance(drafter, NextTokens):
                drafter.drop(running)
            self._pool.drop(running.generation, name, "submit", error)

    def passed(self, n_steps: int) -> None:
        """Count steps that were submitted without asking for drafts."""
        self._n_steps += n_steps

    def draft(self, members: Members, cache: KVCache, limits: Limits, most: int | None = None) -> dict[Running, Draft]:
        """Return the drafts for the members of a step, of ``most`` tokens each, and hold cache blocks for them."""
        self._n_steps, self.gives_up = self._n_steps + 1, False
        ids = [id(running) for running, _ in members]
        if ids != self._seen:
            self._seen = ids
            self.wake()
        if self._n_steps < self._wakes:
            return {}
        began, self._asked = self.clock(), {}
        if not any(self._pool.names(running.generation) for running, _ in members):
            self._wakes = NEVER
            return {}
        n_rows = sum(n_new for _, n_new in members)
        self._is_measured = all(may_draft(running, n_new) for running, n_new in members)
        if not self._is_measured or not self.length.wants(len(members), n_rows, self._n_steps - self._n_recorded):
            self.length.charge(MEASURING, self.clock() - began)
            return {}
        self._read_texts([running.generation for running, _ in members])
        started = self.clock()  # the time until here belongs to the prompt
        room = min(limits.n_batch - n_rows, limits.n_outputs - len(members))
        longest = min(room, self.length.most(len(members), n_rows), room if most is None else most)
        drafts, computing = self._propose([running for running, _ in members], longest, n_rows)
        held: dict[Running, Draft] = {}
        if any(draft.tokens for draft in drafts):
            held = held_drafts(members, drafts, self._lengths(members, drafts, room), cache)
            self._keep_unverified(members, drafts, held)
        self.length.asked(LOOKED_UP, self.clock() - started - computing)
        return held

    def took(self, members: Members, drafts: Mapping[Running, Draft], seconds: float) -> None:
        """Record the accepted tokens and the time of a step.

        Args:
            members: sequences of the step.
            drafts: drafts that the step verified.
            seconds: time of the step.
        """
        if not self._is_measured and not drafts:
            return
        began = self.clock()
        for running, draft in drafts.items():
            n_drafted, generation = len(draft.tokens), running.generation
            generation.timings.drafted(n_drafted, draft.n_accepted, draft.kind[0] == PREDICTION)
            generation.timings.drafts_exact = self.is_exact
            if generation in self._pool:  # it did not fail meanwhile
                proposers = self._pool.updated(generation)
                self.length.acceptance.judge(draft.summary(proposers.record), draft.n_accepted)
                if draft.n_asked:
                    self.length.computed(draft.kind[0], draft.n_accepted, draft.has_ended)
                proposers.judge(draft)
        if self._is_measured:
            self._is_measured = False
            n_rows, n_drafted = sum(n_new for _, n_new in members), sum(len(draft.tokens) for draft in drafts.values())
            n_saved = sum(draft.n_accepted - draft.n_forced for draft in drafts.values())
            judging = self.clock() - began if drafts else 0.0
            n_elapsed, self._n_recorded = self._n_steps - self._n_recorded, self._n_steps
            self.length.took(len(members), n_rows, n_drafted, n_saved, seconds, judging, n_elapsed)
            if self.length.fixed < 0:
                self.length.charge(RECORDING, 2 * (self.clock() - began - judging))  # with the rests below
                self._rest(members, {running.generation: draft for running, draft in drafts.items()})

    def _rest(self, members: Members, drafts: Mapping[Generation, Draft]) -> None:
        """Let the proposers rest whose drafts did not pay, and find the step in which some are asked next."""
        step, wakes = self._n_steps, []
        for kind, asked in self._asked.items():
            tried = {item: draft for item in asked if (draft := drafts.get(item)) and draft.proposer == kind}
            if kind != LOOKED_UP:
                self._adapt(self._rests[kind], tried.values(), kind, len(members))
                continue
            for item in asked:
                if own := self._pool.get(item):
                    self._adapt(own.rest, [tried[item]] if item in tried else [], kind, len(members))
        if self.next_tokens and self._rests[self.next_tokens.name].wakes > step + LISTENED:
            self.next_tokens.forget()
        elif self._rests[DRAFT_MODEL].wakes > step + LISTENED:
            self._pool.skip_texts()
        for running, _ in members:
            own = self._pool.get(running.generation)
            wakes.append(own.rest.wakes if own else 0)
            wakes += [self._rests[name].wakes for name in COMPUTED if own and name in own.by_name]
        self._wakes = max(min(wakes), step + self.length.recovers)

    def _adapt(self, rest: Rest, tried: Collection[Draft], kind: str, n_seqs: int) -> None:
        """Let proposers rest if no draft of theirs was verified; no longer if a token of one was accepted."""
        if not tried:
            rest.sleep(self._n_steps, self.length.longest_rest(kind, n_seqs, rest.n_vain))
        elif any(draft.n_accepted for draft in tried):
            rest.end()
        else:
            rest.n_vain += 1

    @property
    def _listens(self) -> bool:
        """True if the layer that drafts does not rest, or only for a few more steps."""
        layer = self.next_tokens
        if layer is None or layer.is_off:
            return False
        return self._n_steps + LISTENED >= max(self._wakes, self._rests[layer.name].wakes)

    def hears(self, members: Members) -> bool:
        """Return True if the layer that drafts keeps hidden states of a step with these members."""
        if not self._listens:
            return False
        assert self.next_tokens is not None
        name, most = self.next_tokens.name, self._most_heard
        listening = [
            item for item, n in members if item.pending - n < most and name in self._pool.names(item.generation)
        ]
        return bool(listening) and not (self.host and self.host.rests(self.chosen(members)))

    def missing(self, members: Members) -> list[Running]:
        """Return the sequences whose latest hidden states the layer lacks, if it is to draft in the next step."""
        layer = self.next_tokens
        if layer is None or self._n_steps + 1 < self._rests[layer.name].wakes:
            return []
        return [item for item, _ in members if layer.name in self._pool.names(item.generation) and layer.misses(item)]

    @property
    def _most_heard(self) -> int:
        """The maximum number of hidden states of a step that the layer keeps of a sequence."""
        return MOST_ROWS if self.length.fixed >= 0 or self.length.earns else LISTENED

    def landed(self, batch: Batch, members: Members, stream: NDArray[np.float32]) -> None:
        """Pass the rows ``stream [n_tokens, n_stream]`` of a step to the layer that drafts.

        While drafts do not pay, it gets the end of a prompt alone. After an error, the layer drafts no more for the
        sequence.
        """
        layer = self.next_tokens
        assert layer is not None
        if not self._listens:
            return
        began = self.clock()
        most = self._most_heard
        drafting = [
            (i, item)
            for i, (item, _) in enumerate(members)
            if item.pending < most and layer.name in self._pool.names(item.generation)
        ]
        stream = stream.copy() if drafting else stream  # before the layer runs
        for index, running in drafting:
            try:
                layer.landed(batch, index, running, stream, most)
            except Exception as error:
                layer.drop(running)
                self._pool.drop(running.generation, layer.name, "landed", error)
        if all(n_new == 1 for _, n_new in members):  # else the time belongs to the prompt
            self._reading += self.clock() - began

    def matches_text(self, generation: Generation) -> bool:
        """Return True if the only drafts of a sequence are continuations of matches in its text."""
        return list(self._pool.names(generation)) == [NGRAM]

    def close(self, generation: Generation) -> None:
        """Pass the last tokens of an ended sequence to its proposers, and close them."""
        self.device.close(generation)
        if generation in self._pool:
            began = self.clock()
            self._pool.close(generation)
            self.length.charge(CLOSING, self.clock() - began)

    def _lengths(self, members: Members, drafts: Sequence[Draft], room: int) -> Sequence[int]:
        """Return the number of tokens of each draft that the step verifies, ``room`` rows at most."""
        records = [self._pool[running.generation].record for running, _ in members]
        summaries = [draft.summary(record) for draft, record in zip(drafts, records, strict=True)]
        return self.length.choose(summaries, sum(n_new for _, n_new in members), room)

    def _keep_unverified(self, members: Members, drafts: Sequence[Draft], held: Collection[Running]) -> None:
        """Keep the drafts that the step does not verify, to compare them with the tokens that follow."""
        for (running, _), draft in zip(members, drafts, strict=True):
            if draft.tokens:
                own = self._pool[running.generation]
                own.unverified = None if running in held else draft
                own.n_before = len(running.generation.generated)

    def _read_texts(self, generations: Sequence[Generation]) -> None:
        """Create the proposers of new sequences, and let a draft model read a part of its new texts."""
        began, new = self.clock(), [item for item in generations if item not in self._pool]
        rests = self._n_steps < self._rests[DRAFT_MODEL].wakes
        self._pool.start(new, skip_text=rests)
        if new:
            self.length.charge(STARTING, self.clock() - began)
        if not rests:
            self._pool.read_texts(generations)

    def _propose(self, sequences: Sequence[Running], longest: int, n_rows: int) -> tuple[list[Draft], float]:
        """Return the most promising draft of each sequence, and the seconds of proposers that compute theirs.

        A draft has ``longest`` tokens at most; it may be empty. The step has ``n_rows`` rows without drafts.
        """
        owners = [self._pool[running.generation] for running in sequences]
        most = [max(0, min(most_drafted(running), longest)) for running in sequences]
        drafts, computing = [Draft(CERTAIN, ()) for _ in sequences], 0.0
        awake = [i for i, own in enumerate(owners) if own.rest.wakes <= self._n_steps]
        self._note_asked(LOOKED_UP, awake, sequences)
        for i in awake:
            drafts[i] = forced_draft(sequences[i].generation, most[i] if owners[i].by_name else 0)
        for name in dict.fromkeys(name for own in owners for name in own.by_name):
            is_computed = name in COMPUTED
            if is_computed and self._n_steps < self._rests[name].wakes:
                continue
            asked = [i for i in (range(len(owners)) if is_computed else awake) if name in owners[i].by_name and most[i]]
            asked = [i for i in asked if self._promise(drafts[i], owners[i]) < ENOUGH]
            if not asked:
                continue
            began = self.clock()
            limit, stop = longest, None
            if is_computed:
                limit = self._most_computed(name, len(sequences), longest)
                stop = self.length.stop(name, len(sequences), n_rows)
                if not limit:
                    self.gives_up = all(own.by_name.keys() <= {name} for own in owners)
                    continue
            limits, n_before = [min(most[i], limit) for i in asked], self.n_started
            proposals = self._pool.ask(name, [sequences[i] for i in asked], limits, stop)
            for i, proposal, n_asked in zip(asked, proposals, limits, strict=True):
                draft = draft_of(name, proposal, sequences[i].generation)
                if is_computed:
                    draft.n_asked, draft.is_short = n_asked, len(draft.tokens) < n_asked
                self.length.acceptance.computed(draft.summary(owners[i].record))
                if self._promise(draft, owners[i]) > self._promise(drafts[i], owners[i]):
                    drafts[i] = draft
            if is_computed:
                self._note_asked(name, asked, sequences)
                seconds, reading = self.clock() - began, self._reading
                n_tokens = self._n_computed(proposals, limits)
                self.length.asked(name, seconds, n_tokens, reading, self.n_started > n_before)
                computing, self._reading = computing + seconds, 0.0
        return drafts, computing

    def _most_computed(self, name: str, n_seqs: int, longest: int) -> int:
        """Return the maximum tokens of drafts that a model computes; blocks beside a program's steps are whole."""
        most, layer = self.length.most_computed(name, n_seqs), self.next_tokens
        is_whole = self.host is not None and layer is not None and name == layer.name and layer.computes_blocks
        return longest if most and is_whole else most

    def _n_computed(self, proposals: Sequence[Proposal], limits: Sequence[int]) -> int:
        """Return the number of computed tokens: beside a program that picks tokens all that a draft was asked for."""
        if self.host is None:
            return sum(len(proposal.tokens) for proposal in proposals)
        return sum(limit for proposal, limit in zip(proposals, limits, strict=True) if proposal.tokens)

    def _note_asked(self, kind: str, asked: Sequence[int], sequences: Sequence[Running]) -> None:
        """Note the sequences for which proposers of a kind are asked in this step."""
        self._asked[kind] = [sequences[i].generation for i in asked]

    def _promise(self, draft: Draft, proposers: SequenceProposers) -> float:
        """Return the expected number of accepted tokens."""
        return self.length.acceptance.promise(draft.summary(proposers.record)) if draft.tokens else 0.0


class _ModelRounds:
    """Drafts of a model in rounds, by the sequences of its target."""

    def __init__(self, speculation: Speculation, model: DraftModel) -> None:
        self._speculation = speculation
        self._model = model

    def knows(self, running: Running) -> bool:
        return True

    def holds(self, sequences: Sequence[Running], n: int) -> bool:
        proposers = self._speculation.model_proposers(sequences)
        return proposers is not None and self._model.holds(proposers, n)

    def submit(self, sequences: Sequence[Running], n: int) -> list[Pending]:
        proposers = self._speculation.model_proposers(sequences)
        assert proposers is not None
        return self._model.submit(proposers, n)

    def took(self, running: Running, tokens: Sequence[int]) -> None:
        self._speculation.guessed(running, tokens)
