"""REST about access: what it changes is felt by clients of a broker with an authorizer."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.clusters import Cluster
from e2e.rest_world import Api, api_of
from e2e.secured import SUPER_USER, Secured, codes, secured_cluster
from e2e.wire import ask
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode

pytestmark = pytest.mark.e2e

DRY = {"dry_run": "true"}
_MASK = {"include_cluster_authorized_operations": False}
SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("rest-access")) as world:
        yield world


@pytest.fixture(scope="module")
def api(secured: Secured) -> Iterator[Api]:
    one = api_of(secured.cluster, 1)
    yield one
    one.http.close()


@pytest.fixture
def user(api: Api) -> str:
    """A user whose password is the name, as in Secured."""
    name = f"user-{uuid.uuid4().hex}"
    api.ok("setUserPassword", user_name=name, body={"password": name})
    return name


def logs_in(secured: Secured, name: str, password: str) -> bool:
    try:
        with secured.login(name, password) as wire:
            return codes(ask(wire, ApiKey.DESCRIBE_CLUSTER, 0, _MASK)) <= {0}
    except (OSError, EOFError):
        return False


@pytest.mark.feature("AD24", "SE02")
def test_a_user_logs_in_with_a_password_that_is_shown_nowhere(secured: Secured, api: Api) -> None:
    name = f"bob/{uuid.uuid4().hex}"
    of: dict[str, Any] = {"user_name": name}
    body = {"password": SECRET, "mechanisms": ["SCRAM-SHA-256"], "iterations": 4_096}
    api.ok("setUserPassword", **of, body=body, query=DRY)
    assert api.call("getUser", **of).status_code == 404
    assert api.call("setUserPassword", **of, body=body).status_code == 204
    assert (logs_in(secured, name, SECRET), logs_in(secured, name, "wrong")) == (True, False)
    shown = api.call("getUser", **of)
    assert shown.json()["credentials"] == [{"mechanism": "SCRAM-SHA-256", "iterations": 4_096}]
    wrong = api.call("setUserPassword", **of, body={**body, "iterations": 1})
    assert wrong.status_code == 422
    answers = shown.text + wrong.text + api.call("listUsers").text
    logs = secured.cluster.log("controller-1") + secured.cluster.log("broker-1")
    assert SECRET not in answers + logs
    assert api.call("deleteUser", **of).status_code == 204
    assert not logs_in(secured, name, SECRET)


def question(api: Api, user: str, topic: str) -> dict[str, Any]:
    query = {"operation": "DESCRIBE_CONFIGS", "resource_type": "TOPIC", "resource_name": topic}
    found: dict[str, Any] = api.ok("checkAccess", query={"principal": f"User:{user}", **query})
    return found


def sees(secured: Secured, user: str, topic: str) -> bool:
    with secured.login(user) as wire:
        one = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
        answer = ask(wire, ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [one]})
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED not in codes(answer)


@pytest.mark.feature("AD25")
def test_an_acl_is_felt_by_a_client_and_names_itself_as_the_rule(
    secured: Secured, api: Api, user: str
) -> None:
    topic = f"orders-{uuid.uuid4().hex}"
    acl = {
        "resource_type": "TOPIC", "resource_name": topic[:12], "pattern_type": "PREFIXED",
        "principal": f"User:{user}", "host": "*", "operation": "ALTER_CONFIGS",
        "permission": "ALLOW",
    }  # fmt: skip
    before = question(api, user, topic)
    assert (before["allowed"], before["rule"]) == (False, "DEFAULT")
    assert not sees(secured, user, topic)
    assert api.call("createKafkaAcls", body=acl, query=DRY).status_code == 204
    assert question(api, user, topic)["allowed"] is False
    assert api.call("createKafkaAcls", body=acl).status_code == 201
    after = question(api, user, topic)
    assert (after["allowed"], after["rule"], after["acl"]) == (True, "ACL", acl)
    assert sees(secured, user, topic)
    listed = api.ok("getKafkaAcls", query={"resource_name": topic, "pattern_type": "MATCH"})
    (one,) = listed["data"]
    assert (one["kind"], {key: one[key] for key in acl}) == ("KafkaAcl", acl)
    assert api.http.get(one["metadata"]["self"]).json()["data"] == [one]
    shown = api.ok("deleteKafkaAcls", query={**acl, **DRY})["data"]
    assert [each["principal"] for each in shown] == [f"User:{user}"]
    assert question(api, user, topic)["allowed"] is True
    assert api.ok("deleteKafkaAcls", query=acl)["data"] == shown
    assert not sees(secured, user, topic)


@pytest.mark.feature("AD25")
def test_a_super_user_is_the_rule_and_a_deny_is_one(api: Api, user: str) -> None:
    topic = f"secret-{uuid.uuid4().hex}"
    both = [
        {"resource_type": "TOPIC", "resource_name": topic, "principal": f"User:{user}",
         "operation": "DESCRIBE_CONFIGS", "permission": permission}
        for permission in ("ALLOW", "DENY")
    ]  # fmt: skip
    wrong = api.call("batchCreateKafkaAcls", body={"data": [both[0], {**both[1], "host": ""}]})
    assert (wrong.status_code, wrong.json()["error_code"]) == (400, 40002)
    assert question(api, user, topic)["rule"] == "DEFAULT"
    assert api.call("batchCreateKafkaAcls", body={"data": both}).status_code == 201
    found = question(api, user, topic)
    assert (found["allowed"], found["acl"]["permission"]) == (False, "DENY")
    root = question(api, SUPER_USER, topic)
    assert (root["allowed"], root["rule"], root["acl"]) == (True, "SUPER_USER", None)
    assert api.ok("getKafkaAcls")["enforcement"]["super_users"] == [f"User:{SUPER_USER}"]


@pytest.mark.feature("AD26")
def test_quotas_are_set_after_a_dry_run_listed_and_removed(api: Api, user: str) -> None:
    entity = {"user": user, "client-id": None}
    body = {"entity": entity, "values": {"producer_byte_rate": 1_000, "consumer_byte_rate": 2_000}}
    query = {"user": user, "default": "client-id"}
    api.ok("alterQuotas", body=body, query=DRY)
    assert api.ok("listQuotas", query=query)["data"] == []
    api.ok("alterQuotas", body=body)
    less = {"entity": entity, "values": {"consumer_byte_rate": None}}
    assert api.ok("alterQuotas", body=less)["values"] == {"producer_byte_rate": 1_000}
    (listed,) = api.ok("listQuotas", query={"user": user})["data"]
    assert (listed["entity"], listed["values"]) == (entity, {"producer_byte_rate": 1_000})
    assert api.http.get(listed["metadata"]["self"]).json()["data"] == [listed]
    assert api.ok("deleteQuotas", query={**query, **DRY})["values"] == listed["values"]
    assert api.ok("deleteQuotas", query=query)["values"] == listed["values"]
    assert api.ok("listQuotas", query={"user": user})["data"] == []
    refused = api.call("alterQuotas", body={**body, "entity": {"ip": "10.0.0.1", "user": user}})
    assert (refused.status_code, refused.json()["field"]) == (400, "entity")


@pytest.mark.feature("AD25")
def test_without_an_authorizer_everything_is_allowed_and_acls_are_refused(cluster: Cluster) -> None:
    open_to_all = api_of(cluster, 1)
    listed = open_to_all.ok("getKafkaAcls")
    assert (listed["data"], listed["enforcement"]["enforced"]) == ([], False)
    assert "authorizer.class.name" in listed["enforcement"]["remedy"]
    found = question(open_to_all, "anybody", "any")
    assert (found["allowed"], found["rule"]) == (True, "NO_AUTHORIZER")
    acl = {
        "resource_type": "TOPIC",
        "resource_name": "t",
        "principal": "User:a",
        "operation": "READ",
    }
    refused = open_to_all.call("createKafkaAcls", body=acl)
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40901)
    assert "authorizer.class.name" in refused.json()["remedy"]
    open_to_all.http.close()
