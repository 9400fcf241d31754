"""The chat page in Chromium against the whole product: what a person sees, types and loses or does not lose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, BrowserContext, StorageState, expect

from tests.browser import running_browser
from tests.e2e.cable import Cable
from tests.e2e.visitor import Visitor
from tests.services import running_services
from tests.stack import MODEL, Stack, running_stack

pytestmark = pytest.mark.browser

# What the simulated engine says: Markdown, then what must stay inert, then enough words to interrupt.
HOSTILE = (
    "<script>document.title='owned'</script> <img src=x onerror=document.title='owned'> ![pixel](http://pixel.test/x) "
    "[press](javascript:document.title='owned')"
)
WORDS = "and so it goes on " * 12 + "until the very end"
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"
ANSWER = "\n\n".join(["## Heading", "Some **bold** text.", TABLE, HOSTILE, "```python\nx = 1\n```", WORDS])
LAST_WORDS = "very end"
SIMULATED = {"SIMULATED_TEXT": ANSWER, "SIMULATED_ITL_MS": "15"}


@pytest.fixture(scope="module")
def cable() -> Iterator[Cable]:
    with Cable() as cable:
        yield cable


@pytest.fixture(scope="module")
def stack(cable: Cable, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of its own, because its engine speaks Markdown; the browser reaches it over the cable."""
    directory = tmp_path_factory.mktemp("chat-page")
    with (
        running_services() as services,
        running_stack(services, directory, BURSAR_URL=cable.url, BURSAR_ORIGINS=cable.url, **SIMULATED) as stack,
    ):
        cable.lead_to(stack.ports[0])
        yield stack


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def signed_in(browser: Browser, stack: Stack, cable: Cable) -> StorageState:
    """The cookies of a person who has signed in."""
    with browser.new_context() as context:
        Visitor(context, stack, cable).sign_in()
        return context.storage_state()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        yield context


@pytest.fixture
def visitor(browser: Browser, signed_in: StorageState, stack: Stack, cable: Cable) -> Iterator[Visitor]:
    with browser.new_context(viewport={"width": 1440, "height": 900}, storage_state=signed_in) as context:
        visitor = Visitor(context, stack, cable)
        visitor.page.goto(cable.url)
        yield visitor


def test_a_wrong_password_is_refused_in_words_and_the_name_is_kept(
    context: BrowserContext, stack: Stack, cable: Cable
) -> None:
    page = Visitor(context, stack, cable).page
    page.goto(cable.url)
    page.get_by_label("User name").fill("someone")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")

    expect(page.get_by_role("alert")).to_contain_text("correct")
    expect(page.get_by_label("User name")).to_have_value("someone")


def test_an_answer_arrives_as_markdown_with_its_figures_and_stays_inert(visitor: Visitor) -> None:
    requested: list[str] = []
    visitor.page.on("request", lambda request: requested.append(request.url))

    turn = visitor.ask_and_wait("Why is the sky blue?")

    expect(turn.locator(".prose h4")).to_have_text("Heading")
    expect(turn.locator(".prose strong")).to_have_text("bold")
    expect(turn.locator(".prose td")).to_have_text(["1", "2"])
    expect(turn.locator("pre")).to_have_text("x = 1")
    expect(turn.locator(".prose")).to_contain_text(LAST_WORDS)
    for part in ("Simulated", "tokens", "$", "TTFT", "E2E", "Receipt"):
        expect(turn.locator(".facts")).to_contain_text(part)
    expect(turn.locator(".prose")).to_contain_text("<script>document.title='owned'</script>")
    expect(turn.locator("img, script, a[href^=javascript]")).to_have_count(0)
    assert "owned" not in visitor.page.title()
    assert not [url for url in requested if not url.startswith(visitor.url) and not url.startswith("ws")]
    assert visitor.complaints == []


