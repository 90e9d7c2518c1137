"""Which broker FindCoordinator names, and when it names none."""

from dataclasses import replace

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import CONSUMER_OFFSETS
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, topic_image


@pytest.mark.feature("E02")
@pytest.mark.parametrize(
    ("leader", "told"),
    [
        (2, (ErrorCode.NONE, 2)),
        (-1, (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)),
        (3, (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)),
    ],
    ids=["a leader", "nobody leads", "the leader is fenced"],
)
def test_a_group_is_coordinated_by_a_leader_that_is_not_fenced(
    parts: BrokerParts, ask: Ask, leader: int, told: tuple[ErrorCode, int]
) -> None:
    offsets = topic_image(CONSUMER_OFFSETS, [leader], {})
    topics = {**parts.metadata.image.topics, CONSUMER_OFFSETS: offsets}
    parts.metadata.take(replace(parts.metadata.image, topics=topics))
    answer = ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 3)
    assert (answer.error_code, answer.node_id) == told


@pytest.mark.feature("SE17")
@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (0, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_rights_are_checked_before_an_internal_topic_is_made(
    parts: BrokerParts, ask: Ask, key_type: int, code: ErrorCode
) -> None:
    parts.facts = replace(parts.facts, authorizer=AclAuthorizer(AclPolicy()))
    answer = ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": key_type}, 3)
    assert answer.error_code == code
