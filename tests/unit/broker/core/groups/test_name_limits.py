"""Names that do not fit into a record are refused before anything else happens."""

from dataclasses import replace

import pytest
from broker.core.groups.name_limits import NAME_BYTES_MAX
from broker.core.groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupReply,
    GroupRequest,
    JoinGroupReply,
    JoinProtocol,
    OffsetCommitReply,
)
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    ME,
    World,
    commit,
    join,
    txn_commit,
)

LONG = "x" * (NAME_BYTES_MAX + 1)
HEARTBEAT = ConsumerGroupHeartbeat(
    group_id="g",
    member_id="c",
    new_member_id="",
    requester=ME,
    member_epoch=0,
    rebalance_timeout_ms=1,
    subscribed_topic_names=(),
    topic_partitions=(),
)


@pytest.mark.parametrize(
    ("request_", "kind", "error_code"),
    [
        (join(group_id=LONG), JoinGroupReply, ErrorCode.INVALID_GROUP_ID),
        (join(new=LONG), JoinGroupReply, ErrorCode.INVALID_REQUEST),
        (join(instance=LONG), JoinGroupReply, ErrorCode.INVALID_REQUEST),
        (join(protocol_type=LONG), JoinGroupReply, ErrorCode.INVALID_REQUEST),
        (
            join(protocols=(JoinProtocol(LONG, b""),)),
            JoinGroupReply,
            ErrorCode.INVALID_REQUEST,
        ),
        (replace(join(), client_id=LONG), JoinGroupReply, ErrorCode.INVALID_REQUEST),
        (commit(1, group_id=LONG), OffsetCommitReply, ErrorCode.INVALID_GROUP_ID),
        (replace(txn_commit(1), group_id=LONG), OffsetCommitReply, ErrorCode.INVALID_GROUP_ID),
        (
            replace(HEARTBEAT, group_id=LONG),
            ConsumerGroupHeartbeatReply,
            ErrorCode.INVALID_GROUP_ID,
        ),
        (
            replace(HEARTBEAT, member_id=LONG),
            ConsumerGroupHeartbeatReply,
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_too_long_a_name_is_refused(
    request_: GroupRequest, kind: type[GroupReply], error_code: ErrorCode
) -> None:
    world = World()
    assert world.ask(request_, kind).error_code is error_code
    assert world.log == []


@pytest.mark.parametrize("name", ["x" * NAME_BYTES_MAX, "é" * (NAME_BYTES_MAX // 2)])
def test_what_fits_is_kept(name: str) -> None:
    world = World()
    assert world.ask(commit(1, group_id=name), OffsetCommitReply).error_code is ErrorCode.NONE
    assert len(world.log) == 1


def test_bytes_count_not_characters() -> None:
    name = "é" * (NAME_BYTES_MAX // 2 + 1)
    reply = World().ask(commit(1, group_id=name), OffsetCommitReply)
    assert reply.error_code is ErrorCode.INVALID_GROUP_ID
