"""The grammar's notation, its probabilities, and the world that its events change."""

import itertools
import math

import pytest
from tools.demo_model.grammar import Choice, Dice, Slot
from tools.demo_model.notation import parse_grammar, parse_pattern
from tools.demo_model.world import Inconsistent, World

from tools.demo_model import lexicon, notation

COIN = parse_grammar("""
plot coin: first second? end|other

[first]
[a|a [b|c]] x.
a x.

[second]
[Heads|Tails]!

[end]
End.

[other]
{snag} {snag:a}.
""")


def test_a_pattern_is_parsed_into_text_slots_and_choices():
    parts = parse_pattern("{He} saw {thing:a} [here|by the {place:noun}].")

    assert parts == (
        Slot("hero", "He"),
        " saw ",
        Slot("thing", "a"),
        " ",
        Choice((("here",), ("by the ", Slot("place", "noun")))),
        ".",
    )


@pytest.mark.parametrize("line", ["a [b|c", "a ] b", "a {b", "a <b> }"])
def test_unbalanced_brackets_are_refused(line: str):
    with pytest.raises((ValueError, KeyError)):
        parse_pattern(line)


def test_the_probabilities_of_all_texts_add_up_to_one():
    firsts = ("a x.", "a b x.", "a c x.")
    seconds = ("", " Heads!", " Tails!")
    ends = (" End.", *(f" {snag.text} {snag.form('a')}." for snag in lexicon.SNAGS))

    texts = ["".join(parts) for parts in itertools.product(firsts, seconds, ends)]

    assert sum(math.exp(COIN.read(text).log_p) for text in texts) == pytest.approx(1)


def test_a_text_that_can_be_written_in_two_ways_has_the_sum_of_both_probabilities():
    # "a x." is the second pattern, or the first one with its first option; no second sentence; the first end
    assert math.exp(COIN.read("a x. End.").log_p) == pytest.approx((1 / 2 + 1 / 2 * 1 / 2) * 1 / 2 * 1 / 2)


def test_a_fact_keeps_its_value():
    assert COIN.read("a x. mud a mud.").ok
    assert not COIN.read("a x. mud a tree.").ok


def test_the_dice_add_up_the_log_probabilities_of_their_choices():
    dice = Dice("seed")
    for n in (2, 5, 1, 10):
        dice.pick(range(n))

    assert dice.log_p == pytest.approx(-math.log(100))


def test_there_are_several_hundred_sentence_patterns_in_several_plots():
    story_grammar = notation.load()

    assert story_grammar.n_patterns > 700
    assert len(story_grammar.plots) == 9


def test_facts_limit_each_other():
    world = World().know("hero_kind", lexicon.Noun("girl")).know("place", lexicon.PLACES[0])

    assert {name.text for name in world.choices("hero")} == set(lexicon.GIRLS)
    assert {spot.text for spot in world.choices("spot")} == set(lexicon.PLACES[0].spots)
    assert "girl" not in {kind.text for kind in world.choices("friend_kind")}


def after(events: str) -> World:
    world = World()
    for event in events.split("; "):
        world = world.after(tuple(event.split()))
    return world


@pytest.mark.parametrize(
    "events",
    [
        "go hero place",  # who is not in the story yet
        "enter hero home; enter hero place",
        "enter hero home; enter friend place; meet hero friend",
        "enter hero home; has hero thing",
        "enter hero home; take hero thing; lose hero thing place; take hero thing",  # it lies elsewhere
        "enter hero home; enter friend place; take hero thing; give hero friend thing",
        "enter hero home; enter friend here; take hero thing; give hero friend thing; has hero thing",
    ],
)
def test_impossible_events_are_inconsistent(events: str):
    with pytest.raises(Inconsistent):
        after(events)


def test_a_thing_can_be_lost_found_and_given():
    found = "enter hero home; take hero thing; lose hero thing place; go hero place; take hero thing; has hero thing"
    world = after(f"{found}; enter friend here; give hero friend thing; has friend thing")

    assert world.where == {"hero": "place", "friend": "place"}
