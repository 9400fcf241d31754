"""The chat page's Markdown renderer in a browser's page that has nothing else and the strict policy."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, Route

from console.http import STRICT_POLICY

STATIC = Path(__file__).parents[3] / "platform/console/chat/static/console"
ORIGIN = "http://markdown.test"
POLICY = "; ".join(f"{directive} {sources}" for directive, sources in STRICT_POLICY.items())


class Renderer:
    """Renders in the page; `requests` and `complaints` hold what the page fetched and what the browser objected to."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.route("**/*", self._serve)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(ORIGIN)
        page.evaluate("async () => { window.module = await import('/markdown.js'); }")

    def _serve(self, route: Route) -> None:
        path = route.request.url.removeprefix(ORIGIN)
        if path == "/":
            headers = {"Content-Security-Policy": POLICY}
            route.fulfill(body="<!doctype html><main></main>", content_type="text/html", headers=headers)
        elif (STATIC / path.lstrip("/")).is_file():
            route.fulfill(body=(STATIC / path.lstrip("/")).read_text(), content_type="text/javascript")
        else:
            self.requests.append(route.request.url)
            route.abort()

    def __call__(self, text: str) -> str:
        """The HTML that `text` is shown as, without the attributes that every block has."""
        script = "text => { const root = document.querySelector('main'); root.replaceChildren();" + (
            "module.renderMarkdown(root, text); return root.innerHTML; }"
        )
        return _bare(self.page.evaluate(script, text))

    def stream(self, text: str, step: int) -> list[str]:
        """What is shown after every `step` characters, and at last when the answer has ended."""
        script = """([text, step]) => {
          const root = document.querySelector('main');
          root.replaceChildren();
          const view = new module.MarkdownView(root);
          const shown = [];
          for (let end = step; end < text.length + step; end += step) {
            view.update(text.slice(0, end), { streaming: true });
            shown.push(root.innerHTML);
          }
          view.update(text, { streaming: false });
          return [...shown, root.innerHTML];
        }"""
        return [_bare(html) for html in self.page.evaluate(script, [text, step])]


def _bare(html: str) -> str:
    for noise in (' dir="auto"', ' tabindex="0"', ' scope="col"'):
        html = html.replace(noise, "")
    return re.sub(
        r"<figcaption><span>(.*?)</span><button.*?</button></figcaption>", r"<figcaption>\1</figcaption>", html
    )
