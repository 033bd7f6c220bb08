"""Structured output: what an answer has to look like, and which tokens keep it so."""

from pumice.grammar.compiler import Compiler
from pumice.grammar.constraint import Constraint, Grammar
from pumice.grammar.source import FORMS, JSON_OPTIONS, grammar_source

__all__ = ["FORMS", "JSON_OPTIONS", "Compiler", "Constraint", "Grammar", "grammar_source"]
