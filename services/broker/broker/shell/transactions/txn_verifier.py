"""TxnVerifier: verifies at the transaction coordinator that partitions are part of a transaction,
or adds them.

One call is under way for each transaction; what is asked meanwhile goes out with the next.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.model.backoff import Backoff, Dice, RetryDelays
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition
from tidemark.runtime.coordinator_client import CoordinatorClient
from tidemark.runtime.task_parent import TaskParent
from tidemark_wire.v1 import txn_pb2

from broker.core.partition import Refusal

ASK_TIMEOUT_S: Final = 5.0
RETRY_BACKOFF_MS: Final = 20
RETRY_BACKOFF_MAX_MS: Final = 100
_FIRST_PAUSE_SHARE: Final = 4
"""The first pause is a quarter of the longest: most transactions end within milliseconds."""
_LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        # The coordinator does not know another partition of the same call yet.
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Answered to producers as NOT_ENOUGH_REPLICAS, which all of them retry (as with Kafka)."""
_AS_PRODUCED: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class _Key(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    transactions_v2: bool
    abortable_known: bool


class _Question(NamedTuple):
    partition: TopicPartition
    topic_id: TopicId
    """The topic to whose log the producer writes. Another topic may have had the name before."""


_Questions = dict[_Question, list["asyncio.Future[ErrorCode]"]]


@dataclass(eq=False, slots=True)
class _Asking:
    waiting: _Questions = field(default_factory=dict)


class TxnVerifier:
    """Verifies on behalf of the broker's partitions. ``run`` is the parent of every call."""

    def __init__(
        self,
        client: CoordinatorClient,
        *,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
        retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS,
        dice: Dice = random.random,
    ) -> None:
        """A producer that writes right after EndTxn meets the end of the transaction before it. The
        coordinator waits for that end for a while. Then it is asked again, after at most
        ``retry_backoff_ms`` each time and for ``retry_backoff_max_ms`` in all: a producer's own
        pause is longer.
        """
        self._client = client
        self._longest_ms, self._total_ms = retry_backoff_ms, retry_backoff_max_ms
        self._dice = dice
        self._asking: dict[_Key, _Asking] = {}
        self._tasks = TaskParent()

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._tasks.run()

    async def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        topic_id: TopicId,
        *,
        transactions_v2: bool,
        abortable_known: bool = False,
    ) -> Refusal | None:
        """Return None if the partition is part of the producer's open transaction.
        TRANSACTION_ABORTABLE is for clients that support it; others get INVALID_TXN_STATE.
        """
        if not self._tasks.is_running:
            return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "the broker is stopping")
        key = _Key(transactional_id, producer_id, producer_epoch, transactions_v2, abortable_known)
        answered: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = _Asking()
            self._tasks.start(self._ask_all(key, asking), "txn-verifier")
        asking.waiting.setdefault(_Question(partition, topic_id), []).append(answered)
        return _refusal(await answered, transactional_id)

    async def _ask_all(self, key: _Key, asking: _Asking) -> None:
        """Ask until all questions that arrived meanwhile are answered."""
        await asyncio.sleep(0)  # other partitions of the same request are asked about together
        questions: _Questions = {}
        try:
            while asking.waiting:
                questions, asking.waiting = asking.waiting, {}
                codes = await self._call_patiently(key, questions)
                for question, waiting in questions.items():
                    code = codes.get(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                    for one in waiting:
                        if not one.done():
                            one.set_result(code)
        finally:
            del self._asking[key]
            for waiting in (*questions.values(), *asking.waiting.values()):
                for one in waiting:
                    one.cancel()

    async def _call_patiently(self, key: _Key, questions: _Questions) -> dict[_Question, ErrorCode]:
        """Retry for a moment while the previous transaction is being ended."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._total_ms / 1_000
        for pause_s in _pauses_s(self._longest_ms, self._total_ms, self._dice):
            codes = await self._call(key, questions)
            is_ending = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not is_ending or loop.time() >= ends_s:  # the coordinator has waited as long
                return codes
            await asyncio.sleep(pause_s)
        return await self._call(key, questions)

    async def _call(self, key: _Key, questions: _Questions) -> dict[_Question, ErrorCode]:
        request = txn_pb2.AddPartitionsRequest(
            transactional_id=key.transactional_id,
            producer_id=key.producer_id,
            producer_epoch=key.producer_epoch,
            partitions=[
                txn_pb2.Partition(topic=at.topic, partition=at.partition, topic_id=bytes(topic_id))
                for at, topic_id in questions
            ],
            verify_only=not key.transactions_v2,
            transactions_v2=key.transactions_v2 or key.abortable_known,
        )
        try:
            response = await self._client.call(
                "AddPartitions", key.transactional_id, request, ASK_TIMEOUT_S
            )
        except TidemarkError as failure:
            return dict.fromkeys(questions, failure.code)
        if response.error_code:
            return dict.fromkeys(questions, ErrorCode(response.error_code))
        codes = {
            TopicPartition(one.topic, one.partition): ErrorCode(one.error_code)
            for one in response.results
        }
        return {one: codes[one.partition] for one in questions if one.partition in codes}


def _pauses_s(longest_ms: int, total_ms: int, dice: Dice) -> Iterator[float]:
    """Yield delays that start at a quarter of ``longest_ms`` and double each time, ``total_ms`` in
    all.
    """
    delays = RetryDelays(Backoff(longest_ms / _FIRST_PAUSE_SHARE, longest_ms), dice)
    left_ms = float(total_ms)
    while left_ms > 0:
        pause_ms = min(delays.next_ms(), left_ms)
        yield pause_ms / 1_000
        left_ms -= pause_ms


def _refusal(code: ErrorCode, transactional_id: str) -> Refusal | None:
    if code is ErrorCode.NONE:
        return None
    if code in _LATER:
        return Refusal(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the coordinator of transaction {transactional_id!r} cannot verify yet whether the"
            f" partition is part of it: {code.name}",
        )
    return Refusal(
        _AS_PRODUCED.get(code, code),
        f"the coordinator of transaction {transactional_id!r} refused: {code.name}",
    )
