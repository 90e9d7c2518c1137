from hypothesis import given, settings
from hypothesis import strategies as st
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
    Endpoint,
    FeedPosition,
    PartitionImage,
    TopicImage,
)
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
)
CONTROLLER = ControllerId(3)
FIRST, SECOND = FeedPosition(ControllerEpoch(7), 0), FeedPosition(ControllerEpoch(7), 1)


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
    ours, whole = apply_update(ClusterImage(), over_the_wire(snapshot_update(theirs)))
    assert (ours, whole) == (theirs, None)
    theirs = theirs.apply(delta, SECOND, CONTROLLER)
    update = over_the_wire(delta_update(delta, SECOND, CONTROLLER))
    assert apply_update(ours, update) == (theirs, delta)


@given(DELTAS)
@settings(max_examples=20, deadline=None)
def test_a_snapshot_holds_all_that_deltas_brought(delta: ClusterDelta) -> None:
    start = ClusterImage(position=FIRST, cluster_id="tide", controller_id=CONTROLLER)
    theirs = start.apply(delta, SECOND, CONTROLLER)
    assert apply_update(ClusterImage(), over_the_wire(snapshot_update(theirs))) == (theirs, None)
