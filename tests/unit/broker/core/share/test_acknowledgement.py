"""What members say of the records that they hold."""

import pytest
from broker.core.share.acknowledgement import AcknowledgementBatch, malformed
from broker.core.share.settings import ShareSettings
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.model.share_state import DeliveryState
from unit.broker.core.share.share_worlds import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    ShareWorld,
    say,
    state_batch,
)

INVALID_STATE = ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize(
    ("kind", "state"),
    [(ACCEPT, ACKNOWLEDGED), (RELEASE, AVAILABLE), (REJECT, ARCHIVED), (GAP, ARCHIVED)],
)
def test_each_type_leads_to_its_state(kind: int, state: DeliveryState) -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    assert world.done(say(10, 19, kind)).error_code is ErrorCode.NONE
    assert world.story() == ["0-9 ACQUIRED 1 m1", f"10-19 {state.name} 1"]


def test_types_are_given_for_each_offset() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.done(say(0, 9, *[RELEASE] * 3, ACCEPT, ACCEPT, GAP, *[RENEW] * 4))
    assert world.story() == [
        "0-2 AVAILABLE 1",
        "3-4 ACKNOWLEDGED 1",
        "5-5 ARCHIVED 1",
        "6-9 ACQUIRED 1 m1",
    ]


def test_nothing_else_happens_to_a_record_while_it_is_written() -> None:
    world = ShareWorld().load()
    world.fetch()
    assert world.acknowledge(say(0, 9, ACCEPT)) is None
    for kind in (ACCEPT, RELEASE, RENEW):
        assert world.acknowledge(say(3, 4, kind)) is INVALID_STATE


def test_all_batches_of_a_request_hold_or_none_does() -> None:
    world = ShareWorld().load()
    world.fetch("m1")
    world.fetch("m2")
    before = world.story()
    assert world.acknowledge(say(0, 4, ACCEPT), say(5, 10, ACCEPT)) is INVALID_STATE
    assert world.story() == before
    assert world.share.next_write(world.now) is None


def test_more_batches_than_two_windows_have_records_are_refused() -> None:
    world = ShareWorld(ShareSettings(lock_ms=LOCK_MS, records_max=10)).load()
    world.fetch()
    batches = [say(offset, offset, ACCEPT) for offset in range(21)]
    assert world.acknowledge(*batches) is ErrorCode.INVALID_REQUEST
    assert world.story() == ["0-9 ACQUIRED 1 m1"]
    assert world.acknowledge(*batches[:10]) is None


@pytest.mark.parametrize("member", ["m2", ""])
def test_only_the_holder_acknowledges(member: str) -> None:
    world = ShareWorld().load()
    world.fetch()
    assert world.acknowledge(say(0, 9, ACCEPT), member=member) is INVALID_STATE


def test_a_record_that_was_released_is_not_acknowledged() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.done(say(0, 4, RELEASE))
    assert world.acknowledge(say(0, 4, ACCEPT)) is INVALID_STATE


def test_what_is_before_the_window_is_ignored() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.done(say(0, 4, ACCEPT))
    assert world.acknowledge(say(0, 4, ACCEPT)) is ErrorCode.NONE
    world.done(say(0, 9, ACCEPT))
    assert world.share.window.start == 10


def test_a_record_that_was_given_up_is_not_acknowledged_until_that_is_durable() -> None:
    world = ShareWorld(ShareSettings(lock_ms=LOCK_MS, deliveries_max=2)).load()
    for _ in range(2):
        world.fetch()
        world.now = InstantMs(world.now + LOCK_MS)
        world.share.tick(world.now)
    assert world.share.window.start == 10
    assert world.acknowledge(say(0, 9, ACCEPT)) is INVALID_STATE
    assert world.share.next_write(world.now) is not None
    world.share.written(ErrorCode.NONE, world.now)
    assert world.acknowledge(say(0, 9, ACCEPT)) is ErrorCode.NONE


def test_offsets_behind_the_window_are_an_invalid_request() -> None:
    world = ShareWorld().load()
    world.fetch()
    assert world.acknowledge(say(5, 10, ACCEPT)) is ErrorCode.INVALID_REQUEST


