"""``pumice chat``: a chat in the terminal, or one answer to piped input."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from pumice.cli.chat.first_message import message_options, take_first_message
from pumice.cli.files import InputFile
from pumice.cli.llama_options import LlamaCommand
from pumice.cli.named_models import warn_of_assumed_template
from pumice.cli.options import (
    ASSUMED_TEMPLATE,
    load_options,
    model_argument,
    offline_option,
    read_text,
    sampling_options,
    take_sampling,
    take_template,
    template_options,
)
from pumice.cli.output import echo
from pumice.cli.prompt import SeeingCommand, chosen
from pumice.cli.reasoning_options import (
    answer_length_option,
    reasoning_budget_option,
    reasoning_options,
    take_reasoning,
)
from pumice.cli.sampler_options import chain_options, logit_bias_option, take_chain
from pumice.cli.structured_output import output_options, take_output
from pumice.cli.vocabulary import defined, option
from pumice.options import REQUEST


class ChatCommand(LlamaCommand, SeeingCommand):
    """Confined, but for its history, and for a process forked before, which reads and writes conversations."""

    def invoke(self, ctx: click.Context) -> Any:
        if sys.stdin.isatty():
            from pumice.cli.chat.sessions import make_sessions_folder

            make_sessions_folder()
        with _mcp_servers(ctx.params["mcp_config"], ctx.obj is True):
            if ctx.obj is not True or not hasattr(os, "fork"):
                return super().invoke(ctx)
            from pumice.cli.chat.files import kept_by_other_process

            with kept_by_other_process():
                return super().invoke(ctx)

    def reads(self) -> list[str]:
        """Return what ``/model`` may read."""
        from pumice.cli.chat.models import switchable_files

        return switchable_files() if sys.stdin.isatty() else []

    def writes(self) -> list[str]:
        from pumice.cli.chat.history import make_history

        return [str(make_history())] if sys.stdin.isatty() else []


def _mcp_servers(path: Path | None, is_program: bool) -> AbstractContextManager[None]:
    """Return a context with the MCP servers of a file; for the program, by default those of the user's file."""
    from pumice.mcp import read_servers_file, require_package, user_file

    file = path or user_file()
    if path is None and not (is_program and hasattr(os, "fork") and file.is_file()):
        return nullcontext()
    servers = read_servers_file(file)
    if not hasattr(os, "fork"):
        raise click.ClickException("--mcp-config needs a system that forks processes; use pumice.mcp_tools in Python")
    if not servers:
        return nullcontext()
    require_package()
    from pumice.cli.chat.tool_host import tools_in_other_process

    return tools_in_other_process(servers)


