"""Text as it may be shown: stop strings are never shown, not even their beginnings."""

from hypothesis import given
from hypothesis import strategies as st

from pumice.engine.requests.outputs import TextStream


class Letters:
    """Stands in for a tokenizer: token ids are code points."""

    def decoder(self, special, continues):
        return self

    def push(self, token):
        return chr(token)

    def flush(self):
        return ""


def run(text, stop):
    stream = TextStream(Letters(), stop)
    pieces = []
    for letter in text:
        pieces.append(stream.push(ord(letter)))
        if stream.stopped:
            break
    pieces.append(stream.finish())
    return pieces, stream.stopped


def test_a_possible_beginning_of_a_stop_string_is_held_back():
    pieces, stopped = run("abab!", ["abac"])
    assert pieces == ["", "", "", "ab", "ab!", ""]
    assert not stopped


@given(text=st.text(alphabet="abc", max_size=40), stop=st.lists(st.text(alphabet="abc", max_size=4), max_size=3))
def test_the_pieces_are_the_text_up_to_the_first_stop(text, stop):
    pieces, stopped = run(text, stop)
    ends = [text.find(s) + len(s) for s in stop if s and s in text]
    if not ends:
        assert "".join(pieces) == text
        assert not stopped
        return
    # The first stop string to be complete ends the text; of several complete at once the one that begins first.
    end = min(ends)
    begin = min(text[:end].find(s) for s in stop if s and s in text[:end])
    assert "".join(pieces) == text[:begin]
    assert stopped
