"""Sizes of logs from what brokers report of their directories."""

from controller.admin.log_sizes import LogTotal, sizes_in, with_logs
from tidemark.client.admin.types import LogDir, ReplicaLog
from tidemark.model.topics import TopicPartition


def directory(path: str, **logs: ReplicaLog) -> LogDir:
    replicas = {TopicPartition(name, 0): log for name, log in logs.items()}
    return LogDir(1, path, 0, replicas=replicas)


FIRST = directory("/a", orders=ReplicaLog(70, 0, is_future=False), other=ReplicaLog(5, 0, False))
SECOND = directory("/b", orders=ReplicaLog(30, 9, is_future=True), clicks=ReplicaLog(8, 0, False))


def test_the_logs_that_are_asked_for_are_found_in_any_directory() -> None:
    wanted = [("orders", 0), ("clicks", 0), ("gone", 0), ("orders", 1)]
    assert sizes_in([FIRST, SECOND], wanted) == {("orders", 0): 70, ("clicks", 0): 8}


def test_a_copy_that_is_not_complete_is_not_the_log() -> None:
    assert sizes_in([SECOND, FIRST], [("orders", 0)]) == {("orders", 0): 70}


def test_totals_add_up_over_several_answers_by_directory() -> None:
    once = with_logs({}, [FIRST, SECOND])
    assert once == {"/a": LogTotal(2, 75), "/b": LogTotal(2, 38)}
    assert with_logs(once, [directory("/a"), SECOND])["/b"] == LogTotal(4, 76)
