"""REST of a controller that wants to know who calls: passwords, tokens, certificates, rights."""

import base64
import json
import os
import ssl
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPSConnection
from typing import Any

import httpx
import pytest
from controller.console.routes import ROUTES
from controller.console.routing import NAME, Route
from e2e.command_line import COMMAND
from e2e.guarded import ADMIN, DENIED, EDITOR, NOBODY, OPERATOR, VIEWER, Guarded, guarded_controller
from e2e.load import under_load
from e2e.rest_world import Api
from e2e.secured import SUPER_USER
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

TOPIC = "orders"
HIDDEN = "hidden"
CLUSTER = "/v3/clusters"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_controller(tmp_path_factory.mktemp("guarded")) as made:
        with made.client(SUPER_USER) as http:
            wait_for(lambda: http.get(CLUSTER).is_success, "the super user logs in")
        yield made


@pytest.fixture(scope="module")
def root(world: Guarded) -> Iterator[Api]:
    api = world.api(SUPER_USER)
    api.begin()
    for name in (TOPIC, HIDDEN):
        api.ok("createKafkaTopic", body={"topic_name": name, "partitions_count": 1})
    yield api
    api.http.close()


def api_as(world: Guarded, root: Api, user: str) -> Api:
    api = world.api(user)
    api.document, api.cluster_id = root.document, root.cluster_id
    api.names = dict(root.names)
    return api


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# -- who it is


@pytest.mark.feature("SE11")
def test_nobody_is_answered_before_it_says_who_it_is(world: Guarded) -> None:
    with world.client() as http:
        for path in (CLUSTER, "/openapi.json", "/metrics", "/stacks"):
            assert http.get(path).status_code == httpx.codes.UNAUTHORIZED, path
        assert http.put("/loglevel", content="DEBUG").status_code == httpx.codes.UNAUTHORIZED
        assert http.get("/livez").is_success
        challenges = http.get(CLUSTER).headers.get_list("www-authenticate")
    assert [one.split()[0] for one in challenges] == ["Basic", "Bearer"]


@pytest.mark.feature("SE11")
@pytest.mark.parametrize(
    "authorization",
    [
        "Basic cm9vdDp3cm9uZw==",  # root:wrong
        "Basic c3RyYW5nZXI6c3RyYW5nZXI=",  # stranger:stranger
        "Basic root:root",
        "Basic",
        "Bearer x.y.z",
        "Bearer " + "x" * 20_000,
        "Negotiate abc",
        "",
    ],
)
def test_wrong_credentials_get_one_answer(world: Guarded, authorization: str) -> None:
    with world.client() as http:
        answer = http.get(CLUSTER, headers={"authorization": authorization})
    assert answer.status_code == httpx.codes.UNAUTHORIZED
    assert answer.json()["message"] == "the credentials do not fit"


@pytest.mark.feature("SE11")
def test_a_password_a_token_and_a_certificate_are_one_principal(world: Guarded, root: Api) -> None:
    del root
    with world.client(files=world.authority.client(SUPER_USER)) as http:
        assert http.get("/v3/clusters").is_success
    with world.client() as http:
        token = world.provider.token(SUPER_USER)
        assert http.get("/v3/clusters", headers=bearer(token)).is_success


@pytest.mark.feature("SE23")
def test_the_audit_has_every_way_in(world: Guarded) -> None:
    def logins() -> set[tuple[str, str]]:
        lines = map(json.loads, world.controller.log().splitlines())
        events = [json.loads(one["event"]) for one in lines if "event" in one]
        return {
            (one["auth_protocol"], one["user"]["name"])
            for one in events
            if one.get("service", {}).get("name") == "rest" and one["status"] == "Success"
        }

    with world.client(files=world.authority.client(VIEWER)) as http:
        assert http.get("/v3/clusters").is_success
    with world.client(VIEWER) as http:
        assert http.get("/v3/clusters").is_success
    with world.client() as http:
        assert http.get("/v3/clusters", headers=bearer(world.provider.token(VIEWER))).is_success
    wait_for(lambda: {(way, VIEWER) for way in ("mtls", "basic", "bearer")} <= logins())


