"""Stories of the generator pass the checker; damaged ones do not."""

import itertools
import re
from random import Random

import pytest
from tools.demo_model.checker import check, check_corpus
from tools.demo_model.generate import Story, stories

from tools.demo_model import corruptions, lexicon

COUNT = 2000


@pytest.fixture(scope="module")
def corpus() -> list[Story]:
    return list(itertools.islice(stories(seed=5), COUNT))


def test_a_seed_and_a_shard_name_a_stream_of_stories():
    first, again, other = (list(itertools.islice(stories(1, shard), 20)) for shard in (0, 0, 1))

    assert first == again
    assert not {story.text for story in first} & {story.text for story in other}


def test_every_story_passes_and_is_at_least_as_probable_as_its_choices(corpus: list[Story]):
    verdicts = [check(story.text) for story in corpus]

    assert sum(verdict.ok for verdict in verdicts) == COUNT
    assert all(verdict.log_p >= story.log_p - 1e-6 for verdict, story in zip(verdicts, corpus, strict=True))


def test_stories_are_short_and_all_different(corpus: list[Story]):
    words = [len(story.text.split()) for story in corpus]

    assert min(words) >= 100
    assert max(words) <= 250
    assert len({story.text for story in corpus}) == COUNT


def test_a_third_begin_with_once_upon_a_time(corpus: list[Story]):
    share = sum(story.text.startswith("Once upon a time") for story in corpus) / COUNT

    assert 0.28 < share < 0.42


def test_the_language_has_no_slips(corpus: list[Story]):
    slip = re.compile(r"\b[Aa] [aeiou]\w+|\b[Aa]n [^aeiouh\W]|  |[.!?] [a-z]|\b(?!Whoo\b)(\w+) \1\b|[\[\]{}<>|]")

    assert [match.group() for story in corpus for match in slip.finditer(story.text)] == []


@pytest.mark.parametrize("name", corruptions.CORRUPTIONS)
def test_every_spoilt_story_fails(corpus: list[Story], name: str):
    random = Random(name)
    spoilt = [corruptions.CORRUPTIONS[name](story.text, random) for story in corpus[:200]]

    assert sum(not check(text).ok for text in spoilt) == 200


def test_every_wrong_name_fails_wherever_it_stands():
    text = next(story.text for story in stories(seed=6) if len(story.text.split()) > 150)
    names = {name.text for name in lexicon.NAMES}
    mentions = [match for match in re.finditer(r"\b[A-Z]\w+\b", text) if match.group() in names]

    assert len(mentions) > 5
    for mention in mentions:
        wrong = "Mia" if mention.group() != "Mia" else "Zoe"
        assert not check(text[: mention.start()] + wrong + text[mention.end() :]).ok


def test_the_verdict_says_which_fact_is_wrong():
    story = next(story.text for story in stories(seed=7) if story.text.startswith("Once upon a time, there lived"))
    name = re.search(r"name was (\w+)", story).group(1)
    at = story.rindex(name)

    verdict = check(story[:at] + "Nobody" + story[at + len(name) :])

    assert verdict.position == at
    assert f"hero '{name}'" in verdict.expected


def test_an_unfinished_story_wants_more_text():
    story = next(stories(seed=8)).text

    assert "more text" in check(story[: story.rindex(" ")]).expected


def test_the_corpus_is_checked_shard_by_shard():
    result = check_corpus(seed=1, shards=2, count=20, processes=1)

    assert (result.stories, result.passed) == (40, 40)
    assert 40 < result.nats / result.stories < 100
