"""Whether a schema allows a JSON text, by the compiler and a vocabulary of single bytes."""

import json
from typing import Any

from llguidance import LLMatcher

from pumice.grammar import grammar_source
from pumice.grammar.vocabulary import small_vocabulary


def allows(schema: Any, *texts: str) -> list[bool]:
    """Return for each text whether a schema of the answer allows it. Raises ValueError if the schema is refused."""
    start = LLMatcher(small_vocabulary(), grammar_source(json_schema=schema), log_level=0)
    if start.is_error():
        raise ValueError(start.get_error())
    return [_ends(start.deep_copy(), list(text.encode())) for text in texts]


def allows_values(schema: Any, *values: Any) -> list[bool]:
    return allows(schema, *(json.dumps(value, ensure_ascii=False) for value in values))


def _ends(matcher: LLMatcher, tokens: list[int]) -> bool:
    is_read: bool = matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens)
    return is_read and matcher.is_accepting()
