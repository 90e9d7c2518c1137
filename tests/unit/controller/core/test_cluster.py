from dataclasses import replace

import pytest
from controller.core.cluster import (
    Change,
    DropTopic,
    PutAcls,
    PutBroker,
    PutBrokerConfigs,
    PutClientMetrics,
    PutGroupConfigs,
    PutPartition,
    PutProducerIds,
    PutQuotas,
    PutShards,
    PutTopic,
    PutUser,
    check_partition,
    new_partition,
    store_ops,
)
from controller.core.election_rules import demote
from tidemark.model.acls import AclBinding, AclEntry, Permission, ResourcePattern
from tidemark.model.authorization import Operation, ResourceType
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import TXN, ClusterDelta, FeedPosition, ShardOwner
from tidemark.model.quotas import PRODUCER_BYTE_RATE, QuotaEntity
from unit.controller.worlds import (
    a_broker,
    a_cluster,
    a_coordinator,
    a_topic,
    applied,
    topic_id,
)

ALICE = AclBinding(
    ResourcePattern(ResourceType.TOPIC, "a"),
    AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
)


def test_a_change_moves_the_feed_by_one() -> None:
    cluster = a_cluster()
    applied(cluster, Change(ClusterDelta(topics_changed=(a_topic("a", (1,)),))))
    assert cluster.image.position == FeedPosition(cluster.image.position.controller_epoch, 1)
    assert set(cluster.image.topics) == {"a"}


def test_producer_ids_move_without_the_feed() -> None:
    cluster = applied(a_cluster(), Change(ClusterDelta(), next_producer_id=1_000))
    assert (cluster.next_producer_id, cluster.image.position.version) == (1_000, 0)


def test_producer_ids_never_go_back() -> None:
    cluster = applied(a_cluster(), Change(ClusterDelta(), next_producer_id=1_000))
    with pytest.raises(AssertionError, match="once"):
        cluster.apply(Change(ClusterDelta(), next_producer_id=1_000))


def test_loads_follow_topics_in_and_out() -> None:
    cluster = a_cluster(a_topic("a", (1, 2), (2, 3)))
    assert (cluster.loads.preferred[BrokerId(2)], cluster.loads.replicas[BrokerId(2)]) == (1, 2)
    applied(cluster, Change(ClusterDelta(topics_deleted=(topic_id("a"),))))
    assert +cluster.loads.replicas == {}


def test_names_that_differ_by_dot_and_underscore_collide() -> None:
    cluster = a_cluster(a_topic("a.b", (1,)))
    assert cluster.colliding_topic("a_b") == "a.b"
    applied(cluster, Change(ClusterDelta(topics_deleted=(topic_id("a.b"),))))
    assert cluster.colliding_topic("a_b") is None


def test_a_new_topic_is_written_after_its_partitions() -> None:
    topic = a_topic("a", (1,), (2,))
    ops = store_ops(a_cluster().image, Change(ClusterDelta(topics_changed=(topic,))))
    put = [PutPartition(topic.topic_id, partition) for partition in topic.partitions]
    assert list(ops) == [*put, PutTopic(topic)]


def test_an_election_writes_only_the_partitions_it_changed() -> None:
    cluster = a_cluster(a_topic("a", (1,), (2,)))
    before = cluster.image.topics["a"]
    changed = replace(before, partitions=(demote(before.partitions[0]), before.partitions[1]))
    ops = list(store_ops(cluster.image, Change(ClusterDelta(topics_changed=(changed,)))))
    assert ops == [PutPartition(topic_id("a"), changed.partitions[0])]


def test_a_configuration_writes_only_the_topic() -> None:
    cluster = a_cluster(a_topic("a", (1,)))
    topic = replace(cluster.image.topics["a"], configs={"retention.ms": "1"})
    ops = store_ops(cluster.image, Change(ClusterDelta(topics_changed=(topic,))))
    assert list(ops) == [PutTopic(topic)]


def test_a_registration_is_written_after_the_partitions_that_it_changes() -> None:
    cluster = a_cluster(a_topic("a", (1,)))
    before = cluster.image.topics["a"]
    changed = replace(before, partitions=(demote(before.partitions[0]),))
    delta = ClusterDelta(brokers_changed=(a_broker(1, epoch=200),), topics_changed=(changed,))
    put = PutPartition(topic_id("a"), changed.partitions[0])
    assert list(store_ops(cluster.image, Change(delta))) == [put, PutBroker(a_broker(1, epoch=200))]


def test_everything_else_is_one_znode_each() -> None:
    topic = a_topic("a", (1,))
    delta = ClusterDelta(
        brokers_changed=(a_broker(1, fenced=True),),
        topics_deleted=(topic.topic_id,),
        broker_configs_changed={"": {"log.retention.ms": "1"}},
        group_configs_changed={"g": {"consumer.session.timeout.ms": "1"}},
        client_metrics_changed={"s": {"interval.ms": "100"}},
        acls_changed={ALICE.pattern: frozenset({ALICE.entry})},
        users_changed={"alice": ()},
        quotas_changed={QuotaEntity("alice"): {PRODUCER_BYTE_RATE: 1.0}},
    )
    assert list(store_ops(a_cluster(topic).image, Change(delta, next_producer_id=7))) == [
        DropTopic(topic),
        PutBrokerConfigs("", {"log.retention.ms": "1"}),
        PutGroupConfigs("g", {"consumer.session.timeout.ms": "1"}),
        PutClientMetrics("s", {"interval.ms": "100"}),
        PutAcls(ALICE.pattern, frozenset({ALICE.entry})),
        PutUser("alice", ()),
        PutQuotas(QuotaEntity("alice"), {PRODUCER_BYTE_RATE: 1.0}),
        PutProducerIds(7),
        PutBroker(a_broker(1, fenced=True)),
    ]


def test_coordinators_and_their_shards_are_one_value() -> None:
    one, two = a_coordinator(1), a_coordinator(2)
    cluster = a_cluster(coordinators=(one,))
    first = Change(ClusterDelta(shards_changed={TXN: (ShardOwner(0, 1, 1), ShardOwner(1, 1, 1))}))
    applied(cluster, first)
    delta = ClusterDelta(
        coordinators_changed=(two,),
        coordinators_gone=(one.key,),
        shards_changed={TXN: (ShardOwner(0, 2, 2), ShardOwner(1, -1, 1))},
    )
    (put,) = store_ops(cluster.image, Change(delta))
    assert put == PutShards(TXN, (two,), (ShardOwner(0, 2, 2), ShardOwner(1, -1, 1)))
    assert applied(cluster, Change(delta)).image.coordinators == {two.key: two}


def test_a_shard_of_an_unregistered_owner_is_a_bug() -> None:
    cluster = a_cluster()
    cluster.apply(Change(ClusterDelta(shards_changed={TXN: (ShardOwner(0, 1, 1),)})))
    with pytest.raises(AssertionError, match="registered"):
        cluster.check()


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    made = new_partition(0, (BrokerId(1), BrokerId(2)), frozenset({BrokerId(2)}))
    assert (made.leader, made.isr, made.leader_epoch) == (2, (2,), 0)


def test_a_leader_out_of_sync_is_a_bug() -> None:
    made = new_partition(0, (BrokerId(1), BrokerId(2)), frozenset({BrokerId(2)}))
    with pytest.raises(AssertionError, match="in sync"):
        check_partition(replace(made, leader=BrokerId(1)))
