"""Transactional producer and reader of committed records, over Kafka's wire.

Both versions: transactions v2 (Produce 12, EndTxn 5: a write adds the partition, the epoch rises
with every transaction), and v1 (AddPartitionsToTxn, Produce 9, EndTxn 3). After an unknown outcome
a v1 client takes a new epoch before its next transaction: a late request could otherwise count for
that one.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, iterate_headers
from tidemark.codec.records import build_batch, read_records
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import FetchedPartition
from tidemark.kafka.long_tail import Struct, read_response, write_request
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId

from sim.checkers import require
from sim.cluster.client import ALL, Client
from sim.cluster.fleeting import living
from sim.cluster.txn_history import Consumed, Row, Txn, TxnHistory

if TYPE_CHECKING:
    from sim.cluster.coordinated_world import CoordinatedWorld
    from sim.cluster.parts import SimTopic
    from sim.cluster.txn_world import TxnWorld

AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
ABORTABLE: Final = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})
NOT_A_MEMBER: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
ISOLATION_COMMITTED: Final = 1
PRODUCE_S: Final = 0.4
"""Longest wait for a batch, shorter than any transaction's time-out."""
IMPATIENCE: Final = 0.4
"""Probability of giving up a batch that was not acknowledged in time."""


class FencedError(Exception):
    """Another session has taken over, or the coordinator has aborted: this session is over."""


class AbortableError(Exception):
    """The transaction cannot be committed."""


class NotMemberError(AbortableError):
    """The group has gone on without this member."""


class TailClient(Client):
    """Connection for the APIs outside of Produce and Fetch."""

    async def call(self, api_key: ApiKey, version: int, fields: Mapping[str, object]) -> Struct:
        """Call an API. Raises OSError, TimeoutError: the outcome is unknown."""
        answer = await self.ask(api_key, version, write_request(api_key, version, fields))
        return read_response(api_key, version, answer)


class AnyBroker(TailClient):
    """Connection to a random broker as long as it answers: each relays to the coordinator."""

    def _find_leader(self) -> str:
        machine = self.world.dice.pick(self.world.machines)
        cuts = self.world.network.cuts
        name = machine.host.name
        if machine.process is None or machine.host.is_paused or ("client", name) in cuts:
            raise ConnectionRefusedError("no broker answers")
        return name


