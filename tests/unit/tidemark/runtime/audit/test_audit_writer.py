"""Entries reach every sink, in order, and wait while one of them fails."""

import asyncio
import json

import pytest
from manual_clock import ManualClock
from pydantic import ValidationError
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.protocol.audit import AuditRules, AuditTrail, Login
from tidemark.runtime.audit.config import AuditConfig
from tidemark.runtime.audit.writer import CHUNK_ENTRIES, AuditWriter, Origin, Texts


class Sink:
    """Keeps what it is given, unless it fails."""

    def __init__(self) -> None:
        self.users: list[str] = []
        self.fails = False

    async def write(self, events: Texts) -> None:
        if self.fails:
            raise TidemarkError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
        self.users += [json.loads(text)["user"]["name"] for _, text in events]


def world(*sinks: Sink, entries_max: int = 500) -> tuple[AuditTrail, AuditWriter]:
    trail = AuditTrail(AuditRules(), entries_max=entries_max, refuses=False)
    origin = Origin("broker-1", lambda: "c")
    return trail, AuditWriter(trail, sinks, origin, ManualClock(), interval_ms=100)


def log_in(trail: AuditTrail, *users: str) -> None:
    for user in users:
        trail.note(Login(user, "h", "SAFE", "PLAIN", succeeded=True), 1)


def test_chunks_are_written_in_order() -> None:
    sink, users = Sink(), [f"u{number}" for number in range(CHUNK_ENTRIES * 2 + 1)]
    trail, writer = world(sink)
    log_in(trail, *users)
    asyncio.run(writer.write())
    assert sink.users == users
    assert writer.written == len(users)


def test_a_sink_that_fails_gets_it_later_and_no_sink_gets_it_twice() -> None:
    good, bad = Sink(), Sink()
    bad.fails = True
    trail, writer = world(good, bad)
    log_in(trail, "alice")
    asyncio.run(writer.write())
    log_in(trail, "bob")
    asyncio.run(writer.write())
    assert (good.users, bad.users, writer.written, writer.failures) == (["alice"], [], 0, 2)
    bad.fails = False
    asyncio.run(writer.finish())
    assert good.users == bad.users == ["alice", "bob"]


def test_metrics_count_what_waits_and_what_found_no_room() -> None:
    trail, writer = world(Sink(), entries_max=1)
    log_in(trail, "alice", "bob", "alice")
    values = {one.name: one.samples[0].value for one in writer.collect()}
    assert values["tidemark_audit_noted"] == 2
    assert values["tidemark_audit_dropped"] == values["tidemark_audit_waiting"] == 1


def test_without_a_sink_there_is_no_audit() -> None:
    assert AuditConfig().audit_trail is None
    config = AuditConfig(audit_sinks=("log",), audit_when_full="refuse", audit_entries_max=100)
    trail = config.audit_trail
    assert trail is not None
    log_in(trail, *map(str, range(100)))
    assert not trail.may_go_on


@pytest.mark.parametrize(
    "given",
    [
        {"audit_sinks": ("file",)},
        {"audit_exclude_operations": ("Reed",)},
        {"audit_exclude_outcomes": ("maybe",)},
        {"audit_exclude_resources": ("orders",)},
    ],
)
def test_options_that_name_nothing_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"is not one of|is no resource"):
        AuditConfig(**given)  # type: ignore[arg-type]
