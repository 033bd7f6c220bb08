"""From graph nodes to dispatches: one function an operation, found by the operation's name. See rule.py."""

from pumice_vulkan.lower.elementwise import RULES as ELEMENTWISE
from pumice_vulkan.lower.rule import Rule

RULES: dict[str, Rule] = {
    **ELEMENTWISE,
}
