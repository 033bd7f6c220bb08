"""Structured output: grammars of answers, and masks of the tokens that they allow.

Public names are imported on first use, since most requests have no grammar.
"""

from typing import TYPE_CHECKING

from pumice.lazy import lazy_names

if TYPE_CHECKING:
    from pumice.grammar.budget import BudgetedReasoning, ReasoningBudget
    from pumice.grammar.check import GrammarChecker, shared_checker
    from pumice.grammar.closed import close_objects
    from pumice.grammar.compiler import Compiler
    from pumice.grammar.constraint import Constraint, Grammar
    from pumice.grammar.forms import JSON_OPTIONS, grammar_source, read_triggers, regex_source, schema_source
    from pumice.grammar.keywords import enforceable
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
    "enforceable",
    "grammar_source",
    "read_triggers",
    "regex_source",
    "schema_source",
    "shared_checker",
]

_HOMES = {
    "budget": ["BudgetedReasoning", "ReasoningBudget"],
    "check": ["GrammarChecker", "shared_checker"],
    "closed": ["close_objects"],
    "compiler": ["Compiler"],
    "constraint": ["Constraint", "Grammar"],
    "forms": ["JSON_OPTIONS", "grammar_source", "read_triggers", "regex_source", "schema_source"],
    "keywords": ["enforceable"],
    "schema_limits": ["check_schema"],
}

__getattr__ = lazy_names(__name__, _HOMES)
