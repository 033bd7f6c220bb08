"""``pumice tokenize``: the token ids of a text."""

import json
from pathlib import Path

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.escapes import escape_option, unescape
from pumice.cli.named_models import locate_model
from pumice.cli.options import TextCommand, model_argument, no_sandbox_option
from pumice.cli.output import echo
from pumice.cli.prompt import file_option, one_prompt, read_prompt
from pumice.cli.vocabulary import option
from pumice.wording import counted_as


class TokenizeCommand(TextCommand, ConfinedCommand):
    """`pumice tokenize`, whose model may also be given with ``-m``."""


@click.command("tokenize", cls=TokenizeCommand)
@model_argument
@click.argument("text", required=False)
@option("-p", "--prompt", metavar="TEXT", group="Prompt", help="Text to tokenize; - reads standard input.")
@file_option("Read the text from FILE; - reads standard input, as a pipe does.")
@option("--stdin", is_flag=True, hidden=True, group="Prompt", help="Read standard input, as -f - does.")
@escape_option("the text")
@option("--no-add-special", aliases=("--no-bos",), is_flag=True, help="Leave out the tokens that begin and end a text.")
@option("--no-parse-special", is_flag=True, help="Read the names of control tokens, such as <s>, as plain text.")
@option("--json", "as_json", aliases=("--ids",), is_flag=True, group="Output", help="Write the list of ids as JSON.")
@option("--show-count", is_flag=True, group="Output", help="Write the number of tokens to standard error, too.")
@no_sandbox_option
def command(
    model: str,
    text: str | None,
    prompt: str | None,
    file: Path | None,
    stdin: bool,
    escape: bool,
    as_json: bool,
    show_count: bool,
    **special: bool,
) -> None:
    """Write the token ids of a text.

    The text is TEXT, the one of -p or -f, or standard input. Each line has an id and its text; --json writes the list
    of ids. A model file without weights is sufficient. The default is the demo model.
    """
    import pumice

    text = read_prompt(one_prompt(text, prompt), Path("-") if stdin and file is None else file)
    text = unescape(text) if escape else text
    tokenizer = pumice.load_tokenizer(locate_model(model))
    add, parse = not special["no_add_special"], not special["no_parse_special"]
    ids = tokenizer.tokenize(text, add_special=add, parse_special=parse)
    if as_json:
        echo(json.dumps(ids))
    else:
        echo("\n".join(f"{token:>6}  {tokenizer.token_text(token)!r}" for token in ids))
    if show_count:
        echo(counted_as(len(ids), "token"), err=True)
