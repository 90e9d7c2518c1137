"""AccessRules: ACLs as they change, and roles beside them."""

import pytest
from controller.admin.access_rules import AccessRules
from controller.core.roles import Role
from tidemark.model.acls import AclEntry, Acls, PatternType, Permission, ResourcePattern
from tidemark.model.authorization import Operation, Requester, ResourceType, topic_resource
from tidemark.protocol.acl_authorizer import AclPolicy

pytestmark = pytest.mark.feature("SE17", "SE19")

ORDERS = topic_resource("orders")
PATTERN = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
ALICE, ROOT = (Requester(f"User:{name}", "127.0.0.1") for name in ("alice", "root"))


def entry(permission: Permission) -> frozenset[AclEntry]:
    return frozenset({AclEntry(ALICE.principal, "*", Operation.READ, permission)})


class World:
    """Rules over ACLs that a test changes."""

    def __init__(self, policy: AclPolicy | None, **roles: Role) -> None:
        self.acls: Acls = {}
        named = {f"User:{name}": role for name, role in roles.items()}
        self.rules = AccessRules(policy, named, lambda: self.acls)

    def reads(self, requester: Requester) -> bool:
        return self.rules.allows(requester, Operation.READ, ORDERS)


ENFORCED = AclPolicy(frozenset({ROOT.principal}))


def test_without_a_policy_everybody_may_do_everything() -> None:
    world = World(None)
    assert world.reads(ALICE)
    assert not world.rules.enforced


def test_acls_hold_as_soon_as_they_are_there_and_no_longer() -> None:
    world = World(ENFORCED)
    assert world.reads(ROOT)
    assert not world.reads(ALICE)
    world.acls = {PATTERN: entry(Permission.ALLOW)}
    assert world.reads(ALICE)
    world.acls = {}
    assert not world.reads(ALICE)


def test_a_role_adds_to_acls_and_a_denial_has_precedence() -> None:
    world = World(ENFORCED, alice=Role.EDITOR)
    assert world.reads(ALICE)
    world.acls = {PATTERN: entry(Permission.DENY)}
    assert not world.reads(ALICE)
    assert world.rules.allows(ALICE, Operation.DESCRIBE, topic_resource("others"))
