"""A person in front of the chat page."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, Locator, expect

from tests.e2e.cable import Cable
from tests.stack import Stack


class Visitor:
    """A signed-in person's page. `complaints` are the browser's: blocked by policy, errors, failed requests."""

    def __init__(self, context: BrowserContext, stack: Stack, cable: Cable) -> None:
        self.stack = stack
        self.url = cable.url
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation',"
            " e => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))"
        )

    def sign_in(self, user: str = "USER") -> None:
        """Through the form, as a person does."""
        self.page.goto(self.url)
        password = self.stack.environment["BURSAR_USER_PASSWORD" if user == "USER" else f"BURSAR_{user}_PASSWORD"]
        name = self.stack.environment["BURSAR_USER" if user == "USER" else f"BURSAR_{user}_USER"]
        self.page.get_by_label("User name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}/")

    @property
    def question(self) -> Locator:
        return self.page.get_by_label("Your question")

    @property
    def turns(self) -> Locator:
        return self.page.locator("article.turn")

    @property
    def status(self) -> Locator:
        return self.page.locator("#status")

    @property
    def stop(self) -> Locator:
        return self.page.get_by_role("button", name="Stop the answer")

    def ask(self, text: str) -> Locator:
        """Types a question and sends it; the turn that it became."""
        before = self.turns.count()
        self.question.fill(text)
        self.question.press("Enter")
        expect(self.turns).to_have_count(before + 1)
        return self.turns.last

    def ask_and_wait(self, text: str) -> Locator:
        turn = self.ask(text)
        expect(turn).to_have_attribute("data-status", "finished", timeout=30_000)
        return turn
