"""REST of a controller that is not active, on a real cluster: every path of the OpenAPI document is
called with right and with wrong input.
"""

import json
import os
import signal
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from e2e.clusters import Cluster
from e2e.rest_world import (
    GROUP,
    ORDERS,
    QUIET,
    READERS,
    RECORDS,
    TRANSACTION,
    USER,
    WORKERS,
    Api,
)
from tidemark.client import sync
from waiting import wait_for

pytestmark = pytest.mark.e2e

EARLIEST = {"to": "earliest"}
NEW_VALUE = {"value": "86400000"}
CHANGE = {"data": [{"name": "retention.ms", "value": "86400000"}], "validate_only": True}
BROKER_CHANGE = {"data": [{"name": "log.retention.ms", "value": "86400000"}], "validate_only": True}
DRY = {"dry_run": "true"}
ACL = {
    "resource_type": "TOPIC",
    "resource_name": "another",
    "principal": "User:alice",
    "operation": "READ",
}
EVERY_ACL = dict.fromkeys(("resource_type", "pattern_type", "operation", "permission"), "ANY")
QUESTION = {"operation": "READ", "resource_type": "TOPIC", "resource_name": ORDERS}
RECORD = {"key": {"type": "STRING", "data": "k"}, "value": {"data": {"n": 1}}}


class Call(NamedTuple):
    """Call of one operation, and its status."""

    status: int = 200
    body: Any = None
    query: Any = None
    names: dict[str, object] = {}  # noqa: RUF012 - never changed


def bad(status: int = 404, body: Any = None, query: Any = None, **names: object) -> Call:
    return Call(status, body, query, names)


NO_TOPIC = bad(404, topic_name="no such topic")
NO_BROKER = bad(404, broker_id=99)
NO_CLUSTER = bad(404, cluster_id="another")
NO_GROUP = bad(404, consumer_group_id="nobody")
NO_SHARE = bad(404, group_id="nobody")
NO_NAME = bad(404, name="no.such.name")
RENAMED: dict[str, object] = {"name": "log.retention.ms"}

