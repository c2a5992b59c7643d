"""The largest picture that is decoded."""

from __future__ import annotations

MOST_PIXELS = 50_000_000  # A file of less than a megabyte can claim so many that they take gigabytes and half a minute.


def refuse_too_many_pixels(width: int, height: int) -> None:
    """Raise ValueError if a picture of this size must not be decoded."""
    if width * height > MOST_PIXELS:
        raise ValueError(f"it has {width:,} × {height:,} pixels, and {MOST_PIXELS:,} is the most: make it smaller")
