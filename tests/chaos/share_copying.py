"""A member of a share group that copies records to a topic: the copies and the acknowledgements of
one poll are one transaction.
"""

import asyncio
import random
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from chaos.cluster import wait_none
from chaos.follow import COMMITTED, UNCOMMITTED, read_all
from chaos.history import Partition
from chaos.load import end_offsets
from chaos.share_history import Delivery, ShareHistory
from chaos.sharing import FINISH_S, Say, behind, place_of
from tidemark.client import ShareConsumer, ShareRecord, TransactionalProducer
from tidemark.client.errors import ClientConfigError, ClientError

GROUP: Final = "chaos-share-copiers"
THREADS: Final = 1
_POLL_RECORDS: Final = 200
_POLL_MS: Final = 300
_PAUSE_S: Final = 0.3
"""Between transactions while there is writing, so that the member takes little of the machine."""
_ABORTED_SHARE: Final = 0.05
"""Of the transactions: more would bring records to their delivery limit."""
_TRANSACTION_MS: Final = 20_000
_ANSWER_S: Final = 300.0
_BOUNDS: Final[Mapping[str, Any]] = {
    "request_timeout_ms": 6_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 500,
}


class ShareCopier:
    """The member, in a thread. Started with the cluster whole, finished with the cluster healed."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        bootstrap: str,
        *,
        grpc_addresses: Sequence[str],
        source: str,
        copies: Partition,
        seed: int,
        tell: Say,
    ) -> None:
        self._pool, self._bootstrap, self._tell = pool, bootstrap, tell
        self._grpc_addresses = grpc_addresses
        self._source, self._copies = source, copies
        self._dice = random.Random(f"{seed} share copier")
        self._stop, self._is_catching_up = threading.Event(), threading.Event()
        self._future: Future[None] | None = None
        self.history = ShareHistory()
        self.committed = self.aborted = self.sessions = 0

    def start(self) -> None:
        """Begin to copy."""
        self._future = self._pool.submit(lambda: asyncio.run(self._live()))

    def check(self) -> None:
        """Raise what ended the thread."""
        if self._future is not None and self._future.done():
            self._future.result()

    def stop(self) -> None:
        """The thread then ends."""
        self._stop.set()

    def finish(self, ends: Mapping[Partition, int]) -> tuple[dict[Partition, int], list[bytes]]:
        """Wait until the group's starts are at the ends of the log. Return the starts and the
        committed copies.
        """
        starts: dict[Partition, int] = {}

        def lagging() -> list[str]:
            self.check()
            return behind(self._bootstrap, GROUP, ends, starts)

        self._is_catching_up.set()
        try:
            took_s = wait_none(lagging, "the share copier's catching up", FINISH_S)
            self._tell(f"share copier: {took_s:.1f} s, {self.summary()}")
        finally:
            self.stop()
        if self._future is not None:
            self._future.result()
        return starts, self._read_copies()

    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.committed} transactions committed, {self.aborted} aborted,"
            f" {self.sessions} sessions"
        )

    def _read_copies(self) -> list[bytes]:
        """Wait until no transaction is open, and read all that is committed."""
        found: dict[Partition, int] = {}

        def open_transactions() -> list[str]:
            place = [self._copies]
            found.update(end_offsets(self._bootstrap, place, _ANSWER_S, COMMITTED))
            end = end_offsets(self._bootstrap, place, _ANSWER_S, UNCOMMITTED)[self._copies]
            stable = found[self._copies]
            return [f"{self._copies}: {stable} of {end}"] if stable < end else []

        wait_none(open_transactions, "the end of the share copier's transactions", FINISH_S)
        read = read_all(self._bootstrap, found, COMMITTED, _ANSWER_S)
        return [one.value for one in read[self._copies]]

    async def _live(self) -> None:
        """Run session after session; one ends with its first failure."""
        while not self._stop.is_set():
            self.sessions += 1
            try:
                async with self._consumer() as consumer, self._producer() as producer:
                    await producer.init()
                    consumer.subscribe([self._source])
                    while not self._stop.is_set():
                        await self._copy_once(consumer, producer)
            except ClientConfigError:
                raise
            except ClientError as problem:
                self._tell(f"share copier: {problem}")

    def _consumer(self) -> ShareConsumer:
        return ShareConsumer(
            self._bootstrap.split(","),
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
            default_api_timeout_ms=10_000,
            **_BOUNDS,
        )

    def _producer(self) -> TransactionalProducer:
        return TransactionalProducer(
            self._grpc_addresses,
            transport="grpc",
            transactional_id=GROUP,
            transaction_timeout_ms=_TRANSACTION_MS,
            delivery_timeout_ms=_TRANSACTION_MS,
            max_block_ms=10_000,
            linger_ms=2,
            **_BOUNDS,
        )

    async def _copy_once(self, consumer: ShareConsumer, producer: TransactionalProducer) -> None:
        records = await consumer.poll(_POLL_RECORDS, timeout_ms=_POLL_MS)
        if records:
            self.history.deliveries += [
                Delivery(place_of(one), one.delivery_count, 0.0) for one in records
            ]
            await self._copy(consumer, producer, records)
        if not self._is_catching_up.is_set():
            await asyncio.to_thread(self._stop.wait, _PAUSE_S)

    async def _copy(
        self,
        consumer: ShareConsumer,
        producer: TransactionalProducer,
        records: Sequence[ShareRecord],
    ) -> None:
        await producer.begin()
        for record in records:
            await producer.enqueue(self._copies.topic, str(place_of(record)).encode())
        await producer.acknowledge(consumer, records)
        if self._dice.random() < _ABORTED_SHARE:
            await producer.abort()
            self.aborted += 1
            return
        await producer.commit()
        self.committed += 1
