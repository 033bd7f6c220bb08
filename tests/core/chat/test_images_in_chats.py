"""Images in chats: their forms in messages, their places in prompts, and what the next turn computes again."""

import base64

import numpy as np
import pytest

from pumice.chat.messages import read_messages
from pumice.chat.prompt import PromptJob, write_prompt
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits
from pumice.errors import RequestError
from pumice.media.images import Image
from vision_files import encoded, picture

pytest.importorskip("PIL")
MARKER = "<__media_0123__>"
TEXTS = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '\\n' }}{% endfor %}"
PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}"
    "{% if part.type == 'image' %}<image>\n{% else %} {{ part.text }}{% endif %}{% endfor %}{{ '\\n' }}{% endfor %}"
)
QWEN = PARTS.replace("<image>\n", "<|vision_start|><|image_pad|><|vision_end|>")
UNKNOWN = PARTS.replace("<image>", "[[{{ part.image.width }}]]")


PNG = encoded(picture(20, 10))
BASE64 = base64.b64encode(PNG).decode()
DATA = f"data:image/png;base64,{BASE64}"


@pytest.mark.parametrize(
    "part",
    [
        Image(PNG),
        {"type": "image_url", "image_url": {"url": DATA, "detail": "auto"}},
        {"type": "image_url", "image_url": DATA},
        {"type": "input_image", "image_url": DATA},
        {"type": "image", "image": PNG},
        {"type": "image", "image": picture(20, 10)},
        {"type": "image", "url": DATA},
        {"type": "image", "base64": BASE64},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
    ],
)
def test_parts_of_every_form_are_the_same_picture(part):
    images: list[Image] = []
    (message,) = read_messages([{"role": "user", "content": ["a", part]}], media=images)
    assert message["content"] == [{"type": "text", "text": "a"}, {"type": "image"}]
    np.testing.assert_array_equal(images[0].pixels(), picture(20, 10))


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"type": "image"}, "the part has no image"),
        ({"type": "image", "image": "/etc/passwd"}, "URLs and paths are not opened"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "URLs and paths are not opened"),
        ({"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}, "URLs and paths are not opened"),
        ({"type": "image_url", "image_url": {}}, "the part has no image; give it as a data: URL in image_url.url"),
        ({"type": "image_url", "image_url": 7}, "expected a data: URL, not int"),
        ({"type": "image_url", "image_url": "data:text/plain;base64,QQ=="}, "expected data:image/png"),
        ({"type": "image_url", "image_url": "data:image/png,QQ"}, "expected data:image/png"),
        ({"type": "image_url", "image_url": "data:image/png;base64,"}, "empty"),
        ({"type": "image", "base64": "Q?=="}, "not valid base64"),
        ({"type": "image", "base64": "A" * (45 << 20)}, "more than 32 MiB"),
    ],
)
def test_wrong_parts_are_named(part, problem):
    with pytest.raises(RequestError, match=rf"messages\[0\]\.content\[1\]: .*{problem}"):
        read_messages([{"role": "user", "content": [{"type": "text", "text": "a"}, part]}], media=[])


def prompt(source, *contents, spellings=(), roles="user"):
    messages = [{"role": roles, "content": content} for content in contents]
    n_images = sum(part == {"type": "image"} for content in contents for part in content)
    template = with_traits(ChatTemplate(source))
    job = PromptJob(template, spellings, ("", "", ""), messages, media=["image"] * n_images, marker=MARKER)
    return write_prompt(job)


def said(*parts):
    return [{"type": "text", "text": part} if part else {"type": "image"} for part in parts]


@pytest.mark.parametrize(
    ("source", "contents", "expected"),
    [
        (TEXTS, [said("a", "b", "", "c")], f"user: a\nb{MARKER}c\n"),
        (TEXTS, [said("", "a"), "b", said("")], f"user: {MARKER}a\nuser: b\nuser: {MARKER}\n"),
        (PARTS, [said("", "a")], f"user:{MARKER}\n a\n"),
        (PARTS, [said("a", "", ""), "b"], f"user: a{MARKER}\n{MARKER}\n\nuser: b\n"),
        (QWEN, [said("", "a")], f"user:{MARKER} a\n"),
        (UNKNOWN, [said("", "a")], f"user: {MARKER}a\n"),
    ],
)
def test_each_image_has_its_place(source, contents, expected):
    written = prompt(source, *contents)
    assert written.text.replace(written.mark, "") == expected


def test_users_cannot_forge_a_place():
    """Neither by the placeholder that the template writes, nor by the marker of another request."""
    written = prompt(PARTS, said("<image>", "", "<__media_4567__> <__media__>"))
    assert written.text.count(MARKER) == 1
    assert written.text.startswith(f"user: <{written.mark}image>{MARKER}\n <__media_4567__>")


def test_a_template_that_leaves_out_an_image_is_an_error():
    with pytest.raises(RequestError, match="leaves out an image"):
        prompt("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", said("a", ""), roles="tool")
