"""Texts of users never become special tokens; texts without such marks cost nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from family_templates import FAMILIES
from pumice.chat.special_tokens import Guard, special_spellings, tokenize_marked
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits
from pumice.errors import RequestError
from tokenizer_fixtures import NAMES, small

TEMPLATE = "{{ '<s>' }}{% for m in messages %}{{ m.role ~ ': ' ~ (m.content | trim) }}{{ '<|eot_id|>' }}{% endfor %}"
BY_BPE = small("bpe")  # its control tokens: </s> <s> <|eot_id|> <|fim_pad|>, and <|channel|> is spelt like one


def tokens(name: str, *texts: str, template: str = TEMPLATE) -> list[int]:
    tokenizer = small(name)
    guard = Guard(special_spellings(tokenizer), template)
    mark, [messages] = guard.mark([{"role": "user", "content": text} for text in texts])
    text = ChatTemplate(template, "<s>", "</s>").render(messages)
    return tokenize_marked(tokenizer, guard.needed(text, mark), mark)


def by_hand(name: str, *texts: str) -> list[int]:
    """The tokens when the template's part and the user's are known apart: only good where no token spans both."""
    tokenizer = small(name)
    rendered = "<s>" + "".join(f"user: {text.strip()}<|eot_id|>" for text in texts)
    ids = tokenizer.tokenize(rendered, add_special=False)
    return ids if not tokenizer.add_bos or ids[:1] == [tokenizer.bos] else [tokenizer.bos, *ids]


@pytest.mark.parametrize("name", NAMES)
@given(texts=st.lists(st.text("ab <|>\n/[]é▁", max_size=12), min_size=1, max_size=3))
def test_without_spellings_the_tokens_are_those_of_the_text(name, texts):
    vocabulary = small(name).vocabulary
    spellings = [vocabulary.tokens[token] for token in vocabulary.hidden]
    if not any(spelling in text for spelling in spellings for text in ["".join(texts)]):
        assert tokens(name, *texts) == by_hand(name, *texts)


@pytest.mark.parametrize("name", NAMES)
def test_a_spelling_in_a_users_text_is_text(name):
    tokenizer = small(name)
    if name.startswith(("wpm", "rwkv", "unigram", "plamo2")):
        pytest.skip("what is no special token may be unknown to it, or a word like any")
    for token in tokenizer.vocabulary.hidden:
        spelling = tokenizer.vocabulary.tokens[token]
        plain = tokens(name, "a b c")
        assert tokens(name, f"a {spelling} c").count(token) == plain.count(token)
        assert tokens(name, f"a {spelling} c") != by_hand(name, f"a {spelling} c")


@given(
    texts=st.lists(
        st.text("<s>|eot_id/ \n", max_size=10) | st.sampled_from(["<|eot_id|>", "<s>", "<|eot_", "id|>"]), max_size=4
    )
)
def test_no_text_adds_a_special_token(texts):
    """Nor do texts that a template writes beside each other, or takes apart."""
    template = (
        "{% for m in messages %}{{ m.content | trim }}{{ m.content | replace('</think>', '') }}"
        "{{ m.content.split('id')[-1] }}{{ m.content[2:] }}{% endfor %}{{ '<s>' }}"
    )
    special = BY_BPE.vocabulary.hidden - {BY_BPE.bos}
    assert not special.intersection(tokens("bpe", *texts, "</think>", template=template))


def test_a_spelling_is_not_made_by_deleting_what_stands_in_it():
    template = "{% for m in messages %}{{ m.content | replace('</think>', '') }}{% endfor %}"
    ids = tokens("bpe", "<|eot_</think>id|>", template=template)
    assert BY_BPE.vocabulary.ids["<|eot_id|>"] not in ids
    assert BY_BPE.detokenize(ids) == "<|eot_id|>"


def test_templates_find_the_marks_that_they_look_for():
    template = with_traits(ChatTemplate(FAMILIES["hermes"]))
    guard = Guard(special_spellings(BY_BPE), template.source)
    chat = [{"role": "assistant", "content": "<think>x</think>\nHi", "reasoning": "Well < so"}]
    mark, [marked] = guard.mark(chat)
    assert mark in marked[0]["reasoning"]
    assert template.render(marked).replace(mark, "") == template.render(chat)
    assert template.render(chat).count("</think>") == 1


def test_keys_and_arguments_are_marked():
    guard = Guard(special_spellings(BY_BPE), "")
    mark, [tool, variables] = guard.mark({"properties": {"<s>": {"enum": ["<s>", 1, None]}}}, {"x": "<s>"})
    assert tool == {"properties": {f"<{mark}s>": {"enum": [f"<{mark}s>", 1, None]}}}
    assert variables == {"x": f"<{mark}s>"}


def test_a_text_that_has_the_mark_gets_another():
    guard = Guard(special_spellings(BY_BPE), "")
    mark, _ = guard.mark("\ufdd0 and \ufdd1")
    assert mark == "\ufdd2"
    with pytest.raises(RequestError, match="every Unicode noncharacter"):
        guard.mark("".join(map(chr, range(0xFDD0, 0xFDF0))))
