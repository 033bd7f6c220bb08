"""Conversations of the page: kept by the browser or by the server, in several tabs, as files, in folders, and found."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from browser_page import answer, expect, hold, needs_browser, opened, profile, run_command, say, start_new
from scripted_server import scripted
from waiting import PATIENCE, wait_until

pytestmark = needs_browser

KEPT = """([title, folder]) => new Promise((resolve) => {
    indexedDB.open("pumice").onsuccess = ({target: {result: database}}) => {
        database.transaction("conversations").objectStore("conversations").getAll().onsuccess = ({target}) => {
            database.close();
            resolve(target.result.some((each) => each.title === title && (each.folder ?? null) === folder));
        };
    };
})"""


def wait_until_kept(page: Any, title: str, folder: str | None) -> None:
    """Wait for a conversation's folder in IndexedDB: the list shows it earlier, and a reload would lose it."""
    wait_until(lambda: page.evaluate(KEPT, [title, folder]))


def wait_until_removed(page: Any, title: str) -> None:
    """Wait until IndexedDB has a conversation no longer: the list is without it earlier, and a reload would keep it."""
    wait_until(lambda: not page.evaluate(KEPT, [title, None]))


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
    expect(other.get_by_text("Being generated in another window")).to_be_visible()
    other.get_by_label("Stop").click()
    expect(answer(other)).to_contain_text("Stopped")
    expect(answer(page)).to_contain_text("Stopped")


CLOSE_AND_OPEN = """() => {
    document.querySelector("dialog.palette").close();  // as Escape does; the event comes later
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true, bubbles: true}));
}"""

CHOOSE_AND_OPEN = """() => {
    document.querySelector("dialog.palette [role=option]").click();  // its element closes with the next frame
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true, bubbles: true}));
}"""


START_AND_SEARCH = """async () => {
    document.querySelector("button.new").click();
    for (let turn = 0; turn < 20; turn++) await null;  // the new conversation is rendered, and not painted yet
    document.getElementById("search").focus();
    await new Promise((done) => setTimeout(done, 200));
}"""


def test_search_and_commands(page):
    for words in ("a café in Lisbon", "the weather"):
        say(page, words)
        page.evaluate(START_AND_SEARCH)
        expect(page.get_by_label("Search conversations")).to_be_focused()
    list = page.get_by_role("navigation")
    page.get_by_label("Search conversations").fill("CAFE said")  # also in answers, without accents
    expect(list.get_by_role("button", name="the weather", exact=True)).to_have_count(0)
    expect(list.get_by_role("button", name="a café in Lisbon", exact=True)).to_be_visible()
    page.get_by_label("Search conversations").fill("nowhere")
    expect(page.get_by_text("No conversation matches.")).to_be_visible()
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
    run_command(page, "pumice-1b")
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
    with page.expect_download() as download:
        run_command(page, "as Markdown")
    assert download.value.suggested_filename == "first words.md"
    text = Path(download.value.path()).read_text()
    assert text.startswith("# first words\n\n## You\n\nfirst words\n\n## Answer\n\nYou said: first words")
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
            expect(other.locator(".notice")).to_contain_text(f"{file.name} contains no conversations of this page")
        assert other.problems == []
    page.get_by_label("File of conversations").set_input_files(saved[0])  # beside what is here
    expect(page.get_by_role("navigation").get_by_role("button", name="first words", exact=True)).to_have_count(2)


def wrong_conversations(file: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Conversations that the page refuses, each wrong in one thing."""
    (right,) = file["conversations"]
    first = right["messages"][0]
    yield {"messages": []}
    parents = {"parent": first["id"]}, {"parent": "nobody"}
    for change in (*parents, {"toolCalls": 5}, {"id": [first["id"]]}, {"figures": 1}):
        yield {**right, "messages": [{**first, **change}, *right["messages"][1:]]}
    yield {**right, "messages": [*right["messages"], first]}
    yield {**right, "conversation": {**right["conversation"], "options": {"tools": 5}}}


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


def test_a_file_is_read_once_it_is_known_where_conversations_are_kept(browser, tmp_path):
    file = tmp_path / "a request.json"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "remember me"}]}))
    with scripted(tmp_path / "chats.db") as server, profile(browser) as context:
        page = opened(context, server.url)
        taken = hold(page, "**/props")
        page.reload()
        request = taken()
        page.get_by_label("File of conversations").set_input_files(file)
        page.wait_for_timeout(300)  # in which the browser would keep it
        request.continue_()
        expect(page.get_by_role("article", name="You")).to_contain_text("remember me")
        page.reload()
        expect(page.get_by_role("navigation").get_by_role("button", name="a request", exact=True)).to_be_visible()


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