GOOD: dict[str, Call] = {
    "listKafkaClusters": Call(),
    "getKafkaCluster": Call(),
    "listKafkaAllTopicConfigs": Call(query={"page_size": 1}),
    "listKafkaTopicConfigs": Call(),
    "getKafkaTopicConfig": Call(),
    "updateKafkaTopicConfig": Call(204, NEW_VALUE, DRY),
    "deleteKafkaTopicConfig": Call(204, None, DRY),
    "updateKafkaTopicConfigBatch": Call(204, CHANGE),
    "listKafkaAllBrokerConfigs": Call(),
    "listKafkaBrokerConfigs": Call(),
    "getKafkaBrokerConfig": Call(names=RENAMED),
    "updateKafkaBrokerConfig": Call(204, NEW_VALUE, DRY, RENAMED),
    "deleteKafkaBrokerConfig": Call(204, None, DRY, RENAMED),
    "updateKafkaBrokerConfigBatch": Call(204, BROKER_CHANGE),
    "listKafkaClusterConfigs": Call(),
    "updateKafkaClusterConfig": Call(204, NEW_VALUE, None, RENAMED),
    "getKafkaClusterConfig": Call(names=RENAMED),
    "deleteKafkaClusterConfig": Call(204, None, DRY, RENAMED),
    "updateKafkaClusterConfigs": Call(204, BROKER_CHANGE),
    "listKafkaAllReassignments": Call(),
    "listReassignments": Call(),
    "searchKafkaReassignmentsByTopic": Call(),
    "planReassignment": Call(200, {"topics": [ORDERS]}),
    "applyReassignment": Call(
        200, {"moves": [{"topic_name": ORDERS, "partition_id": 0, "replicas": [1, 2, 3]}]}, DRY
    ),
    "electLeaders": Call(200, {}, DRY),
    "canRestartBroker": Call(),
    "canReplaceBroker": Call(),
    "drainBroker": Call(200, None, DRY),
    "decommissionBroker": Call(202),
    "listKafkaBrokers": Call(),
    "getKafkaBroker": Call(),
    "searchKafkaReplicasByBroker": Call(query={"page_size": 1}),
    "getBrokerLogDirectories": Call(),
    "listBrokerLoggers": Call(),
    "setBrokerLoggerLevel": Call(204, {"level": "DEBUG"}, DRY, {"name": "root"}),
    "createKafkaTopic": Call(200, {"topic_name": "rest.new"}, DRY),
    "listKafkaTopics": Call(query={"figures": "true", "search": "REST"}),
    "getKafkaTopic": Call(),
    "deleteKafkaTopic": Call(204, None, DRY),
    "updatePartitionCountKafkaTopic": Call(200, {"partitions_count": 5}, DRY),
    "deleteKafkaRecords": Call(200, {"before_offset": 1}, DRY),
    "readMessages": Call(query={"from": "earliest", "search": "n"}),
    "produceRecord": Call(200, RECORD),
    "produceRecordsBatch": Call(207, {"entries": [{"id": "1", **RECORD}]}),
    "listKafkaPartitions": Call(),
    "listKafkaPartitionOffsets": Call(),
    "getKafkaPartition": Call(),
    "getKafkaPartitionOffsets": Call(),
    "listKafkaReplicas": Call(),
    "listKafkaConsumerGroups": Call(),
    "getKafkaConsumerGroup": Call(),
    "deleteKafkaConsumerGroup": Call(204, None, DRY),
    "listKafkaConsumers": Call(),
    "getKafkaConsumer": Call(),
    "listKafkaConsumerAssignment": Call(),
    "listKafkaConsumerLags": Call(),
    "getKafkaConsumerLag": Call(),
    "getKafkaConsumerGroupLagSummary": Call(),
    "resetGroupOffsets": Call(200, EARLIEST, DRY, {"group_id": GROUP}),
    "listShareGroups": Call(),
    "getShareGroup": Call(),
    "deleteShareGroup": Call(204, None, DRY),
    "listShareGroupMembers": Call(),
    "listShareGroupOffsets": Call(),
    "browseShareGroup": Call(query={"topic": ORDERS}),
    "listDeadLetterQueues": Call(query={"page_size": 1}),
    "getDeadLetters": Call(query={"limit": 1}),
    "listTransactions": Call(query={"open": "true"}),
    "getTransaction": Call(),
    "abortTransaction": Call(204, None, DRY),
    "abortHangingTransaction": Call(
        204, {"topic_name": ORDERS, "partition_id": 1, "start_offset": 1}, DRY
    ),
    "listProducers": Call(query={"topic": ORDERS}),
    "getHealth": Call(),
    "getTraffic": Call(),
    "getGroupLag": Call(query={"limit": 1}),
    "listEvents": Call(),
    "getDiagnostics": Call(),
    "listOperations": Call(),
    "getKafkaAcls": Call(query={"resource_type": "TOPIC", "pattern_type": "MATCH"}),
    "createKafkaAcls": Call(204, ACL, DRY),
    "batchCreateKafkaAcls": Call(204, {"data": [ACL, {**ACL, "operation": "WRITE"}]}, DRY),
    "deleteKafkaAcls": Call(query=EVERY_ACL | DRY),
    "checkAccess": Call(query={"principal": "User:alice", **QUESTION}),
    "listUsers": Call(),
    "getUser": Call(),
    "setUserPassword": Call(204, {"password": "another"}, DRY),
    "deleteUser": Call(204, None, DRY),
    "listQuotas": Call(query={"user": USER}),
    "alterQuotas": Call(
        200, {"entity": {"ip": None}, "values": {"connection_creation_rate": 5}}, DRY
    ),
    "deleteQuotas": Call(query={"user": USER, **DRY}),
}
"""Calls that succeed. What changes much is called by tests of its own, or as a dry run here."""

