"""Check grammars in a worker process, which may crash or be killed, before an engine compiles them.

The worker has a quarter of the engine's stack, and the engine's limits of work. Its vocabulary has single bytes and the
special tokens that the grammar names, since stack, lexer and parser depend on the grammar alone. Then it computes the
first masks, on the smallest stack that an engine uses for masks.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING

from pumice.errors import RequestError
from pumice.grammar.limits import STACK_SIZE, parser_limits
from pumice.grammar.stack import run_on_stack
from pumice.grammar.vocabulary import small_vocabulary
from pumice.isolation import CallLimits, WorkerPool

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from pumice.tokenizers import Tokenizer

_LIMITS = CallLimits(cpu_seconds=2, wall_seconds=20.0, wait_seconds=10.0, max_in=1 << 22, max_out=1 << 20)
_MAX_CACHED_RESULTS = 1024
_COMPILER_STACK = STACK_SIZE // 4
_MASK_STACK = 1 << 20  # bytes; llguidance's own threads have twice that
_STEPS = 16  # number of masks to compute
_SPECIAL = re.compile(r"<[^<>\s]{1,80}>")  # possible name of a special token
_UNIMPLEMENTED = re.compile(r"Unimplemented keys: \[(.*)\]")
_BY_ID = "<["  # begins a token that is named by id
_NO_TARGET = re.compile(r"(?:Resource|Pointer|Anchor) '(?:json-schema:///)?(.*?)' (?:is not present|does not exist)")
_REGEX_ERROR = re.compile(
    r'(?:at .*: invalid regex ".*" \(in regex\): )?regex parse error:\n +(.*)\n[ ^]+\nerror: (.*)[\s\S]*'
)
_FORMS = {'{"grammars": [{"json_schema": ': "json_schema", '{"grammars": [{"lark_grammar": "start: /': "regex"}
_vocabulary = functools.lru_cache(4)(small_vocabulary)


class GrammarChecker:
    """Reports the problems of grammars, and caches the results. All threads may share it."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        """``pool`` compiles the grammars; None compiles in this process, which a grammar may crash."""
        self._pool = pool
        self._results: OrderedDict[bytes, str] = OrderedDict()
        self._lock = Lock()

    def problems(self, sources: Sequence[str]) -> list[str]:
        """Return the problem of each grammar in one line; empty for valid grammars.

        Raises:
            TooExpensiveError: compiling exceeds a limit or crashes.
            UnavailableError: no worker is available; try again later.
        """
        return self._look_up("fragments", sources, self._fragments)

    def check(self, source: str, load_tokenizer: Callable[[], Tokenizer]) -> None:
        """Compile a whole grammar. Raises RequestError if it is invalid, and otherwise like ``problems``.

        Without a pool this does nothing: the engine, which is in this process too, compiles the grammar anyway.

        Args:
            source: grammar in llguidance's form.
            load_tokenizer: returns the tokenizer; called only if the grammar names special tokens.
        """
        if self._pool is None:
            return
        pool, named = self._pool, set(_SPECIAL.findall(source))
        if named:
            tokenizer = load_tokenizer()
            named &= {tokenizer.token_text(token) for token in tokenizer.vocabulary.hidden}
        n_vocab = load_tokenizer().n_vocab if _BY_ID in source else 0
        payload = {"source": source, "n_vocab": n_vocab, "special": sorted(named)}
        kind = f"whole {n_vocab} {' '.join(sorted(named))}"
        [problem] = self._look_up(kind, [source], lambda _: [pool.call(f"{__name__}:whole_problem", payload, str)])
        if problem:
            raise RequestError(f"{form_name(source)}: {problem}")

    def _fragments(self, sources: Sequence[str]) -> list[str]:
        if self._pool is None:
            return run_on_stack(STACK_SIZE, lambda: list(map(_fragment_problem, sources)))
        return self._pool.call(f"{__name__}:fragment_problems", list(sources), list[str])

    def _look_up(self, kind: str, sources: Sequence[str], ask: Callable[[Sequence[str]], list[str]]) -> list[str]:
        """Return the cached results of ``sources``; ``ask`` computes the missing ones."""
        keys = [sha256(f"{kind}\0{source}".encode("utf-8", "surrogatepass")).digest() for source in sources]
        with self._lock:
            results = {key: self._results[key] for key in keys if key in self._results}
        new = {key: source for key, source in zip(keys, sources, strict=True) if key not in results}
        if new:
            results |= dict(zip(new, ask(list(new.values())), strict=True))
        with self._lock:
            for key in keys:
                self._results[key] = results[key]
                self._results.move_to_end(key)
            while len(self._results) > _MAX_CACHED_RESULTS:
                self._results.popitem(last=False)
        return [results[key] for key in keys]


@functools.cache
def shared_checker() -> GrammarChecker:
    """Return the checker, with worker processes, that all models of this process share."""
    return GrammarChecker(WorkerPool("compiling the grammar", _LIMITS))


def describe(error: str) -> str:
    """Return an error of llguidance in one line."""
    if error.startswith("panic"):
        return "too large to compile; make it smaller"
    if error.startswith("NoExtension"):
        return "no token can follow; a rule or a $ref may lead only to itself"
    if keywords := _UNIMPLEMENTED.match(error):
        return f"unsupported keywords of JSON Schema: {keywords[1]}"
    if target := _NO_TARGET.match(error):
        return f"the $ref to {target[1]!r} leads to no part of the schema; put the target into its $defs"
    if found := _REGEX_ERROR.search(error):
        error = f"{error[: found.start()]}invalid regular expression {found[1]}: {found[2]}"
    return " ".join(error.split())[:300]


def form_name(source: str) -> str:
    """Return the option whose value a grammar in llguidance's form was made of, for errors."""
    if not source.startswith("{"):
        return "grammar"
    return next((name for begin, name in _FORMS.items() if source.startswith(begin)), "grammar or schema")


# --- run in a worker


def fragment_problems(sources: list[str]) -> list[str]:
    """Return the problems of grammar fragments, which name no tokens."""
    return run_on_stack(_COMPILER_STACK, lambda: list(map(_fragment_problem, sources)))


def whole_problem(payload: Mapping[str, object]) -> str:
    """Return the problem of a whole grammar, found by compiling it and computing its first masks."""
    source, n_vocab, special = payload["source"], payload["n_vocab"], payload["special"]
    assert isinstance(source, str)
    assert isinstance(n_vocab, int)
    assert isinstance(special, list)
    vocabulary = _vocabulary((), tuple(special), n_vocab)
    matcher = run_on_stack(_COMPILER_STACK, lambda: _matcher(vocabulary, source))
    run_on_stack(_MASK_STACK, lambda: _walk(matcher))
    return describe(matcher.get_error()) if matcher.is_error() else ""


def _fragment_problem(source: str) -> str:
    from llguidance import LLMatcher

    return describe(LLMatcher.validate_grammar(source, limits=parser_limits()))


def _matcher(vocabulary: LLTokenizer, source: str) -> LLMatcher:
    from llguidance import LLMatcher

    return LLMatcher(vocabulary, source, log_level=0, limits=parser_limits())


def _walk(matcher: LLMatcher) -> None:
    """Make masks, each time going on by the byte in the middle of those that are allowed."""
    for _ in range(_STEPS):
        if matcher.is_error() or matcher.is_stopped():
            return
        matcher.compute_ff_tokens()
        mask = matcher.compute_bitmask()
        allowed = [token for token in range(256) if mask[token // 8] >> token % 8 & 1]
        if not allowed or not matcher.consume_token(allowed[len(allowed) // 2]):
            return
