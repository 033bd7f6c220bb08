"""The page in a browser: Debian's chromium, driven by playwright, before a server whose answers are scripted."""

import base64
import filecmp
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pdf_files import pdf_file
from scripted_server import Scripted, scripted
from server_thread import running
from waiting import PATIENCE, wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
ROOT = Path(__file__).parents[3]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MODULES = ROOT / "page" / "node_modules"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
MOST = 1000 * PATIENCE  # milliseconds

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (.ci/page installs it)")
expect = playwright.expect


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MOST)  # for root
        expect.set_options(timeout=MOST)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chats() -> Iterator[Scripted]:
    with scripted() as server:
        yield server


@contextmanager
def profile(browser: "playwright.Browser", **options: Any) -> Iterator["playwright.BrowserContext"]:
    """Open a profile of the browser, which has nothing of others and waits as patiently as tests do."""
    with browser.new_context(**{"viewport": WIDE, **options}) as context:
        context.set_default_timeout(MOST)
        yield context


@pytest.fixture
def context(browser) -> Iterator["playwright.BrowserContext"]:
    with profile(browser) as context:
        yield context


@pytest.fixture
def page(context, chats) -> Iterator["playwright.Page"]:
    page = opened(context, chats.url)
    yield page
    assert page.problems == []


def opened(context: "playwright.BrowserContext", url: str) -> "playwright.Page":
    """A tab; what its console says of errors, those of the content security policy among them, is in ``problems``."""
    page = context.new_page()
    page.problems = []
    page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.goto(url)
    page.get_by_label("Message", exact=True).wait_for()
    return page


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
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


KEPT = """([title, folder]) => new Promise((resolve) => {
    indexedDB.open("pumice").onsuccess = ({target: {result: database}}) => {
        database.transaction("conversations").objectStore("conversations").getAll().onsuccess = ({target}) => {
            database.close();
            resolve(target.result.some((each) => each.title === title && (each.folder ?? null) === folder));
        };
    };
})"""


def say(page: "playwright.Page", text: str, waits: bool = True) -> None:
    answers = page.get_by_role("article", name="Answer")
    before = answers.count()
    page.get_by_label("Message", exact=True).fill(text)
    expect(page.get_by_label("Send", exact=True)).to_be_enabled()
    page.keyboard.press("Enter")
    expect(answers.nth(before)).to_be_attached()  # a tool's call and the answer after it are two
    if waits:
        expect(answers.last).to_have_attribute("aria-busy", "false")
        expect(page.get_by_role("status")).to_have_text(re.compile("complete|failed"))


def start_new(page: "playwright.Page") -> None:
    page.keyboard.press("Control+Shift+O")
    expect(page.get_by_text("What is on your mind?")).to_be_visible()


def wait_until_kept(page: "playwright.Page", title: str, folder: str | None) -> None:
    """Wait for a conversation's folder in IndexedDB: the list shows it earlier, and a reload would lose it."""
    wait_until(lambda: page.evaluate(KEPT, [title, folder]))


def wait_until_removed(page: "playwright.Page", title: str) -> None:
    """Wait until IndexedDB has a conversation no longer: the list is without it earlier, and a reload would keep it."""
    wait_until(lambda: not page.evaluate(KEPT, [title, None]))


def hold(page: "playwright.Page", pattern: str | re.Pattern[str]) -> Callable[[], "playwright.Route"]:
    """Hold the next request for an address. The result waits until the page has made it, and gives it."""
    held: list[playwright.Route] = []
    page.route(pattern, lambda route: held.append(route), times=1)

    def taken() -> "playwright.Route":
        wait_until(lambda: page.wait_for_timeout(10) or held)
        return held[0]

    return taken


def answer(page: "playwright.Page") -> "playwright.Locator":
    return page.get_by_role("article", name="Answer").last


def test_a_chat(page, chats):
    say(page, "Explain *this*")
    expect(answer(page)).to_contain_text("You said: Explain this")
    expect(answer(page)).to_contain_text("tokens · 41.7 tokens/s")
    expect(page.get_by_role("navigation")).to_contain_text("Explain *this*")
    say(page, "And that?")
    assert [each["role"] for each in chats.requests[-1]["messages"]] == ["user", "assistant", "user"]
    assert chats.requests[-1]["model"] == "pumice-8b"


def test_markdown_and_folded_reasoning(page):
    say(page, "markdown")
    expect(answer(page).locator("pre .hljs-keyword").first).to_have_text("def")
    expect(answer(page).locator("table td").first).to_have_text("read()")
    expect(answer(page).get_by_role("heading", name="Reading a file")).to_be_visible()
    expect(answer(page).get_by_role("link")).to_have_attribute("rel", "noopener noreferrer nofollow")
    thoughts = answer(page).get_by_text("A generator is best.")
    expect(thoughts).to_be_hidden()
    answer(page).get_by_text("Thought for").click()
    expect(thoughts).to_be_visible()