@pytest.mark.feature("SE11")
def test_tokens_that_are_not_for_this_cluster_are_refused(world: Guarded) -> None:
    with world.client() as http:
        for claims in ({"aud": "another"}, {"exp": 1}, {"iss": "https://elsewhere.example"}):
            token = world.provider.token(SUPER_USER, **claims)
            answer = http.get(CLUSTER, headers=bearer(token))
            assert answer.status_code == httpx.codes.UNAUTHORIZED, claims


@pytest.mark.feature("SE11", "SE02")
def test_a_changed_password_holds_at_once(world: Guarded, root: Api) -> None:
    name = f"user-{uuid.uuid4().hex}"
    root.ok("setUserPassword", user_name=name, body={"password": "first-password"})

    def status(password: str) -> int:
        with world.client() as http:
            return http.get(CLUSTER, auth=(name, password)).status_code

    assert [status("first-password") for _ in range(2)] == [httpx.codes.OK] * 2
    root.ok("setUserPassword", user_name=name, body={"password": "second-password"})
    assert status("first-password") == httpx.codes.UNAUTHORIZED
    assert status("second-password") == httpx.codes.OK


# -- what it may


READS: list[tuple[str, dict[str, Any]]] = [
    ("listKafkaBrokerConfigs", {"broker_id": 1}),
    ("getHealth", {}),
    ("listOperations", {}),
    ("listEvents", {}),
    ("getKafkaAcls", {}),
    ("listUsers", {}),
    ("listQuotas", {}),
]


@pytest.mark.feature("SE17", "SE19")
def test_what_belongs_to_the_cluster_needs_a_right_on_it(world: Guarded, root: Api) -> None:
    for user, wanted in ((NOBODY, httpx.codes.FORBIDDEN), (VIEWER, httpx.codes.OK)):
        api = api_as(world, root, user)
        for operation, names in READS:
            assert api.call(operation, **names).status_code == wanted, (user, operation)
        api.http.close()


@pytest.mark.feature("SE17", "SE18")
def test_existence_is_not_leaked(world: Guarded, root: Api) -> None:
    api = api_as(world, root, NOBODY)
    codes = {
        name: api.call("getKafkaTopic", topic_name=name).status_code for name in (TOPIC, "missing")
    }
    assert set(codes.values()) == {httpx.codes.FORBIDDEN}
    assert api.ok("listKafkaTopics")["data"] == []
    assert api.ok("listTransactions")["data"] == []
    api.http.close()


@pytest.mark.feature("SE17")
def test_an_acl_allows_what_it_says_and_is_felt_at_once(world: Guarded, root: Api) -> None:
    name = f"user-{uuid.uuid4().hex}"
    root.ok("setUserPassword", user_name=name, body={"password": name})
    api = api_as(world, root, name)
    assert api.call("getKafkaTopic", topic_name=TOPIC).status_code == httpx.codes.FORBIDDEN
    acl = {
        "resource_type": "TOPIC",
        "resource_name": TOPIC,
        "pattern_type": "LITERAL",
        "principal": f"User:{name}",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    root.ok("createKafkaAcls", body=acl)
    wait_for(lambda: api.call("getKafkaTopic", topic_name=TOPIC).is_success, "the ACL is known")
    assert [one["topic_name"] for one in api.ok("listKafkaTopics")["data"]] == [TOPIC]
    assert api.call("readMessages", topic_name=TOPIC).is_success
    for refused in ("deleteKafkaTopic", "listKafkaTopicConfigs"):
        answer = api.call(refused, topic_name=TOPIC)
        assert answer.status_code == httpx.codes.FORBIDDEN, refused
    api.http.close()


ROLE_CALLS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("getKafkaTopic", {"topic_name": TOPIC}, {VIEWER, EDITOR, OPERATOR, ADMIN}),
    ("listKafkaTopicConfigs", {"topic_name": TOPIC}, {VIEWER, EDITOR, OPERATOR, ADMIN}),
    ("readMessages", {"topic_name": TOPIC}, {EDITOR, ADMIN}),
    ("listUsers", {}, {VIEWER, EDITOR, OPERATOR, ADMIN}),
    (
        "setUserPassword",
        {"user_name": "made-by-a-role", "body": {"password": "long-enough-1"}},
        {OPERATOR, ADMIN},
    ),
    (
        "updateKafkaTopicConfig",
        {"topic_name": TOPIC, "name": "retention.ms", "body": {"value": "86400000"}},
        {EDITOR, OPERATOR, ADMIN},
    ),
]


