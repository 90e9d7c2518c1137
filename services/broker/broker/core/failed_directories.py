"""End of a broker whose log directories have all failed.

Its next process must not be trusted with logs that may lack what was acknowledged: either the
controller has judged what was lost, or the directories themselves have a note of the failure.
"""

from collections.abc import Collection


def have_all_failed(failed: Collection[bool]) -> bool:
    """Return True if the broker can serve nothing. ``failed``: each of its log directories."""
    assert failed, "a broker has a log directory"
    return all(failed)


def may_end(*, is_reported: bool, noted: Collection[bool]) -> bool:
    """Return True if the process may end. ``noted``: directories of which the next start will find
    a note of the failure. Without either it waits, serving nothing, for as long as it takes.
    """
    return is_reported or (bool(noted) and all(noted))