def test_a_question_opens_a_conversation_that_a_reload_brings_back(visitor: Visitor) -> None:
    visitor.ask_and_wait("Tell me about ledgers")
    visitor.ask_and_wait("And about vaults")
    entry = visitor.page.locator(".conversations [aria-current]")
    expect(entry).to_have_text("Tell me about ledgers")

    visitor.page.reload()

    expect(visitor.turns).to_have_count(2)
    expect(visitor.turns.first).to_contain_text("Tell me about ledgers")
    expect(visitor.turns.last.locator(".prose")).to_contain_text(LAST_WORDS)
    expect(visitor.turns.last.locator(".facts")).to_contain_text("Receipt")


def test_escape_stops_an_answer_and_it_can_be_asked_again(visitor: Visitor) -> None:
    turn = visitor.ask("Stop me")
    expect(turn.locator(".prose")).to_contain_text("Heading", timeout=15_000)
    visitor.page.keyboard.press("Escape")

    expect(turn).to_have_attribute("data-status", "cancelled")
    expect(turn).to_contain_text("This answer was stopped before its end")
    assert LAST_WORDS not in turn.locator(".prose").inner_text()

    turn.get_by_role("button", name="Ask again").click()
    expect(visitor.turns).to_have_count(2)
    expect(visitor.turns.last).to_have_attribute("data-status", "finished", timeout=30_000)


def test_a_reload_in_the_middle_of_an_answer_shows_how_it_ended(visitor: Visitor) -> None:
    turn = visitor.ask("Reload me")
    expect(turn.locator(".prose")).to_contain_text("Heading", timeout=15_000)
    visitor.page.reload()

    expect(visitor.turns).to_have_count(1)
    expect(visitor.turns).to_have_attribute("data-status", "cancelled", timeout=30_000)
    expect(visitor.turns.locator(".prose")).to_contain_text("Heading")


def test_the_stop_button_stops_before_the_first_word(visitor: Visitor) -> None:
    turn = visitor.ask("Stop me at once")
    visitor.stop.click()

    expect(turn).to_have_attribute("data-status", "cancelled", timeout=15_000)
    assert LAST_WORDS not in turn.inner_text()


def test_personal_data_in_a_question_is_said_to_be_masked(visitor: Visitor) -> None:
    turn = visitor.ask_and_wait("Write to jane.doe@example.org please")

    expect(turn).to_contain_text("Masked in your question: 1 email address")
    visitor.page.reload()
    expect(visitor.turns.last).to_contain_text("<EMAIL_ADDRESS>")


def test_conversations_are_renamed_and_deleted(visitor: Visitor) -> None:
    visitor.ask_and_wait("A conversation to rename")
    entries = visitor.page.locator(".conversations li")
    count = entries.count()
    entries.first.hover()
    entries.first.get_by_role("button", name=re.compile("Rename")).click()
    visitor.page.get_by_label("New name").fill("Renamed <b>so</b>")
    visitor.page.get_by_label("New name").press("Enter")
    visitor.page.reload()
    expect(entries.first.locator("[data-part=open]")).to_have_text("Renamed <b>so</b>")

    entries.first.hover()
    entries.first.get_by_role("button", name=re.compile("Delete")).click()
    visitor.page.get_by_role("button", name="Keep it").click()
    expect(entries).to_have_count(count)
    entries.first.hover()
    entries.first.get_by_role("button", name=re.compile("Delete")).click()
    visitor.page.get_by_role("button", name="Delete", exact=True).click()

    expect(entries).to_have_count(count - 1)
    expect(visitor.turns).to_have_count(0)
    visitor.page.reload()
    expect(entries).to_have_count(count - 1)


def test_a_broken_connection_loses_nothing_of_an_answer(visitor: Visitor, cable: Cable) -> None:
    whole = visitor.ask_and_wait("First without a break").locator(".prose").inner_text()
    turn = visitor.ask("Then with a break")
    expect(turn.locator(".prose")).to_contain_text("so it goes", timeout=15_000)
    cable.cut()

    expect(turn).to_have_attribute("data-status", "finished", timeout=30_000)
    assert turn.locator(".prose").inner_text() == whole
    expect(visitor.turns).to_have_count(2)


