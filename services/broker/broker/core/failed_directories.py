"""End of a broker whose log directories have all failed.

Its logs may lack acknowledged records, and its next process must not trust them. So the loss must
be recorded first: by the controller, or by a failure note in each directory.
"""

from collections.abc import Collection


def have_all_failed(failed: Collection[bool]) -> bool:
    """Return True if each log directory has failed, so that the broker can serve nothing."""
    assert failed, "a broker has a log directory"
    return all(failed)


def may_end(*, is_reported: bool, noted: Collection[bool]) -> bool:
    """Return True if the process may end.

    ``noted``: for each directory, True if the next start finds a failure note in it. With neither a
    report nor the notes the process waits, serving nothing.
    """
    return is_reported or (bool(noted) and all(noted))
