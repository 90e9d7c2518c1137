"""Producers of transactions that never stop: librdkafka's (transactions v1) and the native client's
(v2).

What a client is told decides what it may expect: a commit that was acknowledged is there, a
transaction that nobody asked to commit never is, and where the answer was lost it is all or
nothing.
"""

import asyncio
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from chaos.drafts import Draft, draw_draft, value_of
from chaos.history import Partition
from chaos.load import QUICK
from chaos.transactions import Outcome, Transaction
from confluent_kafka import KafkaError, KafkaException, Producer
from e2e.bounded_librdkafka import CallNeverCameBackError, within
from tidemark.client import ClientError, ProducerFencedError, TransactionalProducer

TRANSACTION_TIMEOUT_S: Final = 15.0
_CALL_S: Final = 10.0
_STUCK_S: Final = 25.0
"""What a call may take that was given ``_CALL_S``: librdkafka's sometimes never return (see
chaos.copy_worker), and C code cannot be interrupted.
"""
_AGAIN_S: Final = 0.2
_SLOW_S: Final = 3.0
_PRODUCER: Final[Mapping[str, object]] = {
    "linger.ms": 2,
    "request.timeout.ms": 5_000,
    "message.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1_000),
    "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1_000),
}


class TransactionWriter(ABC):
    """One transactional id, one transaction after the other, in a thread of its own.

    A producer that must be given up is followed by another of the same id, which fences it;
    ``lives`` counts them, and ``given_up`` says why.
    """

    def __init__(
        self, transactional_id: str, bootstrap: str, partitions: Sequence[Partition], rate: float
    ) -> None:
        self._id, self._bootstrap = transactional_id, bootstrap
        self._partitions = tuple(partitions)
        self._pause_s = 1.0 / rate
        self._dice = random.Random(transactional_id)
        self._stop = threading.Event()
        self._finish_by: float | None = None
        self.transactions: list[Transaction] = []
        self.committed_at: list[float] = []
        self.given_up: Counter[str] = Counter()
        self.errors: list[str] = []

    def __str__(self) -> str:
        return self._id

    def summary(self) -> str:
        """Its outcomes, and why transactions or sessions were given up."""
        counts = Counter(one.outcome.value for one in self.transactions)
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        given_up = ", ".join(f"{why} {count}" for why, count in self.given_up.items())
        return f"{self}: {outcomes or 'nothing'}; given up: {given_up or 'none'}"

    def stop(self) -> None:
        """Begin no further transaction."""
        self._stop.set()

    def run(self, finish_s: float) -> None:
        """Until stopped; then the transaction under way gets ``finish_s`` to end."""
        self._finish_s = finish_s
        self._live()

    @abstractmethod
    def _live(self) -> None:
        """Write until stopped."""

    def _may_go_on(self) -> bool:
        """Whether to ask again; false once there was time enough after the stop."""
        if not self._stop.is_set():
            return True
        if self._finish_by is None:
            self._finish_by = time.monotonic() + self._finish_s
        return time.monotonic() < self._finish_by

    def _draw(self) -> Draft:
        return draw_draft(self._dice, self._partitions)

    def _note(self, draft: Draft, outcome: Outcome, asked_s: float | None) -> None:
        """A transaction is over."""
        if outcome is Outcome.UNKNOWN and asked_s is None:
            outcome = Outcome.ABORTED  # nobody will ask to commit it any more
        number = len(self.transactions)
        self.transactions.append(Transaction(self._id, number, draft.placed, outcome, asked_s))
        if outcome is Outcome.COMMITTED:
            self.committed_at.append(time.monotonic())

    def _note_given_up(self, problem: str) -> None:
        self.given_up[problem] += 1
        if not self._may_go_on():
            self.errors.append(f"{self._id}: {problem}, {self._finish_s:g} s after all was healed")


_NEVER_CAME_BACK: Final = KafkaError(
    KafkaError._FAIL, "the call never came back", False, False, False
)


