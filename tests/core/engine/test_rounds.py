"""The number of tokens that a round drafts follows from the measured time of rounds."""

import pytest

from pumice.engine.rounds import Rounds

LENGTHS = [1, 3, 7, 15]
KIND = "one sequence"


def run(rounds: Rounds, seconds: dict[int, float], n_right: int, n_rounds: int = 40) -> list[int]:
    """Return the lengths of rounds that take so many seconds, of which the first ``n_right`` tokens are right."""
    lengths = []
    for _ in range(n_rounds):
        lengths.append(n := rounds.length(KIND, LENGTHS))
        rounds.judged(KIND, min(n_right, n), n)
        rounds.took(KIND, n, seconds[n])
    return lengths


@pytest.mark.parametrize(
    ("seconds", "n_right", "best"),
    [
        ({1: 2.0, 3: 2.1, 7: 2.5, 15: 3.5}, 15, 15),
        ({1: 2.0, 3: 2.1, 7: 2.5, 15: 9.0}, 15, 7),
        ({1: 1.2, 3: 2.1, 7: 4.5, 15: 9.0}, 1, 1),
    ],
)
def test_the_fastest_length_is_found(seconds: dict[int, float], n_right: int, best: int) -> None:
    rounds = Rounds()
    lengths = run(rounds, seconds, n_right)
    assert lengths[0] == 3
    assert lengths[-10:] == [best] * 10


def test_no_length_is_longer_than_allowed() -> None:
    rounds = Rounds()
    run(rounds, dict.fromkeys(LENGTHS, 1.0), 15)
    assert rounds.length(KIND, [1, 3]) == 3
    assert rounds.length(KIND, []) == 0
    assert Rounds().length(KIND, [7, 15]) == 7


def test_rounds_that_cannot_pay_are_known() -> None:
    rounds = Rounds()
    assert rounds.pays(KIND, LENGTHS, 0.1)  # before any was measured
    run(rounds, {1: 2.0, 3: 3.0, 7: 5.0, 15: 9.0}, 0)
    assert rounds.pays(KIND, LENGTHS, 1.5)
    assert not rounds.pays(KIND, LENGTHS, 0.5)


def test_a_single_delay_does_not_end_a_length() -> None:
    rounds, seconds = Rounds(), {1: 2.0, 3: 2.1, 7: 2.5, 15: 9.0}
    rounds.took(KIND, 7, 40.0)
    assert run(rounds, seconds, 15)[-10:] == [7] * 10


def test_a_length_that_is_hardly_better_is_not_taken() -> None:
    rounds = Rounds()
    lengths = run(rounds, {1: 9.0, 3: 2.0, 7: 3.96, 15: 30.0}, 15)
    assert lengths[-20:] == [3] * 20


def test_known_rounds_promise_a_gain() -> None:
    rounds = Rounds()
    assert not rounds.promises(KIND, 1.0)
    run(rounds, dict.fromkeys(LENGTHS, 2.0), 3)
    assert rounds.promises(KIND, 1.0)
    assert not rounds.promises(KIND, 0.4)
