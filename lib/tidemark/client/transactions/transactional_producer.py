"""TransactionalProducer: records of many partitions, and offsets, that are committed together.

Records are sent over Kafka's protocol, and each partition's leader adds it to the transaction
(KIP-890). The coordinator is reached over Kafka's protocol, or over gRPC with transport="grpc",
where bootstrap servers are gRPC addresses.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from tidemark.client.config import ProducerConfig, over_kafka
from tidemark.client.consumer.group_types import GroupMetadata, Offsets, OffsetsInput, as_offsets
from tidemark.client.deadline import Deadline
from tidemark.client.errors import (
    ClientClosedError,
    ClientConfigError,
    ClientError,
)
from tidemark.client.producer.batches import Delivery, Header, RecordMetadata
from tidemark.client.producer.partitioner import Partitioner
from tidemark.client.producer.producer import Producer
from tidemark.client.share.ack_batches import AcknowledgeType, Decisions
from tidemark.client.share.deliveries import PartitionDeliveries, ShareRecord
from tidemark.client.share.share_consumer import ShareConsumer, type_of
from tidemark.client.transactions.offsets import commit_offsets
from tidemark.client.transactions.state import Act, Phase, TransactionState
from tidemark.client.wire.coordinator import Coordinator
from tidemark.client.wire.session import Session, grpc_kafka_addresses
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

if TYPE_CHECKING:
    from tidemark.client.transactions.control import TransactionControl
    from tidemark.client.transactions.share_acknowledgements import ShareAcknowledgements

_ABORTABLE: Final = (Phase.OPEN, Phase.FAILED, Phase.ABORTING)
_NO_HEADERS: tuple[Header, ...] = ()


class TransactionalProducer(Producer):
    """Producer of transactions, one at a time.

    ``async with TransactionalProducer("host:9092", transactional_id="pay-7") as producer: await
    producer.init()``, then ``async with producer.transaction(): await producer.enqueue(...)``.

    ``settings`` are fields of ProducerConfig by name.
    """

    _TRANSACTIONAL: ClassVar[bool] = True

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        partitioner: Partitioner | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            bootstrap_servers, config, partitioner=partitioner, clock=clock, **settings
        )
        assert self.config.transactional_id is not None, "checked with the settings"
        self.transactional_id = self.config.transactional_id
        self._state = TransactionState()
        self._accumulator.on_failed = self._on_failed
        self._identity = ProducerIdentity(-1, -1)
        self._control_session: Session | None = None
        self._control: TransactionControl | None = None
        self._shares: ShareAcknowledgements | None = None
        self._groups: dict[str, Coordinator] = {}
        self._acknowledged_before = self._requests_before = 0
        self._enlisted = False

    async def start(self) -> Self:
        """Start the producer; ``async with`` does this. It connects at ``init``."""
        # Imported here: programs without transactions do not load gRPC.
        from tidemark.client.transactions import control, share_acknowledgements

        if self.config.transport == "grpc":
            self._control_session = self._session
            await self._control_session.start()
            calls = control.CoordinatorCalls(self._session, self.config, self._clock)
            self._control = control.GrpcControl(calls, self.transactional_id)
            self._shares = share_acknowledgements.ShareAcknowledgements(
                self._session, self.config, self._clock, self.transactional_id
            )
            try:
                addresses = await grpc_kafka_addresses(self._session)
            except BaseException:
                await self._session.close()
                raise
            self._session = Session(addresses, over_kafka(self.config), self._clock)
        await super().start()
        if self._control is None:
            self._control = control.KafkaControl(
                self._session, self.config, self._clock, self.transactional_id
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Abort an open transaction, for at most ``timeout_ms``, and release all resources.

        The coordinator aborts what is still open after transaction_timeout_ms.
        """
        try:
            if timeout_ms != 0:
                await self._abort_at_close(timeout_ms)
        finally:
            await super().close(timeout_ms=0)
            if self._control_session is not None:
                await self._control_session.close()

    # -- transactions

    async def init(self) -> None:
        """Take over the transactional id: fence its previous producer and end its open transaction.

        Call it once, before all other methods. Raises ClientError after max_block_ms.
        """
        if self._state.phase is not Phase.NEW:
            self._state.do(Act.INIT)
        try:
            identity = await self._controls().init(
                self.config.transaction_timeout_ms, self._block_deadline()
            )
        except ClientError as problem:
            self._state.on_failure(problem)
            raise
        self._adopt(identity)
        self._state.do(Act.INIT)

    async def begin(self) -> None:
        """Open a transaction. Sends nothing: the first record opens it at the coordinator."""
        self._session.check_running()
        self._state.do(Act.BEGIN)
        assert self._sender is not None, "started"
        self._acknowledged_before = self.statistics().records_acknowledged
        self._requests_before = self._sender.requests_sent
        self._enlisted = False

    async def commit(self) -> None:
        """Send all buffered records and commit; returns once the commit is certain.

        Raises AbortableTransactionError if a record failed (then ``abort``), ProducerFencedError if
        the producer cannot continue, RequestTimedOutError and ConnectionLostError if the outcome is
        unknown (then ``commit`` again).
        """
        self._session.check_running()
        self._state.do(Act.COMMIT)
        with contextlib.suppress(ClientError):  # the state has the failure too, and its meaning
            await self.flush()
        if self._state.phase is not Phase.COMMITTING:
            self._state.do(Act.COMMIT)
        await self._end(commit=True)

    async def abort(self) -> None:
        """Abort the transaction: readers under read_committed see none of its records."""
        self._session.check_running()
        self._state.do(Act.ABORT)
        self._accumulator.cut(
            ClientClosedError(
                ErrorCode.OPERATION_NOT_ATTEMPTED,
                "the transaction was aborted before the record was sent",
                hint="send it again in the next transaction",
            )
        )
        assert self._sender is not None, "started"
        self._sender.wake()
        await self._sender.wait_until_answered()
        self._accumulator.take_unobserved_failures()
        await self._end(commit=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin a transaction; commit at the end of the block, or abort if the block raised."""
        await self.begin()
        try:
            yield self
        except BaseException:
            await self.abort_if_open()
            raise
        await self.commit_or_abort()

    async def commit_or_abort(self) -> None:
        """Commit; if that has certainly failed, abort before the failure is raised."""
        try:
            await self.commit()
        except ClientError:
            await self.abort_if_open()
            raise

    async def abort_if_open(self) -> None:
        """Abort, unless nothing is open or its commit was requested before."""
        if self._session.is_running and self._state.phase in _ABORTABLE:
            await self.abort()

    async def send_offsets(self, offsets: OffsetsInput, group: GroupMetadata) -> None:
        """Commit a consumer's offsets as part of the transaction.

        ``group`` is the consumer's ``group_metadata()``; a member that has lost its partitions is
        refused (KIP-447) with CommitFailedError, and the transaction can only be aborted. So it is
        after a call that was cancelled.
        """
        self._session.check_running()
        wanted = as_offsets(offsets)
        with self._state.adding("send_offsets"):
            if wanted:
                self._enlisted = True
                try:
                    await self._commit_offsets(wanted, group)
                except ClientError as problem:
                    self._state.on_failure(problem)
                    raise

    async def acknowledge(
        self,
        consumer: ShareConsumer,
        records: Iterable[ShareRecord],
        outcome: AcknowledgeType | str = AcknowledgeType.ACCEPT,
    ) -> None:
        """Accept or reject records of a share consumer as part of the transaction.

        They stay locked until the transaction ends: with its commit the outcome holds, and an abort
        makes them available again. Needs transport="grpc", and a consumer with explicit
        acknowledgement in the same event loop. After an error the transaction can only be aborted;
        records that the consumer still holds may be acknowledged otherwise.

        Raises InvalidRecordStateError for a record that the consumer does not hold, and
        ClientConfigError.
        """
        self._session.check_running()
        kind = type_of(outcome)
        if kind not in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
            raise ValueError(f"outcome is {kind.name.lower()}; it must be accept or reject")
        if self._shares is None:
            raise ClientConfigError(
                ErrorCode.INVALID_CONFIG,
                "acknowledge() needs transport='grpc', with the brokers' gRPC addresses",
            )
        with self._state.adding("acknowledge"):
            taken = consumer.take_out(records, kind)
            if taken:
                self._enlisted = True
                await self._acknowledge(self._shares, consumer, taken)

    # -- records

    async def enqueue(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = _NO_HEADERS,
    ) -> Delivery:
        """Do as ``Producer.enqueue``, in the open transaction."""
        self._state.check_sendable()
        return await super().enqueue(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    def send_nowait(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = _NO_HEADERS,
    ) -> Delivery:
        """Do as ``Producer.send_nowait``, in the open transaction."""
        self._state.check_sendable()
        return super().send_nowait(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = _NO_HEADERS,
    ) -> RecordMetadata:
        """Do as ``Producer.send``. The record becomes visible when the transaction commits.

        A call that was cancelled before the record was buffered leaves only an abort.
        """
        with self._state.adding("send"):
            delivery = await self.enqueue(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        return await delivery

    # -- internals

    def _check_sendable(self) -> None:
        self._state.check_sendable()

    def _controls(self) -> "TransactionControl":
        self._session.check_running()
        assert self._control is not None, "running"
        return self._control

    def _on_failed(self, problem: ClientError) -> None:
        """Stop sending after a failed record: further records could only be aborted."""
        was_hopeful = self._state.phase in (Phase.OPEN, Phase.COMMITTING)
        self._state.on_failure(problem)
        if was_hopeful:
            self._accumulator.cut(self._state.abortable())

    def _adopt(self, identity: ProducerIdentity) -> None:
        self._identity = identity
        self._accumulator.renew(identity)

    async def _end(self, *, commit: bool) -> None:
        if self._has_written if commit else self._may_have_written:
            try:
                identity = await self._controls().end(
                    self._identity, self._block_deadline(), commit=commit
                )
            except ClientError as problem:
                if not problem.retriable:
                    self._state.on_failure(problem, at_end=True)
                raise
            self._adopt(identity)
        elif not commit:
            self._adopt(self._identity)
        self._state.do(Act.ENDED)

    @property
    def _has_written(self) -> bool:
        """True if there is something to commit; otherwise the coordinator has no transaction."""
        acknowledged = self.statistics().records_acknowledged
        return self._enlisted or acknowledged > self._acknowledged_before

    @property
    def _may_have_written(self) -> bool:
        """True if the coordinator may have an open transaction."""
        assert self._sender is not None, "started"
        return self._enlisted or self._sender.requests_sent > self._requests_before

    async def _abort_at_close(self, timeout_ms: int | None) -> None:
        allowed_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(allowed_ms / 1_000):
                await self.abort_if_open()
        except (TimeoutError, ClientError):
            return  # the coordinator aborts it after transaction_timeout_ms

    async def _acknowledge(
        self,
        shares: "ShareAcknowledgements",
        consumer: ShareConsumer,
        taken: Mapping[TopicPartition, tuple[PartitionDeliveries, Decisions]],
    ) -> None:
        group_id, member_id = consumer.config.group_id, consumer.member_id
        try:
            await shares.send(
                shares.holder(group_id, member_id, self._identity),
                {at: deliveries.topic_id for at, (deliveries, _) in taken.items()},
                {at: decisions for at, (_, decisions) in taken.items()},
                self._block_deadline(),
            )
        except BaseException as problem:
            for deliveries, decisions in taken.values():
                deliveries.give_back(decisions)
            if isinstance(problem, ClientError):
                self._state.on_failure(problem)
            raise
        for deliveries, decisions in taken.values():
            deliveries.settle(decisions, ErrorCode.NONE)

    def _block_deadline(self) -> Deadline:
        return Deadline.after(self.config.max_block_ms, self._clock.now_ms())

    async def _commit_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            coordinator = self._groups[group.group_id] = Coordinator(
                self._session, self.config, self._clock, group.group_id
            )
        await commit_offsets(
            coordinator,
            self._block_deadline(),
            self.transactional_id,
            self._identity,
            offsets=offsets,
            group=group,
        )
