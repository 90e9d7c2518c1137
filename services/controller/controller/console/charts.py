"""Charts: points in time as paths of an SVG, whose box is WIDTH by HEIGHT."""

from collections.abc import Sequence
from typing import Final

WIDTH: Final = 600
HEIGHT: Final = 100
Sample = tuple[int, float]
"""Time in ms, and a value of at least 0."""


def line(samples: Sequence[Sample], *, end_ms: int, span_ms: int, gap_ms: int, top: float) -> str:
    """Return a path through samples, oldest first, of the ``span_ms`` before ``end_ms``. ``top`` is
    the value at the upper edge. The line is broken where samples are more than ``gap_ms`` apart.
    """
    words: list[str] = []
    before: int | None = None
    for at_ms, value in samples:
        age_ms = end_ms - at_ms
        if not 0 <= age_ms <= span_ms:
            continue
        x = WIDTH * (1 - age_ms / span_ms)
        y = HEIGHT * (1 - min(value, top) / top) if top > 0 else HEIGHT
        begins = before is None or at_ms - before > gap_ms
        words.append(f"{'M' if begins else 'L'}{x:.1f} {y:.1f}")
        before = at_ms
    return "".join(words)
