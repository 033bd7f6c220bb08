"""Lowering of graph nodes to kernels: one rule per operation, found by the operation's name.

A rule has ``claims(node, limits)``, which tells whether it can run a node, and ``lower(lowering, node)``, which adds
kernels to the operation table.
"""

from collections.abc import Iterator

from pumice_cpu.lower import attention, elementwise, embedding, experts, hadamard, linear, recurrent, rope, route
from pumice_cpu.lower.attention import RULES as ATTENTION
from pumice_cpu.lower.elementwise import RULES as ELEMENTWISE
from pumice_cpu.lower.embedding import RULES as EMBEDDING
from pumice_cpu.lower.experts import RULES as EXPERTS
from pumice_cpu.lower.hadamard import RULES as HADAMARD
from pumice_cpu.lower.linear import RULES as LINEAR
from pumice_cpu.lower.norms import RULES as NORMS
from pumice_cpu.lower.recurrent import RULES as RECURRENT
from pumice_cpu.lower.rope import RULES as ROPE
from pumice_cpu.lower.route import RULES as ROUTE
from pumice_cpu.lower.rows import RULES as ROWS
from pumice_cpu.lower.rule import Rule

RULES: dict[str, Rule] = {
    **ATTENTION,
    **ELEMENTWISE,
    **EMBEDDING,
    **EXPERTS,
    **HADAMARD,
    **LINEAR,
    **NORMS,
    **RECURRENT,
    **ROPE,
    **ROUTE,
    **ROWS,
}


def kernels() -> Iterator[str]:
    """Yield the kernels with parameters that models need, for the current instruction set."""
    for module in (attention, elementwise, embedding, experts, hadamard, linear, recurrent, rope, route):
        yield from module.kernels()
