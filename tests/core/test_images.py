"""Images in prompts: decoding, and a model that continues texts with them."""

import gc
import io
import re
from pathlib import Path

import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama
from pumice.frontend.encoded_media import EncodedMedia
from pumice.hub.projectors import find_projector
from vision_files import encoded, picture, write_projector

Pillow = pytest.importorskip("PIL.Image")

from hostile_images import png  # noqa: E402


def test_files_bytes_and_arrays_give_the_same_pixels(tmp_path):
    image = Pillow.fromarray(picture(20, 10))
    (tmp_path / "a.png").write_bytes(encoded(image))
    for source in (tmp_path / "a.png", encoded(image), image, picture(20, 10)):
        np.testing.assert_array_equal(pumice.Image(source).pixels(), picture(20, 10))


def test_rotated_transparent_and_deep_images():
    exif = Pillow.Exif()
    exif[0x0112] = 6  # turned by a quarter
    assert pumice.Image(encoded(Pillow.fromarray(picture(20, 10)), exif=exif)).pixels().shape == (20, 10, 3)
    assert (pumice.Image(encoded(Pillow.new("RGBA", (2, 2), (9, 9, 9, 0)))).pixels() == 255).all()
    deep = Pillow.fromarray(np.full((2, 2), 0x8000, np.uint16))
    assert (pumice.Image(encoded(deep)).pixels() == 128).all()


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (b"GIF89a", "decoded|no image; send PNG"),
        (b"<svg/>", "no image; send PNG"),
        (encoded(Pillow.fromarray(picture(64, 64)))[:200], "cannot be decoded"),
        (encoded(Pillow.new("1", (9000, 9000))), "9000 x 9000 pixels"),
        (png(65535, 65535, b""), "65535 x 65535 pixels; at most 40000000 are supported; make it smaller"),
        ("/no/such/file", "No such file"),
        ("https://a.example/cat.jpg", "'https://a.example/cat.jpg': cannot be read: addresses are not opened; give a"),
        ("data:image/png;base64," + "A" * 10**6, r"\Aimage 'data:.{1,1024}': cannot be read: addresses are not opened"),
        (np.zeros((0, 8, 3), np.uint8), "image: 8 x 0 pixels; it has none"),
        (7, "not int"),
        (np.zeros((2, 2), np.uint8), "expected uint8"),
    ],
)
def test_wrong_images_are_refused_in_one_line(source, problem):
    with pytest.raises(pumice.RequestError, match=problem):
        pumice.Image(source).pixels()


def test_errors_name_the_file_or_the_number(tmp_path):
    paths = [tmp_path / name for name in ("a.png", "b.wav", "c.mp4")]
    for path in paths:
        path.write_bytes(b"text")
    reads = (pumice.Image(paths[0]).pixels, pumice.Audio(paths[1]).samples, pumice.Video(paths[2]).form)
    for read, path, kind in zip(reads, paths, ("image", "audio", "video"), strict=True):
        with pytest.raises(pumice.RequestError, match=rf"\A{kind} '{re.escape(str(path))}': the bytes are no "):
            read()
    with pytest.raises(pumice.RequestError, match=r"\Aimage 'a\\x00b': cannot be read: .*null byte"):
        pumice.Image("a\0b").pixels()


