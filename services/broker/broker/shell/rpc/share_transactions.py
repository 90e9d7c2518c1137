"""ShareTransactions: acknowledgements that belong to transactions."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import grpc.aio
from tidemark.codec.java_hash import shard_for_name
from tidemark.model.authorization import (
    Operation,
    Requester,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import Offset, ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import TransactionKey
from tidemark.model.topics import SHARE_GROUP_STATE, TopicPartition, topic_id_text
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc

from broker.core.share.acknowledgement import DONE, AcknowledgementBatch
from broker.core.share.request_rules import refused_ids
from broker.core.share.sessions import PartitionKey, SessionKey
from broker.shell.facts import BrokerFacts
from broker.shell.rpc.streams import caller_of
from broker.shell.share.answers import PendingAnswers
from broker.shell.share.share_partitions import SharePartitions
from broker.shell.transactions.txn_relay import Producer, TxnRelay
from broker.shell.wire_mapping import Caller

SERVICE_NAME: Final = "tidemark_wire.v1.ShareTransactions"
PARTS_MAX: Final = 10_000
_PRODUCER_EPOCH_MAX: Final = 2**15 - 1

Context = grpc.aio.ServicerContext[Any, Any]


class ShareTransactions(share_pb2_grpc.ShareTransactionsServicer):
    """One broker's service."""

    def __init__(
        self,
        facts: BrokerFacts,
        metadata: MetadataCache,
        shares: SharePartitions,
        relay: TxnRelay,
    ) -> None:
        self._facts = facts
        self._metadata = metadata
        self._shares = shares
        self._relay = relay

    async def Acknowledge(  # noqa: N802 - the name in the proto
        self, request: pb.AcknowledgeInTransactionRequest, context: Context
    ) -> pb.AcknowledgeInTransactionResponse:
        """Acknowledge records within a transaction; answered once that is written. The state of the
        group takes part in the transaction first: otherwise nothing would end it there.
        """
        try:
            requester = caller_of(context).requester
            self._check(request, requester)
            await self._take_part(request, requester)
        except TidemarkError as refused:
            return pb.AcknowledgeInTransactionResponse(
                error_code=refused.code, error_message=refused.message
            )
        answers = await self._acknowledge(request)
        found = [answers.answers.get(_key(part), DONE) for part in request.parts]
        return pb.AcknowledgeInTransactionResponse(
            parts=[
                pb.AcknowledgeInTransactionResponse.Part(
                    error_code=one.error_code, error_message=one.message
                )
                for one in found
            ]
        )

    def _check(self, request: pb.AcknowledgeInTransactionRequest, requester: Requester) -> None:
        """Raise TidemarkError for a request that is invalid by itself, or not allowed."""
        refused = refused_ids(request.group_id, request.member_id)
        if refused is not None:
            raise TidemarkError(refused.error_code, refused.message)
        keys = [_key(part) for part in request.parts]
        if len(keys) > PARTS_MAX or len(set(keys)) < len(keys):
            words = f"{len(keys)} partitions; at most {PARTS_MAX}, each of them once"
            raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
        if not request.transactional_id or request.producer_id < 0:
            words = "a transactional id and its producer id are needed"
            raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
        if not 0 <= request.producer_epoch <= _PRODUCER_EPOCH_MAX:
            words = f"a producer epoch of {request.producer_epoch}"
            raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
        self._authorize(request, requester)

    def _authorize(self, request: pb.AcknowledgeInTransactionRequest, requester: Requester) -> None:
        """Raise TidemarkError for what the caller may not do: before any other answer could show
        what exists.
        """
        may = partial(self._facts.authorizer.authorize, requester)
        if not may(Operation.WRITE, transactional_id_resource(request.transactional_id)):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            raise TidemarkError(code, "no WRITE on the transactional id")
        if not may(Operation.READ, group_resource(request.group_id)):
            raise TidemarkError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no READ on the group")
        for part in request.parts:
            topic = self._metadata.image.topics_by_id.get(TopicId(part.topic_id))
            if topic is not None and not may(Operation.READ, topic_resource(topic.name)):
                # The caller has named the id: the name is not for who may not describe the topic.
                words = f"no READ on the topic with the id {topic_id_text(topic.topic_id)}"
                raise TidemarkError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, words)

    async def _take_part(
        self, request: pb.AcknowledgeInTransactionRequest, requester: Requester
    ) -> None:
        """Add the group's state to the transaction. Raises TidemarkError."""
        topic = self._metadata.image.topics.get(SHARE_GROUP_STATE)
        if topic is None:
            words = f"there is no share group {request.group_id}"
            raise TidemarkError(ErrorCode.GROUP_ID_NOT_FOUND, words)
        shard = shard_for_name(request.group_id, len(topic.partitions))
        state = TopicPartition(SHARE_GROUP_STATE, shard)
        producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
        added = await self._relay.add_partitions(
            Caller(requester, "", ""), producer, [state], transactions_v2=True
        )
        if added[state] is not ErrorCode.NONE:
            words = f"{state} does not take part in the transaction: {added[state].name}"
            raise TidemarkError(added[state], words)

    async def _acknowledge(self, request: pb.AcknowledgeInTransactionRequest) -> PendingAnswers:
        """Apply all acknowledgements, and wait until they are written."""
        member = SessionKey(request.group_id, request.member_id)
        transaction = TransactionKey(
            ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
        )
        answers, settled = PendingAnswers(), asyncio.Event()
        for part in request.parts:
            batches = [
                AcknowledgementBatch(Offset(one.first_offset), Offset(one.last_offset), (one.type,))
                for one in part.batches
            ]
            self._shares.acknowledge(member, _key(part), batches, answers, transaction=transaction)
        answers.on_complete = settled.set
        if not answers.is_complete:
            await settled.wait()
        return answers


def _key(part: pb.AcknowledgeInTransactionRequest.Part) -> PartitionKey:
    return TopicId(part.topic_id), part.partition


def registration(service: ShareTransactions) -> Callable[[Any], None]:
    """Return the function with which ``make_grpc_server`` registers the service."""

    def register(server: Any) -> None:
        add = share_pb2_grpc.add_ShareTransactionsServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
