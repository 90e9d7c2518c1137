"""The report of the sessions job: one self-contained HTML file. Pure.

It has no scripts and loads no fonts or pictures, so it can be opened from a disk, from a mail or
behind a firewall. It supports light and dark mode and can be printed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final, NamedTuple

from tidemark_jobs.sessions.charts import Bar, Cell, Point, Tick, area, bars, columns, heat

HOUR_S: Final = 3_600
DAY_S: Final = 24 * HOUR_S
LENGTH_EDGES_S: Final = (1, 10, 60, 300, 900, 1_800, 3_600)
"""Upper limits, exclusive, of all classes of length except the last."""
LENGTH_NAMES: Final = (
    "0 s", "< 10 s", "< 1 min", "< 5 min", "< 15 min", "< 30 min", "< 1 h", "≥ 1 h",
)  # fmt: skip
_POINTS_MAX: Final = 240
_DAYS_SHOWN: Final = 14
_LABELS_MAX: Final = 12


class TopUser(NamedTuple):
    """Totals of one user over all sessions."""

    user: str
    records: int
    sessions: int


@dataclass(frozen=True, slots=True)
class SessionsReport:
    """Figures of the report. Only closed sessions count; times are those of the records."""

    title: str
    source: str
    """Topic that was read: ``access-by-user``."""
    gap_s: int
    users: int
    sessions: int
    records: int
    length_mean_s: float
    per_hour: Mapping[int, int]
    """Sessions that started in each hour, by its start in seconds since 1970; no empty hours."""
    lengths: Sequence[int]
    """Number of sessions in each class of LENGTH_NAMES."""
    top_users: Sequence[TopUser]
    pages: Sequence[tuple[str, int]]
    """Most requested pages, with their numbers of records."""
    page_word: str = "page"
    notes: Sequence[str] = ()


def length_class(seconds: float) -> int:
    """Return the index in LENGTH_NAMES of a session of this length."""
    return sum(seconds >= edge for edge in LENGTH_EDGES_S)


def to_html(report: SessionsReport) -> str:
    """Render the report as an HTML page."""
    return _PAGE.format(
        title=escape(report.title),
        style=_STYLE,
        period=escape(period(report.per_hour)),
        source=escape(report.source),
        tiles="".join(_tile(*each) for each in _headlines(report)),
        cards="".join(_cards(report)),
        notes="".join(f"<p>{escape(note)}</p>" for note in report.notes),
        gap=escape(duration(report.gap_s)),
    )


def _headlines(report: SessionsReport) -> Iterable[tuple[str, str]]:
    each = report.records / report.sessions if report.sessions else 0.0
    yield f"{report.sessions:,}", "sessions"
    yield f"{report.users:,}", "users"
    yield f"{report.records:,}", "records"
    yield duration(report.length_mean_s), "mean length"
    yield f"{each:,.1f}", "records a session"


def _tile(number: str, word: str) -> str:
    return f'<div class="tile"><b>{escape(number)}</b><span>{escape(word)}</span></div>'


def _cards(report: SessionsReport) -> Iterable[str]:
    bucket_s, points = over_time(report.per_hour)
    every = _bucket_word(bucket_s)
    yield _card(
        f"Sessions {every}",
        "by start time, UTC",
        area(points, _time_ticks(points), label=f"Sessions started {every}", mark="high water"),
        kind="wide",
    )
    named = [Bar(*each) for each in zip(LENGTH_NAMES, report.lengths, strict=True)]
    yield _card(
        "Length of sessions",
        "from the first record to the last",
        columns(named, label="Sessions by length"),
    )
    days, cells = by_day_and_hour(report.per_hour)
    yield _card(
        "Busiest hours",
        f"sessions started, by hour of the day{_latest(report.per_hour, days)}",
        heat(cells, days, label="Sessions by day and hour"),
    )
    users = [Bar(each.user, each.records, _counted(each.sessions)) for each in report.top_users]
    yield _card("Most active users", "records · sessions", bars(users, label="Most active users"))
    pages = [Bar(*each) for each in report.pages]
    word = report.page_word
    yield _card(f"Most requested {_plural(word)}", "records", bars(pages, label=f"Top {word} list"))


def _plural(word: str) -> str:
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _counted(sessions: int) -> str:
    return f"{sessions:,}"


def _latest(per_hour: Mapping[int, int], days: Sequence[str]) -> str:
    all_days = {hour // DAY_S for hour in per_hour}
    return f", the latest {len(days)} days" if all_days and len(days) == _DAYS_SHOWN else ""


def _card(heading: str, note: str, chart: str, *, kind: str = "") -> str:
    return (
        f'<section class="card {kind}"><h2>{escape(heading)}</h2>'
        f'<p class="note">{escape(note)}</p><div class="chart">{chart}</div></section>'
    )


# -- time


def over_time(per_hour: Mapping[int, int]) -> tuple[int, list[Point]]:
    """Return the length of a bucket in seconds, and the sum of each bucket, empty ones included.

    A bucket is an hour, or longer where there would be too many points for a line.
    """
    if not per_hour:
        return HOUR_S, []
    hours = (max(per_hour) - min(per_hour)) // HOUR_S + 1
    bucket_s = next(
        (size for size in (HOUR_S, 6 * HOUR_S, DAY_S) if hours * HOUR_S <= size * _POINTS_MAX),
        7 * DAY_S,
    )
    sums: dict[int, int] = defaultdict(int)
    for hour, sessions in per_hour.items():
        sums[hour // bucket_s * bucket_s] += sessions
    form = "{:%-d %b, %H:%M}" if bucket_s < DAY_S else "{:%-d %b %Y}"
    return bucket_s, [
        Point(at, sums.get(at, 0), form.format(moment(at)))
        for at in range(min(sums), max(sums) + 1, bucket_s)
    ]


def _bucket_word(bucket_s: int) -> str:
    words = {HOUR_S: "per hour", 6 * HOUR_S: "per six hours", DAY_S: "per day"}
    return words.get(bucket_s, "per week")


def _time_ticks(points: Sequence[Point]) -> list[Tick]:
    if not points:
        return []
    first, last = points[0].at, points[-1].at
    step = 6 * HOUR_S if last - first <= 2 * DAY_S else DAY_S
    while (last - first) / step > _LABELS_MAX:
        step *= 2
    form = "{:%-d %b}" if step >= DAY_S else "{:%-d %b %H:%M}"
    begin = -(-first // step) * step
    return [Tick(at, form.format(moment(at))) for at in range(begin, last + 1, step)]


def by_day_and_hour(per_hour: Mapping[int, int]) -> tuple[list[str], list[Cell]]:
    """Return the names of the latest days, and a cell for each of their hours."""
    if not per_hour:
        return [], []
    last = max(per_hour) // DAY_S
    first = max(min(per_hour) // DAY_S, last - _DAYS_SHOWN + 1)
    days = range(first, last + 1)
    cells = [
        Cell(row, hour, per_hour.get(at, 0), f"{moment(at):%a %-d %b, %H:00}")
        for row, day in enumerate(days)
        for hour in range(24)
        for at in (day * DAY_S + hour * HOUR_S,)
    ]
    return [f"{moment(day * DAY_S):%a %-d %b}" for day in days], cells


def period(per_hour: Mapping[int, int]) -> str:
    """Format the time from the first to the last session."""
    if not per_hour:
        return "no session has been closed yet"
    first, last = moment(min(per_hour)), moment(max(per_hour))
    if first.date() == last.date():
        return f"{first:%-d %B %Y}, {first:%H:%M} to {last + timedelta(hours=1):%H:%M} UTC"
    start = f"{first:%-d %B}" if first.year == last.year else f"{first:%-d %B %Y}"
    return f"{start} to {last:%-d %B %Y}"


def moment(at_s: int) -> datetime:
    """Convert seconds since 1970 to a time in UTC."""
    return datetime.fromtimestamp(at_s, UTC)


def duration(seconds: float) -> str:
    """Format a duration in at most two units: ``4 min 30 s``."""
    whole = round(seconds)
    for unit, small, size in (("h", "min", HOUR_S), ("min", "s", 60)):
        if whole >= size:
            rest = whole % size // (size // 60)
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


# -- the page

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<p class="brand"><svg viewBox="0 0 40 20" width="40" height="20" aria-hidden="true">\
<path class="mark" d="M1 4H39"/><path class="surface" d="M1 13q4.75-6 9.5 0t9.5 0 9.5 0 9.5 0"/>\
</svg> tidemark · sessions</p>
<h1>{title}</h1>
<p class="note">{period} · from topic {source}</p>
</header>
<main>
<div class="tiles">{tiles}</div>
<div class="cards">{cards}</div>
</main>
<footer>{notes}<p>A session ends when its user has sent no record for {gap}. \
Sessions that are still open are not counted. \
Every closed session was written exactly once.</p></footer>
</body>
</html>
"""

