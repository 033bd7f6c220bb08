"""Lowering of graph nodes to dispatches: one rule per operation, found by the operation's name. See rule.py."""

from pumice_vulkan.lower.attention import RULES as ATTENTION
from pumice_vulkan.lower.elementwise import RULES as ELEMENTWISE
from pumice_vulkan.lower.experts import RULES as EXPERTS
from pumice_vulkan.lower.groups import RULES as GROUPS
from pumice_vulkan.lower.indexer import RULES as INDEXER
from pumice_vulkan.lower.linear import RULES as LINEAR
from pumice_vulkan.lower.norms import RULES as NORMS
from pumice_vulkan.lower.recurrent import RULES as RECURRENT
from pumice_vulkan.lower.rope import RULES as ROPE
from pumice_vulkan.lower.route import RULES as ROUTE
from pumice_vulkan.lower.rows import RULES as ROWS
from pumice_vulkan.lower.rule import Rule

RULES: dict[str, Rule] = {
    **ATTENTION,
    **ELEMENTWISE,
    **EXPERTS,
    **GROUPS,
    **INDEXER,
    **LINEAR,
    **NORMS,
    **RECURRENT,
    **ROPE,
    **ROUTE,
    **ROWS,
}
