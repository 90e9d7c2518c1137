"""The transaction coordinator's API for producers, over gRPC or Kafka's protocol.

Every call may be repeated: the coordinator recognises a second request for the same end (KIP-890),
so calls without an answer are retried until the deadline.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc.aio
from tidemark_wire.v1 import common_pb2, txn_pb2, txn_pb2_grpc

from tidemark.client.config import ClientConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, error_for
from tidemark.client.wire.coordinator import Coordinator, CoordinatorKind
from tidemark.client.wire.grpc_transport import GrpcTransport
from tidemark.client.wire.session import Session
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock

_NO_PRODUCER = ProducerIdentity(-1, -1)
_CONCURRENT_MS = 20
_LEFT_MS_MIN = 1
"""No attempt with less time left than this: it would only time out."""


class TransactionControl(Protocol):
    """Control of one transactional id. Methods raise ClientError, such as ProducerFencedError."""

    async def init(self, timeout_ms: int, deadline: Deadline) -> ProducerIdentity:
        """Fence the id's previous producer, end its open transaction and return a new identity."""
        ...

    async def end(
        self, identity: ProducerIdentity, deadline: Deadline, *, commit: bool
    ) -> ProducerIdentity:
        """Commit or abort; return the identity for the next transaction."""
        ...


class KafkaControl:
    """InitProducerId and EndTxn at the coordinator that FindCoordinator returns."""

    def __init__(
        self, session: Session, config: ClientConfig, clock: Clock, transactional_id: str
    ) -> None:
        self._transactional_id = transactional_id
        self._coordinator = Coordinator(
            session, config, clock, transactional_id, CoordinatorKind.TRANSACTION
        )

    async def init(self, timeout_ms: int, deadline: Deadline) -> ProducerIdentity:
        """Send InitProducerId."""
        fields = {
            "transactional_id": self._transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._ask(deadline, ApiKey.INIT_PRODUCER_ID, fields, "initialising")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def end(
        self, identity: ProducerIdentity, deadline: Deadline, *, commit: bool
    ) -> ProducerIdentity:
        """Send EndTxn; before version 5 the identity does not change."""
        fields = {
            "transactional_id": self._transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "committed": commit,
        }
        what = "committing" if commit else "aborting"
        answer = await self._ask(deadline, ApiKey.END_TXN, fields, what)
        return _next(identity, answer.producer_id, answer.producer_epoch)

    async def _ask(
        self, deadline: Deadline, api_key: ApiKey, fields: dict[str, object], doing: str
    ) -> Struct:
        def problem_of(answer: Struct) -> ClientError | None:
            what = f"{doing} transactional id {self._transactional_id!r} failed"
            where = self._coordinator.where
            return error_for(answer.error_code, what, where=where) if answer.error_code else None

        return await self._coordinator.ask_until(deadline, api_key, lambda: fields, problem_of)


def error_answered(answer: Any, doing: str) -> ClientError | None:
    """Return the error of an answer, if any. ``doing`` describes the request."""
    if not answer.error_code:
        return None
    return error_for(answer.error_code, f"{doing} failed", detail=answer.error_message or None)


ProblemOf = Callable[[Any, str], ClientError | None]


class CoordinatorCalls:
    """Calls of TransactionCoordinator at any broker, which relays them; with retries."""

    def __init__(self, session: Session, config: ClientConfig, clock: Clock) -> None:
        self._session = session
        self._config = config
        self._clock = clock
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def caller(self) -> common_pb2.Caller:
        """Return the caller's identity."""
        return common_pb2.Caller(client_id=self._config.client_id)

    async def until(
        self,
        deadline: Deadline,
        doing: str,
        call: Callable[[Any, float], Awaitable[Any]],
        problem_of: ProblemOf = error_answered,
    ) -> Any:
        """Return the answer of ``call(stub, timeout in seconds)``, retried until the deadline.

        ``problem_of`` returns the error of an answer. Raises ClientError: the error of the last
        attempt, with the last refusal as detail if that attempt had no answer.
        """
        failures = 0
        refusal: ClientError | None = None
        while True:
            try:
                answer = await self._once(call, deadline)
            except ClientError as failed:
                problem: ClientError = failed
            else:
                answered = problem_of(answer, doing)
                if answered is None:
                    return answer
                problem = refusal = answered
            left_ms = deadline.left_ms(self._clock.now_ms())
            if problem.retriable and left_ms:
                failures += 1
                delay_ms = self._backoff.delay_ms(failures, random.random())
                if problem.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    delay_ms = min(delay_ms, _CONCURRENT_MS)
                await asyncio.sleep(min(delay_ms, left_ms) / 1_000)
                left_ms = deadline.left_ms(self._clock.now_ms())
            if not problem.retriable or left_ms < _LEFT_MS_MIN:
                if refusal is None or problem is refusal:
                    raise problem
                detail = f"no answer to the last try; an earlier one was refused: {refusal.message}"
                raise error_for(problem.code, f"{doing} failed", detail=detail) from problem

    async def _once(self, call: Callable[[Any, float], Awaitable[Any]], deadline: Deadline) -> Any:
        transport = self._session.transport
        assert isinstance(transport, GrpcTransport), "the coordinator is called over gRPC"
        left_ms = deadline.left_ms(self._clock.now_ms())
        timeout_s = max(1.0, min(left_ms, self._config.request_timeout_ms)) / 1_000

        async def ask(channel: grpc.aio.Channel) -> Any:
            return await call(txn_pb2_grpc.TransactionCoordinatorStub(channel), timeout_s)

        return await transport.ask_any(ask)


class GrpcControl:
    """InitTransactionalId and EndTransaction of the gRPC service."""

    def __init__(self, calls: CoordinatorCalls, transactional_id: str) -> None:
        self._calls = calls
        self._transactional_id = transactional_id

    async def init(self, timeout_ms: int, deadline: Deadline) -> ProducerIdentity:
        """Send InitTransactionalId."""
        request = txn_pb2.InitTransactionalIdRequest(
            caller=self._calls.caller(),
            transactional_id=self._transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=_NO_PRODUCER.producer_id,
            producer_epoch=_NO_PRODUCER.producer_epoch,
            transactions_v2=True,
        )
        answer = await self._calls.until(
            deadline,
            f"initialising transactional id {self._transactional_id!r}",
            lambda stub, timeout: stub.InitTransactionalId(request, timeout=timeout),
        )
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def end(
        self, identity: ProducerIdentity, deadline: Deadline, *, commit: bool
    ) -> ProducerIdentity:
        """Send EndTransaction."""
        request = txn_pb2.EndTransactionRequest(
            caller=self._calls.caller(),
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            commit=commit,
            transactions_v2=True,
        )
        what = "committing" if commit else "aborting"
        answer = await self._calls.until(
            deadline,
            f"{what} the transaction of {self._transactional_id!r}",
            lambda stub, timeout: stub.EndTransaction(request, timeout=timeout),
        )
        return _next(identity, answer.producer_id, answer.producer_epoch)


def _next(identity: ProducerIdentity, producer_id: int, producer_epoch: int) -> ProducerIdentity:
    return identity if producer_id < 0 else ProducerIdentity(producer_id, producer_epoch)
