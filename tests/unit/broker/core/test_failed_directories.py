"""The end of a broker whose log directories have all failed."""

import pytest
from broker.core.failed_directories import have_all_failed, may_end


@pytest.mark.parametrize(
    ("failed", "all_failed"),
    [([False], False), ([True], True), ([True, False], False), ([True, True], True)],
)
def test_a_broker_with_one_good_directory_serves_on(failed: list[bool], all_failed: bool) -> None:
    assert have_all_failed(failed) is all_failed


@pytest.mark.parametrize("noted", [[], [False], [True, False], [True, True]])
def test_a_reported_failure_needs_no_note(noted: list[bool]) -> None:
    assert may_end(is_reported=True, noted=noted)


def test_every_directory_must_have_a_note_where_no_controller_answers() -> None:
    assert may_end(is_reported=False, noted=[True, True])
    assert not may_end(is_reported=False, noted=[True, False])
    assert not may_end(is_reported=False, noted=[])