@pytest.mark.feature("SE19")
@pytest.mark.parametrize("role", [VIEWER, EDITOR, OPERATOR, ADMIN])
def test_a_role_is_a_set_of_rights(world: Guarded, root: Api, role: str) -> None:
    api = api_as(world, root, role)
    allowed = {operation for operation, of, _ in ROLE_CALLS if api.call(operation, **of).is_success}
    assert allowed == {operation for operation, _, roles in ROLE_CALLS if role in roles}
    api.http.close()


@pytest.mark.feature("SE19")
def test_an_acl_that_denies_has_precedence_over_a_role(world: Guarded, root: Api) -> None:
    api = api_as(world, root, DENIED)
    assert api.call("getKafkaTopic", topic_name=HIDDEN).is_success
    acl = {
        "resource_type": "TOPIC",
        "resource_name": HIDDEN,
        "pattern_type": "LITERAL",
        "principal": f"User:{DENIED}",
        "host": "*",
        "operation": "ALL",
        "permission": "DENY",
    }
    root.ok("createKafkaAcls", body=acl)
    wait_for(
        lambda: api.call("getKafkaTopic", topic_name=HIDDEN).status_code == httpx.codes.FORBIDDEN,
        "the ACL is known",
    )
    api.http.close()


@pytest.mark.feature("SE11")
def test_certificates_are_replaced_under_load_without_a_failed_request(world: Guarded) -> None:
    """By a connection that stays open, and by new ones."""
    port = int(world.controller.rest.rpartition(":")[2])
    with world.client(SUPER_USER) as staying:

        def read() -> None:
            staying.get(CLUSTER).raise_for_status()
            with world.client(SUPER_USER) as coming:
                coming.get(CLUSTER).raise_for_status()

        before = world.authority.shown_serial(port)
        with under_load(read):
            world.authority.renew_server()
            wait_for(lambda: world.authority.shown_serial(port) != before)


# -- attacks


@pytest.mark.feature("SE11")
def test_attack_guessing_passwords_is_slowed_down(world: Guarded) -> None:
    with world.client(source="127.0.0.2") as http, ThreadPoolExecutor(64) as guessers:

        def guess(_: int) -> int:
            return http.get(CLUSTER, auth=(SUPER_USER, uuid.uuid4().hex)).status_code

        many = httpx.codes.TOO_MANY_REQUESTS  # one after the other are never, on a busy machine
        wait_for(lambda: many in guessers.map(guess, range(64)), "guesses are bounded")
    with world.client(SUPER_USER) as http:
        assert http.get(CLUSTER).is_success, "others are served"


@pytest.mark.feature("SE11")
def test_attack_header_injection_and_path_traversal_reach_nothing(
    world: Guarded, root: Api
) -> None:
    names = ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "a\r\nset-cookie: x=1", "%0d%0aX-Y: 1"]
    for name in names:
        answer = root.call("getKafkaTopic", topic_name=name)
        assert answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.BAD_REQUEST), name
        assert "set-cookie" not in answer.headers
        assert "x-y" not in answer.headers
    with world.client() as http:
        answer = http.get("/topics?x=%0d%0aset-cookie:%20a=b")
        assert answer.status_code == httpx.codes.SEE_OTHER
        assert "set-cookie" not in answer.headers


@pytest.mark.feature("SE11")
@pytest.mark.parametrize(
    "path",
    [
        "/v3/../../../../etc/passwd",
        "/static/x/../../../../../../../etc/passwd",
        "/static/x/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/v3/clusters/..%00/topics",
    ],
)
def test_attack_path_traversal_a_path_as_it_stands_reaches_nothing(
    world: Guarded, path: str
) -> None:
    """No library makes the path shorter on its way."""
    context = ssl.create_default_context(cafile=world.authority.ca)
    basic = base64.b64encode(f"{SUPER_USER}:{SUPER_USER}".encode()).decode()
    http = HTTPSConnection(world.controller.rest, context=context, timeout=PATIENCE_S)
    try:
        http.request("GET", path, headers={"authorization": f"Basic {basic}"})
        answer = http.getresponse()
        assert answer.status in (httpx.codes.NOT_FOUND, httpx.codes.BAD_REQUEST)
        assert b"root:" not in answer.read()
    finally:
        http.close()


