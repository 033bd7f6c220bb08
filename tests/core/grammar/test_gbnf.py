"""GBNF allows what llama.cpp's own grammars allow, token by token."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from llguidance.gbnf_to_lark import any_to_lark

from gbnf_grammars import GRAMMARS, is_text, random_grammar, summary
from grammar_walks import tokens_of
from pumice import RequestError
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


@pytest.mark.parametrize("seed", range(30))
def test_the_language_is_that_of_llguidances_translation(seed, compiler):
    text = random_grammar(random.Random(seed))
    ours = Constraint(Grammar(grammar_source(grammar=text)), compiler)
    theirs = Constraint(Grammar(any_to_lark(text)), compiler)
    rng = np.random.default_rng(seed)
    for _ in range(25):
        mask = ours.allowed()
        assert np.array_equal(mask, theirs.allowed()), text
        token = int(rng.choice(tokens_of(mask)))
        if token in compiler.tokenizer.eog:
            break
        ours.accept(token)
        theirs.accept(token)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('root ::= "a', "line 1: '\"a' is not GBNF"),
        ('x ::= "a"\n\n\nroot ::= ~', "line 4: '~' is not GBNF"),
        ("root ::= x", "rule 'root': unknown rule 'x'"),
        ('x ::= "a"', "the grammar has no rule 'root'"),
        ('"a" ::=', "expected a rule, 'name ::= ...', not '\"a\"'"),
        ('root ::= ("a"', "rule 'root': '(' without ')'"),
        ('root ::= "a")', "rule 'root': ')' without '('"),
        ("root ::= *", "rule 'root': '*' does not follow an element"),
        ('root ::= "a"*?', "rule 'root': '?' does not follow an element"),
        ('root ::= "a"{3,2}', "rule 'root': '{3,2}' has a maximum below its minimum"),
        ("root ::= [z-a]", "class '[z-a]': the range 'z'-'a' is empty"),
        ("root ::= [0\nz-a]", "class '[0\\nz-a]': the range 'z'-'a' is empty"),
        ("root ::= [^]", "class '[^]': it has no characters"),
        (r'root ::= "\q"', r"unknown escape '\\q'"),
        (r'root ::= "\uD800"', r"\uD800 is not a Unicode character"),
        ('root ::= "\ud800"', r"\uD800 is not a Unicode character"),
    ],
)
def test_errors_of_a_grammar_name_the_fault(text, message):
    with pytest.raises(RequestError) as error:
        grammar_source(grammar=text)
    assert f"grammar: {message}" in str(error.value)


@pytest.mark.parametrize("count", ["{0}", "{0,0}", "{ 0 , 0 }"])
@pytest.mark.parametrize("element", ['"a"', "[0-9]", "other", '("x" "y")', '("x" | ("y" "z")+)', '("x" "y"{0})', "."])
def test_an_element_that_occurs_no_times_is_nothing(element, count, compiler):
    source = grammar_source(grammar=f'root ::= "b" {element}{count} ("c" {element}{count})? "d"\nother ::= [a-z]+')
    for text in ("bd", "bcd"):
        constraint = Constraint(Grammar(source), compiler)
        tokens = compiler.tokenizer.tokenize(text, add_special=False)
        assert constraint.n_allowed(tokens) == len(tokens)
