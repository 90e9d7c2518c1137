"""Every decision is noted where it is made, and a listing of rights is none."""

from broker.shell.audited_authorizer import AuditedAuthorizer
from tidemark.model.acls import AclEntry, Acls, Permission, ResourcePattern
from tidemark.model.authorization import Operation, Requester, ResourceType, topic_resource
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy
from tidemark.protocol.audit import Access, AuditRules, AuditTrail

ALICE, BOB = Requester("User:alice", "h"), Requester("User:bob", "h")
ORDERS = topic_resource("orders")
ACLS: Acls = {
    ResourcePattern(ResourceType.TOPIC, "orders"): frozenset(
        {AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)}
    )
}


def audited(*, refuses: bool = False) -> tuple[AuditedAuthorizer, AuditTrail]:
    trail = AuditTrail(AuditRules(), entries_max=2, refuses=refuses)
    made = AuditedAuthorizer(AclPolicy(), trail, lambda: 5)
    made.replace(ACLS)
    return made, trail


def test_it_decides_as_without_audit_and_notes_what() -> None:
    authorizer, trail = audited()
    plain = AclAuthorizer(AclPolicy(), ACLS)
    for one in (ALICE, BOB):
        expected = plain.authorize(one, Operation.READ, ORDERS)
        assert authorizer.authorize(one, Operation.READ, ORDERS) is expected
    subjects = [one.subject for one in trail.take()]
    assert [isinstance(one, Access) and one.allowed for one in subjects] == [True, False]


def test_a_mask_of_rights_is_no_attempt() -> None:
    authorizer, trail = audited()
    mask = AclAuthorizer(AclPolicy(), ACLS).authorized_operations(ALICE, ORDERS)
    assert authorizer.authorized_operations(ALICE, ORDERS) == mask
    assert authorizer.authorized_operations(BOB, ORDERS) == 0
    assert len(trail) == 0


def test_what_a_list_leaves_out_is_no_attempt() -> None:
    authorizer, trail = audited()
    answers = [authorizer.sees(one, Operation.READ, ORDERS) for one in (ALICE, BOB)]
    assert (answers, len(trail)) == ([True, False], 0)


def test_an_operation_on_any_resource_is_noted() -> None:
    authorizer, trail = audited()
    assert authorizer.authorize_any(ALICE, Operation.READ, ResourceType.TOPIC)
    assert not authorizer.authorize_any(BOB, Operation.READ, ResourceType.TOPIC)
    assert len(trail) == 2


def test_what_must_be_written_down_and_cannot_be_is_denied() -> None:
    authorizer, _ = audited(refuses=True)
    answers = [
        authorizer.authorize(ALICE._replace(host=host), Operation.READ, ORDERS) for host in "abc"
    ]
    assert answers == [True, True, False]
