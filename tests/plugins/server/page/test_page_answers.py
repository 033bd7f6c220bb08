"""Answers on the page: how they are shown, stopped, gone on with and written anew, and the tools that they call."""

from browser_page import answer, expect, needs_browser, opened, say
from server_thread import running
from waiting import PATIENCE

pytestmark = needs_browser


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


def test_text_of_a_model_is_never_markup(page):
    say(page, "attack")
    assert page.evaluate("window.hacked") is None
    forbidden = answer(page).locator("script, img, iframe, style, svg[onload], [onerror], [onmouseover]")
    assert forbidden.count() == 0
    expect(answer(page)).to_contain_text("<script>window.hacked = 1</script>")
    links = answer(page).get_by_role("link").evaluate_all("links => links.map(link => link.protocol)")
    assert links == ["https:"]  # the picture's, which is not fetched


def test_stop_and_go_on(page, chats):
    chats.left.clear()
    say(page, "slow", waits=False)
    expect(answer(page)).to_contain_text("word3")
    page.keyboard.press("Escape")
    expect(answer(page)).to_contain_text("Stopped")
    expect(page.get_by_role("status")).to_have_text("The answer was stopped")
    assert chats.left.wait(PATIENCE)
    page.get_by_label("Continue").click()
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


def test_a_load_is_told_while_its_answer_waits(page):
    """Of the model that is asked, whichever is chosen, by its state at that time."""
    states = {"pumice-8b": "loaded", "pumice-1b": "unloaded"}
    data = [{"id": name, "status": {"value": state}} for name, state in states.items()]
    say(page, "hello")
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": data}))
    page.route("**/v1/chat/completions", lambda route: None)  # answers nothing
    page.get_by_label("Answer with another model").select_option("pumice-1b")
    expect(answer(page)).to_contain_text("The model is loaded first")
    page.keyboard.press("Escape")  # the two answers side by side
    page.keyboard.press("Escape")
    expect(answer(page)).to_contain_text("Stopped")
    data[0]["status"]["value"] = "unloaded"
    say(page, "hello again", waits=False)
    expect(answer(page)).to_contain_text("The model is loaded first")
    data[0]["status"]["value"] = "failed"
    page.keyboard.press("Escape")
    expect(page.get_by_label("Model", exact=True).locator("option").first).to_have_text("pumice-8b · failed")


def test_edit_and_retry_keep_what_was(page):
    say(page, "first words")
    page.get_by_role("article", name="You").hover()
    page.get_by_label("Edit message").click()
    page.get_by_label("Edit message").fill("second words")
    page.keyboard.press("Enter")
    expect(answer(page)).to_contain_text("You said: second words")
    page.get_by_label("Previous version").click()
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


def test_an_answer_goes_on_after_a_reload(page, chats):
    say(page, "slow", waits=False)
    expect(answer(page)).to_contain_text("word30")  # it was kept by then
    page.reload()
    expect(answer(page)).to_contain_text("and goes on.")
    assert chats.requests[-1]["continue_final_message"] is True
    assert chats.requests[-1]["messages"][-1]["content"].startswith("word0 ")  # more, unless all 30 came at once
    expect(page.get_by_text("Being generated in another window")).to_have_count(0)


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


def test_html_is_shown_in_a_frame_that_reaches_nothing(page):
    say(page, "draw it")
    expect(answer(page).locator("iframe")).to_have_count(0)
    answer(page).get_by_label("Preview").click()
    frame = answer(page).frame_locator("iframe")
    expect(frame.locator("#said")).to_have_text("no page, no storage, no network")
    expect(answer(page).locator("iframe")).to_have_attribute("sandbox", "allow-scripts")
    expect(answer(page).locator(".hljs-selector-class")).to_have_text(".a")
    assert page.evaluate("window.hacked") is None
    answer(page).get_by_label("Preview").click()
    expect(answer(page).locator("iframe")).to_have_count(0)
    assert all("frame.html" in text or "Content Security Policy" in text for text in page.problems), page.problems
    page.problems.clear()


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
