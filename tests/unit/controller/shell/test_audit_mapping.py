"""Changes of the cluster, as the audit has them: no values of credentials."""

from controller.shell.audit_mapping import CHANGES, Change, was_answered
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb

NONE, REFUSED = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
BINDING = pb.AclBinding(
    pattern=pb.ResourcePattern(resource_type=2, name="orders", pattern_type=3),
    entry=pb.AclEntry(principal="User:alice", host="*", operation=3, permission=3),
)
TEXT = "allow Read on Topic literal orders to User:alice from *"


def changes(rpc: str, request: object, response: object) -> list[Change]:
    return list(CHANGES[rpc](request, response))


def test_each_topic_has_its_own_result() -> None:
    topics = [pb.TopicResult(name="a"), pb.TopicResult(name="b", error_code=REFUSED)]
    response = pb.CreateTopicsResponse(topics=topics)
    found = changes("CreateTopics", pb.CreateTopicsRequest(), response)
    assert found == [Change("Topic", "a", NONE), Change("Topic", "b", REFUSED)]


def test_acls_are_in_words() -> None:
    request = pb.CreateAclsRequest(bindings=[BINDING, pb.AclBinding()])
    results = [
        pb.CreateAclsResponse.Result(),
        pb.CreateAclsResponse.Result(error_code=REFUSED),
    ]
    good, bad = changes("CreateAcls", request, pb.CreateAclsResponse(results=results))
    assert good == Change("Acl", TEXT, NONE)
    assert bad.error is REFUSED
    deleted = pb.DeleteAclsResponse(results=[pb.DeleteAclsResponse.Result(deleted=[BINDING])])
    assert changes("DeleteAcls", pb.DeleteAclsRequest(), deleted) == [good]


def test_users_and_settings_have_names_only() -> None:
    users = pb.AlterUsersResponse(results=[pb.AlterUsersResponse.Result(user="alice")])
    found = changes("AlterUsers", pb.AlterUsersRequest(), users)
    assert found == [Change("User", "alice", NONE)]
    result = pb.AlterConfigsResponse.Result(resource_type=4, resource_name="1")
    configs = pb.AlterConfigsResponse(results=[result])
    found = changes("AlterConfigs", pb.AlterConfigsRequest(), configs)
    assert found == [Change("Broker", "1", NONE)]


def test_quotas_have_their_values_and_a_dry_run_is_no_change() -> None:
    entity = pb.QuotaEntity(user="alice", client_id="")
    entry = pb.AlterQuotasRequest.Entry(entity=entity, values={"k": 5}, removed=["l"])
    request = pb.AlterQuotasRequest(entries=[entry])
    response = pb.AlterQuotasResponse(results=[pb.AlterQuotasResponse.Result()])
    (found,) = changes("AlterQuotas", request, response)
    assert found.resource == "user alice, client-id <default>: k=5, l removed"
    request.validate_only = True
    assert changes("AlterQuotas", request, response) == []


def test_what_another_controller_decides_is_not_written_down_here() -> None:
    assert was_answered(pb.AlterUsersResponse())
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert was_answered(pb.AlterUsersResponse(error_code=denied))
    assert not was_answered(pb.AlterUsersResponse(error_code=ErrorCode.NOT_CONTROLLER))