def test_damaged_files_are_decoded_or_refused_in_one_line():
    rng = np.random.default_rng(0)
    image = Pillow.fromarray(picture(64, 48))
    files = [encoded(image, format) for format in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")]
    files += [encoded(image.convert("CMYK"), "JPEG"), encoded(image.convert("P"))]
    refused = []
    for number in range(200):
        data = np.frombuffer(files[number % len(files)], np.uint8).copy()
        most = min(len(data), 64) if number % 3 else len(data)  # the header, or anywhere
        data[rng.integers(0, most, 1 + number % 8)] = rng.integers(0, 256)
        data = data[: rng.integers(1, len(data))] if number % 4 == 0 else data
        try:
            assert pumice.Image(data.tobytes()).pixels().dtype == np.uint8
        except pumice.RequestError as error:
            refused.append(str(error))
    assert 50 < len(refused) < 200
    assert [text for text in refused if "\n" in text or not text.startswith("image: ")] == []


def test_a_model_continues_texts_and_images(tmp_path, monkeypatch):
    path = tiny_llama(tmp_path / "tiny.gguf")
    prompt = ["a picture: ", pumice.Image(picture(50, 30)), " shows"]
    with pumice.load(path, backend="numpy") as model:
        with pytest.raises(pumice.RequestError, match="takes no images without a projector"):
            model.generate(prompt)
        write_projector(tmp_path / "mmproj.gguf", "mlp")
        first, again = (model.generate(prompt, max_tokens=4, temperature=0.0) for _ in range(2))
        n_text = len(model.tokenizer.tokenize("a picture: ")) + len(model.tokenizer.tokenize_following(" shows"))
        monkeypatch.setattr(EncodedMedia, "get", lambda *_: pytest.fail("the text is too long for any image"))
        with pytest.raises(pumice.PromptTooLongError, match="at least"):
            model.request(["the word " * 100_000, *prompt])
    assert first.timings.prompt_tokens == n_text + 16
    assert again.timings.prompt_cached == again.timings.prompt_tokens - 1
    assert first.tokens == again.tokens


def test_the_engines_process_encodes(tmp_path):
    """This process neither reads the projector's file nor computes with it."""
    path = tiny_llama(tmp_path / "tiny.gguf")
    projector = write_projector(tmp_path / "elsewhere.gguf", "mlp")
    prompt = ["a picture: ", pumice.Image(picture(50, 30))]
    options = {"max_tokens": 4, "temperature": 0.0}
    with pumice.load(path, backend="numpy", mmproj=str(projector)) as model:
        expected = model.generate(prompt, **options)
        large = pumice.Image(np.zeros((4000, 4000, 3), np.uint8))
        assert model.facts.media_width == 64
    with pumice.load_process(path, backend="numpy", mmproj=str(projector)) as model:
        assert model.generate(prompt, **options).tokens == expected.tokens
        assert model.generate(["a picture: ", large], **options).timings.prompt_tokens == expected.timings.prompt_tokens
        assert model.facts.media_width == 64
        gc.collect()
        assert not Path("/proc/self/maps").exists() or str(projector) not in mapped_files()
    with pumice.load_process(path, backend="numpy", mmproj="off") as model:
        assert model.facts.media_width == 0
        with pytest.raises(pumice.RequestError, match="takes no images without a projector"):
            model.generate(prompt, **options)


def test_projectors_that_do_not_fit(tmp_path):
    path, wrong = tiny_llama(tmp_path / "tiny.gguf", dim=128), write_projector(tmp_path / "mmproj.gguf", "mlp")
    with pumice.load(path, backend="numpy") as model, pytest.raises(pumice.RequestError, match="of another model"):
        model.generate([pumice.Image(picture(50, 30))])
    wrong.write_bytes(b"GGUF")
    with pumice.load_process(path, backend="numpy") as model:
        assert model.facts.media_width == 0
        with pytest.raises(pumice.RequestError, match="takes no images"):
            model.generate([pumice.Image(picture(50, 30))])
    with pytest.raises(pumice.PumiceError, match=r"mmproj\.gguf"):
        pumice.load_process(path, backend="numpy", mmproj=str(wrong))
    with pytest.raises(pumice.ConfigError, match=r"mmproj: .*tiny\.gguf: not a projector"):
        pumice.load(path, backend="numpy", mmproj=str(path))


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"], "mmproj-F16.gguf"),
        (["m-mmproj.gguf"], "m-mmproj.gguf"),
        (["mmproj-a-f16.gguf", "mmproj-b-f16.gguf"], None),
        (["model.gguf"], None),
    ],
)
def test_the_projector_beside_a_model(tmp_path, names, chosen):
    for name in ("model.gguf", *names):
        (tmp_path / name).touch()
    found = find_projector(tmp_path / "model.gguf")
    assert found == (chosen and tmp_path / chosen)


def test_a_link_to_a_projector_elsewhere_is_not_followed(tmp_path):
    """The maker of a folder may have put it there."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.gguf").touch()
    (tmp_path / "mmproj.gguf").touch()
    (tmp_path / "folder" / "mmproj.gguf").symlink_to(tmp_path / "mmproj.gguf")
    assert find_projector(tmp_path / "folder" / "model.gguf") is None


def mapped_files():
    return Path("/proc/self/maps").read_text()


def test_a_large_pillow_image_is_refused_before_it_is_decoded():
    for source in (Pillow.open(io.BytesIO(encoded(Pillow.new("1", (9000, 9000))))), Pillow.new("1", (9000, 9000))):
        with pytest.raises(pumice.RequestError, match="9000 x 9000 pixels"):
            pumice.Image(source).pixels()
