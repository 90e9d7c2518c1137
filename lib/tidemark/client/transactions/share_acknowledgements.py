"""Acknowledgements of a share group within a transaction, over gRPC at the partitions' leaders."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import grpc.aio
from tidemark_wire.v1 import share_pb2, share_pb2_grpc

from tidemark.client.config import ClientConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, NotLeaderError, error_for
from tidemark.client.share.ack_batches import Decisions, batches_of
from tidemark.client.wire.grpc_transport import GrpcTransport, client_error
from tidemark.client.wire.session import Session
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a whole call, after which nothing was acknowledged."""


class Holder(NamedTuple):
    """Member that holds the records, and the transaction of the acknowledgements."""

    group_id: str
    member_id: str
    transactional_id: str
    identity: ProducerIdentity


class ShareAcknowledgements:
    """Calls over the gRPC session of one producer."""

    def __init__(
        self, session: Session, config: ClientConfig, clock: Clock, transactional_id: str
    ) -> None:
        self._transactional_id = transactional_id
        self._session = session
        self._config = config
        self._clock = clock
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def holder(self, group_id: str, member_id: str, identity: ProducerIdentity) -> Holder:
        """Return a holder of records, in the transaction of ``identity``."""
        return Holder(group_id, member_id, self._transactional_id, identity)

    async def send(
        self,
        holder: Holder,
        topic_ids: Mapping[TopicPartition, bytes],
        decisions: Mapping[TopicPartition, Decisions],
        deadline: Deadline,
    ) -> None:
        """Acknowledge these offsets in the transaction; returns once all are stored as pending.

        Raises ClientError: some may be pending, and the transaction has to be aborted.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for at in decisions:
            await self._session.cluster.topic(at.topic, deadline)
            leader = self._session.cache.leader(at)
            if leader is None:
                raise NotLeaderError(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader")
            by_leader.setdefault(leader.broker_id, []).append(at)
        for broker_id, partitions in by_leader.items():
            parts = [_part(topic_ids[at], at.partition, decisions[at]) for at in partitions]
            answer = await self._call(broker_id, _request(holder, parts), deadline)
            for at, part in zip(partitions, answer.parts, strict=True):
                if part.error_code:
                    what = f"acknowledging records of {at} in the transaction failed"
                    raise error_for(part.error_code, what, detail=part.error_message or None)

    async def _call(self, broker_id: int, request: Any, deadline: Deadline) -> Any:
        """Call until the transaction before has ended, or until the deadline."""
        transport = self._session.transport
        assert isinstance(transport, GrpcTransport), "a session over gRPC"
        stub = share_pb2_grpc.ShareTransactionsStub(transport.channel(broker_id))
        failures = 0
        while True:
            timeout_s = max(1.0, deadline.left_ms(self._clock.now_ms())) / 1_000
            try:
                answer = await stub.Acknowledge(request, timeout=timeout_s)
            except grpc.aio.AioRpcError as problem:
                raise client_error(problem, transport.where(broker_id)) from None
            if not answer.error_code:
                return answer
            what = "acknowledging records in the transaction failed"
            refused: ClientError = error_for(
                answer.error_code, what, detail=answer.error_message or None
            )
            if refused.code not in _AGAIN or deadline.passed(self._clock.now_ms()):
                raise refused
            failures += 1
            await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)


def _request(holder: Holder, parts: list[Any]) -> share_pb2.AcknowledgeInTransactionRequest:
    return share_pb2.AcknowledgeInTransactionRequest(
        group_id=holder.group_id,
        member_id=holder.member_id,
        transactional_id=holder.transactional_id,
        producer_id=holder.identity.producer_id,
        producer_epoch=holder.identity.producer_epoch,
        parts=parts,
    )


def _part(
    topic_id: bytes, partition: int, decisions: Decisions
) -> share_pb2.AcknowledgeInTransactionRequest.Part:
    wire = share_pb2.AcknowledgeInTransactionRequest
    return wire.Part(
        topic_id=topic_id,
        partition=partition,
        batches=[
            wire.Batch(first_offset=first, last_offset=last, type=kind)
            for first, last, (kind,), *_ in batches_of(decisions)
        ],
    )
