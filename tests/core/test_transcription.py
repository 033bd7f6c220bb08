"""Transcripts: the rules of times, windows, fallback and previous text, and the command, with a tiny random Whisper."""

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import pumice
from hearing_models import RATE, SECONDS, sound
from pumice.cli import cli
from pumice.convert import ConvertOptions, write_model
from pumice.embeddings import Embeddings
from pumice.engine import Request, Timings
from pumice.engine.messages import Logprobs
from pumice.engine.requests.sounds import median
from pumice.errors import RequestError
from pumice.gguf import GGMLType
from pumice.media import silence
from pumice.media.silence import Speech
from pumice.media.subtitles import subrip, webvtt
from pumice.model_files.opening import open_model
from pumice.plugin import Candidates, SamplerContext
from pumice.streaming.pieces import Completion
from pumice.transcription import TranscribeOptions, Transcriber, Transcript
from pumice.transcription.words import first_rows, timed, word_pieces
from pumice_samplers.timestamps import LATEST_FIRST, Timestamps
from whisper_models import END, FIRST_TIME, GERMAN, N_VOCAB, PREVIOUS, SILENCE, SPECIAL, START, TRANSCRIBE, write_folder

TOKENS = {"tokenizer.ggml.tokens": [*["x"] * END, *SPECIAL]}
METADATA = {"general.architecture": "another", "another.context_length": 64, **TOKENS}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pumice.Model]:
    folder = write_folder(tmp_path_factory.mktemp("whisper") / "tiny")
    with open_model(folder, options=ConvertOptions(GGMLType.F32)) as file:
        write_model(file, folder / "model.gguf")
    with pumice.load(folder / "model.gguf", backend="numpy") as loaded:
        yield loaded


