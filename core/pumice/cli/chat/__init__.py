"""``pumice chat``: a chat in the terminal, or one answer to what is piped in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pumice.cli.options import (
    ASSUMED_TEMPLATE,
    load_model,
    load_options,
    model_argument,
    no_sandbox_option,
    sampling_options,
    take_sampling,
    warn_of_assumed_template,
)


@click.command("chat")
@model_argument
@click.option("-s", "--system", metavar="TEXT", help="A system message to begin with.")
@click.option("--chat-template", metavar="NAME", help="Name of a chat template, or a file with one.")
@click.option("--reasoning/--no-reasoning", default=True, help="Whether a model that can reason does.")
@click.option("--reasoning-budget", type=int, metavar="N", help="Most tokens of reasoning.")
@click.option("-n", "--n-predict", type=int, help="Most tokens of an answer; -1: until the model ends.  [default: -1]")
@click.option("--stats", is_flag=True, help="Show tokens and tokens/s after each answer.")
@sampling_options
@load_options
@no_sandbox_option
def command(model: str, system: str | None, stats: bool, n_predict: int | None, **rest: Any) -> None:
    """Chat with a model.

    MODEL is a GGUF file, or a name such as hf.co/owner/repository:Q4_K_M. Without it the demo model that comes with
    Pumice is taken; that one goes on with the story that you begin.

    Enter sends, Alt-Enter or a backslash at the end of a line goes on with the next one. Ctrl-C stops an answer, Ctrl-D
    ends the chat, /help lists commands. What is piped in is one message, and its answer goes to standard output.
    """
    from pumice.cli.chat.conversation import Conversation
    from pumice.cli.chat.session import Session, answer

    options = take_sampling(rest)
    for name in ("reasoning", "reasoning_budget"):
        options[name] = rest.pop(name)
    template = rest.pop("chat_template")
    options["chat_template"] = _template(template)
    options["max_tokens"] = n_predict if n_predict is not None and n_predict >= 0 else None
    text = None if sys.stdin.isatty() else _read_input()
    with load_model(model, rest) as loaded:
        if not (options["chat_template"] or loaded.has_chat_template):
            warn_of_assumed_template(Path(model).name)
            options["chat_template"] = ASSUMED_TEMPLATE
        conversation = Conversation(loaded, {k: v for k, v in options.items() if v is not None}, system)
        if text is None:
            from pumice.cli.chat.editor import Editor

            about = f"{Path(model).stem} on {', '.join(loaded.backends)}, {loaded.n_ctx} tokens of context"
            click.secho(about, bold=True, err=True)
            Session(conversation, Editor().read, stats).run()
            return
        conversation.say(text)
        answered = answer(conversation)
    if stats:
        click.echo(answered.statistics, err=True)
    if not answered.completed:
        raise click.Abort


def _template(given: str | None) -> str | None:
    """A file's text, or a name as it is."""
    if given is None:
        return None
    path = Path(given)
    try:
        return path.read_text() if path.suffix and path.is_file() else given
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"cannot read the chat template: {path}: {error}") from None


def _read_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"the message is not UTF-8: byte {error.start} of standard input") from None
