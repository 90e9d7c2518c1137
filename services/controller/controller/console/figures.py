"""Figures for people: a number, its unit, and no more digits than are of use."""

from datetime import UTC, datetime, timedelta
from typing import Final

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNKNOWN: Final = "–"
_WITHOUT_FRACTION: Final = 1_000


def number(value: float | None) -> str:
    """Return a count with separators of thousands: 1,234,567."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int) or value >= _WITHOUT_FRACTION:
        return f"{round(value):,}"
    return f"{value:,.1f}"


def size(count: float | None) -> str:
    """Return bytes in the largest unit that leaves at least one: 1.5 MiB."""
    if count is None or count < 0:
        return UNKNOWN
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_BYTES) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or value >= 100 else 1
    return f"{value:.{digits}f} {_BYTES[unit]}"


def duration(ms: float | None) -> str:
    """Return a time span in its two largest units: 3 min 20 s."""
    if ms is None:
        return UNKNOWN
    if abs(ms) < 1_000:
        return f"{ms:.0f} ms"
    rest, words = abs(int(ms)), []
    for length, unit in _SPANS:
        if rest >= length:
            words.append(f"{rest // length} {unit}")
            rest %= length
        elif words:
            break
    return ("−" if ms < 0 else "") + " ".join(words[:2])


def instant(ms: int | None) -> str:
    """Return milliseconds since 1970 as a time of day in UTC: 2026-01-31 12:00:00.000."""
    if ms is None or ms < 0:
        return UNKNOWN
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"


def percent(part: float, whole: float) -> int:
    """Return a share in percent, 0 to 100."""
    return max(0, min(100, round(100 * part / whole))) if whole > 0 else 0


def plural(count: int, word: str, words: str = "") -> str:
    """Return a count with its noun: 1 topic, 2 topics."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"
