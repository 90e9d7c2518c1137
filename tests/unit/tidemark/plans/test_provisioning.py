"""Plans of provisioning: what is missing is made, what differs is altered, nothing else is lost."""

from typing import Any

import pytest
from tidemark.client.admin.types import AlterConfig, NewTopic
from tidemark.model.acls import AclBinding
from tidemark.plans.errors import PlanError
from tidemark.plans.provisioning import (
    Found,
    FoundTopic,
    Wanted,
    from_words,
    plan,
    read_wanted,
    to_words,
)

DOCUMENT: dict[str, Any] = {
    "topics": [
        {"name": "orders", "partitions": 6, "config": {"retention.ms": "1000"}},
        {"name": "clicks"},
    ],
    "users": [
        {
            "name": "alice",
            "acls": [
                {"topic": "orders", "operations": ["read", "write"]},
                {"group": "app-", "prefixed": True, "operations": ["read"]},
            ],
        }
    ],
    "acls": [
        {"principal": "User:CN=b", "cluster": True, "operations": ["all"], "permission": "deny"}
    ],
}
NOTHING = Found({}, frozenset(), frozenset(), frozenset())


def acls(*operations: str) -> frozenset[AclBinding]:
    """ACLs of alice on orders."""
    entry = {"topic": "orders", "operations": operations}
    return read_wanted({"users": [{"name": "alice", "acls": [entry]}]}).acls


@pytest.mark.feature("KU20")
def test_on_an_empty_cluster_everything_is_made() -> None:
    changes = plan(read_wanted(DOCUMENT), NOTHING)
    assert list(changes.lines()) == [
        "topic orders made",
        "topic clicks made",
        "user alice has the password of the Secret",
        "ACL added: allow read on topic orders to User:alice from *",
        "ACL added: allow write on topic orders to User:alice from *",
        "ACL added: allow read on group app-* to User:alice from *",
        "ACL added: deny all on cluster kafka-cluster to User:CN=b from *",
    ]
    assert changes.made == read_wanted(DOCUMENT).acls


@pytest.mark.feature("KU20")
def test_a_second_run_changes_nothing() -> None:
    wanted = read_wanted(DOCUMENT)
    topics = {
        "orders": FoundTopic(6, 3, {"retention.ms": "1000", "flush": "group"}),
        "clicks": FoundTopic(1, 3, {}),
    }
    found = Found(topics, frozenset({"alice"}), wanted.acls, wanted.acls)
    assert list(plan(wanted, found).lines()) == []
    assert plan(wanted, found).made == wanted.acls


@pytest.mark.feature("KU20")
def test_settings_that_differ_are_altered_and_partitions_grow() -> None:
    topics = {"orders": FoundTopic(4, 3, {"retention.ms": "5"}), "clicks": FoundTopic(9, 1, {})}
    changes = plan(read_wanted(DOCUMENT), Found(topics, frozenset(), frozenset(), frozenset()))
    assert changes.topics == ()
    assert changes.partitions == {"orders": 6}
    assert changes.configs == {"orders": (AlterConfig("retention.ms", "1000"),)}


@pytest.mark.feature("KU20")
@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (NewTopic("orders", 2), "has 6 partitions, and 2 are wanted: partitions are never removed"),
        (NewTopic("orders", 6, 1), "has 3 replicas, and 1 are wanted"),
    ],
)
def test_what_no_change_brings_about_is_refused(topic: NewTopic, reason: str) -> None:
    found = Found({"orders": FoundTopic(6, 3, {})}, frozenset(), frozenset(), frozenset())
    with pytest.raises(PlanError, match=reason):
        plan(Wanted((topic,)), found)


@pytest.mark.feature("KU20")
def test_only_acls_that_an_earlier_run_has_made_are_removed() -> None:
    by_hand, made, gone = acls("write"), acls("read"), acls("alter")
    found = Found({}, frozenset({"alice"}), by_hand | made, made | gone)
    changes = plan(Wanted(users=("alice",)), found)
    assert (changes.old_acls, changes.new_acls, changes.made) == (made, frozenset(), frozenset())
    again = plan(Wanted(acls=acls("write", "delete")), found)
    assert again.made == acls("delete"), "one that was there before is not a run's own"


@pytest.mark.feature("KU20")
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"topics": [{"partitions": 1}]}, "topics: name is missing"),
        ({"topics": [{"name": "a"}, {"name": "a"}]}, "topics: a is there twice"),
        ({"acls": [{"topic": "a", "operations": ["read"]}]}, "principal is missing"),
        ({"acls": [{"principal": "User:a", "operations": ["read"]}]}, "name one of topic, group"),
        ({"acls": [{"principal": "User:a", "topic": "t"}]}, "operations is missing"),
        (
            {"acls": [{"principal": "User:a", "group": "g", "operations": ["write"]}]},
            "a group has no operation 'write'",
        ),
    ],
)
def test_a_document_that_means_nothing_is_refused(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        read_wanted(document)


def test_notes_are_read_as_they_were_written() -> None:
    wanted = read_wanted(DOCUMENT).acls
    assert from_words(to_words(wanted)) == wanted