class TxnProducer:
    """Successive sessions of one transactional id; one transaction at a time."""

    def __init__(
        self,
        world: "CoordinatedWorld",
        history: TxnHistory,
        name: str,
        transactional_id: str,
        *,
        is_v2: bool,
        timeout_ms: int,
    ) -> None:
        """``name`` belongs to this client; others may have the same ``transactional_id``."""
        self.name = name
        self.producer_id = -1
        self._epoch = -1
        self._world = world
        self._history = history
        self._transactional_id = transactional_id
        self._is_v2 = is_v2
        self._timeout_ms = timeout_ms
        self._any = AnyBroker(world, world.topics[0])
        self._offsets = TailClient(world, world.offsets_topic)
        self._partitions: dict[TopicId, Client] = {}
        self._sequences: dict[TopicId, int] = {}
        self._added: set[str] = set()
        self._has_sent = False
        self._is_unclear = False
        self._txn: Txn | None = None
        self._count = 0

    # -- sessions

    async def init(self) -> None:
        """Begin a new session, which fences all earlier ones."""
        fields = {
            "transactional_id": self._transactional_id,
            "transaction_timeout": self._timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        code, answer = await self._persist(ApiKey.INIT_PRODUCER_ID, 5, fields)
        require(code is ErrorCode.NONE, "a new session can be had", f"{self.name}: {code.name}")
        self.producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._is_unclear = False
        self._world.note(self.name, f"session {self.producer_id} e{self._epoch}")

    async def _persist(
        self,
        api_key: ApiKey,
        version: int,
        fields: Mapping[str, object],
        is_vain: Callable[[], bool] = lambda: False,
    ) -> tuple[ErrorCode, Struct]:
        """Retry until there is a final response, or until retrying ``is_vain``."""
        while True:
            try:
                answer = await self._any.call(api_key, version, fields)
            except (OSError, TimeoutError):
                self._is_unclear = True
            else:
                code = ErrorCode(_code_of(answer))
                if code not in AGAIN or is_vain():
                    return code, answer
                self._world.note(self.name, f"hears {code.name} to {api_key.name}")
                self._is_unclear = self._is_unclear or code is not ErrorCode.CONCURRENT_TRANSACTIONS
                self._any.disconnect()
            await self._any.rest()

    # -- transactions

    def begin(self) -> Txn:
        """Begin a transaction, without a request."""
        assert self._txn is None, "one transaction at a time"
        self._count += 1
        self._txn = self._history.begins(f"{self.name}.{self._count}")
        self._added.clear()
        self._has_sent = False
        return self._txn

    def takes_part(self) -> tuple[int, int]:
        """Record that a broker may add to the transaction for this client; return the producer id
        and epoch.
        """
        assert self._txn is not None, "begin() first"
        self._has_sent = True
        return self.producer_id, self._epoch

    async def send(self, topic: "SimTopic", values: list[bytes]) -> None:
        """Send one batch until it is acknowledged. Raises FencedError, AbortableError."""
        assert self._txn is not None, "begin() first"
        for value in values:
            self._history.writes(self._txn, topic.name, value)
            topic.ledger.sends(value, once=True)
        if not self._is_v2 and topic.name not in self._added:
            await self._add(topic)
        self._has_sent = True
        client = self._partition(topic)
        while True:
            sequence = self._sequences.get(topic.topic_id, 0)
            batch = self._batch(values, sequence)
            try:
                result = await client.produce(batch, ALL)
            except (OSError, TimeoutError):
                if self._world.dice.chance(IMPATIENCE):
                    self._is_unclear = True
                    self._world.note(self.name, f"gives up a batch of {self._txn.name}", topic)
                    raise AbortableError("the batch was given up; it may yet come") from None
                await client.rest()
                continue
            code = ErrorCode(result.error_code)
            if code is ErrorCode.NONE:
                self._sequences[topic.topic_id] = sequence + len(values)
                for number, value in enumerate(values):
                    topic.ledger.acknowledges(value, result.base_offset + number)
                self._world.note(self.name, f"wrote {len(values)} at {result.base_offset}", topic)
                return
            self._world.note(self.name, f"hears {code.name}", topic)
            self._judge(code)
            client.disconnect()
            await client.rest()

    async def send_to_fleeting(self, topic: "SimTopic") -> None:
        """Send one batch to a topic that may be deleted meanwhile.

        Raises FencedError, and AbortableError if the batch was not acknowledged.
        """
        assert self._txn is not None, "begin() first"
        if not self._is_v2 and topic.name not in self._added:
            await self._add(topic)
        self._has_sent = True
        client, value = self._partition(topic), self._txn.name.encode()
        while not topic.is_gone:
            sequence = self._sequences.get(topic.topic_id, 0)
            try:
                result = await client.produce(self._batch([value], sequence), ALL)
            except (OSError, TimeoutError):
                await client.rest()
                continue
            code = ErrorCode(result.error_code)
            if code is ErrorCode.NONE:
                self._sequences[topic.topic_id] = sequence + 1
                self._world.note(self.name, f"wrote {self._txn.name} to {topic.name}")
                return
            self._world.note(self.name, f"hears {code.name} of {topic.name}")
            if code in FENCED:
                raise FencedError(code.name)
            if code not in AGAIN:
                break
            client.disconnect()
            await client.rest()
        self._is_unclear = True
        raise AbortableError("a batch was not acknowledged before its topic was deleted")

    def _partition(self, topic: "SimTopic") -> Client:
        client = self._partitions.get(topic.topic_id)
        if client is None:
            client = self._partitions[topic.topic_id] = Client(self._world, topic)
            client.transactional_id = self._transactional_id
            client.produce_version = 12 if self._is_v2 else 9
            client.answer_s, client.wait_ms = PRODUCE_S, 350
        return client

    def _batch(self, values: list[bytes], sequence: int) -> bytes:
        return build_batch(
            [(self._world.wall_ms(), None, value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            attributes_extra=TRANSACTIONAL_BIT,
        )

    def _judge(self, code: ErrorCode) -> None:
        """Return after an error that a retry can cure. Raises FencedError, AbortableError."""
        if code in FENCED:
            raise FencedError(code.name)
        if code in ABORTABLE:
            raise AbortableError(code.name)
        require(
            code in AGAIN or code.retriable,
            "a transactional client hears what it understands",
            f"{self.name}: {code.name}",
        )

    async def _add(self, topic: "SimTopic") -> None:
        """Add the partition first, as transactions v1 require."""
        fields = {
            "v3_and_below_transactional_id": self._transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self._epoch,
            "v3_and_below_topics": [{"name": topic.name, "partitions": [topic.partition]}],
        }
        code, _ = await self._persist(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, fields, is_vain=lambda: topic.is_gone
        )
        if topic.is_gone:
            raise AbortableError("the topic was deleted")
        if code is not ErrorCode.NONE:
            self._judge(code)
        self._added.add(topic.name)

    async def commit_offsets(self, consumed: Consumed, member: tuple[str, int]) -> None:
        """Commit offsets with the transaction. ``member``: id and generation. Raises FencedError,
        AbortableError, NotMemberError.
        """
        assert self._txn is not None, "begin() first"
        identity = {
            "transactional_id": self._transactional_id,
            "group_id": consumed.group,
            "producer_id": self.producer_id,
            "producer_epoch": self._epoch,
        }
        self._history.consumes(self._txn, consumed)
        if not self._is_v2:
            code, _ = await self._persist(ApiKey.ADD_OFFSETS_TO_TXN, 3, identity)
            if code is not ErrorCode.NONE:
                self._judge(code)
            self._added.add("")
        self._has_sent = True
        member_id, generation_id = member
        row = {"partition_index": 0, "committed_offset": consumed.end, "committed_metadata": ""}
        topics = [{"name": consumed.topic, "partitions": [row]}]
        fleeting = living(self._world)
        if fleeting is not None:
            topics.append({"name": fleeting.name, "partitions": [row]})
        fields = {
            **identity,
            "generation_id": generation_id,
            "member_id": member_id,
            "topics": topics,
        }
        code = await self._commit_until_known(fields)
        if code in NOT_A_MEMBER:
            raise NotMemberError(code.name)
        if code is not ErrorCode.NONE:
            self._judge(code)
        self._world.note(self.name, f"offset {consumed.end} in {self._txn.name}")

    async def _commit_until_known(self, fields: Mapping[str, object]) -> ErrorCode:
        version = 5 if self._is_v2 else 3
        while True:
            try:
                answer = await self._offsets.call(ApiKey.TXN_OFFSET_COMMIT, version, fields)
            except (OSError, TimeoutError):
                self._is_unclear = True
            else:
                code = ErrorCode(answer.topics[0].partitions[0].error_code)
                if code not in AGAIN:
                    return code
                self._world.note(self.name, f"hears {code.name} to TXN_OFFSET_COMMIT")
                self._is_unclear = True
                self._offsets.disconnect()
            await self._offsets.rest()

    async def end(self, *, commit: bool) -> bool:
        """End the transaction; return True if it is committed. Raises FencedError."""
        txn = self._txn
        assert txn is not None, "begin() first"
        if not self._has_sent:
            self.give_up()
            return False
        if commit:
            self._history.asks(txn)
        fields = {
            "transactional_id": self._transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self._epoch,
            "committed": commit,
        }
        code, answer = await self._persist(ApiKey.END_TXN, 5 if self._is_v2 else 3, fields)
        self._world.note(self.name, f"{'commit' if commit else 'abort'} {txn.name} {code.name}")
        if code is not ErrorCode.NONE:
            raise FencedError(code.name)
        self._history.told(txn, committed=commit)
        self._txn = None
        if self._is_v2:
            self.producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        elif self._is_unclear or not commit:
            await self.init()
        return commit

    def give_up(self) -> None:
        """End this session without a request."""
        if self._txn is not None:
            self._history.gives_up(self._txn)
            self._txn = None
        self.producer_id = -1

    async def abort(self) -> None:
        """Abort a transaction that cannot be committed, or give the session up if that fails."""
        try:
            await self.end(commit=False)
        except FencedError:
            self.give_up()


def _code_of(answer: Struct) -> int:
    """Return the error of a coordinator's response; for AddPartitionsToTxn that of the only
    partition.
    """
    rows = getattr(answer, "results_by_topic_v3_and_below", None)
    if rows:
        return int(rows[0].results_by_partition[0].partition_error_code)
    return int(answer.error_code)


class CommittedReader:
    """Reader of one topic's committed records, from ``position`` on."""

    def __init__(self, world: "TxnWorld", topic: "SimTopic", name: str) -> None:
        self.name = name
        self.position = 0
        self._world = world
        self._topic = topic
        self._client = Client(world, topic)
        self._client.isolation = ISOLATION_COMMITTED

    async def poll(self) -> list[Row]:
        """Return the available records, possibly none. Raises OSError, TimeoutError."""
        fetched = await self._client.fetch(self.position)
        if fetched.result.error_code:
            self._client.disconnect()
            return []
        rows, following = committed_rows(fetched, self.position)
        if following != self.position:
            history, name = self._world.history, self._topic.name
            history.polls(self.name, name, self.position, rows, following)
            self.position = following
        return rows

    async def _ask_end(self) -> None:
        result = await self._client.latest()
        if result.error_code:
            self._client.disconnect()
        else:
            self._world.history.tells_end(self.name, self.position, result.offset)

    async def rest(self) -> None:
        """Wait before the next poll."""
        await self._client.rest()

    async def run(self) -> None:
        """Read until the workload ends."""
        while not self._world.is_over:
            try:
                if self._world.dice.chance(0.1):
                    await self._ask_end()
                found = await self.poll()
            except (OSError, TimeoutError):
                await self.rest()
                continue
            if not found:
                await asyncio.sleep(self._world.dice.between(20, 80) / 1_000)


def committed_rows(fetched: FetchedPartition, position: int) -> tuple[list[Row], int]:
    """Return the committed records of a response, as a consumer takes them, and the next position
    (KIP-98).
    """
    aborted = sorted(fetched.result.aborted or [], key=lambda one: one[1])
    records, rows, active = fetched.records, [], set[int]()
    if not records:
        return [], position
    for at, header in iterate_headers(records):
        batch = records[at : at + header.size_bytes]
        while aborted and aborted[0][1] <= header.last_offset:
            active.add(aborted.pop(0)[0])
        if header.is_control:
            said = read_control(batch, header)
            if isinstance(said, EndTxnMarker) and not said.commits:
                active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            rows += [
                (one.offset, one.value or b"")
                for one in read_records(batch, header)
                if one.offset >= position
            ]
        position = max(position, header.last_offset + 1)
    return rows, position