@pytest.mark.feature("SE11")
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_attack_csrf_a_page_of_another_site_changes_nothing_by_rest(
    world: Guarded, root: Api, headers: dict[str, str]
) -> None:
    name = f"forged-{uuid.uuid4().hex}"
    body = {"topic_name": name, "partitions_count": 1}
    certificate = world.authority.client(SUPER_USER)
    for api in (root, Api(world.base, world.client(files=certificate), root.document)):
        api.names = dict(root.names)
        answer = api.call("createKafkaTopic", body=body, headers=headers)
        assert answer.status_code == httpx.codes.FORBIDDEN
        if api is not root:
            api.http.close()
    assert root.call("getKafkaTopic", topic_name=name).status_code == httpx.codes.NOT_FOUND


# -- every operation


OPEN_TO_ALL = {"listKafkaClusters", "getKafkaCluster", "listKafkaBrokers", "getKafkaBroker"}
"""What a client of Kafka learns from its bootstrap broker."""
FILTERED = {
    "listKafkaTopics", "listKafkaConsumerGroups", "listShareGroups", "listTransactions",
    "listDeadLetterQueues", "listKafkaAllTopicConfigs", "listKafkaAllBrokerConfigs",
}  # fmt: skip
"""Lists without what the caller may not see."""
NAMES = {
    "topic_name": TOPIC, "partition_id": "0", "broker_id": "1", "name": "retention.ms",
    "consumer_group_id": "g", "group_id": "g", "consumer_id": "c", "transactional_id": "t",
    "operation_id": "o", "user_name": "u",
}  # fmt: skip
ACL = {
    "resource_type": "TOPIC", "resource_name": "t", "pattern_type": "LITERAL",
    "principal": "User:u", "host": "*", "operation": "READ", "permission": "ALLOW",
}  # fmt: skip
BODIES: dict[str, Any] = {
    "applyReassignment": {"moves": [{"topic_name": TOPIC, "partition_id": 0, "replicas": [1]}]},
    "planReassignment": {},
    "cancelReassignments": {},
    "electLeaders": {},
    "resetGroupOffsets": {"to": "earliest", "topic_name": TOPIC},
    "resetShareGroup": {"to": "earliest", "topic_name": TOPIC},
    "abortHangingTransaction": {"topic_name": TOPIC, "partition_id": 0, "start_offset": 0},
    "alterQuotas": {"entity": {"user": "u"}, "values": {"producer_byte_rate": 1}},
    "updateKafkaTopicConfigBatch": {"data": [{"name": "retention.ms", "value": "1"}]},
    "updateKafkaTopicConfig": {"value": "1"},
    "updateKafkaBrokerConfigBatch": {"data": [{"name": "log.retention.ms", "value": "1"}]},
    "updateKafkaBrokerConfig": {"value": "1"},
    "updateKafkaClusterConfigs": {"data": [{"name": "log.retention.ms", "value": "1"}]},
    "updateKafkaClusterConfig": {"value": "1"},
    "createKafkaTopic": {"topic_name": "made", "partitions_count": 1},
    "updatePartitionCountKafkaTopic": {"partitions_count": 2},
    "produceRecord": {"value": {"type": "STRING", "data": "x"}},
    "produceRecordsBatch": {"entries": [{"id": "1", "value": {"type": "STRING", "data": "x"}}]},
    "deleteKafkaRecords": {"before_offset": 0},
    "createKafkaAcls": ACL,
    "batchCreateKafkaAcls": {"data": [ACL]},
    "setUserPassword": {"password": "long-enough-1"},
    "setBrokerLoggerLevel": {"level": "INFO"},
}
QUERIES: dict[str, Any] = {
    "browseShareGroup": {"topic": TOPIC},
    "listProducers": {"topic": TOPIC},
    "deleteQuotas": {"user": "u"},
    "deleteKafkaAcls": {
        "resource_type": "TOPIC", "pattern_type": "ANY", "operation": "ANY", "permission": "ANY"
    },
    "checkAccess": {
        "principal": "User:u", "operation": "READ", "resource_type": "TOPIC", "resource_name": "t"
    },
}  # fmt: skip


