"""How often a transaction is saved, one save after the other: the cost of Kafka's algorithm."""

import struct
from collections.abc import Callable

import pytest
from e2e.clusters import StartCluster
from e2e.kafka_wire import Wire, batch
from e2e.processes import paused
from e2e.txn_wire import init
from e2e.wire import ask, connect, create_topic, leader_of, stored
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.txn_records import TransactionRecord, TransactionState, decode
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from waiting import wait_for

TRANSACTIONAL_ID = "late"
STATE = "__transaction_state"
ONGOING = TransactionState.ONGOING
PREPARED = TransactionState.PREPARE_COMMIT
COMPLETE = TransactionState.COMPLETE_COMMIT


class Saves:
    """What a transaction has saved: its coordinator's records, and batches of topic ``a``."""

    def __init__(self, state_leader: Wire, leader: Wire) -> None:
        self._state_leader = state_leader
        self._leader = leader

    def states(self) -> list[TransactionState]:
        """Of the only transactional id, behind its session's record, in order."""
        records = [
            decode(record.key or b"", record.value)
            for one in stored(self._state_leader, STATE)
            if not one.header.is_control
            for record in one.records
        ]
        return [one.state for one in records if isinstance(one, TransactionRecord)][1:]

    def appended(self) -> list[str]:
        """Data and markers of the partition."""
        batches = stored(self._leader, "a")
        return ["marker" if one.header.is_control else "data" for one in batches]

    def timestamps(self) -> dict[str, int]:
        """When the marker and the last record of the coordinator were written, on its clocks."""
        return {
            "marker": stored(self._leader, "a")[-1].header.max_timestamp,
            "complete": stored(self._state_leader, STATE)[-1].header.max_timestamp,
        }

    def keys(self) -> set[bytes]:
        """Keys of the coordinator's records."""
        batches = [one for one in stored(self._state_leader, STATE) if not one.header.is_control]
        return {record.key or b"" for one in batches for record in one.records}


def until_taken(request: Callable[[], int], what: str) -> None:
    """Repeat a request of transactions v1 while its coordinator is busy or moves."""
    busy = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR)

    def answer() -> tuple[ErrorCode] | None:
        code = ErrorCode(request())
        return None if code in busy else (code,)

    assert wait_for(answer, what) == (ErrorCode.NONE,)


def add_partition(wire: Wire, producer: tuple[int, int]) -> int:
    fields = {
        "v3_and_below_transactional_id": TRANSACTIONAL_ID,
        "v3_and_below_producer_id": producer[0],
        "v3_and_below_producer_epoch": producer[1],
        "v3_and_below_topics": [{"name": "a", "partitions": [0]}],
    }
    (topic,) = ask(wire, ApiKey.ADD_PARTITIONS_TO_TXN, 3, fields).results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


def commit(wire: Wire, producer: tuple[int, int]) -> int:
    fields = {
        "transactional_id": TRANSACTIONAL_ID,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "committed": True,
    }
    return int(ask(wire, ApiKey.END_TXN, 3, fields).error_code)


@pytest.mark.feature("E13", "L06", "L08", "L11", "L17")
def test_a_commit_is_five_saves_one_after_the_other(start_cluster: StartCluster) -> None:
    settings = {
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "zookeeper.session.timeout.ms": 40_000,  # the paused broker stays the leader
    }
    cluster = start_cluster(brokers=2, txn_coordinators=1, overrides={"broker": settings})
    with connect(cluster.kafka(1)) as wire:
        producer = init(wire)
    state_leader = leader_of(cluster, STATE)
    other = 3 - state_leader
    create_topic(cluster, "a", leaders=[other])
    with connect(cluster.kafka(state_leader)) as wire, connect(cluster.kafka(other)) as leader:
        saves = Saves(wire, leader)

        until_taken(lambda: add_partition(wire, producer), "the partition is added")
        assert (saves.states(), saves.appended()) == ([ONGOING], [])

        data = batch(
            b"value",
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            attributes_extra=TRANSACTIONAL_BIT,
        )
        result = leader.produce("a", data, acks=-1, transactional_id=TRANSACTIONAL_ID)
        assert result.error_code == ErrorCode.NONE
        assert (saves.states(), saves.appended()) == ([ONGOING], ["data"])

        with paused(cluster.pid(f"broker-{other}")):
            until_taken(lambda: commit(wire, producer), "the commit is decided")
            assert saves.states() == [ONGOING, PREPARED], "no marker can be written yet"
        wait_for(lambda: len(saves.states()) == 3, "the markers are written")
        assert saves.states() == [ONGOING, PREPARED, COMPLETE]
        assert saves.appended() == ["data", "marker"]
        assert saves.timestamps()["marker"] <= saves.timestamps()["complete"]
        name = TRANSACTIONAL_ID.encode()
        assert saves.keys() == {struct.pack(">hh", 0, len(name)) + name}
        refused = wire.produce(STATE, batch(b"a client's"), acks=-1)
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
