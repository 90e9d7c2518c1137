"""Charts: well-formed SVG with every number in it."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_jobs.sessions.charts import (
    Bar,
    Cell,
    Point,
    Tick,
    area,
    bars,
    columns,
    heat,
    nice_ticks,
    shortened,
)

SVG = "{http://www.w3.org/2000/svg}"
POINTS = [Point(0, 5, "first"), Point(3_600, 17, "peak"), Point(7_200, 0, "last")]


def titles(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}title")]


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_line_marks_its_highest_point() -> None:
    svg = area(POINTS, [Tick(0, "midnight")], label="l", mark="high water")
    assert "high water: 17 · peak" in texts(svg)


def test_every_point_has_its_number_under_the_pointer() -> None:
    assert titles(area(POINTS, [], label="l", mark="m")) == ["first: 5", "peak: 17", "last: 0"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_points_are_a_chart_too(count: int) -> None:
    assert ET.fromstring(area(POINTS[:count], [], label="l", mark="m")).tag == f"{SVG}svg"


def test_columns_say_their_share() -> None:
    assert titles(columns([Bar("short", 3), Bar("long", 1)], label="l")) == [
        "short: 3 (75.0%)",
        "long: 1 (25.0%)",
    ]


def test_nothing_to_count_is_a_chart_too() -> None:
    empty = [columns([Bar("a", 0)], label="l"), bars([], label="l"), heat([], [], label="l")]
    assert [ET.fromstring(each).tag for each in empty] == [f"{SVG}svg"] * 3


def test_names_are_escaped() -> None:
    svg = bars([Bar('<script>"&', 1, "2")], label='a "label" & more')
    assert '<script>"&' in texts(svg)
    assert ET.fromstring(svg).get("aria-label") == 'a "label" & more'


def test_long_names_are_cut_in_the_middle_and_whole_in_the_title() -> None:
    name = "/articles/" + "x" * 200 + "/index.html"
    svg = bars([Bar(name, 12)], label="l")
    assert name not in texts(svg)
    assert titles(svg) == [f"{name}: 12"]


def test_an_hour_without_sessions_is_a_pale_square() -> None:
    svg = heat([Cell(0, 0, 4, "Mon 00"), Cell(0, 1, 0, "Mon 01")], ["Mon"], label="l")
    kinds = [each.get("class") for each in ET.fromstring(svg).iter(f"{SVG}rect")]
    assert kinds == ["fill", "track"]


@given(st.integers(0, 10**9))
def test_ticks_are_few_round_and_reach_the_top(highest: int) -> None:
    ticks = nice_ticks(highest)
    assert ticks[0] == 0
    assert ticks[-1] >= max(1, highest)
    assert len(ticks) <= 6


@pytest.mark.parametrize(
    ("text", "chars", "short"), [("abc", 3, "abc"), ("abcdef", 5, "ab…ef"), ("abc", 0, "a…c")]
)
def test_texts_keep_both_ends(text: str, chars: int, short: str) -> None:
    assert shortened(text, chars) == short
