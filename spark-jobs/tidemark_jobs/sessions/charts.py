"""Charts as inline SVG. Pure functions that return text.

Colours are custom properties of the page (``--ink``, ``--muted``, ``--line``, ``--accent``,
``--mark``), so charts follow light and dark mode. Every shape that represents a number has it as
its ``<title>``, which browsers show under the pointer. Every chart has a label for screen readers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

_FONT: Final = 12
_CHAR: Final = 6.6
"""Approximate width of a character of that size."""


class Point(NamedTuple):
    """A point on a time line; ``at`` is in seconds since 1970."""

    at: int
    value: int
    name: str
    """Label of the point: ``18 May, 14:00``."""


class Bar(NamedTuple):
    """A labelled number; ``note`` is shown next to it in small type."""

    name: str
    value: int
    note: str = ""


class Cell(NamedTuple):
    """A square of a heat map."""

    row: int
    column: int
    value: int
    name: str


class Tick(NamedTuple):
    """A labelled position on an axis."""

    at: float
    label: str


def area(points: Sequence[Point], ticks: Sequence[Tick], *, label: str, mark: str) -> str:
    """Draw a filled line over time; ``mark`` is the label of its highest point."""
    width, height, left, right, top, bottom = 1_120, 280, 44, 12, 34, 28
    highest = max((point.value for point in points), default=0)
    steps = nice_ticks(highest)
    first = points[0].at if points else 0
    span = max(1, points[-1].at - first) if points else 1
    floor = height - bottom

    def x(at: float) -> float:
        return left + (at - first) / span * (width - left - right)

    def y(value: float) -> float:
        return floor - value / steps[-1] * (floor - top)

    parts = [_value_axis(steps, y, left=left, right=width - right)]
    for tick in ticks:
        parts.append(_line(x(tick.at), top, x(tick.at), floor, "grid faint"))
        parts.append(_text(x(tick.at), height - 8, tick.label, "tick", anchor="middle"))
    if points:
        line = " ".join(f"{x(point.at):.1f},{y(point.value):.1f}" for point in points)
        closed = f"{x(first):.1f},{floor} {line} {x(points[-1].at):.1f},{floor}"
        parts.append(f'<polygon class="water" points="{closed}"/>')
        parts.append(f'<polyline class="surface" points="{line}"/>')
        parts.append(_high_water(points, x, y, mark=mark, left=left, right=width - right))
        parts.append(_hover_columns(points, x, top=top, floor=floor))
    return _svg(width, height, label, parts)


def _high_water(
    points: Sequence[Point],
    x: Callable[[float], float],
    y: Callable[[float], float],
    *,
    mark: str,
    left: float,
    right: float,
) -> str:
    peak = max(points, key=lambda point: point.value)
    at, level = x(peak.at), y(peak.value)
    text = f"{mark}: {peak.value:,} · {peak.name}"
    anchor = "end" if at > (left + right) / 2 else "start"
    shift = -10 if anchor == "end" else 10
    return "".join(
        (
            _line(left, level, right, level, "mark"),
            f'<circle class="buoy" cx="{at:.1f}" cy="{level:.1f}" r="4.5"/>',
            _text(at + shift, level - 9, text, "mark-label", anchor=anchor),
        )
    )


def _hover_columns(
    points: Sequence[Point], x: Callable[[float], float], *, top: float, floor: float
) -> str:
    """Draw invisible columns, so that the pointer shows a number above and below the line."""
    width = x(points[1].at) - x(points[0].at) if len(points) > 1 else 20.0
    return "".join(
        f'<rect class="hover" x="{x(point.at) - width / 2:.1f}" y="{top}" width="{width:.1f}"'
        f' height="{floor - top}"><title>{escape(point.name)}: {point.value:,}</title></rect>'
        for point in points
    )


def columns(bars: Sequence[Bar], *, label: str) -> str:
    """Draw vertical columns, each with its number on top and its share in the title."""
    width, height, top, bottom = 540, 300, 28, 30
    highest = max((bar.value for bar in bars), default=0) or 1
    total = sum(bar.value for bar in bars) or 1
    step = width / max(1, len(bars))
    floor = height - bottom
    parts = [_line(0, floor, width, floor, "grid")]
    for number, bar in enumerate(bars):
        tall = bar.value / highest * (floor - top)
        middle = (number + 0.5) * step
        title = f"{bar.name}: {bar.value:,} ({bar.value / total:.1%})"
        parts.append(
            f'<rect class="fill" x="{middle - step * 0.36:.1f}" y="{floor - tall:.1f}"'
            f' width="{step * 0.72:.1f}" height="{tall:.1f}" rx="3">'
            f"<title>{escape(title)}</title></rect>"
        )
        parts.append(_text(middle, floor - tall - 8, f"{bar.value:,}", "value", anchor="middle"))
        parts.append(_text(middle, height - 10, bar.name, "tick", anchor="middle"))
    return _svg(width, height, label, parts)


def bars(rows: Sequence[Bar], *, label: str) -> str:
    """Draw horizontal bars below each other, each with name and number above it."""
    width, pitch = 540, 34
    height = max(1, len(rows)) * pitch
    highest = max((bar.value for bar in rows), default=0) or 1
    parts = []
    for number, bar in enumerate(rows):
        base = number * pitch
        note = f" · {bar.note}" if bar.note else ""
        amount = f"{bar.value:,}{note}"
        room = int((width - 16) / _CHAR) - len(amount)
        parts.append(
            f"<g><title>{escape(bar.name)}: {escape(amount)}</title>"
            + _text(0, base + 15, shortened(bar.name, room), "name")
            + _text(width, base + 15, amount, "value", anchor="end")
            + f'<rect class="track" x="0" y="{base + 22}" width="{width}" height="5" rx="2.5"/>'
            + f'<rect class="fill" x="0" y="{base + 22}"'
            f' width="{max(3.0, bar.value / highest * width):.1f}" height="5" rx="2.5"/></g>'
        )
    return _svg(width, height, label, parts)


def heat(cells: Sequence[Cell], row_names: Sequence[str], *, label: str) -> str:
    """Draw a heat map of hours by days.

    Opacity follows the square root of the value, so that quiet hours differ visibly.
    """
    width, left, top, gap = 540, 84, 18, 2
    side = (width - left) / _HOURS
    tall = min(44.0, max(16.0, 264 / max(1, len(row_names))))
    height = round(top + tall * max(1, len(row_names)))
    highest = max((cell.value for cell in cells), default=0) or 1
    parts = [
        _text(left + (hour + 0.5) * side, 11, f"{hour:02d}", "tick", anchor="middle")
        for hour in range(0, _HOURS, 3)
    ]
    parts += [
        _text(left - 8, top + (row + 0.5) * tall + 4, name, "tick", anchor="end")
        for row, name in enumerate(row_names)
    ]
    for cell in cells:
        strength = math.sqrt(cell.value / highest)
        shade = f'style="opacity:{0.12 + 0.88 * strength:.2f}"' if cell.value else ""
        kind = "fill" if cell.value else "track"
        parts.append(
            f'<rect class="{kind}" {shade} x="{left + cell.column * side + gap / 2:.1f}"'
            f' y="{top + cell.row * tall + gap / 2:.1f}" width="{side - gap:.1f}"'
            f' height="{tall - gap:.1f}" rx="3">'
            f"<title>{escape(cell.name)}: {cell.value:,}</title></rect>"
        )
    return _svg(width, height, label, parts)


_HOURS: Final = 24


def nice_ticks(highest: float, *, about: int = 4) -> list[int]:
    """Return round numbers from 0 to at least ``highest``, in roughly ``about`` steps.

    A step is 1, 2 or 5 times a power of ten.
    """
    if highest <= about:
        return list(range(max(1, math.ceil(highest)) + 1))
    rough = highest / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(round(each * power) for each in (1, 2, 5, 10) if each * power >= rough)
    return [number * step for number in range(math.ceil(highest / step) + 1)]


def shortened(text: str, chars_max: int) -> str:
    """Shorten a text to its beginning and end: paths differ most at their ends."""
    if len(text) <= chars_max:
        return text
    kept = max(2, chars_max - 1)
    return f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}"


def _value_axis(
    steps: Iterable[int], y: Callable[[float], float], *, left: float, right: float
) -> str:
    return "".join(
        _line(left, y(step), right, y(step), "grid")
        + _text(left - 8, y(step) + 4, f"{step:,}", "tick", anchor="end")
        for step in steps
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label, quote=True)}"'
        f' font-size="{_FONT}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