def test_each_part_of_an_answer_has_the_direction_of_its_text(page):
    say(page, "in Arabic, please")
    parts = answer(page).locator(".markdown > *")
    expect(parts).to_have_count(4)
    assert [part.evaluate("part => getComputedStyle(part).direction") for part in parts.all()] == [
        "ltr",
        "rtl",
        "rtl",
        "ltr",
    ]
    item, code = parts.nth(2).locator("li").first.bounding_box(), parts.nth(3).bounding_box()
    assert item["x"] + item["width"] < code["x"] + code["width"] - 10, "the marker is on the right"


def test_text_of_a_model_is_never_markup(page):
    say(page, "attack")
    assert page.evaluate("window.hacked") is None
    forbidden = answer(page).locator("script, img, iframe, style, svg[onload], [onerror], [onmouseover]")
    assert forbidden.count() == 0
    expect(answer(page)).to_contain_text("<script>window.hacked = 1</script>")
    links = answer(page).get_by_role("link").evaluate_all("links => links.map(link => link.protocol)")
    assert links == ["https:"]  # the picture's, which is not fetched


def test_a_text_of_very_many_levels_is_shown_as_it_is(page):
    """Its tokens would end the stack, and the page with it, each time that this conversation is opened."""
    say(page, "levels")
    expect(answer(page)).to_contain_text("&toString; above")
    expect(answer(page)).to_contain_text(">>>> & ends")
    page.reload()
    expect(answer(page)).to_contain_text(">>>> & ends")
    say(page, "and on")
    expect(answer(page)).to_contain_text("You said: and on")


def test_stop_and_go_on(page, chats):
    chats.left.clear()
    say(page, "slow", waits=False)
    expect(answer(page)).to_contain_text("word3")
    page.keyboard.press("Escape")
    expect(answer(page)).to_contain_text("Stopped")
    expect(page.get_by_role("status")).to_have_text("The answer was stopped")
    assert chats.left.wait(PATIENCE)
    page.get_by_label("Go on").click()
    expect(answer(page)).to_contain_text("and goes on.")
    assert chats.requests[-1]["continue_final_message"] is True


def test_errors(page, chats):
    say(page, "refuse this")
    expect(answer(page).get_by_role("alert")).to_have_text("this prompt is too long")
    say(page, "break after a few words")
    expect(answer(page)).to_contain_text("You said:")
    expect(answer(page).get_by_role("alert")).to_have_text("the engine ended")
    page.route("**/v1/chat/completions", lambda route: route.abort())
    say(page, "Anybody there?")
    expect(answer(page).get_by_role("alert")).to_contain_text("does not answer")
    page.unroute_all()
    say(page, "Now?")
    assert [each["content"] for each in chats.requests[-1]["messages"] if each["role"] == "assistant"] == ["You said:"]
    assert [text for text in page.problems if "Failed to load resource" not in text] == []
    page.problems.clear()


def test_edit_and_retry_keep_what_was(page):
    say(page, "first words")
    page.get_by_role("article", name="You").hover()
    page.get_by_label("Edit message").click()
    page.get_by_label("Edit message").fill("second words")
    page.keyboard.press("Enter")
    expect(answer(page)).to_contain_text("You said: second words")
    page.get_by_label("Version before").click()
    expect(answer(page)).to_contain_text("You said: first words")
    page.get_by_label("Try again").click()
    expect(answer(page).get_by_text("2/2")).to_be_visible()
    page.get_by_role("article", name="You").get_by_label("Compare versions").click()
    sides = page.get_by_role("dialog", name="Compare versions").locator("section")
    expect(sides.nth(0)).to_contain_text("You said: first words")
    expect(sides.nth(1)).to_contain_text("You said: second words")
    page.get_by_label("Version 2").select_option("0")
    expect(sides.nth(1)).to_contain_text("You said: first words")
    page.keyboard.press("Escape")
    expect(sides).to_have_count(0)


def test_tools(page, chats):
    page.get_by_role("button", name="Parameters").click()
    page.get_by_label("Tools").fill('[{"type": "function", "function": {"name": "get_weather"}}]')
    page.keyboard.press("Tab")
    page.get_by_label("Close").click()
    say(page, "weather")
    assert chats.requests[-1]["tools"][0]["function"]["name"] == "get_weather"
    expect(answer(page).get_by_label("Call of get_weather")).to_contain_text('"city": "Reykjavík"')
    page.get_by_label("Result of get_weather").fill("rain")
    page.get_by_text("Send result").click()
    expect(answer(page)).to_contain_text("The tool says: rain")
    call, result = chats.requests[-1]["messages"][-2:]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "call_1"


def test_tools_of_the_server_run_when_they_may(page, chats):
    chats.called.clear()
    page.get_by_role("button", name="Parameters").click()
    for name in ("add", "hang"):
        page.get_by_label(name, exact=True).check()
    page.get_by_label("Close").click()
    say(page, "add these")
    assert [each["function"]["name"] for each in chats.requests[-1]["tools"]] == ["add", "hang"]
    question = answer(page).get_by_role("group", name="May add run?")
    question.get_by_text("Refuse").click()
    expect(answer(page)).to_contain_text("The tool says: Error: the user refused this call")
    assert chats.called == []
    say(page, "add these")
    answer(page).get_by_text("Always").click()
    expect(answer(page)).to_contain_text("The tool says: 5")
    say(page, "add them again", waits=False)
    expect(answer(page)).to_contain_text("The tool says: 5")
    assert chats.called == [{"tool": "add", "params": {"a": 2, "b": 3}}] * 2
    page.get_by_role("button", name="Parameters").click()
    page.get_by_label("constructor", exact=True).check()
    page.get_by_label("Close").click()
    say(page, "constructor of everything")
    answer(page).get_by_role("group", name="May constructor run?").get_by_text("Refuse").click()
    expect(answer(page)).to_contain_text("The tool says: Error: the user refused this call")
    assert len(chats.called) == 2
    say(page, "hang now")
    answer(page).get_by_text("Run", exact=True).click()
    answer(page).get_by_text("Stop", exact=True).click()
    expect(answer(page)).to_contain_text("The tool says: Error: the user stopped this call")