_STYLE: Final = """
:root{--page:#f3f6f5;--card:#fff;--ink:#10272d;--muted:#5b7177;--line:#dde6e4;--track:#e9efee;
--accent:#0e7c86;--water:#0e7c8626;--mark:#d1562b;--shadow:0 1px 2px #10272d14,0 4px 16px #10272d0a}
@media (prefers-color-scheme:dark){:root{--page:#0a1417;--card:#112025;--ink:#e3eeee;
--muted:#8ca4a9;--line:#21353b;--track:#1b2d33;--accent:#40bfc8;--water:#40bfc82b;--mark:#ff9566;
--shadow:none}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:36px 28px 48px;background:var(--page);
color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
html{background:var(--page)}
h1{margin:2px 0 0;font-size:34px;line-height:1.15;letter-spacing:-.02em;font-weight:650}
h2{margin:0;font-size:16px;font-weight:620}
.brand{display:flex;align-items:center;gap:10px;margin:0 0 18px;color:var(--accent);
font-weight:600;font-size:14px}
.note{margin:2px 0 0;color:var(--muted);font-size:13px}
header .note{font-size:15px;margin-top:6px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:16px;
margin:28px 0 16px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:12px;
box-shadow:var(--shadow)}
.tile{padding:16px 20px}
.tile b{display:block;font-size:28px;line-height:1.2;font-weight:650;letter-spacing:-.01em;
font-variant-numeric:tabular-nums;white-space:nowrap}
.tile span{color:var(--muted);font-size:13px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));gap:16px}
.card{padding:20px 22px;min-width:0}
.wide{grid-column:1/-1}
.chart{margin-top:14px;overflow-x:auto}
.chart svg{display:block;width:100%;height:auto;min-width:340px;overflow:visible}
.wide .chart svg{min-width:720px}
svg text{fill:var(--ink);font-family:inherit;font-variant-numeric:tabular-nums}
svg .tick{fill:var(--muted);font-size:11px}
svg .value{fill:var(--muted)}
svg .name{fill:var(--ink)}
svg .mark-label{fill:var(--mark);font-weight:600}
svg .grid{stroke:var(--line);stroke-width:1}
svg .faint{stroke-dasharray:1 4}
svg .mark{stroke:var(--mark);stroke-width:1.5;stroke-dasharray:6 5;fill:none}
svg .buoy{fill:var(--card);stroke:var(--mark);stroke-width:2.5}
svg .water{fill:var(--water)}
svg .surface{fill:none;stroke:var(--accent);stroke-width:2;stroke-linejoin:round;
stroke-linecap:round}
svg .fill{fill:var(--accent)}
svg .track{fill:var(--track)}
svg .hover{fill:transparent}
svg .hover:hover{fill:var(--water)}
footer{margin-top:26px;color:var(--muted);font-size:13px}
footer p{margin:4px 0}
@media (max-width:560px){body{padding:22px 14px}h1{font-size:26px}.card{padding:16px}}
@media print{body{padding:0}.card,.tile{break-inside:avoid;box-shadow:none}}
"""