@pytest.mark.feature("SE17")
def test_every_operation_refuses_who_has_no_right(world: Guarded, root: Api) -> None:
    nobody, stranger = api_as(world, root, NOBODY), world.api()
    for api in (nobody, stranger):
        api.document, api.names = root.document, {**root.names, **NAMES}
    answers = {}
    for operation in root.operations():
        of = {"body": BODIES.get(operation), "query": QUERIES.get(operation)}
        answers[operation] = nobody.call(operation, **of)
        answer = stranger.call(operation, **of)
        assert answer.status_code == httpx.codes.UNAUTHORIZED, operation
    served = {operation for operation, answer in answers.items() if answer.is_success}
    assert served == OPEN_TO_ALL | FILTERED
    others = {
        operation: (answer.status_code, answer.text[:200])
        for operation, answer in answers.items()
        if operation not in served and answer.status_code != httpx.codes.FORBIDDEN
    }
    assert not others, "\n".join(map(str, others.items()))
    for operation in FILTERED:
        assert answers[operation].json()["data"] == [], operation
    nobody.http.close()
    stranger.http.close()


def page_of(route: Route, name: str) -> str:
    """Address of a page about the first partition of a topic, or another thing of that name."""
    names = iter((name, "0", "0"))
    return "/" + "/".join(next(names) if part is NAME else part for part in route.pattern)


@pytest.mark.feature("SE17", "SE18")
def test_a_page_does_not_show_to_who_has_no_right_what_exists(world: Guarded, root: Api) -> None:
    root.ok("setUserPassword", user_name=TOPIC, body={"password": "long-enough-1"})
    quota = {"entity": {"user": TOPIC}, "values": {"producer_byte_rate": 7_654_321}}
    root.ok("alterQuotas", body=quota)
    shows = [one for one in ROUTES if one.show is not None]
    pages: list[Callable[[str], str]] = [partial(page_of, one) for one in shows]
    quotas = [f"/access/{one}?kind=user&user={{}}" for one in ("set-quotas", "remove-quotas")]
    pages += [one.format for one in (*quotas, "/create-topic?clone={}")]
    with world.client(NOBODY) as http:
        for page in pages:
            there, not_there = (http.get(page(name)) for name in (TOPIC, "absent"))
            assert there.status_code == not_there.status_code, there.url
            shown = {one.text.replace(TOPIC, "absent") for one in (there, not_there)}
            assert len(shown) == 1, there.url


# -- the command line


def command_line(
    world: Guarded, rest: str, user: str, password: str
) -> "subprocess.CompletedProcess[str]":
    settings = {
        "TIDEMARK_REST": rest,
        "TIDEMARK_SASL_USERNAME": user,
        "TIDEMARK_SASL_PASSWORD": password,
        "TIDEMARK_SSL_CA_LOCATION": world.authority.ca,
    }
    return subprocess.run(
        [*COMMAND, "operations", "list", "-o", "json"],
        env={**os.environ, **settings},
        capture_output=True,
        timeout=PATIENCE_S,
        text=True,
        check=False,
    )


@pytest.mark.feature("SE11", "AD68")
def test_the_command_line_logs_in_with_its_settings(world: Guarded, root: Api) -> None:
    del root
    done = command_line(world, world.base, VIEWER, VIEWER)
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout) == []
    for user, password in ((VIEWER, "wrong"), (NOBODY, NOBODY)):
        refused = command_line(world, world.base, user, password)
        assert refused.returncode == ExitCode.NO_PERMISSION, refused.stderr
    elsewhere = command_line(world, "192.0.2.1:8080", VIEWER, VIEWER)
    assert elsewhere.returncode == ExitCode.USAGE
    assert "not sent without TLS" in elsewhere.stderr
