"""The demo model's stories, as Pumice samples them, read by the checker."""

from tools.demo_model.checker import check

import pumice

COUNT = 50
LONGEST = 400  # tokens; a story has some 230


def test_nearly_all_sampled_stories_are_stories():
    with pumice.load(backend="cpu", n_parallel=COUNT, n_ctx=COUNT * 512) as model:
        streams = [model.stream("", max_tokens=LONGEST, temperature=0.8, seed=seed) for seed in range(COUNT)]
        completions = [stream.completion() for stream in streams]
    assert all(completion.finish_reason == "stop" for completion in completions)
    assert len({completion.text for completion in completions}) == COUNT
    assert sum(check(completion.text).ok for completion in completions) >= 0.9 * COUNT
