"""Members of a share group that read plain topics all the time, and come and go."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from chaos.cluster import wait_none
from chaos.history import Partition
from chaos.share_history import DELIVERIES_MAX, Delivery, Place, ShareHistory
from tidemark.client import AlterConfig, ConfigResource, ShareRecord, TopicPartition, sync
from tidemark.client.errors import ClientError

GROUP: Final = "chaos-shares"
MEMBERS: Final = 3
THREADS: Final = MEMBERS
POLLS_MAX: Final = 40
"""Polls of one consumer before another one takes its place."""
_POLL_RECORDS: Final = 200
_POLL_MS: Final = 300
_PAUSE_S: Final = 0.3
"""Between polls while there is writing, so that members take little of the machine."""
_LOCK_MS: Final = 15_000
FINISH_S: Final = 300.0
_CONSUMER: Final[Mapping[str, Any]] = {
    "group_id": GROUP,
    "share_acknowledgement_mode": "explicit",
    "request_timeout_ms": 6_000,
    "default_api_timeout_ms": 10_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 500,
}
_CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": str(DELIVERIES_MAX),
    "share.record.lock.duration.ms": str(_LOCK_MS),
}

Say = Callable[[str], None]


def configure(bootstrap: str, group: str) -> None:
    """Set the configs of a share group of a run."""
    changes = [AlterConfig(name, value) for name, value in _CONFIGS.items()]
    with sync.Admin(bootstrap) as admin:
        admin.alter_configs({ConfigResource("group", group): changes})


def behind(
    bootstrap: str, group: str, ends: Mapping[Partition, int], found: dict[Partition, int]
) -> list[str]:
    """Return the partitions whose start is before the end, with their starts in ``found``."""
    found.update(_starts(bootstrap, group))
    return [
        f"share group {group!r}: {partition} starts at {found.get(partition)} of {end}"
        for partition, end in ends.items()
        if found.get(partition, -1) < end
    ]


def _starts(bootstrap: str, group: str) -> dict[Partition, int]:
    try:
        with sync.Admin(bootstrap) as admin:
            offsets = admin.list_share_group_offsets(group)
    except ClientError:
        return {}  # a coordinator or leader is missing: look again
    return {
        Partition(at.topic, at.partition): one.start_offset
        for at, one in offsets.items()
        if one.start_offset is not None
    }


def create_group(bootstrap: str, topic: str) -> None:
    """Configure the group, and make its state topic: the first member joins and leaves."""
    configure(bootstrap, GROUP)
    with sync.ShareConsumer(bootstrap, **_CONSUMER) as consumer:
        consumer.subscribe([topic])

        def unassigned() -> list[str]:
            consumer.poll(timeout_ms=_POLL_MS)
            return [] if consumer.assignment() else ["no assignment"]

        wait_none(unassigned, "the first member of the share group")


class Sharing:
    """Members in threads. Started with the cluster whole, finished with the cluster healed."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        bootstrap: str,
        partitions: Sequence[Partition],
        seed: int,
        tell: Say,
    ) -> None:
        self._pool, self._bootstrap, self._tell = pool, bootstrap, tell
        self._partitions = tuple(partitions)
        self._seed = seed
        self._stop, self._is_catching_up = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._futures: list[Future[None]] = []
        self.history = ShareHistory()
        self.consumers = 0
        self.refused = 0
        """Partitions of commits whose acknowledgements were refused, or lost with a session."""

    def start(self) -> None:
        """Begin to read."""
        self._futures = [self._pool.submit(self._run, number) for number in range(MEMBERS)]

    def check(self) -> None:
        """Raise what ended a thread."""
        for future in self._futures:
            if future.done():
                future.result()

    def stop(self) -> None:
        """All of it."""
        self._stop.set()

    def finish(self, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        """Wait until the group's starts are at the ends of the log; return the starts."""
        found: dict[Partition, int] = {}

        def lagging() -> list[str]:
            self.check()
            return behind(self._bootstrap, GROUP, ends, found)

        self._is_catching_up.set()
        try:
            took_s = wait_none(lagging, "the share group's catching up", FINISH_S)
            self._tell(f"share group: {took_s:.1f} s, {self.summary()}")
        finally:
            self.stop()
        for future in self._futures:
            future.result()
        return found

    def summary(self) -> str:
        """One line for people."""
        history = self.history
        return (
            f"{len(history.deliveries):,} deliveries, {len(history.finished_at):,} records"
            f" finished, {self.consumers} consumers, {self.refused} commits refused"
        )

    def _run(self, number: int) -> None:
        dice = random.Random(f"{self._seed} share {number}")
        while not self._stop.is_set():
            made_at = time.monotonic()
            self.consumers += 1
            try:
                with sync.ShareConsumer(self._bootstrap, **_CONSUMER) as consumer:
                    consumer.subscribe(sorted({one.topic for one in self._partitions}))
                    for _ in range(dice.randint(1, POLLS_MAX)):
                        if self._stop.is_set():
                            break
                        self._read(consumer, made_at, dice)
                        if not self._is_catching_up.is_set():
                            self._stop.wait(_PAUSE_S)
            except ClientError as problem:
                self._tell(f"share member {number}: {problem}")

    def _read(self, consumer: sync.ShareConsumer, made_at: float, dice: random.Random) -> None:
        """Poll and acknowledge; what is not finished by the commit is released by the close."""
        records = consumer.poll(_POLL_RECORDS, timeout_ms=_POLL_MS)
        if not records:
            return
        outcomes = {
            place_of(one): dice.choices(("accept", "reject", "release"), (90, 3, 7))[0]
            for one in records
        }
        with self._lock:
            self.history.deliveries += [
                Delivery(place_of(one), one.delivery_count, made_at) for one in records
            ]
            self.history.finishing |= {at for at, one in outcomes.items() if one != "release"}
        for record in records:
            outcome = outcomes[place_of(record)]
            delay_ms = dice.choice((0, 300)) if outcome == "release" else 0
            consumer.acknowledge(record, outcome, delay_ms=delay_ms)
        self._commit(consumer, outcomes)

    def _commit(self, consumer: sync.ShareConsumer, outcomes: Mapping[Place, str]) -> None:
        results = consumer.commit_sync()
        answered_at = time.monotonic()
        with self._lock:
            self.refused += sum(error is not None for error in results.values())
            for place, outcome in outcomes.items():
                at = TopicPartition(*place.partition)
                if outcome != "release" and at in results and results[at] is None:
                    self.history.finished(place, answered_at)


def place_of(record: ShareRecord) -> Place:
    """Return where a record is."""
    return Place(Partition(record.topic, record.partition), record.offset)
