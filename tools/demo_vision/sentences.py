"""Sentences about a picture: its description, and questions with their answers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .scenes import COLOURS, SHAPES, Scene

NUMBERS = ("no", "one", "two", "three", "four", "five", "six")
NO_PICTURE = "Show me a picture first."

ASKING = (
    "What is this?", "What do you see?", "What is in the picture?", "What is in this image?", "What's this?",
    "Describe the picture.", "Describe this image.", "Describe this picture in one sentence.", "What does it show?",
    "What can you see here?", "What can you see in the image?", "Tell me what you see.", "What is shown here?",
    "Please describe the image.", "What's in this picture?", "What is on this picture?", "Describe it.", "And this?",
    "What about this one?", "What is here?", "Which shapes do you see?", "Which shapes are there?", "Explain.",
    "What shapes and colours are there?", "Can you describe this photo?", "Hello", "Hi!", "Look at this.", "",
)  # fmt: skip
OPENINGS = (
    "A picture of",
    "This is a picture of",
    "I see",
    "I can see",
    "The picture shows",
    "An image of",
    "In it are",
)
_WORDS = """
    the a of and to in is you that it he was for on are as with his they I at be this have from or one had by word
    but not what all were we when your can said there use an each which she do how their if will up other about
    out many then them these so some her would make like him into time has look two more write go see number no
    way could people my than first water been call who oil its now find long down day did get come made may part
    cat dog house car photo please name list answer question short sentence text image picture help good thanks
    why where tree animal person colour color shape big small left right top bottom
"""
WORDS = tuple(_WORDS.split())


def with_article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def plural(shape: str) -> str:
    return shape + ("es" if shape.endswith("s") else "s")


def amount(n: int, colour: str, shape: str) -> str:
    """Return a phrase such as "an orange star" or "two red circles"."""
    return with_article(f"{colour} {shape}") if n == 1 else f"{NUMBERS[n]} {colour} {plural(shape)}"


def listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def contents(scene: Scene) -> str:
    """Return a phrase such as "two red circles and a blue star on a white background"."""
    things = listed([amount(*group) for group in scene.groups()]) if scene.things else "nothing"
    return f"{things} on {with_article(scene.background)} background"


def description(scene: Scene) -> str:
    groups = scene.groups()
    return f"There {'are' if groups and groups[0][0] > 1 else 'is'} {contents(scene)}."


def counted(n: int, what: str) -> str:
    """Return the sentence for ``n`` of something; ``what`` is in the singular."""
    shape = what.split()[-1]
    name = what if n == 1 else what.removesuffix(shape) + plural(shape)
    return f"There {'is' if n == 1 else 'are'} {NUMBERS[n]} {name}."


def ask_what(scene: Scene, random: Random) -> tuple[str, str]:
    """Ask for the description, at times by words that mean nothing."""
    if random.random() < 0.2:
        words = " ".join(random.choices(WORDS, k=random.randint(1, 9)))
        return words + random.choice(("", "?", ".", "!")), description(scene)
    return random.choice(ASKING), description(scene)


def ask_how_many(scene: Scene, random: Random) -> tuple[str, str]:
    shape, colour = _near(scene, random)
    what = random.choice((shape, shape, f"{colour} {shape}", f"{colour} shape", "shape"))
    of = {word: word for word in what.split()}
    n = scene.count(shape if shape in of else "", colour if colour in of else "")
    name = what.removesuffix(what.split()[-1]) + plural(what.split()[-1])
    form = random.choice(("How many {} are there?", "How many {} do you see?", "Count the {}.", "How many {}?"))
    return form.format(name), counted(n, what)


def ask_colour(scene: Scene, random: Random) -> tuple[str, str]:
    shape, _ = _near(scene, random)
    colours = [colour for _, colour, of in scene.groups() if of == shape]
    n = scene.count(shape)
    name = shape if n < 2 else plural(shape)
    verb = "are" if n > 1 else "is"
    word = random.choice(("colour", "color"))
    question = f"What {word} {verb} the {name}?"
    return question, f"The {name} {verb} {listed(colours)}." if n else f"There is no {shape}."


def ask_background(scene: Scene, random: Random) -> tuple[str, str]:
    word = random.choice(("colour", "color"))
    return f"What {word} is the background?", f"The background is {scene.background}."


def ask_whether(scene: Scene, random: Random) -> tuple[str, str]:
    shape, colour = _near(scene, random)
    n = scene.count(shape, colour)
    question = random.choice(("Is there {}?", "Do you see {}?", "Can you see {}?")).format(
        with_article(f"{colour} {shape}")
    )
    if n:
        return question, f"Yes, there {'is' if n == 1 else 'are'} {amount(n, colour, shape)}."
    return question, f"No, there is no {colour} {shape}."


def _near(scene: Scene, random: Random) -> tuple[str, str]:
    """Return a shape and a colour, often of the scene."""
    shape, colour = random.choice(SHAPES), random.choice(list(COLOURS))
    if scene.things and random.random() < 0.75:
        thing = random.choice(scene.things)
        if random.random() < 0.75:
            shape = thing.shape
        if random.random() < 0.75:
            colour = thing.colour
    return shape, colour


QUESTIONS: dict[str, Callable[[Scene, Random], tuple[str, str]]] = {
    "what": ask_what,
    "how many": ask_how_many,
    "colour": ask_colour,
    "background": ask_background,
    "whether": ask_whether,
}
_WEIGHTS = (8, 4, 2, 1, 2)


def ask(scene: Scene, random: Random) -> tuple[str, str]:
    """Return a question and its answer, with small variations of writing."""
    question, answer = random.choices(list(QUESTIONS.values()), _WEIGHTS)[0](scene, random)
    if random.random() < 0.2:
        question = question.lower()
    if random.random() < 0.15:
        question = question.rstrip("?.")
    return question, answer
