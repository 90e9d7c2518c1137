"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: what versions add and leave out."""

import pytest
from broker.core.groups.requests import JoinGroup
from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from unit.broker.core.groups.group_worlds import stable, subscription
from unit.broker.shell.kafka.group_handlers import GroupBroker, versions

PROTOCOLS = [{"name": "range", "metadata": subscription("orders")}]
JOIN = {
    "group_id": "g",
    "session_timeout": 10_000,
    "protocol_type": "consumer",
    "protocols": PROTOCOLS,
}


def broker_with(*members: str, instances: bool = False) -> GroupBroker:
    handlers = GroupBroker()
    stable(handlers.groups.world, *members, instances=instances)
    return handlers


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join(version: int) -> None:
    handlers = GroupBroker()
    reply = handlers.ask(ApiKey.JOIN_GROUP, JOIN, version)
    if version >= 4:
        assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
        reply = handlers.ask(ApiKey.JOIN_GROUP, {**JOIN, "member_id": reply.member_id}, version)
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (0, 1, "range")
    assert reply.leader == reply.member_id
    assert reply.member_id.startswith("me-")
    assert [one.metadata for one in reply.members] == [PROTOCOLS[0]["metadata"]]
    assert reply.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize(
    ("version", "wanted_ms", "rebalance_ms"),
    [(0, 70_000, 10_000), (1, 70_000, 70_000), (1, -1, 10_000)],
)
def test_who_wants_no_time_to_rebalance_has_its_sessions(
    version: int, wanted_ms: int, rebalance_ms: int
) -> None:
    handlers = GroupBroker()
    fields = {**JOIN, "rebalance_timeout": wanted_ms}
    handlers.ask(ApiKey.JOIN_GROUP, fields, version)
    [asked] = handlers.groups.asked
    assert isinstance(asked, JoinGroup)
    assert asked.rebalance_timeout_ms == rebalance_ms
    assert (asked.client_id, asked.client_host) == ("me", "/10.0.0.7")


def test_a_static_member_is_named_after_its_instance() -> None:
    reply = GroupBroker().ask(ApiKey.JOIN_GROUP, {**JOIN, "group_instance_id": "i"})
    assert reply.member_id.startswith("i-")


def test_a_static_leader_that_comes_back_skips_the_assignment() -> None:
    handlers = broker_with("a", "b", instances=True)
    reply = handlers.ask(ApiKey.JOIN_GROUP, {**JOIN, "group_instance_id": "A"})
    assert (reply.error_code, reply.skip_assignment, len(reply.members)) == (0, True, 2)
    assert {one.group_instance_id for one in reply.members} == {"A", "B"}


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_refused_join(version: int) -> None:
    handlers = GroupBroker()
    handlers.deny(Operation.READ, "g")
    reply = handlers.ask(ApiKey.JOIN_GROUP, JOIN, version)
    assert reply.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (reply.generation_id, reply.member_id) == (-1, "")
    assert reply.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync(version: int) -> None:
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    fields = {"group_id": "g", "generation_id": 1, "member_id": "b", **named}
    reply = broker_with("a", "b").ask(ApiKey.SYNC_GROUP, fields, version)
    assert (reply.error_code, reply.assignment) == (0, b"b")
    assert reply.protocol_name == ("range" if version >= 5 else None)


def test_the_leaders_sync_brings_all_assignments() -> None:
    handlers = GroupBroker()
    joined = handlers.ask(ApiKey.JOIN_GROUP, JOIN, 3)
    shares = [{"member_id": joined.member_id, "assignment": b"all"}]
    fields = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    reply = handlers.ask(ApiKey.SYNC_GROUP, {**fields, "assignments": shares}, 3)
    assert (reply.error_code, reply.assignment) == (0, b"all")


def test_from_version_5_a_member_names_its_protocol() -> None:
    fields = {"group_id": "g", "generation_id": 1, "member_id": "a", "protocol_type": "consumer"}
    reply = broker_with("a").ask(ApiKey.SYNC_GROUP, fields)
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(version: int) -> None:
    handlers = broker_with("a")
    fields = {"group_id": "g", "generation_id": 1, "member_id": "a"}
    assert handlers.ask(ApiKey.HEARTBEAT, fields, version).error_code == 0
    fields["generation_id"] = 0
    reply = handlers.ask(ApiKey.HEARTBEAT, fields, version)
    assert reply.error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave(version: int) -> None:
    handlers = broker_with("a")
    member = {"member_id": "a"}
    fields = {"group_id": "g", **({"members": [member]} if version >= 3 else member)}
    reply = handlers.ask(ApiKey.LEAVE_GROUP, fields, version)
    assert reply.error_code == 0
    again = handlers.ask(ApiKey.LEAVE_GROUP, fields, version)
    codes = [again.error_code, *(one.error_code for one in again.members)]
    assert codes == ([0] if version >= 3 else []) + [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    "api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP]
)
@pytest.mark.parametrize("denied", [True, False])
def test_refusals_and_failures_of_the_whole(api_key: ApiKey, denied: bool) -> None:
    handlers = GroupBroker()
    handlers.groups.failure = TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "wait")
    if denied:
        handlers.deny(Operation.READ, "g")
    named = {"protocol_type": "c", "protocol_name": "r"} if api_key is ApiKey.SYNC_GROUP else {}
    fields = JOIN if api_key is ApiKey.JOIN_GROUP else {"group_id": "g", **named}
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if api_key is ApiKey.HEARTBEAT:
        loading = ErrorCode.NONE  # clients do not expect it there
    wanted = ErrorCode.GROUP_AUTHORIZATION_FAILED if denied else loading
    assert handlers.ask(api_key, fields).error_code == wanted


def test_a_heartbeat_to_another_broker_fails() -> None:
    handlers = GroupBroker()
    handlers.groups.failure = TidemarkError(ErrorCode.NOT_COORDINATOR, "elsewhere")
    reply = handlers.ask(ApiKey.HEARTBEAT, {"group_id": "g"})
    assert reply.error_code == ErrorCode.NOT_COORDINATOR
