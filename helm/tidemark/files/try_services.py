"""Test of a release: a transaction, an acknowledgement by a share group, and REST."""

import json
import os
import sys
import urllib.request

from tidemark.client import AlterConfig, ConfigResource, sync

TIMEOUT_S = 60
BOOTSTRAP, TOPIC = os.environ["BOOTSTRAP"], os.environ["TOPIC"]


def transact() -> None:
    """Read what a transaction committed, and nothing of one that was aborted."""
    with sync.TransactionalProducer(BOOTSTRAP, transactional_id=TOPIC) as producer:
        producer.init()
        producer.begin()
        producer.send(TOPIC, b"aborted")
        producer.abort()
        with producer.transaction():
            producer.send(TOPIC, b"committed")
    with sync.Consumer(
        BOOTSTRAP, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(TOPIC, 0)])
        values: list[bytes | None] = []
        while b"committed" not in values:
            values += [record.value for record in consumer.poll(10, timeout_ms=1_000)]
    assert b"aborted" not in values, values


def acknowledge() -> None:
    """Accept a record as a member of a share group."""
    with sync.Admin(BOOTSTRAP) as admin:
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        admin.alter_configs({ConfigResource("group", TOPIC): [earliest]})
    with sync.ShareConsumer(
        BOOTSTRAP, group_id=TOPIC, share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe([TOPIC])
        while not (records := consumer.poll()):
            pass
        for record in records:
            consumer.acknowledge(record, "accept")
        failed = {at: error for at, error in consumer.commit_sync().items() if error}
    assert not failed, failed


def ask_rest() -> None:
    """Get the cluster by REST."""
    with urllib.request.urlopen(f"{os.environ['REST']}/v3/clusters", timeout=TIMEOUT_S) as answer:
        found = json.load(answer)
    assert found["data"][0]["cluster_id"], found


TESTS = {"transaction": transact, "share group": acknowledge, "REST": ask_rest}
for name in os.environ["TESTS"].split(","):
    TESTS[name]()
    sys.stdout.write(f"{name}: works\n")