class Tokenizer:
    eos = END


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 30))
def test_times_follow_whispers_rules(seed: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    sampler = Timestamps(FIRST_TIME, [GERMAN, TRANSCRIBE])
    sampler.start(SamplerContext(N_VOCAB, tokenizer=Tokenizer()))  # type: ignore[arg-type]
    for token in (0, PREVIOUS, 5, START):  # a prompt
        sampler.accept(token)
    tokens: list[int] = []
    while len(tokens) < 60 and END not in tokens:
        logits = random.normal(0, spread, N_VOCAB).astype(np.float32)
        logits[END] -= 2 * spread
        candidates = Candidates(logits.copy())
        sampler.apply(candidates)
        allowed = set(candidates.ids[candidates.logits > -np.inf].tolist())
        tokens.append(int(candidates.ids[candidates.logits.argmax()]))
        if len(tokens) > 2:
            left = np.exp(logits[sorted(allowed)].astype(np.float64)).sum()
            assert candidates.total == pytest.approx(np.log(left), abs=1e-4)
        if len(tokens) > 2 and not all(token >= FIRST_TIME for token in allowed):
            of_times = logits[[token for token in allowed if token >= FIRST_TIME]].astype(np.float64)
            if len(of_times):
                assert np.log(np.exp(of_times).sum()) <= max(logits[token] for token in allowed if token <= END) + 1e-3
        sampler.accept(tokens[-1])
    assert tokens[:2] == [GERMAN, TRANSCRIBE]
    rest = tokens[2:]
    assert FIRST_TIME <= rest[0] <= FIRST_TIME + LATEST_FIRST
    times = [token for token in rest if token >= FIRST_TIME]
    assert times == sorted(times)
    assert all(token <= END or token >= FIRST_TIME for token in rest)
    kinds = "".join("t" if token >= FIRST_TIME else "." for token in rest if token != END)
    assert "ttt" not in kinds
    assert not kinds.startswith("tt")
    assert ".t." not in kinds


@dataclass
class Scripted:
    """A model whose answers are given: token ids with their log-probabilities, and how probable silence is."""

    answers: list[tuple[Sequence[int], float, float]]
    language: int = GERMAN
    requests: list[Request] = field(default_factory=list)
    heard: list[float] = field(default_factory=list)

    def hear(self, samples: Any) -> Sequence[Embeddings]:
        self.heard.append(len(samples) / RATE)
        return [Embeddings(np.zeros((250, 16), np.float32), kind="audio")]

    def decode(self, request: Request) -> Completion:
        if request.max_tokens == 1:
            item = Logprobs(-0.5, [(self.language, math.log(0.6)), (START, math.log(0.2)), (GERMAN - 1, math.log(0.2))])
            return Completion("", [self.language], "length", Timings(), [item])
        self.requests.append(request)
        tokens, logprob, silence = self.answers.pop(0)
        forced = list(request.sampling["forced_tokens"])
        first = Logprobs(0.0, [(SILENCE, math.log(silence or 1e-9))])
        item = Logprobs(logprob, [])
        logprobs = [first, first, *[item] * len(tokens)]
        return Completion("", [*forced, *tokens], "stop", Timings(), logprobs, (END, item))

    def align(self, rows: Sequence[Embeddings], tokens: Sequence[int], n_rows: int) -> Any:
        """Each token attends to two rows behind those of the one before, the first text from row 10 on."""
        attention = np.zeros((len(tokens), n_rows), np.float32)
        n_before = len(tokens) - 2 - sum(token < END for token in tokens)
        for i in range(len(tokens)):
            attention[i, max(10 + 2 * (i - n_before), 0) :][:2] = 1
        return attention

    def spelled(self, tokens: Sequence[int]) -> str:
        return "".join(f" {token}" for token in tokens if token < END)

    def tokens_of(self, text: str) -> list[int]:
        return [int(part) for part in text.split()]


def times(*seconds: float) -> list[int]:
    return [FIRST_TIME + round(second / 0.02) for second in seconds]


def transcribed(model: Scripted, seconds: float, **options: Any) -> tuple[list[tuple[float, float, str]], Transcript]:
    transcript = Transcript(Transcriber(model, METADATA, TranscribeOptions(**options)), np.ones(round(seconds * RATE)))
    return [(round(segment.start, 2), round(segment.end, 2), segment.text) for segment in transcript], transcript


def test_improbable_and_repeating_texts_are_decoded_again_and_silence_is_left_out() -> None:
    repeats = [*times(0), *[7, 8] * 20, *times(5)]
    good = [*times(0), 7, *times(5)]
    answers = [(repeats, -0.1, 0), (good, -1.5, 0), (good, -0.5, 0)]
    segments, transcript = transcribed(Scripted(list(answers)), 5, language="de")
    assert segments == [(0, 5, " 7")]
    assert [segment.temperature for segment in transcript.segments] == [0.4]
    assert transcript.segments[0].avg_logprob == pytest.approx(-0.5)  # with the end's, as the reference counts it
    all_bad = Scripted([(repeats, -0.1, 0), *[(good, -1.5 - i / 10, 0) for i in (3, 0, 1, 2, 4)]])
    _, transcript = transcribed(all_bad, 5, language="de")
    assert [segment.temperature for segment in transcript.segments] == [0.4]  # the most probable that does not repeat
    for mean, quiet in ((-1.5, 0.55), (-0.7, 0.7)):
        assert transcribed(Scripted([(good, mean, quiet)]), 5, language="de")[0] == []
    for mean, quiet in ((-0.4, 0.9), (-0.7, 0.55)):
        assert transcribed(Scripted([(good, mean, quiet)]), 5, language="de")[0] == [(0, 5, " 7")]
    _, transcript = transcribed(Scripted([(repeats, -3, 0)]), 5, language="de", temperature=0.3)
    assert [segment.temperature for segment in transcript.segments] == [0.3]


def test_digital_silence_is_not_decoded() -> None:
    model = Scripted([([*times(0), 7, *times(5)], -0.1, 0)])
    samples = np.concatenate([np.full(5 * RATE, 0.1), np.full(60 * RATE, 1e-5)])
    transcript = Transcript(Transcriber(model, METADATA, TranscribeOptions(language="de")), samples)
    assert [(segment.start, segment.end) for segment in transcript] == [(0, 5)]
    assert model.heard == [30]


@given(st.lists(st.lists(st.integers(0, 1 << 11), max_size=30), min_size=50, max_size=50), st.floats(0.3, 100))
def test_every_answer_leads_to_an_end(answers: list[list[int]], seconds: float) -> None:
    """Whatever the tokens: segments are within the sound, and each window begins after the one before."""
    answers = [[token for token in tokens if token < END or token >= FIRST_TIME] for tokens in answers]
    model = Scripted([(tokens, -0.1, 0) for tokens in answers * 100])
    _, transcript = transcribed(model, seconds, language="en", temperature=0.0)
    assert all(0 <= segment.start < segment.end <= seconds + 1e-4 for segment in transcript.segments)
    seeks = [segment.seek for segment in transcript.segments]
    assert seeks == sorted(seeks)
    assert sum(model.heard) >= seconds - 0.3


def best_way(attention: Any) -> list[int]:
    """The first row of each token along the best way, by the textbook's table of sums."""
    n, m = attention.shape
    sums = np.full((n + 1, m + 1), -np.inf)
    sums[0, 0] = 0
    for i, j in np.ndindex(n, m):
        sums[i + 1, j + 1] = attention[i, j] + max(sums[i, j], sums[i, j + 1], sums[i + 1, j])
    first, i, j = [0] * n, n, m
    while i and j:
        first[i - 1] = j - 1
        i, j = max([(i - 1, j - 1), (i - 1, j), (i, j - 1)], key=lambda place: sums[place])
    return first


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 30))
def test_tokens_begin_where_the_best_way_enters_their_lines(seed: int, n: int, m: int) -> None:
    attention = np.random.default_rng(seed).normal(size=(n, m))
    assert first_rows(attention).tolist() == best_way(attention)


