"""The page itself: parameters, prompts, attached files, languages, colours, accessibility, and how it is built."""

import base64
import filecmp
import json
import re
import subprocess
from pathlib import Path

import pytest

from browser_page import PHONE, PIXEL, WIDE, answer, expect, needs_browser, opened, profile, run_command, say
from pdf_files import pdf_file
from scripted_server import scripted
from waiting import wait_until

pytestmark = needs_browser
ROOT = Path(__file__).parents[4]
MODULES = ROOT / "page" / "node_modules"

PICTURE = {"name": "a.png", "mimeType": "image/png", "buffer": base64.b64decode(PIXEL)}

CLIP = {"name": "a.mp4", "mimeType": "video/mp4", "buffer": b"\0\0\0\x18ftypmp42"}

BINARY = {"name": "a.bin", "mimeType": "", "buffer": b"\0\1\2"}

GIVE = r"""([kind, selector, name]) => {
    const data = new DataTransfer();
    data.items.add(new File([`\`\`\`${name}\`\`\``], name, {type: "text/markdown"}));
    const given = {bubbles: true, cancelable: true};
    const event = kind === "drop" ? new DragEvent(kind, {...given, dataTransfer: data})
        : new ClipboardEvent(kind, {...given, clipboardData: data});
    document.querySelector(selector).dispatchEvent(event);
}"""


def test_prompts_are_kept(page):
    page.get_by_label("Message", exact=True).fill("Translate this:")
    run_command(page, "Prompts")
    prompts = page.get_by_role("dialog", name="Prompts")
    prompts.get_by_label("Name").fill("Translate")
    prompts.get_by_text("Keep prompt").click()
    prompts.get_by_label("Close").click()
    page.get_by_label("Message", exact=True).fill("")
    page.reload()
    run_command(page, "Translate")
    expect(page.get_by_label("Message", exact=True)).to_have_value("Translate this:")
    run_command(page, "Prompts")
    prompts.get_by_label("Delete Translate").click()
    expect(prompts.locator("li")).to_have_count(0)


def test_parameters(page, chats):
    page.get_by_role("button", name="Parameters").click()
    expect(page.get_by_label("Temperature")).to_have_attribute("placeholder", "0.7")
    page.get_by_label("System message").fill("Be brief.")
    page.get_by_label("Temperature").fill("9")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text("Expected 0 to 5")
    page.get_by_label("Temperature").fill("0.2")
    page.get_by_label("Reasoning").select_option("off")
    page.get_by_label("JSON schema").fill("{")
    page.keyboard.press("Tab")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_label("Model", exact=True).select_option("pumice-1b")
    say(page, "hello")
    body = chats.requests[-1]
    assert (body["temperature"], body["enable_thinking"], body["model"]) == (0.2, False, "pumice-1b")
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "response_format" not in body