def test_a_question_asked_while_the_server_is_away_is_answered_once_when_it_is_back(
    visitor: Visitor, cable: Cable, stack: Stack
) -> None:
    visitor.ask_and_wait("Before")
    with cable.unplugged():
        turn = visitor.ask("While it is away")
        expect(visitor.status).to_contain_text("The connection is lost")

    expect(turn).to_have_attribute("data-status", "finished", timeout=60_000)
    visitor.page.reload()
    expect(visitor.turns).to_have_count(2)


def test_a_draft_survives_a_reload_and_a_change_of_conversation(visitor: Visitor) -> None:
    visitor.ask_and_wait("A conversation with a draft")
    visitor.question.fill("half a thought")
    visitor.page.get_by_role("button", name=re.compile("New conversation")).click()
    expect(visitor.question).to_have_value("")
    visitor.question.fill("another thought")
    visitor.page.reload()
    expect(visitor.question).to_have_value("another thought")
    visitor.page.go_back()
    expect(visitor.question).to_have_value("half a thought")


def test_a_question_that_is_too_long_is_refused_and_can_be_edited(visitor: Visitor) -> None:
    text = "long " * 14_000
    turn = visitor.ask(text)

    expect(turn).to_contain_text("The question is too long")
    turn.get_by_role("button", name="Edit the question").click()
    expect(visitor.question).to_have_value(text)
    expect(visitor.turns).to_have_count(0)


def test_signing_out_elsewhere_is_told_and_signing_in_again_keeps_what_was_typed(
    context: BrowserContext, stack: Stack, cable: Cable
) -> None:
    visitor = Visitor(context, stack, cable)
    visitor.sign_in()
    visitor.ask_and_wait("Before the sign-out")
    visitor.question.fill("still here")
    other = context.new_page()
    other.goto(visitor.url)
    other.get_by_role("button", name="Sign out").click()
    # Closing the page while it is on its way elsewhere can hang the browser; its context closes it later.
    expect(other.get_by_label("Password")).to_be_visible()

    link = visitor.page.get_by_role("link", name="Sign in")
    expect(link).to_be_visible(timeout=15_000)
    link.click()
    visitor.page.get_by_label("User name").fill(visitor.stack.environment["BURSAR_USER"])
    visitor.page.get_by_label("Password").fill(visitor.stack.environment["BURSAR_USER_PASSWORD"])
    visitor.page.keyboard.press("Enter")

    expect(visitor.turns).to_have_count(1)
    expect(visitor.question).to_have_value("still here")


def test_being_offline_is_told_and_what_is_asked_meanwhile_is_answered_later(visitor: Visitor, cable: Cable) -> None:
    expect(visitor.page.locator("#model")).to_contain_text(MODEL)
    visitor.page.context.set_offline(True)
    with cable.unplugged():
        expect(visitor.status).to_contain_text("You are offline")
        turn = visitor.ask("Asked while offline")
    visitor.page.context.set_offline(False)

    expect(turn).to_have_attribute("data-status", "finished", timeout=60_000)
    expect(visitor.status).to_be_hidden()


def test_a_model_that_is_not_ready_lets_one_write_and_send_once_it_is(visitor: Visitor, stack: Stack) -> None:
    stack.stop("worker")
    visitor.page.reload()
    expect(visitor.status).to_contain_text("The model is warming up", timeout=30_000)
    visitor.question.fill("written while it warms up")
    visitor.question.press("Enter")
    expect(visitor.question).to_have_value("written while it warms up")
    expect(visitor.turns).to_have_count(0)

    stack.start("worker")
    expect(visitor.status).to_be_hidden(timeout=60_000)
    visitor.question.press("Enter")
    expect(visitor.turns.last).to_have_attribute("data-status", "finished", timeout=30_000)


