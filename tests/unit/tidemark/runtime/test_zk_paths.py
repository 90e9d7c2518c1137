import pytest
from tidemark.model.ids import BrokerId, TopicId
from tidemark.runtime import zk_paths
from tidemark.runtime.zk_paths import LiveBroker, LiveCoordinator, UnknownZnodeFormatError


def test_a_live_znodes_name_says_who_it_is() -> None:
    live = LiveBroker(BrokerId(7), bytes(range(16)))
    assert live.path == f"/brokers/live/7-{bytes(range(16)).hex()}"
    assert LiveBroker.parse(live.path.rpartition("/")[2]) == live


@pytest.mark.parametrize("name", ["7", "x-00", "7-xyz", ""])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(UnknownZnodeFormatError, match="expected"):
        LiveBroker.parse(name)


def test_content_comes_back_as_it_went() -> None:
    data = zk_paths.encode({"a": [1, 2]})
    assert data == b'{"format":1,"a":[1,2]}'
    assert zk_paths.decode("/x", data) == {"format": 1, "a": [1, 2]}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format":"1"}', b'{"format":2}', b"\xff"])
def test_a_format_we_do_not_know_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(UnknownZnodeFormatError, match="/topics/orders"):
        zk_paths.decode("/topics/orders", data)


@pytest.mark.parametrize(
    ("connect", "expected"),
    [("zk:2181", "zk:2181/tidemark"), ("a:1,b:2", "a:1,b:2/tidemark"), ("a:1/mine", "a:1/mine")],
)
def test_a_chroot_is_added_where_none_is_named(connect: str, expected: str) -> None:
    assert zk_paths.with_chroot(connect) == expected


def test_paths_are_where_the_map_says() -> None:
    topic_id = TopicId(bytes(15) + b"\x01")
    assert zk_paths.topic("orders") == "/topics/orders"
    assert zk_paths.partition(topic_id, 3) == f"{zk_paths.partitions_of(topic_id)}/3"
    assert zk_paths.broker_configs("") == "/configs/brokers/default"
    assert zk_paths.broker_of_configs("default") == ""
    assert zk_paths.broker_of_configs("4") == "4"


@pytest.mark.parametrize(
    ("group", "name"),
    [("billing-1", "billing-1"), ("..", "%2E%2E"), ("a/b c", "a%2Fb%20c"), ("ü%2F", "%C3%BC%252F")],
)
def test_a_group_may_have_any_name(group: str, name: str) -> None:
    assert zk_paths.group_configs(group) == f"/configs/groups/{name}"
    assert zk_paths.group_of_configs(name) == group
    assert zk_paths.client_metrics(group) == f"/configs/client-metrics/{name}"
    assert zk_paths.subscription_of_client_metrics(name) == group


def test_a_coordinators_live_znode_is_below_its_kind() -> None:
    live = LiveCoordinator("txn", 7, b"\xab\xcd")
    assert live.path == "/coordinators/txn/7-abcd"
    assert LiveCoordinator.parse("txn", "7-abcd") == live
    with pytest.raises(UnknownZnodeFormatError, match="/coordinators/txn/7-: expected"):
        LiveCoordinator.parse("txn", "7-")


def test_every_parent_is_made_at_the_beginning_of_a_term() -> None:
    assert zk_paths.live_coordinators("txn") in zk_paths.PERSISTENT_PARENTS
    assert zk_paths.shards("txn") == "/shards/txn"
