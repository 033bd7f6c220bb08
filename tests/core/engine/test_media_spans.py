"""Spans of embeddings in prompts: the embeddings of tokens in place of these tokens change nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pumice
from pumice.architecture import MediaRules
from pumice.backend.step import LATEST, Limits
from pumice.embeddings import Embeddings
from pumice.engine import Request
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.media.rows import MediaIds, place_spans
from pumice.engine.messages import Failed
from pumice.engine.requests.batches import Part, Place, batch_of
from pumice.gguf import GGUFFile
from pumice.streaming.stream import Stream
from tiny_drafts import MODELS as DRAFTING
from tiny_models import IDS
from tiny_zoo import ZOO

PROMPT = list(range(3, 73))
GREEDY = {"sampling": {"temperature": 0.0}, "max_tokens": 12}
SPANS = (slice(5, 45), slice(45, 52))


@pytest.fixture(scope="module")
def table(path):
    with GGUFFile.open(path) as file:
        return np.array(file.tensors["token_embd.weight"].dequantize())


def request(table, **options):
    """The prompt with two adjacent spans, which hold what its tokens there have as embeddings."""
    prompt = np.array(PROMPT)
    spans = [Embeddings(table[prompt[where]], start=where.start) for where in SPANS]
    for where in SPANS:
        prompt[where] = 0
    return Request(prompt.tolist(), media=spans, **GREEDY | options)


def complete(model, request):
    return Stream.open(model.engine.client, request)[0].completion()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("n_batch", [7, 512])
def test_embeddings_of_tokens_give_what_the_tokens_give(path, table, backend, n_batch):
    with pumice.load(path, backend=backend, kv_type="f32", n_batch=n_batch) as model:
        expected = complete(model, Request(PROMPT, **GREEDY))
        result = complete(model, request(table, cache_salt="other"))
    assert result.tokens == expected.tokens
    assert result.timings.prompt_tokens == len(PROMPT)


def test_penalties_do_not_see_media(path, table):
    sampling = {"temperature": 0.0, "repeat_penalty": 1.5, "repeat_last_n": 64}
    with pumice.load(path, backend="numpy") as model:
        result = complete(model, request(table, sampling=sampling, logprobs=0))
        assert result.tokens == complete(model, request(table, sampling=sampling)).tokens


def test_tokens_of_slots_stay_beside_other_inputs():
    cache = KVCache(Limits(32, 8, 8, 1, 32, {0: 1}, "f32"))
    tables = cache.begin([])[0]
    cache.extend(tables, 0, 4)
    batch = batch_of(cache, [Part(Place(0, tables), [LATEST, 3], 2, [1], adapters=[("own", 0.5)])])
    assert batch.tokens.tolist() == [LATEST, 3]
    assert batch.takes_from_slots


@pytest.mark.parametrize("error", [StopIteration(), StopAsyncIteration()])
def test_a_failure_never_looks_like_the_end_of_a_stream(error):
    failed = Failed(1, error)
    assert isinstance(failed.error, RuntimeError)
    assert failed.error.__cause__ is error


@pytest.mark.parametrize(
    ("start", "rows", "problem"),
    [
        (0, np.zeros((4, 3), np.float32), r"media\[0\].rows: expected \[n, 64\]"),
        (68, np.zeros((4, 64), np.float32), r"media\[0\].start: 4 positions from 68 on do not fit"),
        (0, np.full((4, 64), np.nan, np.float32), "not a finite number"),
        (0, np.zeros((0, 64), np.float32), "expected"),
    ],
)
def test_wrong_spans_are_refused(path, start, rows, problem):
    with pumice.load(path, backend="numpy") as model, pytest.raises(pumice.RequestError, match=problem):
        complete(model, Request(PROMPT, media=[Embeddings(rows, start=start)], **GREEDY))


@pytest.mark.parametrize(("name", "grid"), [("qwen2vl", (2, 3)), ("glm4moe", None)])
def test_text_behind_media_is_the_same_with_drafts(tmp_path, name, grid):
    """Also where positions have axes, beside a sequence without media, and with a layer that drafts for that one."""
    path = (ZOO if grid else DRAFTING)[name].write(tmp_path / "model.gguf")
    prompt = [*IDS[:4], *[0] * 6, *IDS[4:9], *IDS[4:9]]
    rows = np.random.default_rng(1).standard_normal((6, 64)).astype(np.float32)
    choices = ["ngram", "ngram-cache,ngram"] if grid else ["mtp,ngram-cache"]
    config = {"n_draft": 5, "draft_p_min": 0.0, "speculate": choices[0], "numpy": {"batch_invariant": True}}
    with pumice.load(path, backend="numpy", n_ctx=128, n_batch=16, n_parallel=2, config=config) as model:

        def complete_both(speculate):
            options = {"sampling": {"temperature": 0.0}, "max_tokens": 40, "end_tokens": frozenset()}
            seen = Request(
                prompt, media=[Embeddings(rows, grid, start=4)], speculate=speculate, cache_salt=speculate, **options
            )
            plain = Request(prompt, speculate=speculate, cache_salt=speculate, **options)
            streams = [Stream.open(model.engine.client, each)[0] for each in (seen, plain)]
            return [stream.completion() for stream in streams]

        expected = complete_both("off")
        for choice in choices:
            found = complete_both(choice)
            assert [each.tokens for each in found] == [each.tokens for each in expected]
            assert all(each.timings.n_accepted > 0 for each in found)


def test_a_context_shift_is_refused_beside_media(path, table):
    with (
        pumice.load(path, backend="numpy") as model,
        pytest.raises(pumice.RequestError, match="context_shift: prompts with images"),
    ):
        complete(model, request(table, context_shift=True))


def test_images_with_grids_of_their_own_take_as_many_places_as_rows():
    rows, rules = np.ones((6, 64), np.float32), MediaRules(axes=(0, 1, 2), own_grid=True)
    spans = [Embeddings(rows, (2, 3), start=2), Embeddings(rows[:1], start=8), Embeddings(rows, (3, 2), start=9)]
    _, media = place_spans(PROMPT[:16], spans, MediaIds(), 64, rules)
    places = media.places_from(0, 18).tolist()
    assert places[2:9] == [*[[2 + 3 * i + j, i, j, 0] for i in range(2) for j in range(3)], [8] * 4]
    grid = [[9 + 2 * i + j, i, j, 1] for i in range(3) for j in range(2)]
    assert places[9:] == [*grid, *[[i] * 4 for i in (15, 16, 17)]]


GRIDS = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 4), st.lists(st.integers(0, 9), max_size=3))


@given(st.lists(GRIDS, max_size=3))
def test_text_continues_behind_the_largest_place_of_a_grid(grids):
    """Of images, and of the frames of videos at their times (M-RoPE, arXiv:2409.12191)."""
    spans, expected, place = [], [], 0
    for n_before, rows, columns, times in grids:
        expected += [[place + i] * 4 for i in range(n_before)]
        place += n_before
        cells = [
            [place + time, place + i, place + j, place]
            for time in times or [0] for i in range(rows) for j in range(columns)
        ]  # fmt: skip
        values = np.ones((len(cells), 8), np.float32)
        spans.append(Embeddings(values, (rows, columns), "video", tuple(times), start=len(expected)))
        expected += cells
        place = 1 + max(map(max, cells))
    n_prompt = len(expected) + 2
    expected += [[place + i] * 4 for i in range(4)]
    _, media = place_spans([1] * n_prompt, spans, MediaIds(), 8, MediaRules(axes=(0, 1, 2)))
    assert media.places_from(0, n_prompt + 2).tolist() == expected


@pytest.mark.parametrize("both_ways", [(), ("audio",), ("image",)])
def test_an_image_that_one_step_cannot_read_is_refused(both_ways):
    rows = np.ones((6, 64), np.float32)
    arguments = PROMPT[:10], [Embeddings(rows, start=2)], MediaIds(), 64, MediaRules(both_ways=both_ways), 5
    if "image" not in both_ways:
        assert place_spans(*arguments)
        return
    with pytest.raises(pumice.RequestError, match=r"6 positions must be read in one step; .* n_batch=6"):
        place_spans(*arguments)


def test_media_of_gemma_3n_have_the_layer_inputs_of_the_padding_token(tmp_path):
    """Embeddings of this token, which are scaled, give what the token gives."""
    path = ZOO["gemma3n-short"].write(tmp_path / "model.gguf")
    with GGUFFile.open(path) as file:
        table = np.array(file.tensors["token_embd.weight"].dequantize())
    prompt = [*IDS[:4], *[0] * 3, *IDS[4:9]]
    rows = np.repeat(table[:1] * np.float32(table.shape[1] ** 0.5), 3, 0)
    with pumice.load(path, backend="numpy", kv_type="f32") as model:
        tokens = complete(model, Request(prompt, logprobs=5, **GREEDY))
        media = complete(
            model, Request(prompt, media=[Embeddings(rows, start=4)], logprobs=5, cache_salt="other", **GREEDY)
        )
    assert media.tokens == tokens.tokens
    for ours, expected in zip(media.logprobs, tokens.logprobs, strict=True):
        assert abs(ours.logprob - expected.logprob) < 1e-5


def test_spans_have_the_ids_of_their_contents():
    ids, random = MediaIds(), np.random.default_rng(0)
    spans = [Embeddings(random.standard_normal((n, 8)).astype(np.float32)) for n in (3, 5, 2, 4)]
    _, together = ids.of([*spans, spans[1]])
    assert together == [*(ids.of([span])[1][0] for span in spans), together[1]]
    assert len({ids.start for ids in together}) == len(spans)


def test_equal_media_are_cached_and_others_are_not(path, table):
    with pumice.load(path, backend="numpy") as model:
        first, again = complete(model, request(table)), complete(model, request(table))
        other = complete(model, request(table + 1.0))
        tokens = complete(model, Request(PROMPT, **GREEDY))
    assert [first.timings.prompt_cached, again.timings.prompt_cached] == [0, len(PROMPT) - 1]
    assert other.timings.prompt_cached == tokens.timings.prompt_cached == 0
    assert first.tokens == again.tokens == tokens.tokens != other.tokens