BAD: dict[str, Call] = {
    "listKafkaClusters": Call(405),
    "getKafkaCluster": NO_CLUSTER,
    "listKafkaAllTopicConfigs": bad(400, query={"cursor": "%%%"}),
    "listKafkaTopicConfigs": NO_TOPIC,
    "getKafkaTopicConfig": NO_NAME,
    "updateKafkaTopicConfig": bad(400, {"value": "soon"}),
    "deleteKafkaTopicConfig": bad(404, name="no.such.name"),
    "updateKafkaTopicConfigBatch": bad(422, {"data": []}),
    "listKafkaAllBrokerConfigs": NO_CLUSTER,
    "listKafkaBrokerConfigs": NO_BROKER,
    "getKafkaBrokerConfig": NO_NAME,
    "updateKafkaBrokerConfig": bad(400, {"value": "1"}, name="broker.id"),
    "deleteKafkaBrokerConfig": bad(404, name="no.such.name"),
    "updateKafkaBrokerConfigBatch": bad(400, {"data": [{"name": "log.retention.ms"}]}),
    "listKafkaClusterConfigs": NO_CLUSTER,
    "getKafkaClusterConfig": NO_NAME,
    "updateKafkaClusterConfig": bad(400, {"value": "x"}, name="log.retention.ms"),
    "deleteKafkaClusterConfig": bad(404, name="no.such.name"),
    "updateKafkaClusterConfigs": bad(422, {"dta": []}),
    "listKafkaAllReassignments": NO_CLUSTER,
    "listReassignments": NO_CLUSTER,
    "searchKafkaReassignmentsByTopic": NO_TOPIC,
    "getKafkaReassignment": bad(404),
    "planReassignment": bad(400, {"topics": ["none"]}),
    "applyReassignment": bad(
        400, {"moves": [{"topic_name": ORDERS, "partition_id": 0, "replicas": [1, 1]}]}
    ),
    "cancelReassignments": bad(409, {}),
    "electLeaders": bad(404, {"partitions": [{"topic_name": "none", "partition_id": 0}]}),
    "canRestartBroker": NO_BROKER,
    "canReplaceBroker": NO_BROKER,
    "drainBroker": NO_BROKER,
    "undrainBroker": bad(409, broker_id=2),
    "decommissionBroker": NO_BROKER,
    "unregisterKafkaBroker": bad(409, query=DRY),
    "listKafkaBrokers": NO_CLUSTER,
    "getKafkaBroker": bad(422, broker_id="one"),
    "searchKafkaReplicasByBroker": NO_BROKER,
    "getBrokerLogDirectories": NO_BROKER,
    "listBrokerLoggers": NO_BROKER,
    "setBrokerLoggerLevel": bad(400, {"level": "DEBUG"}, name="no.such.logger"),
    "createKafkaTopic": bad(400, {"topic_name": ORDERS}),
    "listKafkaTopics": bad(422, query={"page_size": 0}),
    "getKafkaTopic": bad(404, topic_name="../etc"),
    "deleteKafkaTopic": NO_TOPIC,
    "updatePartitionCountKafkaTopic": bad(400, {"partitions_count": 1}),
    "deleteKafkaRecords": bad(400, {"before_offset": 10**9}, DRY),
    "readMessages": bad(422, query={"from": "yesterday"}),
    "produceRecord": bad(400, {"value": {"type": "BINARY", "data": "!"}}),
    "produceRecordsBatch": bad(400, {"entries": [{"id": "1"}, {"id": "1"}]}),
    "listKafkaPartitions": NO_TOPIC,
    "listKafkaPartitionOffsets": NO_TOPIC,
    "getKafkaPartition": bad(404, partition_id=9),
    "getKafkaPartitionOffsets": bad(404, partition_id=9),
    "listKafkaReplicas": bad(422, partition_id=-1),
    "getKafkaReplica": bad(404, broker_id=99),
    "listKafkaConsumerGroups": bad(400, query={"cursor": "zzzz"}),
    "getKafkaConsumerGroup": NO_GROUP,
    "deleteKafkaConsumerGroup": NO_GROUP,
    "listKafkaConsumers": NO_GROUP,
    "getKafkaConsumer": bad(404, consumer_id="nobody"),
    "listKafkaConsumerAssignment": bad(404, consumer_id="nobody"),
    "listKafkaConsumerLags": NO_GROUP,
    "getKafkaConsumerLag": bad(404, partition_id=9),
    "getKafkaConsumerGroupLagSummary": NO_GROUP,
    "resetGroupOffsets": bad(422, {"to": "offset"}),
    "listShareGroups": bad(422, query={"page_size": 10**9}),
    "getShareGroup": NO_SHARE,
    "deleteShareGroup": NO_SHARE,
    "listShareGroupMembers": NO_SHARE,
    "listShareGroupOffsets": NO_SHARE,
    "browseShareGroup": bad(422),
    "resetShareGroup": bad(409, EARLIEST),
    "listDeadLetterQueues": bad(400, query={"cursor": "%%%"}),
    "getDeadLetters": NO_SHARE,
    "listTransactions": bad(404, query={"hanging": "true", "topic": "none"}),
    "getTransaction": bad(404, transactional_id="none"),
    "abortTransaction": bad(404, transactional_id="none"),
    "abortHangingTransaction": bad(
        404, {"topic_name": ORDERS, "partition_id": 0, "start_offset": 10**6}
    ),
    "listProducers": bad(404, query={"topic": "none"}),
    "getHealth": NO_CLUSTER,
    "getTraffic": NO_CLUSTER,
    "getGroupLag": bad(422, query={"limit": 0}),
    "listEvents": bad(422, query={"after": -1}),
    "getDiagnostics": NO_CLUSTER,
    "listOperations": bad(422, query={"state": "lost"}),
    "getKafkaAcls": bad(422, query={"operation": "REED"}),
    "createKafkaAcls": bad(400, {**ACL, "principal": "alice"}),
    "batchCreateKafkaAcls": bad(422, {"data": []}),
    "deleteKafkaAcls": bad(422, query=DRY),
    "checkAccess": bad(400, query={"principal": "alice", **QUESTION}),
    "listUsers": bad(400, query={"cursor": "%%%"}),
    "getUser": bad(404, user_name="nobody"),
    "setUserPassword": bad(422, {"password": ""}),
    "deleteUser": bad(404, user_name="nobody"),
    "listQuotas": bad(400, query={"user": "a", "ip": "10.0.0.1"}),
    "alterQuotas": bad(400, {"entity": {"user": "a"}, "values": {"producer_byte_rate": -1}}, DRY),
    "deleteQuotas": bad(404, query={"user": "nobody"}),
    "getOperation": bad(404),
    "cancelOperation": bad(404),
}

