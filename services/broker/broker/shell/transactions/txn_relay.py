"""TxnRelay: relays requests to the transaction coordinators.

Clients connect to brokers only; the txn-coordinator that owns the shard of a transactional id
decides. Retriable answers are retried here for a while, so that a shard that moves costs clients a
wait and not an error.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from tidemark.model.backoff import Dice
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import TopicPartition
from tidemark.protocol.shard import CLIENT_ERRORS
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.coordinator_client import CoordinatorClient, ImageDirectory
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc

from broker.shell.transactions.txn_verifier import (
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    TxnVerifier,
)
from broker.shell.wire_mapping import Caller, write_caller

RELAY_TIMEOUT_S: Final = 10.0
"""Shorter than any client's request timeout: after it a client repeats the request."""
_STREAMS: Final[Mapping[str, str]] = {
    "AddPartitions": "StreamAdditions",
    "EndTransaction": "StreamEnds",
}
"""Every transaction waits for both."""


class Producer(NamedTuple):
    """Producer of a transactional id's transactions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Granted(NamedTuple):
    """Producer id and epoch; -1 and -1 with an error, or if nothing new is granted."""

    error_code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class Described(NamedTuple):
    """One transactional id, as its coordinator describes it."""

    transactional_id: str
    error_code: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    started_ms: int = -1
    """Wall clock; -1: no transaction is open."""
    producer_id: int = -1
    producer_epoch: int = -1
    partitions: tuple[TopicPartition, ...] = ()


class ListingFilter(NamedTuple):
    """Filter of a listing; an empty filter admits everything."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    duration_ms_min: int = -1
    transactional_id_pattern: str = ""


class Listed(NamedTuple):
    """Listed transactions. ``unknown_states``: requested states that no transaction can have."""

    error_code: ErrorCode
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[Described, ...] = ()


def _stub(channel: Any) -> Any:
    """Return the methods of both services of a txn-coordinator."""
    make: tuple[Any, ...] = (
        txn_pb2_grpc.TransactionCoordinatorStub,
        txn_pb2_grpc.TransactionStreamsStub,
    )
    methods: dict[str, Any] = {}
    for stub in make:
        methods |= vars(stub(channel))
    return SimpleNamespace(**methods)


