"""``pumice tokenize``: the token ids of a text."""

import json
from pathlib import Path

import click

from pumice.cli.options import json_option, locate_model, model_argument
from pumice.cli.run import read_prompt


@click.command("tokenize")
@model_argument
@click.option("-p", "--prompt", help="Text to tokenize; - or a pipe: standard input.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Read the text.")
@click.option("--no-add-special", is_flag=True, help="Leave out the tokens that begin and end a text.")
@click.option("--no-parse-special", is_flag=True, help="Take <s> and the like as plain text.")
@json_option
def command(
    model: str, prompt: str | None, file: Path | None, no_add_special: bool, no_parse_special: bool, as_json: bool
) -> None:
    """Write the token ids of a text.

    One id a line, with its text; --json writes the list of ids. MODEL, a GGUF file, needs no weights;
    without it the ids are the demo model's.
    """
    import pumice

    text = read_prompt(prompt, file)
    tokenizer = pumice.load_tokenizer(locate_model(model))
    ids = tokenizer.tokenize(text, add_special=not no_add_special, parse_special=not no_parse_special)
    if as_json:
        click.echo(json.dumps(ids))
    else:
        click.echo("\n".join(f"{token:>6}  {tokenizer.token_text(token)!r}" for token in ids))