@click.command("chat", cls=ChatCommand)
@model_argument
@click.argument("message", required=False)
@option(
    "-sys",
    "--system-prompt",
    "system",
    aliases=("-s", "--system"),
    metavar="TEXT",
    group="Chat",
    help="System message at the beginning of the chat.",
)
@option(
    "-sysf",
    "--system-prompt-file",
    "system_file",
    type=InputFile(path_type=Path),
    metavar="FILE",
    group="Chat",
    help="Read the system message from FILE.",
)
@message_options
@template_options
@option(
    "-rea",
    "--reasoning",
    is_flag=False,
    flag_value="on",
    type=click.Choice(["on", "off", "auto"]),
    default="on",
    group="Reasoning",
    help="Reasoning of models that can reason; auto leaves it to the template.  [default: on]",
)
@reasoning_budget_option
@reasoning_options
@answer_length_option
@defined(REQUEST["stop"], multiple=True, metavar="TEXT", help="Text that ends an answer and is left out. Repeatable.")
@defined(REQUEST["context_shift"], advanced=True)
@output_options("each answer", advanced=True)
@option(
    "--mcp-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    group="Chat",
    help="MCP servers whose tools the model may call, as JSON.  [default: mcp.json beside the user's config.yaml]",
)
@option(
    "--resume",
    is_flag=False,
    flag_value="last",
    metavar="[NAME]",
    group="Chat",
    help="Go on with the last conversation, or with the one that /name has named.",
)
@option(
    "--markdown/--no-markdown",
    default=True,
    group="Chat",
    help="Format Markdown on a terminal (needs pumice[markdown]).  [default: on]",
)
@option("--stats", is_flag=True, group="Chat", help="Show tokens and tokens/s after each answer.")
@partial(sampling_options, without="-s")  # which is the system message
@chain_options
@logit_bias_option
@offline_option
@load_options
def command(
    model: str, message: str | None, system: str | None, stats: bool, max_tokens: int | None, **rest: Any
) -> None:
    """Chat with a model.

    MODEL is a GGUF file, or a name such as hf.co/owner/repository:Q4_K_M. The default is the demo model that comes with
    Pumice, which continues the story that you begin.

    Enter sends the message, Alt-Enter or a backslash at the end of a line begins another line. Ctrl-C stops an answer,
    Ctrl-D ends the chat, /help lists commands. MESSAGE, or piped input, is one message, whose answer goes to standard
    output; with both, the piped text comes first. With -p or -f the chat goes on after that answer, if standard input
    is a terminal.
    """
    from pumice.cli.chat.conversation import Conversation
    from pumice.cli.chat.models import ChatModel
    from pumice.cli.chat.session import Session, answer, take_mcp_tools
    from pumice.cli.chat.sessions import LAST, read_session, write_session

    resumed, markdown = rest.pop("resume"), rest.pop("markdown")
    first = take_first_message(message, rest)
    model = chosen(model, first.images)
    system = _system_message(system, rest.pop("system_file"))
    options = _take_chat_options(rest)
    options["max_tokens"] = max_tokens if max_tokens is not None and max_tokens >= 0 else None
    from pumice.hub.catalogue import chat_defaults

    defaults = chat_defaults(model)
    if max_tokens is not None:
        defaults = replace(defaults, max_tokens=None)
    messages: list[dict[str, Any]] = [] if resumed is None else read_session(resumed)
    with ChatModel(model, rest) as chat_model:
        loaded = chat_model.model
        if not (options["chat_template"] or loaded.template.exists):
            warn_of_assumed_template(Path(model).name)
            options["chat_template"] = ASSUMED_TEMPLATE
        conversation = Conversation(loaded, {k: v for k, v in options.items() if v is not None}, system, messages)
        conversation.take_defaults(defaults)
        conversation.markdown = markdown
        first.attach(conversation)
        take_mcp_tools(conversation)
        if first.is_session:
            from pumice.cli.chat.editor import Editor

            about = f"{Path(model).stem} on {', '.join(loaded.backends)}, {loaded.n_ctx} tokens of context"
            echo(about, bold=True, err=True)
            if resumed is not None:
                echo(f"resumed {resumed}: {len(messages)} messages", err=True)
            editor = Editor()
            session = Session(conversation, editor.read, stats, editor.edit, resumed or LAST, chat_model)
            session.run(first.text, first.is_single)
            return
        conversation.say(first.text or "")
        answered = answer(conversation)
        if resumed is not None:
            write_session(resumed, conversation.texts)
    if stats:
        echo(answered.statistics, err=True)
    if not answered.completed:
        raise click.Abort


def _system_message(text: str | None, file: Path | None) -> str | None:
    """Return the system message, from the command line or a file without its final newline."""
    if file is None:
        return text
    if text is not None:
        raise click.UsageError("give either --system-prompt or --system-prompt-file")
    return read_text("the system message", file).removesuffix("\n")


def _take_chat_options(rest: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of ``Model.chat``, and return them; None stands for one that is not given."""
    options = take_sampling(rest) | take_chain(rest) | take_output(rest)
    options["stop"] = rest.pop("stop") or None
    options |= take_reasoning(rest, auto=None)
    for name in ("logit_bias", "context_shift"):
        options[name] = rest.pop(name)
    options["chat_template"] = take_template(rest)
    del rest["mcp_config"]  # ChatCommand has read it
    return options
