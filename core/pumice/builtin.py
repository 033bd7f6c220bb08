"""What the core itself brings, registered through the hooks that every plugin has."""

from collections.abc import Callable

from pumice.chat.families import FORMATS
from pumice.chat.formats import ChatFormat
from pumice.commands import COMMANDS
from pumice.hookspecs import hookimpl
from pumice.tokenizers import PRE_TOKENIZERS, TOKENIZERS, PreTokenizer


@hookimpl
def pumice_register_commands(register: Callable[[str, str], None]) -> None:
    for name, command in COMMANDS.items():
        register(name, command)


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
