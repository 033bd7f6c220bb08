"""GBNF allows what llama.cpp's own grammars allow, token by token."""

import json
from pathlib import Path

import pytest

from gbnf_grammars import GRAMMARS, is_text, summary
from grammar_walks import tokens_of
from pumice.grammar import Constraint, Grammar, grammar_source

WALKS = json.loads((Path(__file__).parents[2] / "fixtures" / "llama_grammars.json").read_text())


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_allowed_tokens_are_llama_cpps(name, compiler):
    tokenizer = compiler.tokenizer
    for walk in WALKS[name]:
        constraint = Constraint(Grammar(grammar_source(grammar=GRAMMARS[name])), compiler)
        for step, (token, expected) in enumerate(walk):
            allowed = [-1 if t in tokenizer.eog else t for t in tokens_of(constraint.allowed())]
            found = [t for t in allowed if t == -1 or is_text(tokenizer.token_bytes(t))]
            if len(found) == 1:  # where no other text can come: the one token that the tokenizer would choose
                assert found[0] in expected, (step, walk[:step])
            else:
                assert summary(found) == expected, (step, walk[:step])
            if token >= 0:
                constraint.accept(token)
