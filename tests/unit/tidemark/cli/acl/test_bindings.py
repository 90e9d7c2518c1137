import pytest
from tidemark.cli.acl.admin import decided
from tidemark.cli.acl.bindings import (
    one_operation,
    read_operation,
    read_principal,
    read_resource,
    required,
)
from tidemark.cli.failure import CommandError
from tidemark.model.acls import (
    ALL_OPERATIONS,
    AclBinding,
    AclEntry,
    PatternType,
    Permission,
    ResourcePattern,
)
from tidemark.model.authorization import (
    CLUSTER,
    Operation,
    Requester,
    ResourceType,
    topic_resource,
)
from tidemark.plans.access import binding_words
from tidemark.protocol.acl_authorizer import AclPolicy

PATTERN = ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED)
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize("text", ["alter-configs", "AlterConfigs", "ALTER_CONFIGS"])
def test_an_operation_has_kafkas_name_in_any_writing(text: str) -> None:
    assert read_operation(text) == Operation.ALTER_CONFIGS
    assert read_operation("All") == ALL_OPERATIONS


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(CommandError, match="no operation 'reed'"):
        read_operation("reed")
    with pytest.raises(CommandError, match="'User:' is no principal"):
        read_principal("User:")
    with pytest.raises(CommandError, match="more than one resource"):
        read_resource("t", "g", None, cluster=False)
    with pytest.raises(CommandError, match="no resource is named"):
        required(read_resource(None, None, None, cluster=False))
    with pytest.raises(CommandError, match="a topic has no operation 'all'"):
        one_operation("all", topic_resource("t"))


def test_a_bare_name_is_a_user() -> None:
    assert read_principal("alice") == read_principal("User:alice") == "User:alice"
    assert read_resource(None, None, None, cluster=True) == CLUSTER


def test_a_check_names_the_acl_that_decides() -> None:
    acls = {PATTERN: frozenset({READ})}
    asked = (Requester("User:alice", ""), Operation.DESCRIBE, topic_resource("orders"))
    row = decided(AclPolicy(), acls, *asked)
    assert (row["allowed"], row["because"]) == ("yes", "allowed by an ACL")
    assert row["acl"] == binding_words(AclBinding(PATTERN, READ))
    assert row["acl"] == "allow read on topic or* to User:alice from *"
    nobody = (Requester("User:bob", ""), *asked[1:])
    assert decided(AclPolicy(), acls, *nobody)["acl"] == "-"
    assert decided(AclPolicy(frozenset({"User:bob"})), acls, *nobody)["allowed"] == "yes"