# Called with right input by the tests at the end, or of test_rest_changes.py, which change the
# cluster.
ELSEWHERE = {
    "getKafkaReassignment", "cancelReassignments", "undrainBroker", "getKafkaReplica",
    "resetShareGroup", "getOperation", "cancelOperation", "unregisterKafkaBroker",
}  # fmt: skip


@pytest.mark.feature("AD01", "X04")
def test_every_path_of_the_document_is_called_with_right_and_with_wrong_input(rest: Api) -> None:
    assert rest.document["openapi"].startswith("3.1")
    assert set(rest.operations()) == set(BAD) == {*GOOD, *ELSEWHERE}


@pytest.mark.feature("AD01")
@pytest.mark.parametrize("operation", [name for name in GOOD if name != "decommissionBroker"])
def test_right_input_succeeds(rest: Api, operation: str) -> None:
    call = GOOD[operation]
    if operation in ("getKafkaClusterConfig", "deleteKafkaClusterConfig"):
        rest.ok("updateKafkaClusterConfig", body=NEW_VALUE, name="log.retention.ms")
        look = lambda: rest.call("getKafkaClusterConfig", name="log.retention.ms").is_success  # noqa: E731
        wait_for(look, "every broker has the new configuration")
    answer = rest.call(operation, body=call.body, query=call.query, **call.names)
    assert answer.status_code == call.status, answer.text


@pytest.mark.feature("AD02")
@pytest.mark.parametrize("operation", [name for name in BAD if name != "listKafkaClusters"])
def test_wrong_input_has_an_error_with_code_and_message(rest: Api, operation: str) -> None:
    call = BAD[operation]
    answer = rest.call(operation, body=call.body, query=call.query, **call.names)
    assert answer.status_code == call.status, answer.text
    problem = answer.json()
    assert problem["message"]
    assert str(problem["error_code"]).startswith(str(call.status))


@pytest.mark.feature("AD02")
@pytest.mark.parametrize(
    ("path", "code"),
    [("topics/none", 40403), ("topics/rest.orders/partitions/7", 40403), ("schemas", 404)],
)
def test_error_codes_are_confluents(rest: Api, path: str, code: int) -> None:
    answer = rest.http.get(f"/v3/clusters/{rest.cluster_id}/{path}")
    assert (answer.status_code, answer.json()["error_code"]) == (404, code)


