"""Registrations of the core, through the same hooks as plugins: commands, proposers, tokenizers, chat formats."""

from collections.abc import Callable

from pumice.chat.families import FORMATS
from pumice.chat.formats import ChatFormat
from pumice.commands import COMMANDS
from pumice.hookspecs import hookimpl
from pumice.proposers import PROPOSERS
from pumice.tokenizers import PRE_TOKENIZERS, TOKENIZERS, PreTokenizer


@hookimpl
def pumice_register_commands(register: Callable[[str, str], None]) -> None:
    for name, command in COMMANDS.items():
        register(name, command)


@hookimpl
def pumice_register_proposers(register: Callable[[str, str], None]) -> None:
    for name, proposer in PROPOSERS.items():
        register(name, proposer)


@hookimpl
def pumice_register_tokenizers(register: Callable[[str, str], None]) -> None:
    for name, tokenizer in TOKENIZERS.items():
        register(name, tokenizer)


@hookimpl
def pumice_register_pre_tokenizers(register: Callable[[str, PreTokenizer], None]) -> None:
    for name, pre_tokenizer in PRE_TOKENIZERS.items():
        register(name, pre_tokenizer)


@hookimpl
def pumice_register_chat_formats(register: Callable[[str, ChatFormat], None]) -> None:
    for name, chat_format in FORMATS.items():
        register(name, chat_format)
