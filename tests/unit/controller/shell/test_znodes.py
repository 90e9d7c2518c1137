import json
from dataclasses import replace

import pytest
from controller.shell import znodes
from controller.shell.znodes import DamagedStoreError
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import TXN, CoordinatorImage, ShardOwner
from tidemark.model.scram import ScramMechanism, credential_from
from unit.controller.worlds import a_broker, a_coordinator, a_topic


def test_a_broker_comes_back_as_it_went() -> None:
    for broker in (a_broker(1), a_broker(2, rack="r", fenced=True)):
        assert znodes.read_broker(json.loads(znodes.write_broker(broker))) == broker


def test_a_topic_comes_back_from_its_znode_and_its_partitions() -> None:
    topic = a_topic("orders", (1, 2), (2, 3), configs={"retention.ms": "5"})
    lost = replace(topic.partitions[1], leader=BrokerId(-1), last_known_leader=BrokerId(2))
    topic = replace(topic, partitions=(topic.partitions[0], lost))
    content = json.loads(znodes.write_topic(topic))
    states = [json.loads(znodes.write_partition(item)) for item in topic.partitions]
    assert znodes.topic_id_of(content) == topic.topic_id
    assert znodes.read_topic("orders", content, states) == topic


def test_a_partition_that_is_missing_is_named() -> None:
    topic = a_topic("orders", (1,))
    content = json.loads(znodes.write_topic(topic))
    with pytest.raises(DamagedStoreError, match=f"{topic.topic_id.hex()}/0"):
        znodes.read_topic("orders", content, [None])


def test_a_partitions_znode_is_small() -> None:
    (partition,) = a_topic("orders", (1, 2, 3)).partitions
    assert len(znodes.write_partition(partition)) < 100


@pytest.mark.parametrize("coordinators", [(), (a_coordinator(1), a_coordinator(2))])
def test_shards_come_back_as_they_went(coordinators: tuple[CoordinatorImage, ...]) -> None:
    owners = (ShardOwner(0, 1, 7), ShardOwner(1, -1, 3), ShardOwner(2))
    data = znodes.write_shards(coordinators, owners)
    assert json.loads(data)["format"] == 1
    assert znodes.read_shards(TXN, json.loads(data)) == (coordinators, owners)


def test_a_user_comes_back_as_it_went() -> None:
    credential = credential_from(ScramMechanism.SCRAM_SHA_512, b"salted", bytes(12), 8_192)
    content = json.loads(znodes.write_user((credential,)))
    assert content["format"] == 1
    assert znodes.read_user(content) == (credential,)


def test_fifty_shards_are_a_small_znode() -> None:
    owners = tuple(ShardOwner(n, 1 + n % 3, 100_000) for n in range(50))
    assert len(znodes.write_shards(tuple(map(a_coordinator, (1, 2, 3))), owners)) < 1_200
