"""When the state of a share-partition is read, and what fetches see of failures."""

from broker.core.share.acknowledgement import DONE, Answer
from broker.core.share.loading import Loading
from broker.core.share.states import Phase
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs

FENCED = Answer(ErrorCode.GROUP_ID_NOT_FOUND, "gone")
PASSING = Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "later")


def loading() -> Loading:
    return Loading(lambda: 0.5)


def test_a_state_is_read_at_once_and_after_a_failure_with_a_pause() -> None:
    one, now = loading(), InstantMs(1_000)
    assert one.is_due(Phase.EMPTY, now)
    one.ended(Phase.EMPTY, PASSING, now)
    assert not one.is_due(Phase.EMPTY, now)
    assert one.next_deadline(Phase.EMPTY) == one.retry_at > now
    assert one.is_due(Phase.EMPTY, one.retry_at)


def test_a_failure_that_may_pass_is_not_shown() -> None:
    one = loading()
    one.ended(Phase.EMPTY, PASSING, InstantMs(0))
    assert one.problem(Phase.EMPTY) is None
    assert one.problem(Phase.INITIALIZING) is None


def test_a_share_partition_that_was_fenced_shows_why_and_begins_again_after_a_pause() -> None:
    one = loading()
    one.ended(Phase.FENCED, FENCED, InstantMs(0))
    assert one.problem(Phase.FENCED) is FENCED
    assert not one.is_void(Phase.FENCED, InstantMs(0))
    assert one.is_void(Phase.FENCED, one.retry_at)
    assert one.next_deadline(Phase.FENCED) is None


def test_what_was_loaded_has_no_problem() -> None:
    one = loading()
    one.ended(Phase.ACTIVE, DONE, InstantMs(0))
    assert one.problem(Phase.ACTIVE) is None
    assert not one.is_due(Phase.ACTIVE, InstantMs(0))
    assert not one.is_void(Phase.ACTIVE, InstantMs(0))