def test_an_answer_beside_that_of_another_model(page, chats):
    say(page, "Compare")
    page.get_by_label("Answer with another model").select_option("pumice-1b")
    sides = page.get_by_role("dialog", name="Compare versions").locator("section")
    expect(sides.nth(1)).to_contain_text("You said: Compare")
    assert [each["model"] for each in chats.requests[-2:]] == ["pumice-8b", "pumice-1b"]


def test_parameters_that_belong_to_a_model(page, chats):
    page.get_by_label("Model").select_option("pumice-1b")
    page.get_by_role("button", name="Parameters").click()
    page.get_by_label("Keep for pumice-1b").check()
    page.get_by_label("Temperature").fill("0.3")
    page.get_by_label("Close").click()
    page.get_by_label("Model").select_option("pumice-8b")
    page.get_by_role("button", name="Parameters").click()
    page.get_by_label("Temperature").fill("0.9")
    page.get_by_label("Close").click()
    page.reload()
    page.get_by_label("Model").select_option("pumice-1b")
    say(page, "Hello")
    assert (chats.requests[-1]["model"], chats.requests[-1]["temperature"]) == ("pumice-1b", 0.3)


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


def run_command(page: "playwright.Page", name: str) -> None:
    page.keyboard.press("Control+k")
    page.get_by_label("Command or conversation").fill(name)
    page.keyboard.press("Enter")


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


def test_conversations_outlive_a_reload(page):
    say(page, "remember me")
    page.reload()
    expect(answer(page)).to_contain_text("You said: remember me")
    start_new(page)
    page.get_by_role("button", name="remember me", exact=True).click()
    expect(answer(page)).to_contain_text("You said: remember me")
    page.get_by_label("Delete remember me").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("navigation")).not_to_contain_text("Delete it?")
    expect(page.get_by_role("navigation")).not_to_contain_text("remember me")
    wait_until_removed(page, "remember me")
    page.reload()
    page.get_by_label("Message", exact=True).fill("Hello")
    expect(page.get_by_label("Send", exact=True)).to_be_enabled()  # by then the list was read
    expect(page.get_by_role("navigation")).not_to_contain_text("remember me")


def test_two_tabs_show_one_conversation(page, context):
    say(page, "from the first tab")
    other = opened(context, page.url)
    expect(answer(other)).to_contain_text("from the first tab")
    say(other, "from the second tab")
    expect(answer(page)).to_contain_text("You said: from the second tab")
    say(page, "slow", waits=False)
    expect(other.get_by_text("Being written in another window")).to_be_visible()
    other.get_by_label("Stop").click()
    expect(answer(other)).to_contain_text("Stopped")
    expect(answer(page)).to_contain_text("Stopped")


def test_an_answer_goes_on_after_a_reload(page, chats):
    say(page, "slow", waits=False)
    expect(answer(page)).to_contain_text("word30")  # it was kept by then
    page.reload()
    expect(answer(page)).to_contain_text("and goes on.")
    assert chats.requests[-1]["continue_final_message"] is True
    assert chats.requests[-1]["messages"][-1]["content"].startswith("word0 ")  # more, unless all 30 came at once
    expect(page.get_by_text("Being written in another window")).to_have_count(0)


def test_an_answer_of_a_window_that_was_closed_is_interrupted(page, context, chats):
    other = opened(context, chats.url)
    say(other, "slow", waits=False)
    expect(answer(other)).to_contain_text("word30")
    address = other.url
    other.close()
    page.goto(address)
    page.reload()
    expect(page.get_by_text("Interrupted")).to_be_visible()
    expect(page.get_by_label("Go on")).to_be_visible()


def test_a_draft_outlives_a_reload_and_waits_for_the_answer(page):
    say(page, "slow", waits=False)
    page.get_by_label("Message", exact=True).fill("Next")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Stop the answer (Esc) to send this")).to_be_visible()
    page.keyboard.press("Escape")
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Next")


def test_a_server_that_is_back_is_not_called_lost(page):
    page.route("**/v1/**", lambda route: route.abort())
    say(page, "Anybody there?")
    lost = page.locator(".notice")
    expect(lost).to_contain_text("does not answer")
    page.unroute_all()
    expect(lost).to_have_count(0)
    assert [text for text in page.problems if "Failed to load resource" not in text] == []
    page.problems.clear()