class LibrdkafkaWriter(TransactionWriter):
    """Transactions v1: one epoch for all of a session.

    An EndTxn that this client gave up may still be on its way, and could end the next transaction
    of the same epoch. So after an end that took long the next one begins in a session of its own.
    """

    def _live(self) -> None:
        producer: Producer | None = None
        while not self._stop.wait(self._pause_s):
            producer = producer or self._new_session()
            if producer is not None and not self._write_one(producer):
                producer = None

    def _new_session(self) -> Producer | None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._id,
                **QUICK,
                **_PRODUCER,
            }
        )
        problem = self._insist(lambda: producer.init_transactions(_CALL_S))
        if problem is not None:
            self._note_given_up(f"init: {problem.name()}")
        return None if problem is not None else producer

    def _write_one(self, producer: Producer) -> bool:
        """A whole transaction; whether the session may go on."""
        draft, number = self._draw(), len(self.transactions)
        try:
            producer.begin_transaction()
            self._send(producer, draft, number)
        except KafkaException as refused:
            return self._abort(producer, draft, None, f"send: {refused.args[0].name()}")
        if not draft.commits:
            return self._abort(producer, draft, None, None)
        began = time.monotonic()
        patience_s = draft.patience_s or _CALL_S
        commit = partial(producer.commit_transaction, patience_s)
        problem = self._try(commit) if draft.patience_s else self._insist(commit)
        if problem is None:
            self._note(draft, Outcome.COMMITTED, began)
            return time.monotonic() - began < _SLOW_S
        if problem.txn_requires_abort():
            return self._abort(producer, draft, began, f"commit: {problem.name()}")
        if not draft.patience_s:
            self._note_given_up(f"commit: {problem.name()}")
        self._note(draft, Outcome.UNKNOWN, began)
        return False

    def _send(self, producer: Producer, draft: Draft, number: int) -> None:
        for sequence, partition in enumerate(draft.placed):
            value = value_of(self._id, number, sequence)
            producer.produce(partition.topic, value, partition=partition.number)
        if draft.open_s is not None:
            producer.flush(_CALL_S)
            time.sleep(draft.open_s)

    def _abort(
        self, producer: Producer, draft: Draft, asked_s: float | None, why: str | None
    ) -> bool:
        """By plan (``why`` is None) or because of a failure; whether the session may go on."""
        began = time.monotonic()
        problem = self._insist(lambda: producer.abort_transaction(_CALL_S))
        if why is not None:
            self.given_up[why] += 1
        if problem is None:
            self._note(draft, Outcome.ABORTED, asked_s)
            return time.monotonic() - began < _SLOW_S
        self._note_given_up(f"abort: {problem.name()}")
        self._note(draft, Outcome.UNKNOWN, asked_s)
        return False

    def _insist(self, call: Callable[[], object]) -> KafkaError | None:
        """Until it is done, or hopeless, or there is no time left."""
        while (problem := self._try(call)) is not None:
            if not problem.retriable() or not self._may_go_on():
                return problem
            time.sleep(_AGAIN_S)
        return None

    def _try(self, call: Callable[[], object]) -> KafkaError | None:
        try:
            within(_STUCK_S, f"{self._id}'s call", call)
        except KafkaException as refused:
            problem: KafkaError = refused.args[0]
            return problem
        except CallNeverCameBackError:
            return _NEVER_CAME_BACK
        return None


class NativeWriter(TransactionWriter):
    """Transactions v2 (KIP-890): each has an epoch of its own, and what comes late is refused."""

    def _live(self) -> None:
        asyncio.run(self._write_until_stopped())

    async def _write_until_stopped(self) -> None:
        while not self._stop.is_set():
            try:
                async with self._new_producer() as producer:
                    await producer.init()
                    while await self._write_one(producer):
                        pass
            except ClientError as problem:
                self._note_given_up(f"init: {problem.code.name}")

    def _new_producer(self) -> TransactionalProducer:
        milliseconds = int(TRANSACTION_TIMEOUT_S * 1_000)
        return TransactionalProducer(
            self._bootstrap.split(","),
            transactional_id=self._id,
            transaction_timeout_ms=milliseconds,
            delivery_timeout_ms=milliseconds,
            request_timeout_ms=6_000,
            connections_setup_timeout_ms=3_000,
            max_block_ms=int(_CALL_S * 1_000),
            linger_ms=2,
        )

    async def _write_one(self, producer: TransactionalProducer) -> bool:
        """A whole transaction; whether the producer may go on."""
        await asyncio.sleep(self._pause_s)
        if self._stop.is_set():
            return False
        draft, number = self._draw(), len(self.transactions)
        try:
            await producer.begin()
            await self._send(producer, draft, number)
        except ClientError as refused:
            return await self._abort(producer, draft, None, f"send: {refused.code.name}")
        if not draft.commits:
            return await self._abort(producer, draft, None, None)
        began = time.monotonic()
        try:
            async with asyncio.timeout(draft.patience_s):
                problem = await self._insist(producer.commit)
        except TimeoutError:
            self._note(draft, Outcome.UNKNOWN, began)
            return False
        if problem is None:
            self._note(draft, Outcome.COMMITTED, began)
            return True
        return await self._abort(producer, draft, began, f"commit: {problem.code.name}")

    async def _send(self, producer: TransactionalProducer, draft: Draft, number: int) -> None:
        for sequence, partition in enumerate(draft.placed):
            value = value_of(self._id, number, sequence)
            await producer.enqueue(partition.topic, value, partition=partition.number)
        if draft.open_s is not None:
            await producer.flush()
            await asyncio.sleep(draft.open_s)

    async def _abort(
        self, producer: TransactionalProducer, draft: Draft, asked_s: float | None, why: str | None
    ) -> bool:
        problem = await self._insist(producer.abort)
        if why is not None:
            self.given_up[why] += 1
        if problem is None:
            self._note(draft, Outcome.ABORTED, asked_s)
            return True
        self._note_given_up(f"abort: {problem.code.name}")
        self._note(draft, Outcome.UNKNOWN, asked_s)
        return False

    async def _insist(self, call: Callable[[], Coroutine[Any, Any, None]]) -> ClientError | None:
        """Until it is done, or hopeless, or there is no time left."""
        while True:
            try:
                await call()
            except ClientError as problem:
                final = isinstance(problem, ProducerFencedError) or not problem.retriable
                if final or not self._may_go_on():
                    return problem
                await asyncio.sleep(_AGAIN_S)
            else:
                return None
