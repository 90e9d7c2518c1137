"""ACLs as Kafka's clients and the command line meet them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from e2e.certificates import Authority
from e2e.command_line import Cli
from e2e.load import under_load
from e2e.secured import MECHANISM, SUPER_USER, Secured, secured_cluster
from tidemark.cli.dev.layout import HOST
from tidemark.client import sync
from tidemark.model.topics import AUDIT_LOG
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


RULES = r"RULE:^CN=([a-z]+),OU=sales,O=Acme\\, Inc\.$/$1/"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Secured]:
    mutual = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": RULES}
    audit = {"audit.sinks": "topic,log", "audit.interval.ms": "200"}
    with secured_cluster(
        tmp_path_factory.mktemp("acls"),
        mutual=authority.server | mutual,
        everywhere=audit,
    ) as world:
        world.add_users([SUPER_USER, "alice", "bob", "carol", "victor"])
        admin = AdminClient(settings(world, SUPER_USER))
        topics = [NewTopic(name, 1, 1) for name in ("orders-eu", "secret")]
        for one in admin.create_topics(topics).values():
            one.result(PATIENCE_S)
        yield world


def settings(world: Secured, user: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": f"{HOST}:{world.safe}",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": user,
    }


def internal(world: Secured) -> tuple[str, str]:
    return "-b", f"{HOST}:{world.internal}"


def acl(user: str, operation: AclOperation, name: str, kind: ResourceType) -> AclBinding:
    return AclBinding(
        kind,
        name,
        ResourcePatternType.PREFIXED,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def produce(world: Secured, user: str, topic: str) -> KafkaError | None:
    """The error of a record of a producer without idempotence."""
    return produce_as(settings(world, user), topic)


def produce_as(client: dict[str, str | int | float | bool], topic: str) -> KafkaError | None:
    outcomes: list[KafkaError | None] = []
    producer = Producer(client)
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(PATIENCE_S)
    return outcomes[0]


@pytest.mark.feature("SE13", "SE14", "SE15", "U04")
def test_librdkafka_may_do_what_prefixed_acls_allow_and_nothing_else(secured: Secured) -> None:
    admin = AdminClient(settings(secured, SUPER_USER))
    wanted = [
        acl("alice", AclOperation.WRITE, "orders", ResourceType.TOPIC),
        acl("alice", AclOperation.READ, "orders", ResourceType.TOPIC),
        acl("alice", AclOperation.READ, "readers", ResourceType.GROUP),
    ]
    for made in admin.create_acls(wanted).values():
        made.result(PATIENCE_S)
    assert produce(secured, "alice", "orders-eu") is None
    refused = produce(secured, "alice", "secret")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    group = {"group.id": "readers-1", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings(secured, "alice"), **group})
    consumer.subscribe(["orders-eu"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"x")
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    other = Consumer({**settings(secured, "alice"), "group.id": "others"})
    other.subscribe(["orders-eu"])
    message = other.poll(PATIENCE_S)
    assert message is not None
    problem = message.error()
    assert problem is not None
    assert problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    other.close()


@pytest.mark.feature("SE14", "A09")
def test_a_pattern_of_the_consumer_protocol_matches_what_its_member_may_describe(
    secured: Secured,
) -> None:
    admin = AdminClient(settings(secured, SUPER_USER))
    wanted = [
        acl("victor", AclOperation.READ, "patterns", ResourceType.TOPIC),
        acl("victor", AclOperation.READ, "patterns", ResourceType.GROUP),
    ]
    for made in admin.create_acls(wanted).values():
        made.result(PATIENCE_S)
    admin.create_topics([NewTopic("patterns-eu", 1, 1)])["patterns-eu"].result(PATIENCE_S)
    for topic in ("patterns-eu", "secret"):
        assert produce(secured, SUPER_USER, topic) is None
    group = {
        "group.id": "patterns",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**settings(secured, "victor"), **group})
    consumer.subscribe(["^[a-z].*"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert (message.error(), message.topic()) == (None, "patterns-eu")
    (described,) = admin.describe_consumer_groups(["patterns"]).values()
    (member,) = described.result(PATIENCE_S).members
    assert [one.topic for one in member.assignment.topic_partitions] == ["patterns-eu"]
    consumer.close()


@pytest.mark.feature("SE15")
def test_acls_are_described_and_deleted_by_filter(secured: Secured) -> None:
    admin = AdminClient(settings(secured, SUPER_USER))
    made = acl("dave", AclOperation.DESCRIBE, "x", ResourceType.TOPIC)
    admin.create_acls([made])[made].result(PATIENCE_S)
    wanted = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        "User:dave",
        None,  # type: ignore[arg-type]  # the stub lacks None: any
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(wanted).result(PATIENCE_S) == [made]
    assert admin.delete_acls([wanted])[wanted].result(PATIENCE_S) == [made]
    assert admin.describe_acls(wanted).result(PATIENCE_S) == []


def topics_seen(world: Secured, user: str) -> set[str]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=f"{HOST}:{world.safe}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=MECHANISM,
        sasl_plain_username=user,
        sasl_plain_password=user,
    )
    seen: set[str] = consumer.topics()
    consumer.close()
    return seen


@pytest.mark.feature("SE18")
def test_kafka_python_sees_only_what_it_may_describe(secured: Secured) -> None:
    cli = Cli(secured.cluster)
    done = cli.run("acl", "add", "bob", "describe", "--topic", "orders-eu", *internal(secured))
    assert done.returncode == ExitCode.OK, done.stderr.decode()
    assert topics_seen(secured, "bob") == {"orders-eu"}


@pytest.mark.feature("SE15")
def test_the_command_line_adds_checks_lists_and_removes(secured: Secured) -> None:
    cli, where = Cli(secured.cluster), internal(secured)
    words = ("carol", "read", "--topic", "orders-eu")
    assert cli.run("acl", "check", *words, *where).returncode == ExitCode.FAILED
    assert cli.run("acl", "add", *words, *where).returncode == ExitCode.OK
    (row,) = cli.json("acl", "check", "carol", "describe", "--topic", "orders-eu", *where)
    assert row["acl"] == "allow read on topic orders-eu to User:carol from *"
    assert cli.run("acl", "add", *words, "--deny", *where).returncode == ExitCode.OK
    (row,) = cli.json("acl", "check", *words, *where, code=ExitCode.FAILED)
    assert row["because"] == "denied by an ACL"
    (row,) = cli.json("acl", "check", SUPER_USER, "read", "--topic", "orders-eu", *where)
    assert row["because"] == "super user"
    listed = cli.json("acl", "list", "--principal", "carol", *where)
    assert [one["permission"] for one in listed] == ["deny", "allow"]
    assert cli.run("acl", "remove", *words, "--deny", "-y", *where).returncode == ExitCode.OK
    assert cli.run("acl", "remove", *words, "--deny", "-y", *where).returncode != ExitCode.OK
    assert len(cli.json("acl", "list", "--principal", "carol", *where)) == 1


def by_certificate(world: Secured, files: dict[str, str]) -> dict[str, str | int | float | bool]:
    address = f"{HOST}:{world.mutual}"
    return {"bootstrap.servers": address, "security.protocol": "ssl", **files}


@pytest.mark.feature("SE08", "SE14")
def test_acls_hold_for_the_principal_of_a_certificate(
    secured: Secured, authority: Authority
) -> None:
    wanted = [acl("dora", AclOperation.WRITE, "orders", ResourceType.TOPIC)]
    admin = AdminClient(settings(secured, SUPER_USER))
    for one in admin.create_acls(wanted).values():
        one.result(PATIENCE_S)
    dora, erin = (by_certificate(secured, authority.client(name)) for name in ("dora", "erin"))
    assert produce_as(dora, "orders-eu") is None
    refused = [produce_as(dora, "secret"), produce_as(erin, "orders-eu")]
    assert [error and error.code() for error in refused] == (
        [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2
    )
    native = {name.replace(".", "_"): value for name, value in dora.items()}
    with sync.Producer(**native | {"security_protocol": "SSL"}) as producer:  # type: ignore[arg-type]
        assert producer.send("orders-eu", b"x").offset >= 1


@pytest.mark.feature("SE08")
def test_certificates_are_replaced_under_load_without_a_failed_request(
    secured: Secured, authority: Authority
) -> None:
    """By a connection that stays open, and by new ones."""
    wanted = [acl("fay", AclOperation.WRITE, "orders", ResourceType.TOPIC)]
    admin = AdminClient(settings(secured, SUPER_USER))
    for one in admin.create_acls(wanted).values():
        one.result(PATIENCE_S)
    native: dict[str, Any] = {
        name.replace(".", "_"): value
        for name, value in by_certificate(secured, authority.client("fay")).items()
    } | {"security_protocol": "SSL", "enable_idempotence": False}

    with sync.Producer(**native) as staying:

        def write() -> None:
            staying.send("orders-eu", b"x")
            with sync.Producer(**native) as coming:
                coming.send("orders-eu", b"x")

        before = authority.shown_serial(secured.mutual)
        with under_load(write):
            authority.renew_server()
            wait_for(lambda: authority.shown_serial(secured.mutual) != before)


def cannot_connect(client: dict[str, str | int | float | bool]) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**client, "error_cb": errors.append})
    wait_for(lambda: producer.poll(0.05) or errors, "an error of the client")


@pytest.mark.feature("SE08")
def test_a_certificate_without_a_rule_and_no_certificate_get_nowhere(
    secured: Secured, authority: Authority
) -> None:
    without = by_certificate(secured, {"ssl.ca.location": authority.ca})
    for client in (by_certificate(secured, authority.client("Number 5")), without):
        cannot_connect(client)
    assert "no rule for 'CN=Number 5,OU=sales" in secured.cluster.log("broker-1")


Event = dict[str, Any]


def events_until(world: Secured, *wanted: Callable[[Event], bool]) -> list[Event]:
    """What a client with the right to read has read of the audit log, up to the last wanted event:
    processes write their events each for itself.
    """
    consumer = Consumer({**settings(world, SUPER_USER), "group.id": "auditors"})
    consumer.assign([TopicPartition(AUDIT_LOG, 0, 0)])
    events: list[Event] = []

    def found() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            events.append(json.loads(message.value() or b""))
        return all(any(map(one, events)) for one in wanted)

    wait_for(found, "events in the audit log")
    consumer.close()
    return events


def of(event: Event, user: str, name: str) -> bool:
    """True for an event about a user and a resource."""
    actor = event.get("actor", {}).get("user", {}).get("name")
    return bool(actor == f"User:{user}" and event["resources"][0]["name"] == name)


def is_login(event: Event, user: str) -> bool:
    return event["class_uid"] == 3002 and bool(event["user"]["name"] == user)


@pytest.mark.feature("SE23")
def test_the_audit_log_has_who_tried_what_and_which_acl_decided(secured: Secured) -> None:
    secured.add_users(["fred"])
    admin = AdminClient(settings(secured, SUPER_USER))
    wanted = [acl("fred", AclOperation.WRITE, "orders", ResourceType.TOPIC)]
    for one in admin.create_acls(wanted).values():
        one.result(PATIENCE_S)
    admin.create_topics([NewTopic("orders-audited", 1, 1)])["orders-audited"].result(PATIENCE_S)
    producer = Producer(settings(secured, "fred"))
    for _ in range(20):
        producer.produce("orders-audited", b"a payload")
        producer.flush(PATIENCE_S)
    assert produce(secured, "fred", "secret") is not None
    events = events_until(secured, lambda event: of(event, "fred", "secret"))
    (denied, *_) = [one for one in events if of(one, "fred", "secret")]
    assert (denied["class_uid"], denied["status_id"], denied["src_endpoint"]["ip"]) == (
        (6003, 2, HOST)
    )
    writes = [one for one in events if of(one, "fred", "orders-audited")]
    assert {one["api"]["operation"] for one in writes} == {"Write"}
    assert sum(one["count"] for one in writes) >= 20
    (decision,) = writes[0]["actor"]["authorizations"]
    assert decision["policy"]["desc"] == "allow Write on Topic prefixed orders to User:fred from *"
    assert not any("a payload" in json.dumps(one) for one in events)


@pytest.mark.feature("SE23")
def test_the_audit_log_has_logins_and_changes_and_nobody_may_write_it(secured: Secured) -> None:
    secured.add_users(["gina"])
    with secured.login("gina", "wrong"):
        pass
    assert produce(secured, "gina", "orders-eu") is not None
    admin = AdminClient(settings(secured, SUPER_USER))
    made = admin.create_topics([NewTopic("audited", 1, 1)])
    made["audited"].result(PATIENCE_S)
    refused = produce(secured, SUPER_USER, AUDIT_LOG)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_EXCEPTION
    events = events_until(
        secured,
        lambda one: of(one, SUPER_USER, "audited"),
        lambda one: is_login(one, "gina") and one["status_id"] == 1,
    )
    logins = {
        (one["status_id"], one["auth_protocol"], one["service"]["name"])
        for one in events
        if is_login(one, "gina")
    }
    assert logins == {(2, MECHANISM, "SAFE"), (1, MECHANISM, "SAFE")}
    users = [one for one in events if one.get("api", {}).get("operation") == "AlterUsers"]
    assert "gina" in {one["resources"][0]["name"] for one in users}
    refused = produce(secured, "gina", AUDIT_LOG)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "tidemark_audit_dropped_total 0.0" in secured.cluster.ops("broker-1", "/metrics")
