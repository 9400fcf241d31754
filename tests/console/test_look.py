"""The console's look: the chat page's accent, and text that can be read in the light and in the dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from console.settings.unfold import ACCENT, GREYS
from tests.contrast import contrast

STATIC = Path(__file__).parents[2] / "platform/console/chat/static/console"
CHAT, ADMIN = (STATIC / "bursar.css").read_text(), (STATIC / "admin.css").read_text()
CHAT_LIGHT, CHAT_DARK = (
    dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", CHAT, re.DOTALL)
)
DARK = ACCENT | dict(re.findall(r"--color-primary-(\d+): (#\w{6});", ADMIN))
ON_ACCENT_IN_THE_DARK = re.search(r"input:checked::after \{\s*color: (#\w{6});", ADMIN)
WHITE = "#ffffff"


def test_the_console_has_the_chat_pages_accent() -> None:
    assert ACCENT["600"] == CHAT_LIGHT["accent"]
    assert DARK["500"] == DARK["600"] == CHAT_DARK["accent"]
    assert ON_ACCENT_IN_THE_DARK is not None
    assert ON_ACCENT_IN_THE_DARK[1] == CHAT_DARK["on-accent"]


@pytest.mark.parametrize(
    ("text", "ground"),
    [
        *((accent, ground) for accent in (ACCENT["600"], ACCENT["500"]) for ground in (WHITE, GREYS["50"])),
        (ACCENT["600"], GREYS["100"]),
        (ACCENT["700"], ACCENT["100"]),
        *((GREYS[text], ground) for text in ("500", "600", "900") for ground in (WHITE, GREYS["50"], GREYS["100"])),
        *((DARK[text], GREYS[ground]) for text in ("400", "500", "600") for ground in ("800", "900", "950")),
        *((GREYS[text], GREYS[ground]) for text in ("100", "300", "400") for ground in ("800", "900", "950")),
        (CHAT_DARK["on-accent"], DARK["600"]),
    ],
)
def test_its_text_has_the_contrast_of_wcag_2_2_aa(text: str, ground: str) -> None:
    assert contrast(text, ground) >= 4.5