@pytest.mark.feature("AD02")
def test_a_body_that_is_no_json_names_the_body_and_a_remedy(rest: Api) -> None:
    answer = rest.http.post(f"/v3/clusters/{rest.cluster_id}/topics", content=b"{")
    problem = answer.json()
    assert (answer.status_code, problem["error_code"], problem["field"]) == (400, 40001, "body")
    assert problem["remedy"]


def test_a_method_that_is_not_possible_names_those_that_are(rest: Api) -> None:
    answer = rest.http.delete("/v3/clusters")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


@pytest.mark.feature("AD03")
def test_resources_have_confluents_shape_and_links_that_lead_somewhere(rest: Api) -> None:
    topic = rest.ok("getKafkaTopic")
    assert (topic["kind"], topic["cluster_id"]) == ("KafkaTopic", rest.cluster_id)
    assert topic["metadata"]["resource_name"] == f"crn:///kafka={rest.cluster_id}/topic={ORDERS}"
    links = [topic["metadata"]["self"]]
    links += [
        topic[name]["related"] for name in ("partitions", "configs", "partition_reassignments")
    ]
    assert {rest.http.get(link).status_code for link in links} == {200}
    listed = rest.ok("listKafkaTopics")
    assert (listed["kind"], set(listed["metadata"])) == ("KafkaTopicList", {"self", "next"})


@pytest.mark.feature("AD04")
def test_pages_by_their_links_show_every_topic_once(rest: Api) -> None:
    everything = [one["topic_name"] for one in rest.ok("listKafkaTopics")["data"]]
    found: list[str] = []
    link: str | None = f"/v3/clusters/{rest.cluster_id}/topics?page_size=2"
    while link is not None:
        page = rest.http.get(link).raise_for_status().json()
        found += [one["topic_name"] for one in page["data"]]
        link = page["metadata"]["next"]
    assert found == everything == sorted(set(found))


@pytest.mark.feature("AD05")
def test_if_match_refuses_a_configuration_that_has_changed(rest: Api) -> None:
    etag = rest.call("listKafkaTopicConfigs").headers["etag"]
    change = {"data": [{"name": "retention.ms", "value": "7654321"}]}
    rest.ok("updateKafkaTopicConfigBatch", body=change, headers={"if-match": etag})
    wait_for(lambda: rest.call("listKafkaTopicConfigs").headers["etag"] != etag, "it is seen")
    late = rest.call("updateKafkaTopicConfigBatch", body=change, headers={"if-match": etag})
    assert (late.status_code, late.json()["error_code"]) == (412, 41201)


@pytest.mark.feature("AD06")
def test_an_idempotency_key_makes_a_repetition_harmless(rest: Api) -> None:
    headers = {"idempotency-key": uuid.uuid4().hex}
    first = rest.call("produceRecord", body=RECORD, headers=headers)
    again = rest.call("produceRecord", body=RECORD, headers=headers)
    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    other = rest.call("produceRecord", body={"value": {"data": 2}}, headers=headers)
    assert (other.status_code, other.json()["field"]) == (422, "Idempotency-Key")


@pytest.mark.feature("AD07")
def test_a_topic_is_created_given_partitions_purged_and_deleted(rest: Api) -> None:
    name = f"rest.{uuid.uuid4().hex}"
    new = {"topic_name": name, "partitions_count": 1, "replication_factor": 2}
    created = rest.call("createKafkaTopic", body=new)
    assert (created.status_code, rest.http.get(created.headers["location"]).status_code) == (
        201,
        200,
    )
    rest.ok("produceRecord", topic_name=name, body={"partition_id": 0, "value": {"data": 1}})
    rest.ok("updatePartitionCountKafkaTopic", topic_name=name, body={"partitions_count": 2})
    purged = rest.ok("deleteKafkaRecords", topic_name=name, body={"before_offset": -1})
    assert purged["earliest_offset"] == 1
    assert rest.call("deleteKafkaTopic", topic_name=name).status_code == 204
    assert rest.call("getKafkaTopic", topic_name=name).status_code == 404


