"""A cluster for the tests of REST: topics, groups, a share group and an open transaction, and a
client that fills the paths of the OpenAPI document.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from e2e.clusters import Cluster, started_cluster
from tidemark.cli.dev.cluster import Config
from tidemark.cli.dev.layout import HOST
from tidemark.client import AlterConfig, ConfigResource, NewTopic, TopicPartition, sync
from tidemark.runtime.access.authorization_config import STANDARD_AUTHORIZER
from waiting import PATIENCE_MS, PATIENCE_S, wait_for

ORDERS = "rest.orders"
GROUP = "billing/eu <1>"
"""Group with committed offsets; its id has characters that a path has to escape."""
READERS = "rest-readers"
WORKERS = "rest-workers"
QUIET = "rest-quiet"
"""Share group without members."""
LETTERS = "dlq.workers"
"""Dead-letter queue of the share group with members."""
TRANSACTION = "rest/payments 1"
USER = "alice/eu <1>"
"""User with a password and a quota."""
RECORDS = 12
STAYS_MS = 3 * PATIENCE_MS
"""How long the member and the transaction stay without a call: longer than all tests together."""


@dataclass
class Api:
    """Client of one controller's REST."""

    base: str
    http: httpx.Client
    document: dict[str, Any] = field(default_factory=dict)
    cluster_id: str = ""
    names: dict[str, str] = field(default_factory=dict)
    """Values of path parameters."""

    def begin(self) -> None:
        """Read the OpenAPI document and the id of the cluster."""
        self.document = self.http.get("/openapi.json").raise_for_status().json()
        data = wait_for(lambda: self.cluster(), "the controller has metadata")
        self.cluster_id = data["cluster_id"]
        self.names["cluster_id"] = self.cluster_id

    def cluster(self) -> dict[str, Any] | None:
        answer = self.http.get("/v3/clusters")
        if answer.status_code != httpx.codes.OK:
            return None
        data: dict[str, Any] = answer.json()["data"][0]
        return data if data["cluster_id"] else None

    def operations(self) -> dict[str, tuple[str, str]]:
        """Method and path of each operation id."""
        return {
            operation["operationId"]: (method.upper(), path)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        }

    def call(
        self,
        operation_id: str,
        /,
        body: Any = None,
        query: Any = None,
        headers: Any = None,
        **names: object,
    ) -> httpx.Response:
        """Call an operation, with values for the parameters of its path."""
        method, path = self.operations()[operation_id]
        values = {**self.names, **{key: str(value) for key, value in names.items()}}
        filled = re.sub(r"\{(\w+)\}", lambda at: quote(values[at[1]], safe=""), path)
        return self.http.request(method, filled, json=body, params=query, headers=headers)

    def ok(self, operation_id: str, /, **of: Any) -> Any:
        """Call an operation, and return its JSON (None without a body)."""
        answer = self.call(operation_id, **of)
        assert answer.is_success, (operation_id, answer.status_code, answer.text)
        return (
            answer.json() if answer.content and "json" in answer.headers["content-type"] else None
        )

    def settled(self, operation_id: str) -> dict[str, Any]:
        """Wait until a long action has ended."""

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.ok("getOperation", operation_id=operation_id)
            return found if found["state"] in ("succeeded", "failed", "cancelled") else None

        return wait_for(look, f"operation {operation_id} ends")


def api_of(cluster: Cluster, controller: int) -> Api:
    port = cluster.layout.member(f"controller-{controller}").ports["rest"]
    base = f"http://{HOST}:{port}"
    api = Api(base, httpx.Client(base_url=base, timeout=PATIENCE_S))
    api.begin()
    return api


def standby(cluster: Cluster) -> int:
    """Number of the controller that is not active."""
    active = []
    for number in (1, 2):
        api = api_of(cluster, number)
        active.append((api.cluster() or {})["active"])
        api.http.close()
    return 1 + active.index(False)


@pytest.fixture(scope="module")
def rest_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, two controllers, a txn- and a share-coordinator."""
    quick: Config = {
        "offsets.topic.num.partitions": 2,
        "share.coordinator.state.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 2,
    }
    rules: Config = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root",
        "allow.everyone.if.no.acl.found": True,
    }
    own = started_cluster(
        tmp_path_factory.mktemp("rest"),
        brokers=3,
        controllers=2,
        txn_coordinators=1,
        share_coordinators=1,
        overrides={"broker": {**quick, **rules}, "controller": {"rest.rate.per.second": 10_000}},
    )
    yield own
    own.end()


@pytest.fixture(scope="module")
def rest(rest_cluster: Cluster) -> Iterator[Api]:
    """REST of the controller that is not active, with a world to look at."""
    with contextlib.ExitStack() as held:
        api = api_of(rest_cluster, standby(rest_cluster))
        held.callback(api.http.close)
        fill(rest_cluster, api, held)
        yield api


def fill(cluster: Cluster, api: Api, held: contextlib.ExitStack) -> None:
    with sync.Admin(cluster.kafka()) as admin:
        queue = NewTopic(LETTERS, 1, 2, {"errors.deadletterqueue.group.enable": "true"})
        admin.create_topics([NewTopic(ORDERS, 2, 2), queue])
        with sync.Producer(cluster.kafka()) as producer:
            producer.send_many(ORDERS, [(b"k%d" % n, b'{"n": %d}' % n) for n in range(RECORDS)])
        admin.alter_group_offsets(GROUP, {TopicPartition(ORDERS, 0): 1})
        reset = AlterConfig("share.auto.offset.reset", "earliest")
        admin.alter_configs({ConfigResource("group", name): [reset] for name in (WORKERS, QUIET)})
        dead = AlterConfig("errors.deadletterqueue.topic.name", LETTERS)
        admin.alter_configs({ConfigResource("group", WORKERS): [dead]})
    with sync.ShareConsumer(cluster.kafka(), group_id=QUIET) as worker:
        worker.subscribe([ORDERS])
        wait_for(lambda: worker.poll(timeout_ms=100), "the quiet group has read")
    reader = held.enter_context(
        sync.Consumer(
            cluster.kafka(),
            group_id=READERS,
            auto_offset_reset="earliest",
            max_poll_interval_ms=STAYS_MS,
        )
    )
    reader.subscribe([ORDERS])
    wait_for(lambda: reader.poll(timeout_ms=100), "the group reads")
    worker = held.enter_context(
        sync.ShareConsumer(cluster.kafka(), group_id=WORKERS, share_acknowledgement_mode="explicit")
    )
    worker.subscribe([ORDERS])
    wait_for(lambda: worker.poll(timeout_ms=100), "the share group reads")
    writer = held.enter_context(
        sync.TransactionalProducer(
            cluster.kafka(), transactional_id=TRANSACTION, transaction_timeout_ms=STAYS_MS
        )
    )
    writer.init()
    writer.begin()
    writer.send(ORDERS, b"open", partition=1)
    consumers = api.ok("listKafkaConsumers", consumer_group_id=READERS)["data"]
    api.names |= {
        "topic_name": ORDERS,
        "partition_id": "0",
        "broker_id": "1",
        "name": "retention.ms",
        "consumer_group_id": READERS,
        "group_id": WORKERS,
        "transactional_id": TRANSACTION,
        "consumer_id": consumers[0]["consumer_id"],
        "operation_id": "none",
        "user_name": USER,
    }
    api.ok("setUserPassword", body={"password": "opensesame", "iterations": 4_096})
    api.ok("alterQuotas", body={"entity": {"user": USER}, "values": {"producer_byte_rate": 10**9}})
