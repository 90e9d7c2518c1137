"""Member that copies records to another topic: output and acknowledgements are one transaction."""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc.aio
from broker.core.share.acknowledgement import AcknowledgeType
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import ProducerEpoch, ProducerId
from tidemark.model.share_state import TransactionKey
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc

from sim.checkers import require
from sim.cluster.rpc import SimChannel
from sim.cluster.share_member import AGAIN, GROUP, Delivered, Session, ShareMember, share_key
from sim.cluster.txn_client import ABORTABLE, FENCED, AbortableError, FencedError, TxnProducer
from sim.cluster.txn_client import AGAIN as TXN_AGAIN

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.share_world import ShareWorld

IN_TRANSACTIONS: Final = 0.7
"""Share of the records that are acknowledged within a transaction."""
CALL_S: Final = 0.6
ATTEMPTS: Final = 4
WORK_MS: Final = (100, 600)
"""Times for which a transaction stays open with pending acknowledgements."""
_OUTCOMES: Final = ((AcknowledgeType.ACCEPT, 90), (AcknowledgeType.REJECT, 10))


class Taken(NamedTuple):
    """Record to acknowledge within the next transaction."""

    broker: str
    """Leader that delivered it."""
    topic: "SimTopic"
    record: Delivered
    kind: AcknowledgeType


class ShareCopier(ShareMember):
    """Member with a transactional producer. Some transactions are aborted, some are left open."""

    def __init__(self, world: "ShareWorld", name: str) -> None:
        super().__init__(world, name)
        self._taken_records: list[Taken] = []
        self._producer = self._made_producer()
        self._begun = 0

    def _made_producer(self) -> TxnProducer:
        world = self._world
        timeout_ms = world.dice.pick((700, 1_500))
        history = world.txn_history
        return TxnProducer(world, history, self.name, "copier", is_v2=True, timeout_ms=timeout_ms)

    def _begin_life(self) -> None:
        super()._begin_life()
        self._taken_records = []

    def _decide(self, session: Session, topic: "SimTopic", offsets: list[int]) -> None:
        dice, plain = self._world.dice, []
        state_epoch = self._world.history.epochs.get(share_key(topic), -1)
        for offset in offsets:
            if dice.chance(IN_TRANSACTIONS):
                one = Delivered(offset, state_epoch)
                taken = Taken(session.broker, topic, one, dice.weighted(_OUTCOMES))
                self._taken_records.append(taken)
            else:
                plain.append(offset)
        if plain:
            super()._decide(session, topic, plain)

    async def _work(self) -> None:
        await super()._work()
        taken, self._taken_records = self._taken_records, []
        if taken:
            await self._copy(taken)

    async def _copy(self, taken: list[Taken]) -> None:
        """Run one transaction."""
        world, producer = self._world, self._producer
        try:
            if producer.producer_id < 0:
                await producer.init()
            txn = producer.begin()
            if world.dice.chance(0.5):
                values = [f"{txn.name}/{one.record.offset}".encode() for one in taken]
                await producer.send(world.copies, sorted(set(values)))
            await self._hold(taken)
            if world.dice.chance(0.3):
                await asyncio.sleep(world.dice.pick(WORK_MS) / 1_000)
            if world.dice.chance(0.2):
                world.note(self._member_id, f"leaves {txn.name} open")
                producer.give_up()
            else:
                await producer.end(commit=world.dice.chance(0.75))
        except FencedError:
            producer.give_up()
        except AbortableError:
            await producer.abort()

    async def _hold(self, taken: list[Taken]) -> None:
        """Acknowledge within the transaction. Raises FencedError, AbortableError."""
        producer_id, epoch = self._producer.takes_part()
        transaction = TransactionKey(ProducerId(producer_id), ProducerEpoch(epoch))
        for broker in sorted({one.broker for one in taken}):
            of_broker = [one for one in taken if one.broker == broker]
            topics = [
                topic
                for topic in self._world.inputs
                if any(one.topic is topic for one in of_broker)
            ]
            parts = [_part(topic, of_broker) for topic in topics]
            answer = await self._ask(broker, self._request(transaction, parts))
            codes = [ErrorCode(part.error_code) for part in answer.parts]
            for topic, code in zip(topics, codes, strict=True):
                self._is_held(transaction, topic, of_broker, code)
            if any(codes):
                raise AbortableError(str(codes))

    def _is_held(
        self, transaction: TransactionKey, topic: "SimTopic", taken: list[Taken], code: ErrorCode
    ) -> None:
        world = self._world
        records = [one.record for one in taken if one.topic is topic]
        world.note(self._member_id, f"holds {[one.offset for one in records]}: {code.name}", topic)
        known = not code or code in AGAIN or code in ABORTABLE or code is ErrorCode.INVALID_REQUEST
        require(known, "members hear what they understand", f"{self.name}: {code.name}")
        if not code:
            for one in records:
                world.history.holds(transaction, share_key(topic), one.state_epoch, [one.offset])

    def _request(
        self, transaction: TransactionKey, parts: list[Any]
    ) -> pb.AcknowledgeInTransactionRequest:
        return pb.AcknowledgeInTransactionRequest(
            group_id=GROUP,
            member_id=self._member_id,
            transactional_id="copier",
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            parts=parts,
        )

    async def _ask(
        self, broker: str, request: pb.AcknowledgeInTransactionRequest
    ) -> pb.AcknowledgeInTransactionResponse:
        """Call the leader, again while an earlier transaction ends."""
        channel: Any = SimChannel(self._world, self._world.client, f"{broker}:2")
        stub: Any = share_pb2_grpc.ShareTransactionsStub(channel)
        for _ in range(ATTEMPTS):
            try:
                answer = await stub.Acknowledge(request, timeout=CALL_S)
            except grpc.aio.AioRpcError as failure:
                raise AbortableError(str(failure.code())) from None
            code = ErrorCode(answer.error_code)
            if not code:
                return answer  # type: ignore[no-any-return]
            self._world.note(self._member_id, f"hears {code.name} to an acknowledgement")
            if code in FENCED:
                raise FencedError(code.name)
            if code not in TXN_AGAIN:
                break
            await self._any.rest()
        raise AbortableError("acknowledgements are not pending")


def _part(topic: "SimTopic", taken: list[Taken]) -> pb.AcknowledgeInTransactionRequest.Part:
    kinds = {one.record.offset: one.kind for one in taken if one.topic is topic}
    wire = pb.AcknowledgeInTransactionRequest
    return wire.Part(
        topic_id=topic.topic_id,
        partition=topic.partition,
        batches=[
            wire.Batch(first_offset=offset, last_offset=offset, type=int(kind))
            for offset, kind in sorted(kinds.items())
        ],
    )
