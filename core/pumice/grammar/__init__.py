"""Structured output: grammars of answers, and masks of the tokens that they allow."""

from pumice.grammar.budget import BudgetedReasoning, ReasoningBudget
from pumice.grammar.check import GrammarChecker, shared_checker
from pumice.grammar.closed import close_objects
from pumice.grammar.compiler import Compiler
from pumice.grammar.constraint import Constraint, Grammar
from pumice.grammar.forms import JSON_OPTIONS, grammar_source, read_triggers, regex_source, schema_source
from pumice.grammar.schema_limits import check_schema

__all__ = [
    "JSON_OPTIONS",
    "BudgetedReasoning",
    "Compiler",
    "Constraint",
    "Grammar",
    "GrammarChecker",
    "ReasoningBudget",
    "check_schema",
    "close_objects",
    "grammar_source",
    "read_triggers",
    "regex_source",
    "schema_source",
    "shared_checker",
]
