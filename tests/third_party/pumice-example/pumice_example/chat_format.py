"""How models of Stone write reasoning and calls of tools."""

from pumice.plugin import ChatFormat

STONES = ChatFormat(
    marks=("<stone>",),  # a template that contains all marks belongs to this family
    reasoning=("<muse>", "</muse>"),
    calls=("<stone>{name}{params}</stone>",),
    param="<key>{key}</key><value>{value}</value>",
)