def test_nothing_is_acquired_in_an_empty_window() -> None:
    assert ShareWorld().load().acknowledge(say(0, 9, ACCEPT)) is INVALID_STATE


def test_a_renewed_lock_starts_again_and_writes_nothing() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.pass_time(LOCK_MS - 1)
    assert world.acknowledge(say(0, 4, RENEW)) is ErrorCode.NONE
    world.pass_time(1)
    assert world.story() == ["0-4 ACQUIRED 1 m1", "5-9 AVAILABLE 1"]
    world.pass_time(LOCK_MS - 1)
    assert world.story() == ["0-9 AVAILABLE 1"]


def test_renewing_may_be_switched_off() -> None:
    world = ShareWorld(ShareSettings(is_renew_enabled=False)).load()
    world.fetch()
    assert world.acknowledge(say(0, 9, RENEW)) is INVALID_STATE


@pytest.mark.parametrize("kind", [RELEASE, REJECT])
@pytest.mark.parametrize(("has_letters", "state"), [(False, ARCHIVED), (True, ARCHIVING)])
def test_at_the_limit_a_released_record_is_given_up(
    kind: int, state: DeliveryState, *, has_letters: bool
) -> None:
    settings = ShareSettings(deliveries_max=2, has_dead_letters=has_letters)
    world = ShareWorld(settings).load(state_batch(0, 4, AVAILABLE, 1))
    world.fetch(records=15)
    world.acknowledge(say(0, 4, kind))
    (batch,) = world.begin_write().batches or [state_batch(0, 4, ARCHIVED, 2)]
    assert batch == (0, 4, state, 2)


def test_released_records_wait_for_their_delay() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.done(say(0, 9, RELEASE, delay_ms=300))
    assert world.fetch("m2") == [(10, 19, 1)]
    assert world.share.next_deadline() == 300
    world.pass_time(300)
    assert world.share.take_wakeup()
    assert world.fetch("m2") == [(0, 9, 2)]


@pytest.mark.parametrize(
    "batches",
    [
        [say(5, 4, ACCEPT)],
        [say(-1, 4, ACCEPT)],
        [say(0, 4, ACCEPT), say(4, 9, ACCEPT)],
        [say(5, 9, ACCEPT), say(0, 4, ACCEPT)],
        [say(0, 4)],
        [say(0, 4, ACCEPT, ACCEPT)],
        [say(0, 4, 5)],
        [say(0, 1, ACCEPT, -1)],
        [say(0, 4, RELEASE, delay_ms=-1)],
        [say(0, 4, ACCEPT, is_unseen=True)],
        [say(0, 1, RELEASE, REJECT, is_unseen=True)],
    ],
)
def test_malformed_batches_are_refused(batches: list[AcknowledgementBatch]) -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    before = world.story()
    assert world.acknowledge(*batches) is ErrorCode.INVALID_REQUEST
    assert world.story() == before
    assert malformed(batches) is not None


def test_good_batches_are_not_malformed() -> None:
    assert (
        malformed([say(0, 0, ACCEPT), say(1, 3, GAP, RENEW, REJECT), say(9, 12, RELEASE)]) is None
    )


@pytest.mark.parametrize("deliveries_max", [1, 5])
def test_a_release_of_records_that_no_application_saw_counts_no_delivery(
    deliveries_max: int,
) -> None:
    world = ShareWorld(ShareSettings(deliveries_max=deliveries_max, release_backoff_ms=90)).load()
    world.fetch()
    world.done(say(0, 3, ACCEPT), say(4, 9, RELEASE, is_unseen=True))
    assert world.story() == ["4-9 AVAILABLE 0"]
    assert world.fetch("m2") == [(4, 9, 1), (10, 19, 1)]


def test_a_member_cannot_keep_a_record_from_being_archived_by_never_receiving_it() -> None:
    world = ShareWorld(ShareSettings(deliveries_max=3, unseen_max=3, records_max=10)).load()
    counts = []
    for _ in range(6):
        ((first, last, count),) = world.fetch()
        counts.append(count)
        world.done(say(first, last, RELEASE, is_unseen=True))
    assert counts == [1, 1, 1, 1, 2, 3]
    assert world.story() == ["1-9 AVAILABLE 2"]
