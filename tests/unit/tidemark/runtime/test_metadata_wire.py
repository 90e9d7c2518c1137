from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.acls import AclEntry, PatternType, Permission, ResourcePattern
from tidemark.model.authorization import Operation, ResourceType
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    BrokerImage,
    ClusterDelta,
    ClusterImage,
    CoordinatorImage,
    Endpoint,
    FeedPosition,
    PartitionImage,
    ShardOwner,
    TopicImage,
)
from tidemark.model.quotas import QuotaEntity
from tidemark.model.scram import ScramCredential, ScramMechanism
from tidemark.runtime.metadata_wire import (
    apply_update,
    delta_update,
    read_delta,
    snapshot_update,
    write_delta,
)
from tidemark_wire.v1 import controller_pb2 as pb

INT32, INT64 = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
BROKER_IDS = st.integers(0, 9).map(BrokerId)
REPLICAS = st.lists(BROKER_IDS, max_size=3).map(tuple)
NAMES = st.text(min_size=1, max_size=8)
CONFIGS = st.dictionaries(NAMES, st.text(max_size=8), max_size=3)
BROKERS = st.builds(
    BrokerImage,
    broker_id=BROKER_IDS,
    broker_epoch=INT64.map(BrokerEpoch),
    incarnation_id=st.binary(min_size=16, max_size=16),
    endpoints=st.lists(st.builds(Endpoint, NAMES, NAMES, INT32, NAMES), max_size=2).map(tuple),
    grpc_endpoint=NAMES,
    rack=st.none() | NAMES,
    node=NAMES,
    fenced=st.booleans(),
)
PARTITIONS = st.builds(
    PartitionImage,
    partition=INT32,
    replicas=REPLICAS,
    isr=REPLICAS,
    leader=st.integers(-1, 9).map(BrokerId),
    leader_epoch=INT32.map(LeaderEpoch),
    partition_epoch=INT32.map(PartitionEpoch),
    elr=REPLICAS,
    last_known_leader=st.integers(-1, 9).map(BrokerId),
)
TOPICS = st.builds(
    TopicImage,
    name=NAMES,
    topic_id=st.binary(min_size=16, max_size=16).map(TopicId),
    configs=CONFIGS,
    partitions=st.lists(PARTITIONS, max_size=3).map(tuple),
)
PATTERNS = st.builds(
    ResourcePattern, st.sampled_from(ResourceType), NAMES, st.sampled_from(PatternType)
)
ENTRIES = st.builds(AclEntry, NAMES, NAMES, st.sampled_from(Operation), st.sampled_from(Permission))
KINDS = st.sampled_from(["txn", "share"])
COORDINATORS = st.builds(
    CoordinatorImage,
    kind=KINDS,
    coordinator_id=st.integers(0, 9),
    incarnation_id=st.binary(min_size=16, max_size=16),
    grpc_endpoint=NAMES,
    coordinator_epoch=st.integers(-1, 2**63 - 1),
)
OWNERS = st.lists(
    st.builds(ShardOwner, st.integers(0, 5), st.integers(-1, 9), INT32),
    max_size=4,
    unique_by=lambda one: one.shard,
).map(lambda owners: tuple(sorted(owners)))
CREDENTIALS = st.lists(
    st.builds(
        ScramCredential,
        st.sampled_from(ScramMechanism),
        st.integers(4_096, 16_384),
        st.binary(max_size=8),
        st.binary(max_size=8),
        st.binary(max_size=8),
    ),
    max_size=2,
).map(tuple)
ENTITIES = st.builds(QuotaEntity, st.none() | NAMES, st.none() | NAMES, st.none() | NAMES)
VALUES = st.dictionaries(NAMES, st.floats(0, 2**63), max_size=2)
DELTAS = st.builds(
    ClusterDelta,
    brokers_changed=st.lists(BROKERS, max_size=2).map(tuple),
    brokers_gone=REPLICAS,
    topics_changed=st.lists(
        TOPICS, max_size=2, unique_by=(lambda t: t.name, lambda t: t.topic_id)
    ).map(tuple),
    topics_deleted=st.lists(st.binary(min_size=16, max_size=16).map(TopicId), max_size=2).map(
        tuple
    ),
    broker_configs_changed=st.dictionaries(st.sampled_from(["", "1", "2"]), CONFIGS, max_size=2),
    finalized_features=st.dictionaries(NAMES, INT32, max_size=2),
    coordinators_changed=st.lists(COORDINATORS, max_size=2).map(tuple),
    coordinators_gone=st.lists(st.tuples(KINDS, st.integers(0, 9)), max_size=2).map(tuple),
    shards_changed=st.dictionaries(KINDS, OWNERS, max_size=2),
    group_configs_changed=st.dictionaries(NAMES, CONFIGS, max_size=2),
    acls_changed=st.dictionaries(PATTERNS, st.frozensets(ENTRIES, max_size=2), max_size=2),
    users_changed=st.dictionaries(NAMES, CREDENTIALS, max_size=2),
    quotas_changed=st.dictionaries(ENTITIES, VALUES, max_size=2),
    client_metrics_changed=st.dictionaries(NAMES, CONFIGS, max_size=2),
)
CONTROLLER = ControllerId(3)
FIRST, SECOND = FeedPosition(ControllerEpoch(7), 0), FeedPosition(ControllerEpoch(7), 1)