@given(st.integers(0, 2**32 - 1), st.integers(4, 40))
def test_the_median_is_that_of_seven_rows(seed: int, n: int) -> None:
    values = np.random.default_rng(seed).integers(0, 9, (2, 3, n)).astype(np.float32)
    around = np.lib.stride_tricks.sliding_window_view(np.pad(values, ((0, 0), (0, 0), (3, 3)), "reflect"), 7, axis=2)
    np.testing.assert_array_equal(median(values), np.median(around, axis=3))


@pytest.mark.parametrize(
    ("language", "tokens", "words"),
    [
        (
            "en",
            [" It", "'s", " a", " (", "long", ")", " way", ",", " he", "re", "."],
            [" It's", " a", " (long)", " way,", " here."],
        ),
        ("en", ["Ch", "air", ".", "-", ' "', "B"], ["Chair.-", ' "B']),
        ("zh", ["你", "好", "，", "世", "界", "。"], ["你", "好，", "世", "界。"]),
        ("en", [" ?"], [" ?"]),
    ],
)
def test_marks_belong_to_words(language: str, tokens: list[str], words: list[str]) -> None:
    parts = word_pieces(range(len(tokens)), lambda ids: "".join(tokens[id] for id in ids), language)
    rows = [10 * i for i in range(len(tokens) + 1)]
    made = timed(parts, rows, [math.log(0.5)] * len(tokens))
    assert [word.word for _, word in made] == words
    assert all(abs(word.probability - 0.5) < 1e-9 for _, word in made)
    assert [word.start for _, word in made] == sorted(word.start for _, word in made)


def test_a_character_is_not_cut_and_silence_between_sentences_belongs_to_no_word() -> None:
    coded = [b" \xc3", b"\xa4", b"h", b".", b" So", b" it", b" is"]
    parts = word_pieces(range(7), lambda ids: b"".join(coded[id] for id in ids).decode(errors="replace"), "de")
    assert [part.text for part in parts] == [" äh", ".", " So", " it", " is"]
    made = timed(parts, [0, 5, 10, 20, 25, 325, 345, 365], [0.0] * 7)
    assert [word.word for _, word in made] == [" äh.", " So", " it", " is"]
    assert made[1][1].end == 6.5
    assert made[1][1].start == pytest.approx(6.5 - 2 * 0.4)


