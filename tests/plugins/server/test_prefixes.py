"""Choice of the replica with the longest prefix of a prompt, in blocks of 32 tokens."""

from pumice_server.routing.prefixes import BLOCK, Prefixes


def test_the_longest_beginning_wins():
    prefixes, both = Prefixes(), {"one", "two"}
    shared, other = list(range(2 * BLOCK)), list(range(1000, 1000 + BLOCK))
    assert prefixes.holders(shared, "", both) == (0, both)
    prefixes.add(shared, "", "one")
    prefixes.add([*shared, *other], "", "two")
    assert prefixes.holders(shared, "", both) == (2 * BLOCK, both)
    assert prefixes.holders([*shared, *other, 5], "", both) == (3 * BLOCK, {"two"})
    assert prefixes.holders([*shared[:BLOCK], *other], "", both) == (BLOCK, both)
    assert prefixes.holders([*shared, *other], "", {"one"}) == (2 * BLOCK, {"one"})
    assert prefixes.holders(other, "", both) == (0, both)
    assert prefixes.holders(shared, "somebody else", both) == (0, both)
    assert prefixes.holders(shared[: BLOCK - 1], "", both) == (0, both)


def test_the_least_recently_used_prefix_is_forgotten():
    prefixes, prompts = Prefixes(max_blocks=4), [[i] * BLOCK for i in range(5)]
    for prompt in (*prompts[:4], prompts[0], prompts[4]):
        prefixes.add(prompt, "", "one")
    assert [prefixes.holders(prompt, "", {"one"})[0] for prompt in prompts] == [BLOCK, 0, BLOCK, BLOCK, BLOCK]
