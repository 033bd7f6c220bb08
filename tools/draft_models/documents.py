"""Training texts from a seed: stories, edits of stories, and records as JSON.

An edit repeats a story with the changes that its task asks for, and JSON repeats its keys and the names of a text, so
both show how much drafts gain where an answer copies its prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from tools.demo_model.generate import stories

WORDS = [
    "cheese",
    "lantern",
    "window",
    "garden",
    "river",
    "basket",
    "mountain",
    "button",
    "kitchen",
    "feather",
    "cloud",
    "ladder",
    "honey",
    "blanket",
]
CITIES = [
    "Rome",
    "Paris",
    "Oslo",
    "Lima",
    "Cairo",
    "Tokyo",
    "Delhi",
    "Quito",
    "Bonn",
    "Riga",
    "Perth",
    "Turin",
    "Ghent",
    "Porto",
    "Basel",
    "Kyoto",
]
HOBBIES = [
    "chess",
    "tennis",
    "painting",
    "cooking",
    "swimming",
    "reading",
    "singing",
    "climbing",
    "sailing",
    "dancing",
    "knitting",
    "cycling",
]
OPENINGS = ["This is an old story.", "Listen well, children.", "It was a cold day.", "Nobody had planned it."]
ORDINALS = ["first", "second", "third", "fourth", "last"]
SYLLABLES = "ba be bo da de do fa fi ka ke ko la le li lo ma me mi mo na ne ni no ra re ri ro sa se so ta te ti to va"
SHARES = {"story": 0.5, "edit": 0.3, "json": 0.2}
"""Share of each kind among the documents."""


class Document(NamedTuple):
    """A text that asks, and the answer. A story has no prompt."""

    kind: str
    prompt: str
    answer: str


def documents(seed: int, shard: int = 0, kinds: tuple[str, ...] = tuple(SHARES)) -> Iterator[Document]:
    """Yield documents of these kinds without end, deterministic for a seed and shard."""
    chance = Random(f"draft models/{seed}/{shard}")
    texts = (story.text for story in stories(seed, shard))
    makers: dict[str, Callable[[Random, Iterator[str]], Document]] = {
        "story": lambda _, texts: Document("story", "", next(texts)),
        "edit": edit,
        "json": records,
    }
    while True:
        [kind] = chance.choices(kinds, [SHARES[kind] for kind in kinds])
        yield makers[kind](chance, texts)


def asking(text: str, task: str) -> str:
    """Return the prompt of a task about a text."""
    return f"Text:\n{text}\n\nTask: {task}\n\nResult:\n"


def new_name(chance: Random) -> str:
    """Return a name of two or three syllables, which a model can only copy."""
    return "".join(chance.choices(SYLLABLES.split(), k=chance.choice([2, 2, 3]))).capitalize()


def edit(chance: Random, texts: Iterator[str]) -> Document:
    """Return a story with one or two changes asked for, and the changed story."""
    before = after = next(texts)
    tasks = []
    for change in chance.sample([rename, replace_word, leave_out, begin_with, capitalize], chance.choice([1, 1, 2])):
        task, after = change(chance, after)
        tasks.append(task)
    return Document("edit", asking(before, " ".join(tasks)), after)


def rename(chance: Random, text: str) -> tuple[str, str]:
    """Give a character another name."""
    old, new = chance.choice(_names(text)), new_name(chance)
    return f"Replace {old} by {new}.", re.sub(rf"\b{old}\b", new, text)


def replace_word(chance: Random, text: str) -> tuple[str, str]:
    """Replace a word wherever it occurs."""
    old = chance.choice(sorted(set(re.findall(r"\b[a-z]{4,}\b", text))))
    new = chance.choice(WORDS)
    return f'Replace "{old}" by "{new}".', re.sub(rf"\b{old}\b", new, text)


def leave_out(chance: Random, text: str) -> tuple[str, str]:
    """Leave out a sentence of the first paragraph."""
    first, *others = text.split("\n\n")
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", first)
    ordinal = chance.choice([*ORDINALS[: min(4, len(sentences))], ORDINALS[-1]])
    place = len(sentences) - 1 if ordinal == ORDINALS[-1] else ORDINALS.index(ordinal)
    first = " ".join(sentences[:place] + sentences[place + 1 :])
    return f"Leave out the {ordinal} sentence of the first paragraph.", "\n\n".join([first, *others]).lstrip("\n")


def begin_with(chance: Random, text: str) -> tuple[str, str]:
    """Put a sentence before the text."""
    opening = chance.choice(OPENINGS)
    return f'Begin with "{opening}"', f"{opening} {text}"


def capitalize(chance: Random, text: str) -> tuple[str, str]:
    """Write a name in capital letters."""
    name = chance.choice(_names(text))
    return f"Write {name} in capital letters.", re.sub(rf"\b{name}\b", name.upper(), text)


def _names(text: str) -> list[str]:
    """Return the capitalized words inside sentences, or of the text if there are none."""
    return sorted(set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+\b", text))) or re.findall(r"\b[A-Z][a-z]+\b", text)


def records(chance: Random, _: Iterator[str]) -> Document:
    """Return sentences about people, and the facts as JSON."""
    people, sentences = [], []
    for _number in range(chance.randint(2, 6)):
        person = {
            "name": new_name(chance),
            "age": chance.randint(18, 90),
            "city": chance.choice(CITIES),
            "hobby": chance.choice(HOBBIES),
            "member": chance.random() < 0.5,
        }
        people.append(person)
        form = chance.choice(
            [
                "{name} is {age} years old, lives in {city}, likes {hobby} and is {member}.",
                "{name} from {city} is {age}. The hobby is {hobby}, and {name} is {member}.",
                "In {city} lives {name}, who is {age} years old and {member}. The hobby is {hobby}.",
            ]
        )
        sentences.append(form.format_map({**person, "member": "a member" if person["member"] else "not a member"}))
    return Document("json", asking(" ".join(sentences), "List the people as JSON."), json.dumps(people, indent=1))