@pytest.mark.feature("AD08")
def test_messages_are_read_from_a_place_and_filtered(rest: Api) -> None:
    found = rest.ok(
        "readMessages", query={"from": "earliest", "search": '"n": 7', "search_in": "value"}
    )
    assert [(one["key"]["data"], one["value"]["data"]) for one in found["data"]] == [
        ("k7", {"n": 7})
    ]
    at = found["data"][0]
    exact = rest.http.get(at["metadata"]["self"]).json()["data"]
    assert [one["offset"] for one in exact] == [at["offset"]]
    hexed = rest.ok("readMessages", query={"limit": 1, "value_format": "hex"})["data"][0]
    assert hexed["value"]["format"] == "hex"


@pytest.mark.feature("AD08")
def test_an_open_transaction_is_hidden_until_it_is_asked_for(rest: Api) -> None:
    query = {"from": "earliest", "partition": 1, "search": "open"}
    assert rest.ok("readMessages", query=query)["data"] == []
    shown = rest.ok("readMessages", query={**query, "committed_only": "false"})["data"]
    assert [one["state"] for one in shown] == ["open"]


@pytest.mark.feature("AD09")
def test_a_group_is_reset_after_a_dry_run_has_shown_the_moves(rest: Api) -> None:
    rows = f"{ORDERS},0,2\n{ORDERS},1,1\n"
    shown = rest.ok("resetGroupOffsets", group_id=GROUP, body={"to": "csv", "csv": rows}, query=DRY)
    assert [one["after"] for one in shown["moves"]] == [2, 1]
    rest.ok("resetGroupOffsets", group_id=GROUP, body={"to": "csv", "csv": rows})
    lags = rest.ok("listKafkaConsumerLags", consumer_group_id=GROUP)["data"]
    assert [one["current_offset"] for one in lags] == [2, 1]
    busy = rest.call("resetGroupOffsets", group_id=READERS, body=EARLIEST)
    assert busy.status_code == 409


@pytest.mark.feature("AD10", "Y08")
def test_a_share_group_shows_what_it_has_not_completed(rest: Api) -> None:
    def lag() -> int:
        return sum(one["lag"] or 0 for one in rest.ok("listShareGroupOffsets")["data"])

    wait_for(lambda: lag() >= RECORDS, "its member holds records and accepts none")
    wait_for(lambda: rest.ok("getShareGroup")["total_lag"] == lag(), "the group has the sum")


@pytest.mark.feature("AD10", "V03")
def test_a_share_group_shows_its_window_and_its_members(rest_cluster: Cluster, rest: Api) -> None:
    group = rest.ok("getShareGroup")
    assert (group["group_id"], len(group["members"])) == (WORKERS, 1)

    def acquired() -> bool:
        other.poll(timeout_ms=100)  # the locks of the first member may have timed out
        window = rest.ok("browseShareGroup", query={"topic": ORDERS})
        return "acquired" in {one["state"] for one in window["ranges"]}

    with sync.ShareConsumer(
        rest_cluster.kafka(), group_id=WORKERS, share_acknowledgement_mode="explicit"
    ) as other:
        other.subscribe([ORDERS])
        wait_for(acquired, "the window shows what members hold")


@pytest.mark.feature("AD10")
def test_a_quiet_share_group_is_reset(rest: Api) -> None:
    to_start = {"topic_name": ORDERS, "to": "earliest"}
    shown = rest.ok("resetShareGroup", group_id=QUIET, body=to_start, query=DRY)
    done = rest.ok("resetShareGroup", group_id=QUIET, body=to_start)
    assert [one["after"] for one in shown["moves"]] == [one["after"] for one in done["moves"]]
    assert [one["after"] for one in done["moves"]] == [0, 0]


@pytest.mark.feature("AD11")
def test_a_transaction_is_shown_with_what_it_holds(rest: Api) -> None:
    open_ones = rest.ok("listTransactions", query={"open": "true"})["open_transactions"]
    assert [(one["transactional_id"], one["partition_id"]) for one in open_ones] == [
        (TRANSACTION, 1)
    ]
    described = rest.ok("getTransaction")
    assert (described["state"], described["partitions"][0]["topic_name"]) == ("Ongoing", ORDERS)


def await_preferred_leaders(rest: Api) -> None:
    """Elect preferred leaders until every partition has one: other tests move replicas and stop a
    broker, in any order.
    """

    def elected() -> bool:
        rest.ok("electLeaders", body={})
        return not rest.ok("electLeaders", body={}, query=DRY)["data"]

    wait_for(elected, "every partition has its preferred leader")


