"""``pumice tokenize``: the token ids of a text."""

import json
from pathlib import Path

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.named_models import locate_model
from pumice.cli.options import json_option, model_argument, no_sandbox_option
from pumice.cli.prompt import file_option, read_prompt
from pumice.cli.vocabulary import option


@click.command("tokenize", cls=ConfinedCommand)
@model_argument
@option("-p", "--prompt", metavar="TEXT", group="Prompt", help="Text to tokenize; - reads standard input.")
@file_option("Read the text from FILE; - reads standard input, as a pipe does.")
@option("--no-add-special", is_flag=True, help="Leave out the tokens that begin and end a text.")
@option("--no-parse-special", is_flag=True, help="Read the names of control tokens, such as <s>, as plain text.")
@json_option
@no_sandbox_option
def command(
    model: str, prompt: str | None, file: Path | None, no_add_special: bool, no_parse_special: bool, as_json: bool
) -> None:
    """Write the token ids of a text.

    Each line has an id and its text; --json writes the list of ids. A model file without weights is sufficient. The
    default is the demo model.
    """
    import pumice

    text = read_prompt(prompt, file)
    tokenizer = pumice.load_tokenizer(locate_model(model))
    ids = tokenizer.tokenize(text, add_special=not no_add_special, parse_special=not no_parse_special)
    if as_json:
        click.echo(json.dumps(ids))
    else:
        click.echo("\n".join(f"{token:>6}  {tokenizer.token_text(token)!r}" for token in ids))
