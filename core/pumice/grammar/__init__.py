"""Structured output: what an answer has to look like, and which tokens keep it so."""

from pumice.grammar.compiler import Compiler
from pumice.grammar.constraint import Constraint, Grammar
from pumice.grammar.source import grammar_source

__all__ = ["Compiler", "Constraint", "Grammar", "grammar_source"]
