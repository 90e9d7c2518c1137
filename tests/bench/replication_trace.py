"""A broker that notes when a write passes which point: ``python -m bench.replication_trace``.

It is the broker itself with a few of its functions wrapped, so that a broker that is not traced
pays nothing. Notes go to ``TIDEMARK_TRACE_DIRECTORY`` when the process ends, one tuple a line:
(point, partition, offset, replica, monotonic seconds); the offset is the end up to which the point
was passed.

    appended    leader: in its log                 taken     follower: an answer has come
    sent        leader: an answer to a follower    written   follower: in its log
    heard       leader: a follower's next fetch    committed leader: the high watermark has moved
"""

import atexit
import json
import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.core.partition import Role
from broker.process import main
from broker.shell.kafka import replica_fetch
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.replication import fetcher
from broker.shell.replication.replica_reader import ReplicaReader
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Member

DIRECTORY_KEY: Final = "TIDEMARK_TRACE_DIRECTORY"
NOTES_MAX: Final = 2_000_000


class Note(NamedTuple):
    """A point that was passed; ``replica`` is -1 where there is only one."""

    point: str
    partition: int
    offset: int
    replica: int
    at_s: float


_notes: list[Note] = []


class TracedCluster(DevCluster):
    """Its brokers are traced."""

    def _argv(self, member: Member) -> list[str]:
        argv = super()._argv(member)
        if member.kind == "broker":
            argv[argv.index("-m") + 1] = "bench.replication_trace"
        return argv


def read_notes(directory: Path) -> list[Note]:
    """What all brokers noted, in the order of time."""
    notes = [
        Note(*json.loads(line))
        for path in directory.glob("trace-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(notes, key=lambda note: note.at_s)


def _note(point: str, hosted: HostedPartition, offset: int, replica: int = -1) -> None:
    if len(_notes) < NOTES_MAX:
        number = hosted.topic_partition.partition
        _notes.append(Note(point, number, offset, replica, time.monotonic()))


def _trace_leader() -> None:
    append, take = PartitionAppender.append_batch, ReplicaReader.take_progress
    write_answer = replica_fetch.ReplicaFetch.answer

    def append_batch(
        appender: PartitionAppender, hosted: HostedPartition, *rest: Any, **named: Any
    ) -> Any:
        outcome = append(appender, hosted, *rest, **named)
        _note("appended", hosted, hosted.partition.log_end)
        return outcome

    def take_progress(reader: ReplicaReader, hosted: HostedPartition, fetch: Any, now: Any) -> None:
        before = hosted.partition.high_watermark
        _note("heard", hosted, fetch.log_end, fetch.broker_id)
        take(reader, hosted, fetch, now)
        after = hosted.partition.high_watermark
        if after != before:
            _note("committed", hosted, after)

    def answer(fetch: Any, reads: Any) -> Any:
        for one in reads.reads:
            if one.outcome.read is not None:
                end = one.hosted.partition.log_end
                _note("sent", one.hosted, end, fetch._replica.broker_id)
        return write_answer(fetch, reads)

    for owner, wrapper in (
        (PartitionAppender, append_batch),
        (ReplicaReader, take_progress),
        (replica_fetch.ReplicaFetch, answer),
    ):
        setattr(owner, wrapper.__name__, wrapper)


def _trace_follower() -> None:
    apply = fetcher.LeaderFetcher._apply

    def traced(
        follower: Any, hosted: HostedPartition, result: Any, records: Any, *more: Any
    ) -> Any:
        if not records:
            return apply(follower, hosted, result, records, *more)
        began = time.monotonic()
        problem = apply(follower, hosted, result, records, *more)
        end, here = hosted.partition.log_end, hosted.partition.broker_id
        if hosted.partition.role is Role.FOLLOWER:
            number = hosted.topic_partition.partition
            _notes.append(Note("taken", number, end, here, began))
            _note("written", hosted, end, here)
        return problem

    setattr(fetcher.LeaderFetcher, "_apply", traced)  # noqa: B010 - mypy forbids the plain form


def _write_notes() -> None:
    path = Path(os.environ[DIRECTORY_KEY]) / f"trace-{os.getpid()}.jsonl"
    path.write_text("".join(json.dumps(note) + "\n" for note in _notes))


if __name__ == "__main__":
    if DIRECTORY_KEY in os.environ:
        _trace_leader()
        _trace_follower()
        atexit.register(_write_notes)
    main()