def applied(
    image: ClusterImage, update: pb.MetadataUpdate
) -> tuple[ClusterImage, ClusterDelta | None]:
    """All steps of an update."""
    steps = apply_update(image, update)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: tuple[ClusterImage, ClusterDelta | None] = end.value
            return result


def over_the_wire(update: pb.MetadataUpdate) -> pb.MetadataUpdate:
    return pb.MetadataUpdate.FromString(update.SerializeToString())


@given(DELTAS)
@settings(max_examples=20, deadline=None)
def test_a_delta_comes_back_as_it_went(delta: ClusterDelta) -> None:
    assert read_delta(write_delta(delta)) == delta


@given(DELTAS)
@settings(max_examples=20, deadline=None)
def test_snapshot_then_delta_is_what_the_controller_has(delta: ClusterDelta) -> None:
    theirs = ClusterImage(position=FIRST, cluster_id="tide", controller_id=CONTROLLER)
    ours, whole = applied(ClusterImage(), over_the_wire(snapshot_update(theirs)))
    assert (ours, whole) == (theirs, None)
    theirs = theirs.apply(delta, SECOND, CONTROLLER)
    update = over_the_wire(delta_update(delta, SECOND, CONTROLLER))
    assert applied(ours, update) == (theirs, delta)


@given(DELTAS)
@settings(max_examples=20, deadline=None)
def test_a_snapshot_holds_all_that_deltas_brought(delta: ClusterDelta) -> None:
    start = ClusterImage(position=FIRST, cluster_id="tide", controller_id=CONTROLLER)
    theirs = start.apply(delta, SECOND, CONTROLLER)
    assert applied(ClusterImage(), over_the_wire(snapshot_update(theirs))) == (theirs, None)


# Mixed versions: controllers of the last release know of no coordinators.


def without_coordinators(update: pb.MetadataUpdate) -> pb.MetadataUpdate:
    """As the last release sends it: without the fields that it does not have."""
    old = over_the_wire(update)
    for name in ("coordinators", "shards"):
        old.snapshot.ClearField(name)
    return old


@given(DELTAS)
@settings(max_examples=10, deadline=None)
def test_a_snapshot_of_the_last_release_has_no_coordinators(delta: ClusterDelta) -> None:
    start = ClusterImage(position=FIRST, cluster_id="tide", controller_id=CONTROLLER)
    theirs = start.apply(delta, SECOND, CONTROLLER)
    image, _ = applied(ClusterImage(), without_coordinators(snapshot_update(theirs)))
    assert image == replace(theirs, coordinators={}, shards={})


def test_a_delta_of_the_last_release_leaves_coordinators_as_they_are() -> None:
    delta = ClusterDelta(shards_changed={"txn": (ShardOwner(0, 1, 1),)})
    start = ClusterImage(position=FIRST, cluster_id="tide", controller_id=CONTROLLER)
    ours = start.apply(delta, SECOND, CONTROLLER)
    third = FeedPosition(ControllerEpoch(7), 2)
    old = pb.MetadataUpdate(position=pb.MetadataUpdate().position, controller_id=3)
    old.position.controller_epoch, old.position.version = third
    old.delta.brokers_gone.append(1)
    after, _ = applied(ours, over_the_wire(old))
    assert after.shards == ours.shards


PARTITION = PartitionImage(
    0, (BrokerId(1),), (BrokerId(1),), BrokerId(1), LeaderEpoch(0), PartitionEpoch(0)
)
WIDE = TopicImage(
    "wide", TopicId(bytes(16)), {}, tuple(replace(PARTITION, partition=n) for n in range(3))
)


def with_one_changed() -> tuple[ClusterImage, ClusterDelta]:
    """An image, and one partition's change as a whole topic."""
    image = ClusterImage(
        position=FIRST, topics={WIDE.name: WIDE}, topics_by_id={WIDE.topic_id: WIDE}
    )
    changed = replace(WIDE.partitions[1], leader_epoch=LeaderEpoch(4))
    topic = replace(WIDE, partitions=(WIDE.partitions[0], changed, WIDE.partitions[2]))
    return image, ClusterDelta(topics_changed=(topic,))


def test_one_partition_travels_alone_and_leaves_the_same_image() -> None:
    image, whole = with_one_changed()
    narrow = whole.narrowed(image)
    sent = over_the_wire(delta_update(narrow, SECOND, CONTROLLER))
    assert [len(one.partitions) for one in sent.delta.partitions_changed] == [1]
    assert not sent.delta.topics_changed
    theirs, _ = applied(image, sent)
    assert theirs == image.apply(whole, SECOND, CONTROLLER)
    assert theirs.topics["wide"] is theirs.topics_by_id[WIDE.topic_id]


def test_new_topics_settings_and_partitions_travel_as_whole_topics() -> None:
    image, _ = with_one_changed()
    others = (
        replace(WIDE, name="new", topic_id=TopicId(b"n" * 16)),
        replace(WIDE, configs={"a": "b"}),
        replace(WIDE, partitions=(*WIDE.partitions, replace(PARTITION, partition=3))),
    )
    for topic in others:
        delta = ClusterDelta(topics_changed=(topic,))
        assert delta.narrowed(image) == delta