def test_formulas(page):
    """As MathML, whose library comes with the first one; LaTeX that it does not know is shown as it is written."""
    say(page, "formula")
    expect(answer(page).locator("math")).to_have_count(3)
    assert answer(page).locator(".formula").evaluate_all("all => all.map(each => each.dataset.latex)") == [
        r"\int_0^1 x^2\,dx",
        "a_1 * b_1",
        r"\frac{1}{2}",
    ]
    expect(answer(page).locator("mfrac")).to_have_count(1)
    expect(answer(page).locator("code.math")).to_have_text([r"\unknown{x}"])
    expect(answer(page)).to_contain_text("It costs $5 or $6.")


def test_a_formula_stays_in_its_place(page):
    """Parts of a formula outside of its answer are clipped: other elements there are seen and clicked."""
    say(page, "far left")
    letter = answer(page).locator(".formula mi")
    box = letter.bounding_box()
    assert box["x"] + box["width"] < answer(page).bounding_box()["x"]
    at = "(each, [x, y]) => document.elementFromPoint(x, y).closest('.formula') === null"
    assert letter.evaluate(at, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])


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
    page.get_by_label("Model", exact=True).select_option("pumice-1b")
    refused = (PICTURE, "sees no pictures"), (CLIP, "sees no videos"), (BINARY, "neither a picture nor text")
    for file, problem in refused:
        page.get_by_label("Files to attach").set_input_files([file])
        expect(page.locator(".notice")).to_contain_text(problem)
    expect(page.locator(".composer .attached")).to_have_count(0)


