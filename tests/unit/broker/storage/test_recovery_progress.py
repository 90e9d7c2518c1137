"""Counts of logs that a start has still to recover."""

from broker.storage.recovery_progress import DirectoryProgress, RecoveryProgress


def test_before_the_first_log_begins_all_are_left() -> None:
    one = DirectoryProgress()
    one.look(["orders-0", "orders-1"])
    assert one.remaining == 2
    one.begin("orders-0")
    assert one.remaining == 2


def test_only_logs_and_copies_of_logs_are_counted() -> None:
    one = DirectoryProgress()
    one.look(
        ["orders-0", "meta.properties", "orders-1.abc-stray", "recovery-point-offset-checkpoint"]
    )
    assert one.remaining == 1


def test_a_directory_that_is_over_has_nothing_left() -> None:
    progress = RecoveryProgress(["/a"])
    progress.of("/a").look(["orders-0"])
    progress.of("/a").begin("orders-0")
    assert progress.words() == "recovering logs: 1 of 1 left in /a, orders-0 now"
    progress.of("/a").finish()
    assert (progress.of("/a").remaining, progress.words()) == (0, "log directories are open")
