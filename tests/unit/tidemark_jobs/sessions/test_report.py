"""The sessions report: a page that needs nothing else, right for any numbers."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from tidemark_jobs.sessions.report import (
    DAY_S,
    HOUR_S,
    LENGTH_NAMES,
    SessionsReport,
    TopUser,
    by_day_and_hour,
    duration,
    length_class,
    over_time,
    period,
    to_html,
)

MIDNIGHT = 1_772_323_200
"""2026-03-01T00:00:00Z, a Sunday."""
VOID = {"meta"}

REPORT = SessionsReport(
    title="Sessions <of> a test",
    source="access-by-user",
    gap_s=1_800,
    users=2,
    sessions=4,
    records=10,
    length_mean_s=95,
    per_hour={MIDNIGHT: 3, MIDNIGHT + 26 * HOUR_S: 1},
    lengths=[1, 0, 3, 0, 0, 0, 0, 0],
    top_users=[TopUser("10.0.0.1", 8, 3), TopUser("<b>", 2, 1)],
    pages=[("/a?b=<c>", 7)],
    notes=["2 records came too late."],
)


class Outline(HTMLParser):
    """Fails where tags do not pair; keeps the text and the addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """``<rect/>``: nothing to pair."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    parser.close()
    return parser


def test_tags_pair() -> None:
    assert outline(to_html(REPORT)).open == []


def test_it_needs_nothing_from_elsewhere() -> None:
    page = to_html(REPORT)
    assert outline(page).addresses == []
    assert re.findall(r"url\(|@import|<script|https?://(?!www\.w3\.org/2000/svg)", page) == []


def test_it_is_right_in_light_and_in_dark() -> None:
    page = to_html(REPORT)
    assert "prefers-color-scheme:dark" in page
    assert page.count("--accent:") == 2


def test_names_from_the_data_are_text() -> None:
    text = outline(to_html(REPORT)).text
    assert {"Sessions <of> a test", "<b>", "/a?b=<c>"} <= set(text)


def test_the_headlines_are_there() -> None:
    text = outline(to_html(REPORT)).text
    assert {"4", "2", "10", "1 min 35 s", "2.5"} <= set(text)


def test_notes_are_at_the_foot() -> None:
    assert "2 records came too late." in outline(to_html(REPORT)).text


def test_nothing_is_a_report_too() -> None:
    empty = replace(
        REPORT, users=0, sessions=0, records=0, per_hour={}, top_users=[], pages=[], notes=[]
    )
    assert "no session has been closed yet" in "".join(outline(to_html(empty)).text)


def test_hours_without_sessions_are_on_the_line() -> None:
    bucket_s, points = over_time(REPORT.per_hour)
    assert bucket_s == HOUR_S
    assert [point.value for point in points] == [3, *[0] * 25, 1]


@pytest.mark.parametrize(
    ("days", "bucket_s"), [(9, HOUR_S), (30, 6 * HOUR_S), (200, DAY_S), (2_000, 7 * DAY_S)]
)
def test_a_longer_time_has_longer_buckets(days: int, bucket_s: int) -> None:
    per_hour = {MIDNIGHT: 2, MIDNIGHT + days * DAY_S: 5}
    found, points = over_time(per_hour)
    assert found == bucket_s
    assert sum(point.value for point in points) == 7
    assert len(points) < 320


def test_the_latest_days_are_shown_by_hour() -> None:
    names, cells = by_day_and_hour({MIDNIGHT + day * DAY_S: 1 for day in range(30)})
    assert len(names) == 14
    assert len(cells) == 14 * 24
    assert names[-1] == "Mon 30 Mar"


def test_every_length_has_one_class() -> None:
    lengths = [0, 1, 10, 60, 300, 900, 1_800, 3_600]
    assert [length_class(each) for each in lengths] == list(range(len(LENGTH_NAMES)))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59.6, "1 min"), (95, "1 min 35 s"), (3_600, "1 h"), (5_430, "1 h 30 min")],
)
def test_durations_have_two_units_at_most(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("hours", "shown"),
    [
        ((0, 2), "1 March 2026, 00:00 to 03:00 UTC"),
        ((0, 30), "1 March to 2 March 2026"),
        ((0, 24 * 365), "1 March 2026 to 1 March 2027"),
    ],
)
def test_periods_are_for_people(hours: tuple[int, int], shown: str) -> None:
    assert period({MIDNIGHT + hour * HOUR_S: 1 for hour in hours}) == shown