def test_words_have_the_times_of_what_they_attend_to() -> None:
    answer = ([*times(0), 7, 8, *times(4), *times(4), 9, *times(5)], -0.5, 0.0)
    _, transcript = transcribed(Scripted([answer]), 5, language="de", timestamps="word")
    first, second = transcript.segments
    assert [(word.word, word.start, word.end) for word in first.words or ()] == [
        (" 7", pytest.approx(0.24 - 2 * 0.04), pytest.approx(0.24)),  # twice as long as others
        (" 8", pytest.approx(0.24), pytest.approx(0.28)),
    ]
    assert (first.start, first.end) == pytest.approx((0.16, 0.28))
    assert [word.word for word in second.words or ()] == [" 9"]
    assert transcribed(Scripted([answer]), 5, language="de")[1].segments[0].words is None


@given(st.lists(st.tuples(st.floats(0.1, 6), st.floats(0.1, 6)), min_size=1, max_size=5), st.booleans())
def test_silence_is_skipped_and_times_are_of_the_whole_sound(parts: list[tuple[float, float]], quiet: bool) -> None:
    random = np.random.default_rng(0)
    silent = [random.normal(0, 1e-4 * quiet, round(RATE * pause)).astype(np.float32) for _, pause in parts]
    loud = [random.normal(0, 0.1, round(RATE * seconds)).astype(np.float32) for seconds, _ in parts]
    samples = np.concatenate([array for pair in zip(loud, silent, strict=True) for array in pair])
    speech = Speech.of(samples, "energy")
    n_spoken = sum(map(len, loud))
    assert n_spoken <= len(speech.samples) <= min(len(samples), n_spoken + len(parts) * 2 * RATE + RATE)
    place = 0
    for start, end in speech.spans:
        np.testing.assert_array_equal(samples[start:end], speech.samples[place : place + end - start])
        assert speech.second(place) == pytest.approx(start / RATE)
        place += end - start
        assert speech.second(place, is_end=True) == pytest.approx(end / RATE)
    whole = Speech.of(samples, "off")
    assert whole.second(RATE) == 1
    assert Speech.of(np.zeros(9 * RATE, np.float32), "energy").spans == []
    bounds = list(silence.pieces(samples))
    assert [end for _, end in bounds[:-1]] == [start for start, _ in bounds[1:]]


def test_skipped_silence_shows_in_the_times() -> None:
    loud = np.random.default_rng(0).normal(0, 0.1, 2 * RATE).astype(np.float32)
    samples = np.concatenate([loud, np.zeros(10 * RATE, np.float32), loud])
    model = Scripted([([*times(0), 7, *times(2), *times(3), 8, *times(4.5)], -0.5, 0.0)])
    transcript = Transcript(Transcriber(model, METADATA, TranscribeOptions("de", vad="energy")), samples)
    found = [(segment.start, segment.end) for segment in transcript]
    assert found == [pytest.approx((0, 2)), pytest.approx((12.2, 13.7), abs=0.05)]
    assert model.heard == [pytest.approx(4.8, abs=0.05)]
    nothing = Transcript(Transcriber(model, METADATA, TranscribeOptions(vad="energy")), np.zeros(RATE, np.float32))
    assert (list(nothing), nothing.language) == ([], "de")


def test_hotwords_come_before_every_window_and_a_prompt_before_the_first() -> None:
    answers = [([*times(0), 7, *times(30)], -0.5, 0.0)] * 2
    model = Scripted(list(answers))
    transcribed(model, 60, language="de", prompt="1 2", hotwords="3 4")
    starts = [[token for token in request.prompt if token] for request in model.requests]
    assert starts == [[PREVIOUS, 3, 4, 1, 2, START], [PREVIOUS, 3, 4, 1, 2, *answers[0][0], START]]


