"""Browsers that are signed in, and changes that an administrator makes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx

from tests.stack import ROOT, Stack

_PRELUDE = (ROOT / "tests/e2e/changes.py").read_text()


async def shell(stack: Stack, expression: str) -> str:
    """Evaluate a call of tests/e2e/changes.py beside the running stack; what it returned, as text."""
    code = f"{_PRELUDE}\nprint('=>', {expression})"
    done = await asyncio.to_thread(stack.manage, "shell", "-v0", "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.rsplit("=> ", 1)[1].strip()


@dataclass
class Browser:
    """A session's cookies, with the headers that its own pages send."""

    cookie: str
    origin: str
    csrf_token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": self.cookie, "Origin": self.origin}

    @classmethod
    async def signed_in(cls, stack: Stack, user: str | None = None, password: str | None = None) -> Browser:
        form = {
            "username": user or stack.environment["BURSAR_USER"],
            "password": password or stack.environment["BURSAR_USER_PASSWORD"],
        }
        async with httpx.AsyncClient(base_url=stack.url) as http:
            await http.get("/sign-in")
            response = await http.post("/sign-in", data=form | {"csrfmiddlewaretoken": http.cookies["csrftoken"]})
            assert response.status_code == 302, response.text
            return cls(f"sessionid={http.cookies['sessionid']}", stack.url, http.cookies["csrftoken"])

    async def ticket(self) -> str:
        """A ticket, as the page asks for one."""
        headers = {"Cookie": f"{self.cookie}; csrftoken={self.csrf_token}", "X-CSRFToken": self.csrf_token}
        async with httpx.AsyncClient(base_url=self.origin, headers=headers) as http:
            response = await http.post("/api/chat/ticket")
            assert response.status_code == 200, response.text
            return str(response.json()["ticket"])
