"""Grammars compiled first where nothing else can be hurt: in a worker process that may crash, or be ended.

A worker compiles on a quarter of the stack that an engine has for it, with an engine's limits of work, for a vocabulary
of single bytes and the special tokens that a grammar names: stack, lexer and parser depend on the grammar alone. Then
it makes the first masks, on the smallest stack on which an engine makes them.
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
from pumice.isolation import Limits, WorkerPool

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from pumice.tokenizers import Tokenizer

_LIMITS = Limits(cpu_seconds=2, wall_seconds=20.0, wait_seconds=10.0, max_in=1 << 22, max_out=1 << 20)
_KEPT = 1024  # answers
_COMPILER_STACK = STACK_SIZE // 4
_MASK_STACK = 1 << 20  # bytes; llguidance's own threads have twice as much
_STEPS = 16  # masks that are made
_SPECIAL = re.compile(r"<[^<>\s]{1,80}>")  # what may name a special token
_BY_ID = "<["  # begins a token that is named by its id


class GrammarChecker:
    """Says what is wrong with grammars, and keeps what it said. Any thread may use it."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        """``pool`` compiles grammars; None: this process does, which a grammar may crash."""
        self._pool = pool
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._lock = Lock()

    def problems(self, sources: Sequence[str]) -> list[str]:
        """What is wrong with each grammar, in a line; empty where nothing is.

        Raises TooExpensiveError where compiling takes too much or crashes, UnavailableError where it may be tried
        again.
        """
        return self._look_up("fragments", sources, self._fragments)

    def check(self, source: str, load_tokenizer: Callable[[], Tokenizer]) -> None:
        """Compile a whole grammar. Raises RequestError if it is wrong, and as ``problems``.

        The tokenizer has the tokens that a grammar may name, by their ids or as they are spelt; it is loaded where one
        does. Without a pool nothing is done: the engine, which is in this process too, compiles the grammar anyway.
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
            raise RequestError(f"grammar or schema: {problem}")

    def _fragments(self, sources: Sequence[str]) -> list[str]:
        if self._pool is None:
            return run_on_stack(STACK_SIZE, lambda: list(map(_fragment_problem, sources)))
        return self._pool.call(f"{__name__}:fragment_problems", list(sources), list[str])

    def _look_up(self, kind: str, sources: Sequence[str], ask: Callable[[Sequence[str]], list[str]]) -> list[str]:
        """What is known of sources, or what ``ask`` says of those of which nothing is."""
        keys = [sha256(f"{kind}\0{source}".encode("utf-8", "surrogatepass")).digest() for source in sources]
        with self._lock:
            known = {key: self._known[key] for key in keys if key in self._known}
        new = {key: source for key, source in zip(keys, sources, strict=True) if key not in known}
        if new:
            known |= dict(zip(new, ask(list(new.values())), strict=True))
        with self._lock:
            for key in keys:
                self._known[key] = known[key]
                self._known.move_to_end(key)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return [known[key] for key in keys]


@functools.cache
def shared_checker() -> GrammarChecker:
    """One for all models of this process, with workers."""
    return GrammarChecker(WorkerPool("compiling the grammar", _LIMITS))


def describe(error: str) -> str:
    """An error of llguidance in a line."""
    if error.startswith("panic"):
        return "it is too large to be compiled"
    return " ".join(error.split())[:300]


# --- in a worker


def fragment_problems(sources: list[str]) -> list[str]:
    """What is wrong with parts of grammars that name no tokens."""
    return run_on_stack(_COMPILER_STACK, lambda: list(map(_fragment_problem, sources)))


def whole_problem(payload: Mapping[str, object]) -> str:
    """What is wrong with a grammar, at its beginning."""
    source, n_vocab, special = payload["source"], payload["n_vocab"], payload["special"]
    assert isinstance(source, str)
    assert isinstance(n_vocab, int)
    assert isinstance(special, list)
    vocabulary = _vocabulary(n_vocab, tuple(special))
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


@functools.lru_cache(4)
def _vocabulary(n_vocab: int, special: tuple[str, ...]) -> LLTokenizer:
    from llguidance import LLTokenizer

    wrapper = _Bytes(n_vocab, special)
    return LLTokenizer(wrapper, eos_token=wrapper.eos_token_id, slices=[])  # type: ignore[arg-type]


class _Bytes:
    """What llguidance wants to know of a tokenizer of bytes and special tokens."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, n_vocab: int, special: tuple[str, ...]) -> None:
        names = [b"[end]", *(name.encode() for name in special)]
        names += [b"[%d]" % token for token in range(256 + len(names), n_vocab)]
        self.tokens = [*(bytes([byte]) for byte in range(256)), *(b"\xff" + name for name in names)]
        self.eos_token_id = 256
        self.special_token_ids = list(range(256, len(self.tokens)))

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())