def test_windows_are_decoded_together(model: pumice.Model) -> None:
    samples = np.concatenate([sound(29), np.zeros(RATE, np.float32), sound(20)])
    options: dict[str, Any] = {"language": "de", "temperature": 0.0, "prompt": "abc"}
    together = list(model.speech.transcribe(pumice.Audio(samples, rate=RATE), batch_size=3, **options))
    bounds = list(silence.pieces(samples))
    apart = [
        model.speech.transcribe(pumice.Audio(samples[start:end], rate=RATE), **options).text for start, end in bounds
    ]
    assert len(bounds) == 2
    assert "".join(segment.text for segment in together).split() == "".join(apart).split()
    assert [segment.id for segment in together] == list(range(len(together)))
    closed = model.speech.transcribe(pumice.Audio(samples, rate=RATE), batch_size=3, **options)
    closed.close()
    assert list(closed) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "klingon"}, "no language of the model"),
        ({"language": "fr"}, "no language of the model"),
        ({"task": "sing"}, "task must be"),
        ({"temperature": -1}, "temperature must be"),
        ({"prompt": 3}, "prompt must be"),
        ({"hotwords": None}, "hotwords must be"),
        ({"timestamps": "line"}, "timestamps must be segment or word"),
        ({"vad": True}, "vad must be"),
        ({"vad": "silero"}, "pip install silero-vad"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"previous_text": "no"}, "previous_text must be"),
        ({"langauge": "en"}, "unknown option 'langauge'; did you mean 'language'"),
    ],
)
def test_wrong_options_are_refused(model: pumice.Model, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        model.speech.transcribe(pumice.Audio(sound(SECONDS), rate=RATE), **options)


def test_a_model_transcribes(model: pumice.Model, tmp_path: Path) -> None:
    pumice.Audio(sound(2), rate=RATE).save(tmp_path / "a.wav")
    path, wav = str(model.engine.file.path), (tmp_path / "a.wav").read_bytes()
    arguments = ["transcribe", str(tmp_path / "a.wav"), "-m", path, "--backend", "numpy", "--language", "de"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of two options with one name
        for form in ("txt", "srt", "vtt", "json"):
            temperature = ["--temp", "0"] if form != "json" else []  # without, improbable texts are drawn again
            result = CliRunner().invoke(cli, [*arguments, *temperature, "-o", str(tmp_path / f"a.{form}")])
            assert result.exit_code == 0, result.output
        more = ["--timestamps", "word", "--vad", "energy", "--batch-windows", "2", "--hotwords", "abc", "--temp", "0"]
        result = CliRunner().invoke(cli, [*arguments, *more, "--format", "json"])
        assert result.exit_code == 0, result.output
        assert all("words" in segment for segment in json.loads(result.output)["segments"])
    piped = CliRunner().invoke(cli, ["transcribe", "-", *arguments[2:], *more, "--format", "json"], input=wav)
    assert piped.output == result.output
    values = json.loads((tmp_path / "a.json").read_text())
    again = model.speech.transcribe(tmp_path / "a.wav", language="de")
    assert values["text"] == again.text  # its random numbers have a seed
    expected = list(model.speech.transcribe(tmp_path / "a.wav", language="de", temperature=0.0))
    assert (tmp_path / "a.srt").read_text() == subrip(expected)
    assert (tmp_path / "a.vtt").read_text() == webvtt(expected)


def test_log_probabilities_list_the_most_probable_tokens_at_every_position(model: pumice.Model) -> None:
    sampling = {"first_timestamp": FIRST_TIME, "temperature": 0}
    prompt = [pumice.Audio(sound(2), rate=RATE), "<|startoftranscript|>"]
    done = model.generate(prompt, max_tokens=4, samplers=["timestamps", "greedy"], logprobs=3, sampling=sampling)
    assert [len(item.top) for item in done.logprobs or ()] == [3] * len(done.tokens)


def test_a_missing_sound_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["transcribe", str(tmp_path / "a.wav"), "-m", str(tmp_path / "missing.gguf")])
    assert result.exit_code == 2
    assert "a.wav' does not exist" in result.output


def test_other_models_do_not_transcribe(tmp_path: Path) -> None:
    with (
        pumice.load(pumice.demo_model_path(), backend="numpy") as other,
        pytest.raises(RequestError, match="does not transcribe"),
    ):
        other.speech.transcribe(tmp_path / "a.wav")