def test_a_refused_question_says_why_and_counts_down_until_it_can_be_asked_again(
    visitor: Visitor, stack: Stack
) -> None:
    visitor.ask_and_wait("The one that this minute has")
    with _limited_to(stack, requests_per_minute=1):
        visitor.page.reload()  # a socket keeps the limits that it was opened under
        expect(visitor.turns).to_have_count(1)
        refused = visitor.page.locator("article.turn[data-status=failed]")
        visitor.ask("One too many")
        expect(refused).to_contain_text("Too many questions at once")
        expect(refused.get_by_role("button", name=re.compile(r"Ask again in \d+ s"))).to_be_disabled()

    visitor.page.reload()
    expect(refused).to_contain_text("This question was not answered yet")
    refused.get_by_role("button", name="Ask again").click()
    expect(refused).to_have_count(0)
    expect(visitor.turns.last).to_have_attribute("data-status", "finished", timeout=30_000)


@contextmanager
def _limited_to(stack: Stack, requests_per_minute: int) -> Iterator[None]:
    """The demo organisation under another limit."""
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"], autocommit=True) as connection:
        before = connection.execute("SELECT requests_per_minute FROM accounts_organisation").fetchone()
        change = "UPDATE accounts_organisation SET requests_per_minute = %s"
        connection.execute(change, [requests_per_minute])
        try:
            yield
        finally:
            connection.execute(change, before)


def test_everything_can_be_reached_and_done_with_the_keyboard(visitor: Visitor) -> None:
    visitor.ask_and_wait("One for the keyboard")
    visitor.page.keyboard.press("Control+Shift+O")
    expect(visitor.turns).to_have_count(0)
    expect(visitor.question).to_be_focused()
    visitor.question.fill("two lines")
    visitor.question.press("Shift+Enter")
    expect(visitor.question).to_have_value("two lines\n")

    visitor.page.reload()
    visitor.page.locator("body").press("Tab")
    seen = set()
    for _ in range(60):
        label = "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
        seen.add(visitor.page.evaluate(label).strip())
        visitor.page.keyboard.press("Tab")
    for control in ("Skip to the question box", "Sign out", "One for the keyboard", "Send"):
        assert any(control in name for name in seen), control


def test_only_staff_are_shown_the_way_to_the_console(context: BrowserContext, stack: Stack, cable: Cable) -> None:
    visitor = Visitor(context, stack, cable)
    visitor.sign_in()
    expect(visitor.page.get_by_role("link", name="Console")).to_have_count(0)
    visitor.page.get_by_role("button", name="Sign out").click()
    visitor.sign_in("ADMIN")
    expect(visitor.page.get_by_role("link", name="Console")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_the_window_and_follows_the_colour_scheme(
    browser: Browser, signed_in: StorageState, stack: Stack, cable: Cable, width: int, scheme: Any
) -> None:
    size: Any = {"width": width, "height": 844}
    with browser.new_context(viewport=size, color_scheme=scheme, storage_state=signed_in) as context:
        visitor = Visitor(context, stack, cable)
        visitor.page.goto(cable.url)
        visitor.ask_and_wait("Does it fit?")

        assert visitor.page.evaluate("document.documentElement.scrollWidth") == width
        thread = "(e => e.scrollWidth - e.clientWidth)(document.getElementById('thread'))"
        assert visitor.page.evaluate(thread) == 0
        colour = visitor.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        red = int(re.findall(r"\d+", colour)[0])
        assert red < 64 if scheme == "dark" else red > 192
        if width == 390:
            visitor.page.get_by_role("button", name="Conversations", exact=True).click()
            expect(visitor.page.get_by_role("button", name=re.compile("New conversation"))).to_be_focused()
            visitor.page.keyboard.press("Escape")
            expect(visitor.page.locator(".sidebar")).to_be_hidden()
        assert visitor.complaints == []
