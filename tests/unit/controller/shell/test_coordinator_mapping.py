from controller.core.effects import CoordinatorRegistered, Reply, ShardAcquired
from controller.core.inputs import CoordinatorRef
from controller.shell import coordinator_mapping as mapping
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import CoordinatorImage, FeedPosition
from tidemark_wire.v1 import controller_pb2 as pb

REF = CoordinatorRef("txn", 3, b"me")


def test_a_coordinator_describes_itself_without_an_epoch() -> None:
    request = pb.RegisterCoordinatorRequest(
        kind="txn", coordinator_id=3, incarnation_id=b"me", grpc_endpoint="host:1"
    )
    assert mapping.read_coordinator(request) == CoordinatorImage("txn", 3, b"me", "host:1", -1)


def test_the_coordinator_of_a_request_is_read() -> None:
    acquire = pb.AcquireShardRequest(kind="txn", shard=9, coordinator_id=3, incarnation_id=b"me")
    assert mapping.read_acquirer(acquire) == REF
    ids = pb.AllocateProducerIdsRequest(
        coordinator_kind="txn", coordinator_id=3, incarnation_id=b"me"
    )
    assert mapping.read_asker(ids) == REF


def test_a_broker_of_an_earlier_release_is_no_coordinator() -> None:
    old = pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=7).SerializeToString()
    assert mapping.read_asker(pb.AllocateProducerIdsRequest.FromString(old)) is None


def test_a_registration_is_answered() -> None:
    wire = mapping.write_coordinator_registered(Reply(1, result=CoordinatorRegistered(7, "t")), "")
    assert (wire.error_code, wire.coordinator_epoch, wire.cluster_id) == (0, 7, "t")
    refused = Reply(1, ErrorCode.NOT_CONTROLLER, "why")
    wire = mapping.write_coordinator_registered(refused, "host:1")
    assert (wire.error_code, wire.error_message, wire.controller_hint) == (41, "why", "host:1")
    assert wire.coordinator_epoch == -1


def test_an_acquisition_is_answered_with_where_the_feed_shows_it() -> None:
    position = FeedPosition(ControllerEpoch(2), 5)
    reply = Reply(1, position=position, result=ShardAcquired(8))
    wire = mapping.write_shard_acquired(reply, "")
    assert (wire.owner_epoch, wire.position.controller_epoch, wire.position.version) == (8, 2, 5)
    refused = mapping.write_shard_acquired(Reply(1, ErrorCode.NOT_COORDINATOR, "why"), "")
    assert (refused.error_code, refused.error_message, refused.owner_epoch) == (16, "why", -1)
