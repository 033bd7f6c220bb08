"""The state of the world in a story: known facts, where everybody is, and who holds what.

A fact (the hero's name, the place, the lost thing) is drawn at its first mention and never changes afterwards. Its
possible values depend on the known facts: a girl has a girl's name, daisies grow in a meadow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from . import lexicon
from .lexicon import Item, Name, Noun, Skill, StoryPlace


class Inconsistent(Exception):
    """An event that is impossible in the current world."""


VALUES: Mapping[str, Sequence[Noun]] = {
    "hero": lexicon.NAMES,
    "hero_kind": lexicon.KINDS,
    "friend": lexicon.NAMES,
    "friend_kind": lexicon.KINDS,
    "home": lexicon.HOMES,
    "place": lexicon.PLACES,
    "spot": [Noun(spot) for place in lexicon.PLACES for spot in place.spots],
    "thing": lexicon.THINGS,
    "item": lexicon.ITEMS,
    "food": lexicon.FOODS,
    "skill": lexicon.SKILLS,
    "elder": lexicon.ELDERS,
    "project": lexicon.PROJECTS,
    "snag": lexicon.SNAGS,
    "reason": lexicon.REASONS,
    "noise": lexicon.NOISES,
}


def _name_fits(name: Noun, kind: Noun) -> bool:
    female = isinstance(name, Name) and name.female
    return {"girl": female, "boy": not female}.get(kind.text, True)


def _differ(one: Noun, other: Noun) -> bool:
    return one != other


def _found_at(value: Noun, place: Noun) -> bool:
    assert isinstance(value, (Item, Skill))
    return not value.places or place.text in value.places


def _spot_of(spot: Noun, place: Noun) -> bool:
    assert isinstance(place, StoryPlace)
    return spot.text in place.spots


def _snag_of(snag: Noun, place: Noun) -> bool:
    assert isinstance(place, StoryPlace)
    return snag.text in place.snags


# Pairs of dependent facts, and their compatibility.
RULES: Sequence[tuple[str, str, Callable[[Noun, Noun], bool]]] = (
    ("hero", "hero_kind", _name_fits),
    ("friend", "friend_kind", _name_fits),
    ("hero", "friend", _differ),
    ("hero_kind", "friend_kind", _differ),
    ("item", "place", _found_at),
    ("skill", "place", _found_at),
    ("project", "place", _found_at),
    ("spot", "place", _spot_of),
    ("snag", "place", _snag_of),
)
RELATED = {
    fact: [rule for rule in RULES if fact in rule[:2]] for fact in VALUES
}  # fmt: skip


@cache
def _allowed(fact: str, facts_so_far: tuple[tuple[str, Noun], ...]) -> tuple[Noun, ...]:
    facts = dict(facts_so_far)
    values = []
    for value in VALUES[fact]:
        candidate = {**facts, fact: value}
        if all(fits(candidate[a], candidate[b]) for a, b, fits in RELATED[fact] if a in candidate and b in candidate):
            values.append(value)
    return tuple(values)


@dataclass(frozen=True)
class World:
    """A reader's knowledge at one point of a story. Immutable: every change returns a new world."""

    facts: Mapping[str, Noun] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)  # hero or friend -> the fact that names the place
    holder: Mapping[str, str] = field(default_factory=dict)  # thing, item, food -> hero, friend, or a place fact

    def choices(self, fact: str) -> tuple[Noun, ...]:
        """Return the possible values of an unknown `fact`, all equally likely."""
        others = [b if a == fact else a for a, b, _ in RELATED[fact]]
        return _allowed(fact, tuple((other, self.facts[other]) for other in others if other in self.facts))

    def know(self, fact: str, value: Noun) -> World:
        return replace(self, facts={**self.facts, fact: value})

    def resolve(self, fact: str) -> str:
        """Return the fact that names the hero's place for `here`; any other fact unchanged."""
        return self.where["hero"] if fact == "here" else fact

    def after(self, event: tuple[str, ...]) -> World:
        """Return the world after `event`. Raises Inconsistent if it cannot happen now."""
        verb, *args = event
        return _EVENTS[verb](self, *args)


def _enter(world: World, who: str, place: str) -> World:
    if who in world.where:
        raise Inconsistent(f"{who} is already {world.where[who]}")
    return replace(world, where={**world.where, who: world.resolve(place)})


def _go(world: World, who: str, place: str) -> World:
    if world.where.get(who) == world.resolve(place):
        raise Inconsistent(f"{who} is already {place}")
    if who not in world.where:
        raise Inconsistent(f"{who} is nowhere yet")
    return replace(world, where={**world.where, who: world.resolve(place)})


def _meet(world: World, one: str, other: str) -> World:
    if world.where.get(one) is None or world.where.get(one) != world.where.get(other):
        raise Inconsistent(f"{one} and {other} are not in one place")
    return world


def _take(world: World, who: str, thing: str) -> World:
    owner = world.holder.get(thing)
    if owner is not None and owner != world.where[who]:
        raise Inconsistent(f"{thing} is with {owner}, not where {who} is")
    return replace(world, holder={**world.holder, thing: who})


def _lose(world: World, who: str, thing: str, place: str) -> World:
    _has(world, who, thing)
    return replace(world, holder={**world.holder, thing: world.resolve(place)})


def _give(world: World, giver: str, taker: str, thing: str) -> World:
    _has(world, giver, thing)
    _meet(world, giver, taker)
    return replace(world, holder={**world.holder, thing: taker})


def _has(world: World, who: str, thing: str) -> World:
    if world.holder.get(thing) != who:
        raise Inconsistent(f"{who} does not have {thing}: it is with {world.holder.get(thing)}")
    return world


_EVENTS: Mapping[str, Callable[..., World]] = {
    "enter": _enter,  # enter WHO PLACE: a character enters the story at that place
    "go": _go,  # go WHO PLACE
    "meet": _meet,  # meet WHO WHO: both are in one place
    "take": _take,  # take WHO THING: the thing is new, or lies where WHO is
    "lose": _lose,  # lose WHO THING PLACE: WHO held it, now it lies at PLACE
    "give": _give,  # give FROM TO THING
    "has": _has,  # has WHO THING
}