class TxnRelay:
    """Relays to the coordinators that ``metadata`` names. ``close`` ends the channels to them."""

    def __init__(
        self, metadata: MetadataCache, channels: ChannelPool, dice: Dice = random.random
    ) -> None:
        self._channels = channels
        self._dice = dice
        self.client = CoordinatorClient(
            ImageDirectory(metadata), self._channels, _stub, streams=_STREAMS, dice=dice
        )

    def make_verifier(
        self,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
        retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS,
    ) -> TxnVerifier:
        """Make the verifier of this broker's partitions."""
        return TxnVerifier(
            self.client,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            dice=self._dice,
        )

    async def close(self) -> None:
        """Close the channels; calls under way fail."""
        await self._channels.close()

    # -- Kafka's APIs

    async def init(
        self, caller: Caller, producer: Producer, transaction_timeout_ms: int
    ) -> Granted:
        """InitProducerId of a transactional id.

        No version of Kafka's request shows whether the client will use transactions v2: the
        coordinator derives it from the client's later requests.
        """
        request = pb.InitTransactionalIdRequest(
            caller=write_caller(caller),
            transactional_id=producer.transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )
        return _granted(await self._ask("InitTransactionalId", producer.transactional_id, request))

    async def add_partitions(
        self,
        caller: Caller,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool = False,
        transactions_v2: bool = False,
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn of one transactional id. Returns the outcome of each partition."""
        request = pb.AddPartitionsRequest(
            caller=write_caller(caller),
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            partitions=[
                pb.Partition(topic=one.topic, partition=one.partition) for one in partitions
            ],
            verify_only=verify_only,
            transactions_v2=transactions_v2,
        )
        answer = await self._ask("AddPartitions", producer.transactional_id, request)
        if isinstance(answer, ErrorCode):
            return dict.fromkeys(partitions, answer)
        found = {
            TopicPartition(one.topic, one.partition): ErrorCode(one.error_code)
            for one in answer.results
        }
        return {one: found.get(one, ErrorCode.UNKNOWN_SERVER_ERROR) for one in partitions}

    async def add_offsets(self, caller: Caller, producer: Producer, group_id: str) -> ErrorCode:
        """AddOffsetsToTxn."""
        request = pb.AddOffsetsRequest(
            caller=write_caller(caller),
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=group_id,
        )
        answer = await self._ask("AddOffsets", producer.transactional_id, request)
        return answer if isinstance(answer, ErrorCode) else ErrorCode.NONE

    async def end(
        self, caller: Caller, producer: Producer, *, commit: bool, transactions_v2: bool
    ) -> Granted:
        """EndTxn; with v2 the answer grants the producer id and epoch of the next transaction."""
        request = pb.EndTransactionRequest(
            caller=write_caller(caller),
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            commit=commit,
            transactions_v2=transactions_v2,
        )
        return _granted(await self._ask("EndTransaction", producer.transactional_id, request))

    async def describe(self, caller: Caller, ids: Sequence[str]) -> list[Described]:
        """Describe transactional ids, in the order of the request."""
        try:
            states = await self.client.describe(ids, write_caller(caller), RELAY_TIMEOUT_S)
        except TidemarkError as failure:
            return [Described(one, client_error(failure.code)) for one in ids]
        return [_described(one) for one in states]

    async def list_all(self, caller: Caller, wanted: ListingFilter) -> Listed:
        """List the transactions of every coordinator."""
        request = pb.ListTransactionsRequest(
            caller=write_caller(caller),
            states=wanted.states,
            producer_ids=wanted.producer_ids,
            duration_ms_min=wanted.duration_ms_min,
            transactional_id_pattern=wanted.transactional_id_pattern,
        )
        try:
            answers = await self.client.list_all("ListTransactions", request, RELAY_TIMEOUT_S)
        except TidemarkError as failure:
            return Listed(client_error(failure.code))
        merged = merge_listings(answers)
        return Listed(
            client_error(ErrorCode(merged.error_code)),
            tuple(merged.unknown_states),
            tuple(_described(one) for one in merged.transactions),
        )

    async def _ask(self, method: str, transactional_id: str, request: Any) -> Any:
        """Return the response message, or the error for the client."""
        try:
            answer = await self.client.call(method, transactional_id, request, RELAY_TIMEOUT_S)
        except TidemarkError as failure:
            return client_error(failure.code)
        return client_error(ErrorCode(answer.error_code)) if answer.error_code else answer


def client_error(code: ErrorCode) -> ErrorCode:
    """Return the error for clients that stands for an error of the coordinator's log, or of the way
    to it.
    """
    return CLIENT_ERRORS.get(code, code)


def merge_listings(answers: Iterable[Any]) -> Any:
    """Merge the ListTransactionsResponses of several coordinators."""
    merged = pb.ListTransactionsResponse()
    for answer in answers:
        if answer.error_code:
            return pb.ListTransactionsResponse(error_code=answer.error_code)
        merged.transactions.extend(answer.transactions)
        if not merged.unknown_states:
            merged.unknown_states.extend(answer.unknown_states)
    return merged


def _granted(answer: Any) -> Granted:
    if isinstance(answer, ErrorCode):
        return Granted(answer)
    return Granted(ErrorCode.NONE, answer.producer_id, answer.producer_epoch)


def _described(state: pb.TransactionState) -> Described:
    return Described(
        state.transactional_id,
        client_error(ErrorCode(state.error_code)),
        state.state,
        state.timeout_ms,
        state.started_ms,
        state.producer_id,
        state.producer_epoch,
        tuple(TopicPartition(one.topic, one.partition) for one in state.partitions),
    )
