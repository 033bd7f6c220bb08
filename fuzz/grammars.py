"""Grammars compiled for a small vocabulary, and texts that match them."""

from functools import cache

from fuzz.draw import Draw
from gguf_files import byte_tokenizer
from grammar_walks import tokens_of
from pumice.errors import RequestError
from pumice.grammar import Compiler, Constraint, Grammar
from pumice.tokenizers import from_metadata

_MOST = 60  # maximum tokens of a walk


@cache
def compiler() -> Compiler:
    """Return a compiler for a vocabulary of bytes and letters."""
    tokenizer = from_metadata(byte_tokenizer(300))
    return Compiler(lambda: tokenizer, tokenizer.n_vocab)


def walk(source: str, draw: Draw) -> bytes | None:
    """Return a text of the grammar, chosen by ``draw``; None if it does not end within a few tokens.

    Raises RequestError for a grammar that does not compile or exceeds the limits.
    """
    tokenizer = compiler().tokenizer
    constraint = Constraint(Grammar(source), compiler())
    text = b""
    for _ in range(_MOST):
        mask = constraint.mask()
        assert mask is not None
        allowed = tokens_of(mask)
        assert allowed, f"no token may follow {text!r}"
        ends = [token for token in allowed if token in tokenizer.eog]
        others = [token for token in allowed if token not in tokenizer.eog]
        if ends and (not others or draw.flag()):
            return text
        token = draw.choice(others)
        constraint.accept(token)
        text += tokenizer.token_bytes(token)
    return None


def check_message(error: RequestError) -> None:
    """Raise AssertionError for a message of several lines."""
    assert "\n" not in str(error), str(error)
