"""Texts of strangers in lines of a log or a terminal."""


def printable(text: str) -> str:
    """Return a text that does nothing to a terminal: ``?`` for each character that is not printed."""
    return "".join(character if character.isprintable() else "?" for character in text)
