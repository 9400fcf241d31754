"""The admin in a real browser: nothing that it needs is blocked, nothing is wider than the window, a key is copied."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import httpx
import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.stack import Stack

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WITH_FORM = [
    "accounts/apikey",
    "accounts/organisation",
    "accounts/user",
    "django_celery_beat/periodictask",
    "inference/accelerator",
    "inference/deployment",
    "inference/modelversion",
    "inference/routingruleset",
]
EXPLAINED = "inference/routingruleset/explain/?prompt_tokens=800"
LISTS = [
    *WITH_FORM,
    "accounts/configurationchange",
    "audit/entry",
    "audit/refusal",
    "chat/conversation",
    "inference/exchange",
]
# Elements that stick out of the window and lie in no box that scrolls.
WIDER_THAN_THE_WINDOW = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (e) => e && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
  return [...document.querySelectorAll("#main *")]
    .filter((e) => e.getBoundingClientRect().right > width + 1 && !scrolls(e.parentElement))
    .map((e) => `${e.tagName}.${e.className}`);
}"""

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser: Browser, live_stack: Stack) -> Page:
    """The administrator's home page. `complaints` on it are the browser's."""
    page = await browser.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    await page.goto(f"{live_stack.url}/admin/")
    await page.fill("input[name=username]", live_stack.environment["BURSAR_ADMIN_USER"])
    await page.fill("input[name=password]", live_stack.environment["BURSAR_ADMIN_PASSWORD"])
    await page.press("input[name=password]", "Enter")
    await page.wait_for_url("**/admin/")
    return page


@pytest.fixture
def traffic(live_stack: Stack) -> None:
    """An exchange and a refusal, with what they leave in the record."""
    with httpx.Client(base_url=live_stack.url, headers={"Authorization": f"Bearer {live_stack.api_key}"}) as http:
        models = [model["id"] for model in http.get("/v1/models").json()["data"]]
        for model in (models[0], "no-such-model"):
            asked = {"model": model, "messages": [{"role": "user", "content": "What is an audit log?"}]}
            http.post("/v1/chat/completions", json=asked)


async def every_page(page: Page, live_stack: Stack) -> AsyncIterator[str]:
    """Opens the home page, each list, its first row and its form, one after the other."""
    paths = ["", *(f"{name}/" for name in LISTS), *(f"{name}/add/" for name in WITH_FORM), EXPLAINED]
    for path in paths:
        await page.goto(f"{live_stack.url}/admin/{path}")
        yield path
        first = page.locator("#result_list tbody tr th a").first
        if path.count("/") == 2 and await first.count():
            await first.click()
            await page.wait_for_load_state()
            yield page.url
            if path == "inference/modelversion/":
                await page.goto(page.url.replace("/change/", "/fit/"))
                yield page.url


@pytest.mark.usefixtures("traffic")
async def test_every_page_of_the_admin_works_under_its_policy(page: Page, live_stack: Stack) -> None:
    async for _ in every_page(page, live_stack):
        pass
    # What Alpine runs from attributes works: the filters slide in.
    await page.goto(f"{live_stack.url}/admin/inference/exchange/")
    filters = page.locator("#changelist-filter")
    assert not await filters.is_visible()
    await page.get_by_text("Filters", exact=False).first.click()
    await filters.wait_for(state="visible")
    assert page.complaints == []


@pytest.mark.usefixtures("traffic")
async def test_no_page_is_wider_than_a_narrow_window(page: Page, live_stack: Stack) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    seen = []
    async for path in every_page(page, live_stack):
        seen.append(path)
        assert await page.evaluate(WIDER_THAN_THE_WINDOW) == [], path
    assert [path for path in seen if "/audit/entry/" in path and path.endswith("/change/")]


async def test_a_new_key_is_copied_with_the_keyboard_and_the_button_says_so(page: Page, live_stack: Stack) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(f"{live_stack.url}/admin/accounts/apikey/add/")
    await page.get_by_label("Name").fill("copied")
    await page.get_by_label("Organisation").select_option(index=1)
    await page.get_by_role("button", name="Save", exact=True).click()
    button = page.locator("#copy-key")
    await expect(button).to_have_text("Copy")
    await button.focus()
    await page.keyboard.press("Enter")
    await expect(button).to_have_text("Copied")
    await expect(page.get_by_role("status")).to_contain_text("copied")
    key = await page.locator("#api-key").inner_text()
    assert await page.evaluate("navigator.clipboard.readText()") == key
    assert key.startswith("bsk_")
    assert page.complaints == []
    await _revoke_first(page, live_stack)


async def _revoke_first(page: Page, live_stack: Stack) -> None:
    """Leaves no key behind that could be used."""
    await page.goto(f"{live_stack.url}/admin/accounts/apikey/")
    await page.locator("#result_list tbody tr th a").first.click()
    await page.get_by_role("link", name="Revoke").click()
    await page.get_by_role("button", name="Revoke").click()
    await page.wait_for_url("**/change/")
