"""Structured output: what an answer has to look like, and which tokens keep it so."""

from pumice.grammar.budget import Budget, BudgetedReasoning
from pumice.grammar.check import GrammarChecker, shared_checker
from pumice.grammar.closed import close_objects
from pumice.grammar.compiler import Compiler
from pumice.grammar.constraint import Constraint, Grammar
from pumice.grammar.schema_limits import check_schema
from pumice.grammar.source import FORMS, JSON_OPTIONS, grammar_source, regex_source, schema_source

__all__ = [
    "FORMS",
    "JSON_OPTIONS",
    "Budget",
    "BudgetedReasoning",
    "Compiler",
    "Constraint",
    "Grammar",
    "GrammarChecker",
    "check_schema",
    "close_objects",
    "grammar_source",
    "regex_source",
    "schema_source",
    "shared_checker",
]
