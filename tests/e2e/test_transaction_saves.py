"""How often a transaction is saved, one save after the other: the cost of Kafka's algorithm."""

import time

import pytest
from e2e.conftest import StartCluster
from e2e.kafka_wire import Wire
from e2e.test_late_requests import SMALL
from e2e.txn_wire import ask, end, init, write
from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import read_records
from tidemark.codec.txn_records import TransactionRecord, TransactionState, decode
from tidemark.kafka.apis import ApiKey

STATE_PARTITIONS = 3
EXPECTED = [
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_COMMIT,
]


def states_saved(wire: Wire) -> list[TransactionState]:
    """Of the only transactional id, behind its session's record, in order."""
    found: list[TransactionState] = []
    for partition in range(STATE_PARTITIONS):
        answer = wire.fetch(("__transaction_state", partition, 0))
        content = bytes(answer.topics[0].partitions[0].records or b"")
        for position, header in iterate_headers(content):
            if header.is_control:
                continue
            batch = content[position : position + header.size_bytes]
            records = [decode(one.key or b"", one.value) for one in read_records(batch, header)]
            found += [one.state for one in records if isinstance(one, TransactionRecord)]
    return found[1:]


def batches(wire: Wire, topic: str) -> list[str]:
    """What was appended to the partition: data and markers."""
    content = bytes(wire.fetch((topic, 0, 0)).topics[0].partitions[0].records or b"")
    return ["marker" if header.is_control else "data" for _, header in iterate_headers(content)]


@pytest.mark.feature("L06", "L08", "L11", "L17")
def test_a_commit_is_five_saves_one_after_the_other(start_cluster: StartCluster) -> None:
    cluster = start_cluster(txn_coordinators=1, overrides={"broker": SMALL})
    with Wire(cluster.layout.member("broker-1").ports["client"]) as wire:
        fields = {"name": "a", "num_partitions": 1, "replication_factor": 1}
        ask(wire, ApiKey.CREATE_TOPICS, 5, {"topics": [fields], "timeout": 10_000})
        producer = init(wire)
        write(wire, producer, 0, b"value")
        end(wire, producer, commit=True)
        deadline = time.monotonic() + 10
        while len(states_saved(wire)) < len(EXPECTED) and time.monotonic() < deadline:
            time.sleep(0.05)
        saved = states_saved(wire)
        assert saved == EXPECTED
        assert batches(wire, "a") == ["data", "marker"]
        assert len(saved) + len(batches(wire, "a")) == 5