@pytest.mark.feature("AD84")
def test_the_log_level_of_a_broker_is_set_and_removed(rest: Api) -> None:
    def shown() -> dict[str, str]:
        found = rest.ok("listBrokerLoggers", broker_id=2)["data"]
        return {one["name"]: one["level"] for one in found}

    name = "broker.shell"
    of = {"broker_id": 2, "name": name}
    assert (shown()["root"], shown()[name]) == ("INFO", "INFO")
    rest.ok("setBrokerLoggerLevel", body={"level": "WARN"}, **of)
    assert (shown()["root"], shown()[name]) == ("INFO", "WARN")
    assert rest.call("setBrokerLoggerLevel", body={"level": "LOUD"}, **of).status_code == 422
    rest.ok("setBrokerLoggerLevel", body={"level": None}, **of)
    assert shown()[name] == "INFO"


@pytest.mark.feature("AD12")
def test_a_drain_takes_leaderships_away_and_an_undrain_gives_them_back(rest: Api) -> None:
    await_preferred_leaders(rest)
    before = rest.ok("getKafkaBroker", broker_id=3)["leaders"]
    begun = rest.call("drainBroker", broker_id=3)
    assert begun.status_code == 202
    assert begun.headers["location"] == f"/v3/operations/{begun.json()['operation_id']}"
    drained = rest.settled(begun.json()["operation_id"])
    assert (drained["state"], drained["progress"]) == ("succeeded", 1)

    def led() -> int:
        return int(rest.ok("getKafkaBroker", broker_id=3)["leaders"])

    wait_for(lambda: led() == 0, "broker 3 leads nothing")
    back = rest.settled(rest.ok("undrainBroker", broker_id=3)["operation_id"])
    assert back["state"] == "succeeded"
    wait_for(lambda: led() == before, "broker 3 leads what it led")


@pytest.mark.feature("AD12")
def test_a_move_ends_with_the_replicas_and_a_finished_one_cannot_be_cancelled(rest: Api) -> None:
    at = rest.ok("getKafkaPartition")
    wanted = [*at["replica_ids"][::-1]]
    body = {"moves": [{"topic_name": ORDERS, "partition_id": 0, "replicas": wanted}]}
    operation = rest.ok("applyReassignment", body=body)["operation_id"]
    assert rest.settled(operation)["state"] == "succeeded"
    wait_for(lambda: rest.ok("getKafkaPartition")["replica_ids"] == wanted, "the image shows it")
    assert rest.call("cancelOperation", operation_id=operation).status_code == 409
    leader = rest.ok("getKafkaReplica", broker_id=wanted[0])
    assert leader["broker_id"] == wanted[0]


@pytest.mark.feature("AD13")
def test_events_follow_as_server_sent_events(rest: Api) -> None:
    name = f"rest.{uuid.uuid4().hex}"
    path = f"/v3/clusters/{rest.cluster_id}/events"
    last = rest.ok("listEvents")["last_event_id"]
    headers = {"accept": "text/event-stream", "last-event-id": str(last)}
    with rest.http.stream("GET", path, headers=headers) as stream:
        new = {"topic_name": name, "partitions_count": 1, "replication_factor": 2}
        rest.ok("createKafkaTopic", body=new)
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        events = (json.loads(line[6:]) for line in lines)
        found = next(one for one in events if one["subject"] == name)
    assert (stream.headers["content-type"].split(";")[0], found["type"]) == (
        "text/event-stream",
        "topic-created",
    )


@pytest.mark.feature("AD14")
def test_a_body_that_is_too_large_is_refused(rest: Api) -> None:
    body = b'{"value": {"data": "' + b"x" * 2_000_000 + b'"}}'
    answer = rest.http.post(
        f"/v3/clusters/{rest.cluster_id}/topics/{ORDERS}/records",
        content=body,
        headers={"content-type": "application/json"},
    )
    assert (answer.status_code, answer.json()["error_code"]) == (413, 41301)


@pytest.mark.feature("AD15")
def test_a_diagnostics_bundle_is_an_archive(rest: Api) -> None:
    answer = rest.call("getDiagnostics")
    assert (answer.headers["content-type"], answer.content[:2]) == ("application/zip", b"PK")


