"""The chat page and the sign-in page as documents: who gets them, what they hold, and colours that can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

from console.accounts.models import Role, User
from tests.console import people
from tests.contrast import contrast

pytestmark = pytest.mark.django_db

STYLE = Path(__file__).parents[3] / "platform/console/chat/static/console/bursar.css"


def test_a_visitor_is_sent_to_sign_in_and_back(client: Client) -> None:
    response = client.get("/")
    assert (response.status_code, response["Location"]) == (302, "/sign-in?next=/")


def test_a_member_gets_the_page_with_the_organisations_name_as_text(client: Client) -> None:
    client.force_login(people.member(people.organisation("<b>Acme</b> & Sons")))
    response = client.get("/")
    assert response.status_code == 200
    assert "&lt;b&gt;Acme&lt;/b&gt; &amp; Sons" in response.content.decode()
    assert "no-store" in response["Cache-Control"]


def test_only_staff_find_the_console(client: Client) -> None:
    organisation = people.organisation()
    for role, found in ((Role.END_USER, False), (Role.ADMINISTRATOR, True)):
        client.force_login(people.member(organisation, role))
        assert ('href="/admin/"' in client.get("/").content.decode()) is found


def test_a_user_without_an_organisation_is_told_so(client: Client) -> None:
    client.force_login(User.objects.create(username="alone"))
    assert "belongs to no organisation" in client.get("/").content.decode()


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_the_page_is_read_only(client: Client, method: str) -> None:
    assert getattr(client, method)("/").status_code == 405


@pytest.mark.parametrize("path", ["/", "/sign-in"])
def test_nothing_in_the_page_needs_more_than_the_strict_policy(client: Client, path: str) -> None:
    client.force_login(people.member(people.organisation(), Role.ADMINISTRATOR))
    html = client.get(path).content.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", html))
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", html)


def test_a_next_page_elsewhere_is_not_followed(client: Client) -> None:
    user = people.member(people.organisation())
    credentials = {"username": user.username, "password": people.PASSWORD, "next": "https://evil.test/"}
    assert client.post("/sign-in", credentials)["Location"] == "/"


TEXT_ON = [
    *(("ink", ground) for ground in ("page", "raised", "sunken", "hover", "accent-wash")),
    *(("ink-soft", ground) for ground in ("page", "raised", "sunken", "hover")),
    *((text, "page") for text in ("link", "accent", "bad")),
    *(("on-accent", "accent"), ("on-accent", "accent-hover"), ("page", "bad")),
    *(("bad", "bad-wash"), ("ink", "bad-wash"), ("wait", "wait-wash")),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_ON)
def test_text_has_the_contrast_of_wcag_2_2_aa(scheme: str, text: str, ground: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", light if scheme == "light" else dark))
    assert contrast(colours[text], colours[ground]) >= 4.5
