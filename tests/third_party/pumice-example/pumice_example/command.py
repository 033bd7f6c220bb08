"""The command ``pumice longest``."""

import click


@click.command("longest")
@click.argument("model")
@click.option("-n", "--count", default=5, show_default=True, help="How many.")
def longest(model: str, count: int) -> None:
    """Show the longest tokens of MODEL."""
    import pumice  # when it runs, so that `pumice --help` stays fast

    tokenizer = pumice.load_tokenizer(model)
    tokens = [tokenizer.token_text(token) for token in range(tokenizer.n_vocab)]
    click.echo("\n".join(sorted(tokens, key=len, reverse=True)[:count]))
