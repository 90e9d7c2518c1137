"""Figures with their units, and bytes as JSON, text or hex."""

import pytest
from controller.console import figures
from controller.console.formats import Format, brief, whole


@pytest.mark.parametrize(
    ("content", "form", "expected"),
    [
        (b'{"b":1,"a":[2]}', "auto", '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}'),
        (b"plain\ntext", "auto", "plain\ntext"),
        (b"{broken", "json", "{broken"),
        (b"\x00\xff", "auto", "00000000  00 ff" + " " * 44 + ".."),
        (None, "auto", ""),
        ("a\u202eb".encode(), "text", "a\\u202eb"),
    ],
)
def test_whole_shows_what_fits(content: bytes | None, form: Format, expected: str) -> None:
    assert whole(content, form) == expected


def test_brief_is_one_short_line() -> None:
    assert brief(b"a\nb", "auto") == "a\\x0ab"
    assert brief(None, "auto") == "null"
    assert len(brief(b"x" * 10_000, "text")) == 300


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.size(0), "0 B"),
        (figures.size(1536), "1.5 KiB"),
        (figures.size(None), "–"),
        (figures.duration(999), "999 ms"),
        (figures.duration(200_000), "3 min 20 s"),
        (figures.duration(-90_000), "−1 min 30 s"),
        (figures.instant(0), "1970-01-01 00:00:00.000"),
        (figures.instant(2**62), f"{2**62} ms"),
        (figures.number(1_234_567), "1,234,567"),
        (figures.plural(1, "topic"), "1 topic"),
    ],
)
def test_figures_have_units(shown: str, expected: str) -> None:
    assert shown == expected
