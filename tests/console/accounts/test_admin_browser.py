"""The admin in a real browser: under its own content security policy nothing that it needs is blocked."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, async_playwright

from tests.stack import Stack

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LISTS = [
    "accounts/apikey",
    "accounts/organisation",
    "accounts/user",
    "audit/entry",
    "auditlog/logentry",
    "chat/conversation",
    "django_celery_beat/periodictask",
    "inference/deployment",
    "inference/exchange",
    "inference/modelversion",
]

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield await browser.new_page()
        await browser.close()


async def test_every_page_of_the_admin_works_under_its_policy(page: Page, live_stack: Stack) -> None:
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(f"{live_stack.url}/admin/")
    await page.fill("input[name=username]", live_stack.environment["BURSAR_ADMIN_USER"])
    await page.fill("input[name=password]", live_stack.environment["BURSAR_ADMIN_PASSWORD"])
    await page.press("input[name=password]", "Enter")
    await page.wait_for_url("**/admin/")
    for name in LISTS:
        await page.goto(f"{live_stack.url}/admin/{name}/")
        first = page.locator("#result_list tbody tr th a").first
        if await first.count():
            await first.click()
            await page.wait_for_load_state()
    # What Alpine runs from attributes works: the filters slide in.
    await page.goto(f"{live_stack.url}/admin/inference/exchange/")
    filters = page.locator("#changelist-filter")
    assert not await filters.is_visible()
    await page.get_by_text("Filters", exact=False).first.click()
    await filters.wait_for(state="visible")
    assert complaints == []
