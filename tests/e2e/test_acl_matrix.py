"""Every API of Kafka's listeners x {no credentials, wrong password, right without ACL, right with
ACL, denied}, at a real broker.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from e2e.acl_rows import BEFORE_LOGIN, DOOMED, GROUP, ROWS, TOPIC, TRANSACTION, Need, Row
from e2e.kafka_wire import Wire
from e2e.secured import SUPER_USER, Secured, codes, secured_cluster
from e2e.wire import ask
from tidemark.kafka.api_versions import read_api_versions_response
from tidemark.kafka.apis import ApiKey
from tidemark.model.acls import Permission
from tidemark.model.authorization import CLUSTER, Resource, ResourceType
from tidemark.model.errors import ErrorCode
from waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
IDS = [f"{row.api.name.lower()}-{number}" for number, row in enumerate(ROWS)]


def user_of(row: Row, case: str) -> str:
    return f"{ROWS.index(row)}-{case}"


def cases() -> Iterator[tuple[str, list[tuple[Need, Permission]]]]:
    """Users, and what they are allowed and denied."""
    everything = [
        Need(2, resource)  # type: ignore[arg-type]  # ALL_OPERATIONS
        for resource in [
            CLUSTER,
            *(Resource(kind, "*") for kind in ResourceType if kind is not CLUSTER.resource_type),
        ]
    ]
    for row in ROWS:
        yield user_of(row, "allowed"), [(need, Permission.ALLOW) for need in row.needs]
        for number, need in enumerate(row.instead):
            yield user_of(row, f"instead{number}"), [(need, Permission.ALLOW)]
        for number, need in enumerate(row.needs):
            others = [one for one in row.needs if one != need]
            yield user_of(row, f"without{number}"), [(one, Permission.ALLOW) for one in others]
            instead = [
                one._replace(resource=Resource(one.resource.resource_type, "*"))
                if one.resource.resource_type is ResourceType.TOPIC
                else one
                for one in row.instead
            ]
            denied = [(one, Permission.DENY) for one in (need, *instead)]
            yield (
                user_of(row, f"denied{number}"),
                [
                    *((one, Permission.ALLOW) for one in everything),
                    *denied,
                ],
            )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("acls")
    with secured_cluster(directory, txn_coordinators=1, share_coordinators=1) as world:
        fill(world)
        yield world


def fill(world: Secured) -> None:
    """Make topics, a group, a transactional id, and the users of all cases."""
    users = dict(cases())
    world.add_users([SUPER_USER, "nobody", *users])
    world.add_acls((user, *acl) for user, acls in users.items() for acl in acls)
    topics: list[dict[str, object]] = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name in (TOPIC, DOOMED)
    ]
    with world.login(SUPER_USER) as wire:
        made = ask(wire, ApiKey.CREATE_TOPICS, 7, {"topics": topics})
        world.topic_ids = {one.name: one.topic_id for one in made.topics}
        for api in (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_COMMIT, ApiKey.INIT_PRODUCER_ID):
            for row in (one for one in ROWS if one.api is api):
                wait_for(partial(succeeds, world, wire, row), api.name)


def succeeds(world: Secured, wire: Wire, row: Row) -> bool:
    return codes(row.ask(wire, world.place(TOPIC))) == {0}


def served(world: Secured) -> set[ApiKey]:
    """APIs that the broker advertises."""
    with Wire(world.safe) as wire:
        answer = read_api_versions_response(wire.ask(ApiKey.API_VERSIONS, 0, b""), 0)
    return {ApiKey(one.api_key) for one in answer.api_versions}


def is_refused(row: Row, answer: Any) -> bool:
    if row.shows is not None:
        assert not codes(answer) & REFUSED
        return not row.shows(answer)
    return bool(codes(answer) & REFUSED)


@pytest.mark.feature("SE17", "SE18")
def test_every_api_that_is_served_has_a_row(secured: Secured) -> None:
    assert served(secured) - BEFORE_LOGIN <= {row.api for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=IDS)
@pytest.mark.feature("SE14", "SE17", "SE18", "U03", "U04")
def test_who_may_and_who_may_not(secured: Secured, row: Row) -> None:
    place = secured.place(row.topic)
    with Wire(secured.safe) as wire, pytest.raises((EOFError, ConnectionError)):
        row.ask(wire, place)
    with pytest.raises((EOFError, ConnectionError)), secured.login("nobody", "wrong") as wire:
        row.ask(wire, place)
    with secured.login("nobody") as wire:
        assert is_refused(row, row.ask(wire, place)) is bool(row.needs)
    for number, need in enumerate(row.needs):
        for case in (f"without{number}", f"denied{number}"):
            with secured.login(user_of(row, case)) as wire:
                answer = row.ask(wire, place)
            assert is_refused(row, answer), (case, answer)
            assert row.shows is not None or codes(answer) & REFUSED == {need.refusal}, case
    for case in ("allowed", *(f"instead{number}" for number in range(len(row.instead)))):
        with secured.login(user_of(row, case)) as wire:
            answer = row.ask(wire, place)
        assert not is_refused(row, answer), (case, answer)


@pytest.mark.parametrize("row", [row for row in ROWS if row.by_name and row.shows is None])
@pytest.mark.feature("SE18")
def test_existence_is_not_leaked(secured: Secured, row: Row) -> None:
    for number, need in enumerate(row.needs):
        if need.resource.resource_type is ResourceType.TOPIC and row.api in served(secured):
            with secured.login(user_of(row, f"without{number}")) as wire:
                there, not_there = (
                    codes(row.ask(wire, secured.place(name))) for name in (row.topic, "nowhere")
                )
            assert there == not_there


def test_the_group_and_the_transaction_of_the_rows_exist(secured: Secured) -> None:
    shown = {row.api: row for row in ROWS if row.shows is not None}
    with secured.login(SUPER_USER) as wire:
        for api in (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS):
            row = shown[api]
            assert row.shows is not None
            assert row.shows(row.ask(wire, secured.place(TOPIC))), (GROUP, TRANSACTION)