def test_videos_are_attached(page, chats):
    page.get_by_label("Files to attach").set_input_files([CLIP])
    expect(page.locator(".composer .attached")).to_contain_text("a.mp4")
    say(page, "Look")
    video, text = chats.requests[-1]["messages"][-1]["content"]
    assert video == {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAAGGZ0eXBtcDQy"}}
    assert text["text"] == "Look"


def test_files_wait_for_what_their_model_is(context, chats):
    """A tab shows where to write before the server has told which models there are."""
    context.route("**/v1/models", lambda route: None)
    page = opened(context, chats.url)
    page.get_by_label("Files to attach").set_input_files([CLIP])
    page.wait_for_timeout(100)
    context.unroute("**/v1/models")  # what was asked goes on
    expect(page.locator(".composer .attached")).to_contain_text("a.mp4")


def test_pdf_files_are_attached_as_text(page, chats):
    pytest.importorskip("pypdf", reason="texts of PDF files need pypdf")
    file = {"name": "fox.pdf", "mimeType": "application/pdf", "buffer": pdf_file(["The fox has a kite."])}
    page.get_by_label("Files to attach").set_input_files([file])
    expect(page.locator(".composer .attached")).to_contain_text("fox.pdf")
    say(page, "Whose kite?")
    assert "fox.pdf:" in json.dumps(chats.requests[-1]["messages"][-1]["content"])
    assert "The fox has a kite." in json.dumps(chats.requests[-1]["messages"][-1]["content"])


CLOSE_AND_OPEN = """() => {
    document.querySelector("dialog.palette").close();  // as Escape does; the event comes later
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true, bubbles: true}));
}"""
CHOOSE_AND_OPEN = """() => {
    document.querySelector("dialog.palette [role=option]").click();  // its element closes with the next frame
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true, bubbles: true}));
}"""


def test_search_and_commands(page):
    for words in ("a café in Lisbon", "the weather"):
        say(page, words)
        start_new(page)
    list = page.get_by_role("navigation")
    page.get_by_label("Search conversations").fill("CAFE said")  # also in answers, without accents
    expect(list.get_by_role("button", name="the weather", exact=True)).to_have_count(0)
    expect(list.get_by_role("button", name="a café in Lisbon", exact=True)).to_be_visible()
    page.get_by_label("Search conversations").fill("nowhere")
    expect(page.get_by_text("No conversation has these words.")).to_be_visible()
    page.get_by_label("Search conversations").fill("")
    page.keyboard.press("Control+k")
    shown = page.get_by_label("Command or conversation")
    expect(shown).to_be_visible()
    page.evaluate(CLOSE_AND_OPEN)
    expect(shown).to_be_visible()
    page.evaluate(CHOOSE_AND_OPEN)
    expect(shown).to_be_visible()
    expect(shown).to_be_focused()
    shown.fill("lisbon")
    expect(page.get_by_role("dialog").get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(answer(page)).to_contain_text("You said: a café in Lisbon")
    used = page.locator(".context")
    expect(used.get_by_text("of 8,192 tokens")).to_be_visible()
    expect(used.get_by_role("img")).to_be_hidden()
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    expect(used.get_by_role("img", name="of 8,192 tokens")).to_have_text(re.compile(r"^\d+%$"))
    expect(used.get_by_role("img")).to_be_visible()
    expect(used.get_by_text("of 8,192 tokens")).to_be_hidden()
    page.set_viewport_size(wide)
    page.keyboard.press("Control+k")
    page.get_by_label("Command or conversation").fill("pumice-1b")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Model", exact=True)).to_have_value("pumice-1b")


def test_conversations_as_files(browser, page, chats, tmp_path):
    """All of them, with their versions, into another browser; the open one as a request; nothing of others."""
    say(page, "first words")
    page.get_by_label("Try again").click()
    expect(answer(page).get_by_text("2/2")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text(re.compile("complete"))
    saved = []
    for label in ("Save all conversations", "Save as a file"):
        with page.expect_download() as download:
            page.get_by_label(label).click()
        saved.append(tmp_path / f"{len(saved)}.json")
        download.value.save_as(saved[-1])
    with profile(browser) as context:
        other = opened(context, chats.url)
        for file, versions in zip(saved, (1, 0), strict=True):
            other.get_by_label("File of conversations").set_input_files(file)
            expect(other.get_by_role("status")).to_have_text("1 conversation was read")
            expect(answer(other)).to_contain_text("You said: first words")
            expect(answer(other).get_by_text("2/2")).to_have_count(versions)
        for number, wrong in enumerate(wrong_conversations(json.loads(saved[0].read_text()))):
            file = tmp_path / f"wrong-{number}.json"
            file.write_text(json.dumps({"form": "pumice-conversations", "conversations": [wrong]}))
            other.get_by_label("File of conversations").set_input_files(file)
            expect(other.locator(".notice")).to_contain_text(f"{file.name} holds no conversations of this page")
        assert other.problems == []
    page.get_by_label("File of conversations").set_input_files(saved[0])  # beside what is here
    expect(page.get_by_role("navigation").get_by_role("button", name="first words", exact=True)).to_have_count(2)


def wrong_conversations(file: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Conversations that the page refuses, each wrong in one thing."""
    (right,) = file["conversations"]
    first = right["messages"][0]
    yield {"messages": []}
    for change in (
        {"parent": first["id"]},
        {"parent": "nobody"},
        {"toolCalls": 5},
        {"id": [first["id"]]},
        {"figures": 1},
    ):
        yield {**right, "messages": [{**first, **change}, *right["messages"][1:]]}
    yield {**right, "messages": [*right["messages"], first]}
    yield {**right, "conversation": {**right["conversation"], "options": {"tools": 5}}}


def test_a_request_is_read_with_its_pictures_and_parameters(page, chats, tmp_path):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    said = {"role": "user", "content": [picture, {"type": "text", "text": "Look"}]}
    messages = [{"role": "system", "content": "Be brief."}, said, {"role": "assistant", "content": "A point."}]
    asked = {"temperature": 0.5, "seed": 7, "enable_thinking": False, "tools": tools}
    (tmp_path / "request.json").write_text(json.dumps({"messages": messages, "model": "nowhere", "top_k": -9, **asked}))
    page.get_by_label("File of conversations").set_input_files(tmp_path / "request.json")
    expect(page.get_by_role("status")).to_have_text("1 conversation was read")
    say(page, "And now?")
    sent = chats.requests[-1]
    assert sent["messages"] == [*messages, {"role": "user", "content": "And now?"}]
    assert asked.items() <= sent.items()
    assert "top_k" not in sent
    assert sent["model"] != "nowhere"


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


def test_html_is_shown_in_a_frame_that_reaches_nothing(page):
    say(page, "draw it")
    expect(answer(page).locator("iframe")).to_have_count(0)
    answer(page).get_by_label("Show it in a frame").click()
    frame = answer(page).frame_locator("iframe")
    expect(frame.locator("#said")).to_have_text("no page, no storage, no network")
    expect(answer(page).locator("iframe")).to_have_attribute("sandbox", "allow-scripts")
    expect(answer(page).locator(".hljs-selector-class")).to_have_text(".a")
    assert page.evaluate("window.hacked") is None
    answer(page).get_by_label("Show it in a frame").click()
    expect(answer(page).locator("iframe")).to_have_count(0)
    assert all("frame.html" in text or "Content Security Policy" in text for text in page.problems), page.problems
    page.problems.clear()


def test_a_flowchart_is_text_until_it_is_drawn(page):
    say(page, "a flowchart")
    expect(answer(page).locator("figure")).to_have_count(2)
    expect(answer(page).get_by_label("Draw it")).to_have_count(1)  # other diagrams stay text
    expect(answer(page).locator(".diagram")).to_have_count(0)
    answer(page).get_by_label("Draw it").click()
    drawn = answer(page).locator(".diagram svg")
    expect(drawn).to_be_visible()
    words = ["Read the file", "Is it <b>large</b>?", "A line", "at a time", "All (at once)", "Done"]
    assert drawn.locator("text:not(.over)").all_text_contents() == words
    assert [text for text in drawn.locator(".over").all_text_contents() if text] == ["yes", "no"]
    assert drawn.locator(".link").count() == 6
    boxes = [box.bounding_box() for box in drawn.locator("g > rect, g > path:not(.link)").all()]
    middles = [box["y"] + box["height"] / 2 for box in boxes]
    assert middles == sorted(middles), "each below what leads to it"
    assert middles[2] == pytest.approx(middles[3], abs=1)
    assert boxes[2]["x"] + boxes[2]["width"] < boxes[3]["x"], "beside each other"
    expect(answer(page).locator("pre").first).to_be_visible()


def test_folders(page):
    say(page, "about cats")
    page.get_by_label("Move about cats to a folder").click()
    page.get_by_label("Folder", exact=True).fill("Animals")
    page.keyboard.press("Enter")
    list = page.get_by_role("navigation")
    expect(list.locator("details.folder summary")).to_have_text("Animals")
    expect(list.locator("details.folder li")).to_have_count(1)
    wait_until_kept(page, "about cats", "Animals")
    page.reload()
    expect(list.locator("details.folder li")).to_contain_text("about cats")
    page.get_by_label("Move about cats to a folder").click()
    page.get_by_label("Folder", exact=True).fill("")
    page.keyboard.press("Enter")
    expect(list.locator("details.folder")).to_have_count(0)
    expect(list).to_contain_text("about cats")


def test_a_new_conversation_has_examples(page):
    page.get_by_role("button", name="Why is the sky blue?").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Why is the sky blue?")


def test_conversations_kept_by_the_server(browser, tmp_path):
    with scripted(tmp_path / "chats.db") as server:
        for turn in ("first", "second"):  # two browsers
            with profile(browser) as context:
                page = opened(context, server.url)
                expect(page.get_by_text("Kept by the server")).to_be_visible()
                if turn == "first":
                    say(page, "remember me")
                else:
                    page.get_by_role("button", name="remember me", exact=True).click()
                expect(answer(page)).to_contain_text("You said: remember me")
                assert page.problems == []


def test_incomplete_conversations_of_other_clients_are_passed_over(browser, tmp_path):
    """An id is part of addresses: deleting a conversation could delete anything else."""
    whole = {"title": "fox", "created": 1, "updated": 1, "leaf": "m", "options": {}}
    wrong = [{}, {**whole, "updated": "x"}, {**whole, "options": None}, {**whole, "title": 3}]
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        put = partial(context.request.put, fail_on_status_code=True)
        for number, body in enumerate([*wrong, whole]):
            put(f"{server.url}/conversations/c{number}", data={"id": f"c{number}", **body})
        put(f"{server.url}/conversations/d", data={"id": "../v1/models", **whole})
        message = {"parent": None, "created": 1, "role": "user", "content": "Hello fox"}
        for name, body in (("m", message), ("n", {**message, "content": 3}), ("o", {})):
            put(f"{server.url}/conversations/c4/messages/{name}", data={"id": name, **body})
        page = opened(context, server.url)
        page.get_by_role("button", name="fox", exact=True).click()
        expect(page.get_by_role("article", name="You")).to_have_text(re.compile("Hello fox"))
        expect(page.get_by_role("navigation").get_by_role("listitem")).to_have_count(1)
        assert page.problems == []


def test_a_message_that_cannot_be_kept_returns_to_the_composer(browser, tmp_path):
    """First the conversation cannot be kept, then a message of one that is."""
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        box = page.get_by_label("Message", exact=True)
        for path in (r"/conversations/\w+$", r"/conversations/\w+/messages/"):
            full = re.compile(path)
            page.route(full, lambda route: route.fulfill(status=500, json={"error": {"message": "the disk is full"}}))
            box.fill("Explain this")
            expect(page.get_by_label("Send", exact=True)).to_be_enabled()
            page.keyboard.press("Enter")
            expect(page.get_by_text("the disk is full")).to_be_visible()
            expect(box).to_have_value("Explain this")
            expect(page.get_by_role("article")).to_have_count(0)
            page.unroute(full)
        say(page, "Explain this")
        expect(answer(page)).to_contain_text("You said: Explain this")
        assert [each["content"] for each in server.requests[-1]["messages"]] == ["Explain this"]


def test_an_answer_belongs_to_the_conversation_that_was_left_before_its_message_was_kept(browser, tmp_path):
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        say(page, "first words")
        start_new(page)
        kept = re.compile(r"/conversations/\w+/messages/")
        taken = hold(page, kept)
        page.get_by_label("Message", exact=True).fill("second words")
        with page.expect_request(kept):
            page.keyboard.press("Enter")
        page.get_by_role("button", name="first words", exact=True).click()
        expect(answer(page)).to_contain_text("You said: first words")
        with page.expect_response("**/v1/chat/completions"):
            taken().continue_()
        page.get_by_role("button", name="second words", exact=True).click()
        expect(answer(page)).to_contain_text("You said: second words")
        assert [each["content"] for each in server.requests[-1]["messages"]] == ["second words"]
        assert page.problems == []


def test_an_answer_that_ends_while_its_conversation_is_opened_is_shown(browser, tmp_path):
    """Its messages are read before the answer is kept, and come after."""
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        say(page, "first words")
        start_new(page)
        say(page, "slow", waits=False)
        expect(answer(page)).to_contain_text("word3")
        slow = page.evaluate("location.hash.slice(1)")
        page.get_by_role("button", name="first words", exact=True).click()
        expect(answer(page)).to_contain_text("You said: first words")
        taken = hold(page, re.compile(r"/messages$"))
        page.get_by_role("button", name=re.compile("slow$")).click()
        route = taken()
        response = route.fetch()
        page.evaluate("id => new BroadcastChannel('pumice.stop').postMessage(id)", slow)
        expect(page.get_by_role("status")).to_have_text("The answer was stopped")
        route.fulfill(response=response)
        expect(answer(page)).to_contain_text("word3")
        expect(answer(page)).to_contain_text("Stopped")
        assert page.problems == []


def test_changes_reach_the_server_in_their_order(browser, tmp_path):
    """However long the first takes: the parameters that were set last are those that are kept."""
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        say(page, "hello")
        taken = hold(page, re.compile(r"/conversations/\w+$"))
        page.get_by_role("button", name="Parameters").click()
        for words in ("Be", "Be brief."):
            page.get_by_label("System message").fill(words)
        page.wait_for_timeout(300)  # in which the second one would be answered
        with page.expect_response(lambda response: "Be brief." in (response.request.post_data or "")):
            taken().continue_()
        page.evaluate("localStorage.clear()")
        page.reload()
        page.get_by_role("button", name="Parameters").click()
        expect(page.get_by_label("System message")).to_have_value("Be brief.")


def test_a_message_waits_for_its_files(page, chats):
    """A file that takes long to read goes into the message it was given for, before those that were given later."""
    taken = hold(page, "**/extract-text")
    file = {"name": "fox.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4"}
    page.get_by_label("Files to attach").set_input_files([file])
    page.evaluate(GIVE, ["drop", "main", "b.md"])
    page.get_by_label("Message", exact=True).fill("Whose kite?")
    expect(page.get_by_label("Send", exact=True)).to_be_disabled()
    page.keyboard.press("Enter")
    expect(page.get_by_role("article")).to_have_count(0)
    taken().fulfill(json={"text": "The fox has a kite."})
    say(page, "Whose kite?")
    said = chats.requests[-1]["messages"][-1]["content"]
    assert said.index("fox.pdf:") < said.index("b.md:") < said.index("Whose kite?")


def test_results_are_given_once(browser, tmp_path):
    """However often the button is pressed while they are kept; what could not be kept can be given again."""
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        page.get_by_role("button", name="Parameters").click()
        page.get_by_label("add", exact=True).check()
        tools = [{"type": "function", "function": {"name": "get_weather"}}]
        page.get_by_label("Tools", exact=True).fill(json.dumps(tools))
        page.get_by_label("Close").click()
        kept = re.compile(r"/conversations/\w+/messages/")
        full = {"status": 500, "json": {"error": {"message": "the disk is full"}}}
        for words, result in (("weather", "rain"), ("add these", "5")):
            say(page, words)
            page.route(kept, lambda route: route.fulfill(**full), times=1)
            if words == "weather":
                page.get_by_label("Result of get_weather").fill(result)
                page.get_by_text("Send result").click()
            else:
                answer(page).get_by_text("Run", exact=True).click()
            expect(page.get_by_text("the disk is full")).to_be_visible()
            page.get_by_label("Close").click()
            taken = hold(page, kept)
            page.get_by_text("Send result").evaluate("button => (button.click(), button.click())")
            expect(page.get_by_text("Send result")).to_have_count(0)
            taken().continue_()
            expect(answer(page)).to_contain_text(f"The tool says: {result}")
            expect(page.get_by_role("article", name="Result of a tool").last).to_contain_text(result)
            roles = [each["role"] for each in server.requests[-1]["messages"]]
            assert roles[-3:] == ["user", "assistant", "tool"]


def test_a_message_waits_for_the_one_before_it(browser, tmp_path):
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        box = page.get_by_label("Message", exact=True)
        taken = hold(page, re.compile(r"/conversations/\w+/messages/"))
        box.fill("first words")
        expect(page.get_by_label("Send", exact=True)).to_be_enabled()
        page.keyboard.press("Enter")
        route = taken()
        box.fill("second words")
        page.keyboard.press("Enter")
        expect(box).to_have_value("second words")
        route.continue_()
        expect(answer(page)).to_contain_text("You said: first words")
        expect(page.get_by_role("status")).to_have_text("The answer is complete")
        say(page, "second words")
        said = [each["content"] for each in server.requests[-1]["messages"]]
        assert said == ["first words", "You said: first words", "second words"]


def test_a_list_that_was_read_before_a_conversation_came_is_read_again(browser, tmp_path):
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day."}]
    (tmp_path / "greeting.json").write_text(json.dumps({"messages": messages}))
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        page.get_by_label("Message", exact=True).fill("draft")
        expect(page.get_by_label("Send", exact=True)).to_be_enabled()
        listed = re.compile(r"/conversations$")
        taken = hold(page, listed)
        page.evaluate("dispatchEvent(new Event('focus'))")
        route = taken()
        response = route.fetch()
        page.get_by_label("File of conversations").set_input_files(tmp_path / "greeting.json")
        expect(answer(page)).to_contain_text("Good day.")
        with page.expect_request(listed):
            route.fulfill(response=response)
        expect(page.get_by_role("navigation", name="Conversations")).to_contain_text("greeting")


def test_an_edited_message_waits_for_the_answer_that_is_written(page, chats):
    say(page, "first words")
    page.get_by_role("article", name="You").hover()
    page.get_by_label("Edit message").click()
    say(page, "slow", waits=False)
    page.get_by_role("textbox", name="Edit message").fill("other words")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_have_value("other words")
    expect(answer(page)).to_contain_text("word3")
    page.get_by_label("Stop").click()
    expect(answer(page)).to_contain_text("Stopped")


def test_a_double_click_is_one_click(page, chats):
    """The second half of it hits what comes in place of the button: to stop, or to delete."""
    page.get_by_label("Message", exact=True).fill("slow")
    page.get_by_label("Send", exact=True).dblclick()
    expect(answer(page)).to_contain_text("word3")
    expect(page.get_by_text("Stopped")).to_have_count(0)
    page.get_by_label("Stop").click()
    expect(answer(page)).to_contain_text("Stopped")
    page.get_by_role("button", name="Parameters").click()
    page.get_by_label("hang", exact=True).check()
    page.get_by_label("Close").click()
    say(page, "hang now")
    answer(page).get_by_text("Run", exact=True).dblclick()
    expect(answer(page).get_by_text("Running")).to_be_visible()
    answer(page).get_by_text("Stop", exact=True).click()
    expect(answer(page)).to_contain_text("The tool says: Error: the user stopped this call")
    page.get_by_label("Delete slow").dblclick()
    expect(page.get_by_role("group", name="Delete slow?")).to_be_visible()


def test_the_focus_goes_to_the_message_when_what_had_it_is_gone(page):
    """Nobody who uses the keyboard begins at the top of the page again."""
    say(page, "about dogs")
    box = page.get_by_label("Message", exact=True)
    for field, key in (("Edit message", "Escape"), ("Edit message", "Enter"), ("Title", "Escape"), ("Title", "Enter")):
        page.get_by_label("Rename about dogs" if field == "Title" else field, exact=True).first.press("Enter")
        expect(page.get_by_role("textbox", name=field)).to_be_focused()
        page.keyboard.type("!")
        page.keyboard.press(key)
        expect(page.get_by_role("textbox", name=field)).to_have_count(0)
        expect(box).to_be_focused()
    expect(page.get_by_role("heading", name="!about dogs", exact=True)).to_be_visible()
    expect(page.get_by_label("Try again")).to_be_enabled()  # once the answer to what was edited is complete
    page.get_by_label("Try again").press("Enter")
    expect(answer(page).get_by_text("2/2")).to_be_visible()
    expect(box).to_be_focused()


def test_a_conversation_that_another_tab_changes_keeps_the_message_on_its_way(browser, tmp_path):
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        say(page, "first words")
        other = opened(context, page.url)
        taken = hold(page, re.compile(r"/conversations/\w+/messages/"))
        page.get_by_label("Message", exact=True).fill("second words")
        page.keyboard.press("Enter")
        route = taken()
        with page.expect_response(re.compile(r"/messages$")):
            other.get_by_label("Rename first words").click()
            other.get_by_label("Title").fill("Words")
            other.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Words", exact=True)).to_be_visible()
        route.continue_()
        expect(answer(page)).to_contain_text("You said: second words")
        said = [each["content"] for each in server.requests[-1]["messages"]]
        assert said == ["first words", "You said: first words", "second words"]


def test_the_answer_of_a_deleted_conversation_ends(browser, tmp_path):
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        say(page, "slow", waits=False)
        expect(answer(page)).to_contain_text("word30")
        page.get_by_label("Delete slow").click()
        page.get_by_text("Delete", exact=True).click()
        expect(page.get_by_text("What is on your mind?")).to_be_visible()
        assert server.left.wait(PATIENCE)
        page.wait_for_timeout(1500)  # in which the answer would be kept again
        expect(page.get_by_role("alert")).to_have_count(0)
        assert page.problems == []


def test_a_server_with_keys_asks_for_one(context):
    with scripted(keys=("secret",)) as server:
        page = context.new_page()
        page.goto(server.url)
        page.get_by_label("API key").last.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("is not known there")).to_be_visible()
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


def test_colours_can_be_chosen(page):
    body = page.locator("body")
    light = body.evaluate("body => getComputedStyle(body).backgroundColor")
    page.get_by_label("Colours: dark").click()
    expect(body).not_to_have_css("background-color", light)
    page.reload()
    expect(body).not_to_have_css("background-color", light)
    page.get_by_label("Colours: system").click()
    expect(body).to_have_css("background-color", light)


def test_the_demo_model_tells_a_story(context, model):
    with running(model) as server:
        page = opened(context, server.url)
        page.get_by_role("button", name="Parameters").click()
        page.get_by_label("Maximum tokens").fill("20")
        page.get_by_label("Close").click()
        say(page, "Once upon a time")
        expect(answer(page)).to_contain_text("20 tokens")
        assert len(answer(page).locator(".markdown").inner_text()) > 20
        assert page.problems == []


@pytest.mark.skipif(not (MODULES / "esbuild").exists(), reason="page/node_modules is not there (.ci/page makes it)")
def test_the_served_page_is_built_from_the_sources(tmp_path):
    subprocess.run(["node", ROOT / "page" / "build.mjs", tmp_path], check=True, cwd=ROOT / "page")
    served = ROOT / "plugins" / "pumice_server" / "page"
    names = sorted(path.name for path in served.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert filecmp.cmpfiles(served, tmp_path, names, shallow=False)[0] == names, "run: node page/build.mjs"