def test_files_of_a_message(page, chats):
    """By the button, dropped, and pasted; where a model sees none, pictures are refused."""
    page.get_by_label("Files to attach").set_input_files(
        [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"from ```a``` file\n"}, PICTURE]
    )
    expect(page.locator(".composer .attached li")).to_have_count(2)
    page.get_by_label("Remove notes.txt").click()
    page.evaluate(GIVE, ["drop", "main", "b.md"])
    page.evaluate(GIVE, ["paste", "[aria-label=Message]", "c.md"])  # after it, however long either takes to read
    expect(page.locator(".composer .attached")).to_contain_text("c.md")
    say(page, "Look")
    picture, text = chats.requests[-1]["messages"][-1]["content"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    assert text["text"] == "b.md:\n\n````\n```b.md```\n````\n\nc.md:\n\n````\n```c.md```\n````\n\nLook"
    expect(answer(page)).to_contain_text("You sent: image_url text")
    expect(page.get_by_role("article", name="You").locator("img")).to_have_attribute("alt", "a.png")
    page.get_by_label("Edit message").click()
    page.get_by_label("Remove b.md").click()
    n_before = len(chats.requests)
    page.get_by_role("button", name="Send", exact=True).first.click()
    wait_until(lambda: len(chats.requests) > n_before)
    parts = chats.requests[-1]["messages"][-1]["content"]
    assert [part.get("text") for part in parts] == [None, "c.md:\n\n````\n```c.md```\n````\n\nLook"]
    page.get_by_label("Model", exact=True).select_option("pumice-1b")
    long = {"name": "long.txt", "mimeType": "text/plain", "buffer": b"a" * 50_000}
    refused = (
        (PICTURE, "does not read images"),
        (CLIP, "does not read videos"),
        (BINARY, "neither an image nor text"),
        (long, "long.txt has more than 8333 tokens, and this model reads at most 8192"),
    )
    for file, problem in refused:
        page.get_by_label("Files to attach").set_input_files([file])
        expect(page.locator(".notice")).to_contain_text(problem)
    expect(page.locator(".composer .attached")).to_have_count(0)
    page.get_by_role("button", name="New conversation").first.click()
    expect(page.locator(".notice")).to_have_count(0)


def test_pdf_files_are_attached_as_text(page, chats):
    pytest.importorskip("pypdf", reason="texts of PDF files need pypdf")
    file = {"name": "fox.pdf", "mimeType": "application/pdf", "buffer": pdf_file(["The fox has a kite."])}
    page.get_by_label("Files to attach").set_input_files([file])
    expect(page.locator(".composer .attached")).to_contain_text("fox.pdf")
    say(page, "Whose kite?")
    assert "fox.pdf:" in json.dumps(chats.requests[-1]["messages"][-1]["content"])
    assert "The fox has a kite." in json.dumps(chats.requests[-1]["messages"][-1]["content"])


DENY = "void (navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotAllowedError') })"


def test_dictation(page):
    """What the microphone records is transcribed by the model that hears, whichever is chosen, behind the text."""
    page.evaluate(DENY)
    page.get_by_role("button", name="Dictate").click()
    expect(page.locator(".notice")).to_contain_text("does not allow this page the microphone")
    page.reload()
    page.get_by_label("Model", exact=True).select_option("pumice-1b")
    page.get_by_label("Message", exact=True).fill("Dear friend, ")
    page.get_by_role("button", name="Dictate").click()
    expect(page.get_by_role("button", name="End the dictation")).to_have_attribute("aria-pressed", "true")
    page.wait_for_timeout(1500)  # milliseconds, in which the microphone beeps
    page.get_by_role("button", name="End the dictation").click()
    heard = "Dear friend, pumice-8b heard 16000 Hz, 1 channel, 16 bits, loud."
    expect(page.get_by_label("Message", exact=True)).to_have_value(heard)
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    deaf = {"data": [{"id": "pumice-1b"}], "models": [{"name": "pumice-1b", "capabilities": ["completion"]}]}
    page.route("**/v1/models", lambda route: route.fulfill(json=deaf))
    page.get_by_role("button", name="Dictate").click()
    expect(page.locator(".notice")).to_contain_text("No model of this server hears")
    expect(page.get_by_role("button", name="Dictate")).to_be_enabled()


def test_every_language_has_every_text():
    texts: set[str] = set()
    for file in (ROOT / "page" / "src").glob("*.ts*"):
        texts |= set(re.findall(r'(?<![\w.])(?:t|key)\(\s*"([^"]*)"', file.read_text()))
    assert len(texts) > 100
    for file in (ROOT / "page" / "src" / "languages").iterdir():
        words = json.loads(file.read_text())
        assert words.keys() == texts, file.name
        for text, translated in words.items():
            assert translated.strip(), text
            assert sorted(re.findall(r"{\w+}", text)) == sorted(re.findall(r"{\w+}", translated)), text


def test_the_page_speaks_the_language_of_the_browser_or_another_one(browser, chats):
    with profile(browser, locale="de-AT") as context:
        page = context.new_page()
        page.goto(chats.url)
        expect(page.get_by_label("Nachricht", exact=True)).to_have_attribute("placeholder", "Nachricht schreiben")
        assert page.evaluate("document.documentElement.lang") == "de"
        page.get_by_label("Sprache").select_option("ja")
        expect(page.get_by_label("メッセージ", exact=True)).to_be_visible()
        page.get_by_label("メッセージ", exact=True).fill("مرحبا")
        page.get_by_role("button", name="送信").click()
        bubble = page.get_by_role("article", name="あなた").locator(".bubble")
        expect(bubble).to_have_text("مرحبا")
        assert bubble.evaluate("each => getComputedStyle(each).direction") == "rtl"
        expect(page.get_by_role("article", name="回答")).to_have_attribute("aria-busy", "false")


def test_a_new_conversation_has_examples(page):
    """One of them is about a picture where the model sees. The list of models says what is loaded, and how large."""
    page.get_by_role("button", name="What is in this image?").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("What is in this image?")
    models = page.get_by_label("Model", exact=True)
    expect(models.locator("option")).to_have_text(["pumice-8b · 5 GiB", "pumice-1b · 1 GiB · not loaded"])
    models.select_option("pumice-1b")
    page.get_by_role("button", name="Why is the sky blue?").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Why is the sky blue?")


def test_a_server_with_keys_asks_for_one(context):
    with scripted(keys=("secret",)) as server:
        page = context.new_page()
        page.goto(server.url)
        page.get_by_label("API key").last.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("does not know this key")).to_be_visible()
        page.get_by_label("API key").last.fill("secret")
        page.keyboard.press("Enter")
        say(page, "hello")
        expect(answer(page)).to_contain_text("You said: hello")


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(WIDE, "light", id="wide-light", marks=pytest.mark.nightly),
        pytest.param(WIDE, "dark", id="wide-dark"),
        pytest.param(PHONE, "light", id="phone-light"),
        pytest.param(PHONE, "dark", id="phone-dark", marks=pytest.mark.nightly),
    ],
)
def test_accessibility(browser, chats, scheme, size):
    axe = MODULES / "axe-core" / "axe.min.js"
    if not axe.exists():
        pytest.skip("axe-core is not installed (.ci/page installs it)")
    with profile(browser, viewport=size, color_scheme=scheme, reduced_motion="reduce") as context:
        page = opened(context, chats.url)
        page.evaluate(axe.read_text())

        def check(part: str) -> None:
            page.evaluate(
                """Promise.allSettled(document.getAnimations().filter(animation => animation instanceof CSSTransition)
                   .map(transition => transition.finished))"""
            )
            found = page.evaluate("axe.run().then(({violations}) => violations)")
            told = [(each["id"], [(node["html"], node["failureSummary"]) for node in each["nodes"]]) for each in found]
            assert told == [], part
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), part

        check("welcome")
        say(page, "markdown")
        answer(page).get_by_text("Thought for").click()
        say(page, "weather")
        expect(page.get_by_label("Answer with another model").last).to_be_enabled()  # else it is dim
        check("conversation")
        page.get_by_role("button", name="Parameters").click()
        expect(page.get_by_role("dialog", name="Parameters")).to_be_visible()
        check("parameters")
        page.keyboard.press("Escape")
        if size == WIDE:
            page.keyboard.press("Control+k")
            expect(page.get_by_label("Command or conversation")).to_be_focused()
            check("commands")
            page.keyboard.press("Escape")
        run_command(page, "Prompts")
        expect(page.get_by_role("dialog", name="Prompts")).to_be_visible()
        check("prompts")
        page.keyboard.press("Escape")
        page.get_by_label("Answer with another model").last.select_option(index=1)
        expect(page.get_by_role("dialog", name="Compare versions")).to_be_visible()
        expect(page.locator("[role=status].unseen")).to_have_text(re.compile("complete"))  # the dialog hides its role
        check("side by side")
        page.keyboard.press("Escape")
        if size == PHONE:
            expect(page.get_by_role("navigation")).not_to_be_in_viewport()
            page.get_by_role("button", name="Conversations", exact=True).click()
            expect(page.get_by_role("navigation")).to_be_in_viewport()
            check("list")


@pytest.mark.skipif(not (MODULES / "esbuild").exists(), reason="page/node_modules is not there (.ci/page makes it)")
def test_the_served_page_is_built_from_the_sources(tmp_path):
    subprocess.run(["node", ROOT / "page" / "build.mjs", tmp_path], check=True, cwd=ROOT / "page")
    served = ROOT / "plugins" / "pumice_server" / "page"
    names = sorted(path.name for path in served.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert filecmp.cmpfiles(served, tmp_path, names, shallow=False)[0] == names, "run: node page/build.mjs"