@pytest.mark.feature("AD16")
def test_a_figure_has_the_reason_why_it_is_missing(rest: Api) -> None:
    found = rest.ok("listKafkaConsumerLags", consumer_group_id=READERS)["data"]
    for one in found:
        assert one["lag"] is not None or one["reason"]


def test_the_records_of_a_topic_are_counted(rest: Api) -> None:
    assert rest.ok("getKafkaTopic")["figures"]["records"] >= RECORDS


@pytest.fixture
def frozen(rest_cluster: Cluster, rest: Api) -> Iterator[str]:
    """Topic of brokers 1 and 2, and of 3, which stands still. The metadata still has it alive."""
    name = f"rest.{uuid.uuid4().hex}"
    replicas = {"0": [1, 2], "1": [3, 2]}
    rest.ok("createKafkaTopic", body={"topic_name": name, "replicas_assignments": replicas})
    rest.ok("produceRecord", topic_name=name, body={"partition_id": 1, "value": {"data": 1}})
    os.kill(rest_cluster.pid("broker-3"), signal.SIGSTOP)
    yield name
    os.kill(rest_cluster.pid("broker-3"), signal.SIGCONT)
    wait_for(lambda: rest.ok("getKafkaBroker", broker_id=3)["state"] == "online", "it is back")
    await_preferred_leaders(rest)
    sent = rest.ok("produceRecord", topic_name=name, body={"partition_id": 1, "value": {"data": 2}})

    def is_asked() -> bool:
        found = rest.ok("getKafkaPartitionOffsets", topic_name=name, partition_id=1)
        return bool(found["latest_offset"] == sent["offset"] + 1)

    wait_for(is_asked, "the controller asks broker 3 again")


@pytest.mark.feature("AD17")
def test_a_broker_that_hangs_makes_its_own_items_late_and_no_others(rest: Api, frozen: str) -> None:
    found = rest.ok("listKafkaPartitionOffsets", topic_name=frozen)["data"]
    late = {one["partition_id"] for one in found if one["problem"] is not None}
    assert late <= {1}
    answered = [one for one in found if one["partition_id"] == 0]
    assert answered[0]["latest_offset"] == 0
    assert rest.ok("getBrokerLogDirectories", broker_id=1)["problem"] is None
    listed = rest.ok("listKafkaTopics", query={"figures": "true", "page_size": 1_000})
    assert frozen in [one["topic_name"] for one in listed["data"]]


def move_to_three(rest: Api, topic: str) -> str:
    moves = [{"topic_name": topic, "partition_id": 0, "replicas": [1, 3]}]
    begun = rest.call("applyReassignment", body={"moves": moves})
    assert begun.status_code == 202, begun.text

    def moving() -> bool:
        found = rest.call("getKafkaReassignment", topic_name=topic, partition_id=0)
        return found.is_success

    wait_for(moving, "the move has begun")
    return str(begun.json()["operation_id"])


@pytest.mark.feature("AD12")
def test_a_move_under_way_is_watched_and_cancelled(rest: Api, frozen: str) -> None:
    operation = move_to_three(rest, frozen)
    move = rest.ok("getKafkaReassignment", topic_name=frozen, partition_id=0)
    assert (move["adding_replicas"], move["removing_replicas"]) == ([3], [2])
    shown = rest.ok("cancelReassignments", body={}, query=DRY)["data"]
    assert [one["topic_name"] for one in shown] == [frozen]
    rest.ok("cancelOperation", operation_id=operation)
    assert rest.settled(operation)["state"] == "cancelled"
    wait_for(
        lambda: (
            rest.ok("getKafkaPartition", topic_name=frozen, partition_id=0)["replica_ids"] == [1, 2]
        ),
        "the replicas are as before",
    )


@pytest.mark.feature("AD18")
def test_an_operation_survives_the_controller_that_began_it(
    rest_cluster: Cluster, rest: Api, frozen: str
) -> None:
    operation = move_to_three(rest, frozen)
    active = (rest.cluster() or {})["controller_id"]
    rest_cluster.kill(f"controller-{active}")
    wait_for(lambda: (rest.cluster() or {}).get("active"), "this one becomes active")
    os.kill(rest_cluster.pid("broker-3"), signal.SIGCONT)
    ended = rest.settled(operation)
    assert (ended["state"], ended["progress"]) == ("succeeded", 1)
    rest_cluster.restart(f"controller-{active}")
