"""How well text can be read: contrast as WCAG 2.2 defines it."""

from __future__ import annotations


def contrast(one: str, other: str) -> float:
    """Between two colours given as `#rrggbb`: 1 is none, and text needs 4.5 (WCAG 2.2 AA)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
