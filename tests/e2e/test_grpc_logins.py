"""The listener GRPC: clients that log in with each call, and what they may do.

Every RPC x {no credentials, wrong password, right without ACL, right with ACL, denied}, at a real
broker.
"""

import base64
import threading
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import grpc
import pytest
from e2e.acl_rows import GROUP, TOPIC, TRANSACTION, Need
from e2e.certificates import Authority
from e2e.grpc_rows import REFUSALS, ROWS, SERVICES, GrpcRow, codes_in
from e2e.identity_provider import IdentityProvider, identity_provider
from e2e.secured import SUPER_USER, Secured, codes, secured_cluster
from e2e.wire import ask
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from tidemark.cli.dev.layout import HOST
from tidemark.client import sync
from tidemark.client.errors import AuthenticationError, ClientConfigError
from tidemark.kafka.apis import ApiKey
from tidemark.model.acls import Permission
from tidemark.model.authorization import CLUSTER, Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark_wire.v1 import partition_store_pb2
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

METHODS = {method.name: method for service in SERVICES for method in service.methods}
INTERNAL_ONLY = ("TransactionMarkers", "ShareGroups")
USES_TOPIC = (
    Need(Operation.READ, topic_resource(TOPIC)),
    Need(Operation.WRITE, topic_resource(TOPIC)),
    Need(Operation.IDEMPOTENT_WRITE, CLUSTER),
)


def user_of(row: GrpcRow, case: str) -> str:
    return f"{row.rpc.lower()}-{case}"


def cases() -> Iterator[tuple[str, list[tuple[Need, Permission]]]]:
    """Users, and what they are allowed and denied."""
    for row in ROWS:
        allowed = [(need, Permission.ALLOW) for need in row.needs]
        yield user_of(row, "allowed"), allowed
        for number, need in enumerate(row.needs):
            others = [(one, Permission.ALLOW) for one in row.needs if one != need]
            yield user_of(row, f"without{number}"), others
            yield user_of(row, f"denied{number}"), [*allowed, (need, Permission.DENY)]


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as started:
        yield started


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("grpc-authority"))


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider, authority: Authority
) -> Iterator[Secured]:
    options = {
        **authority.server,
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": provider.url,
        "sasl.oauthbearer.jwks.endpoint.allow.http": "true",
        "sasl.oauthbearer.expected.issuer": provider.url,
        "sasl.oauthbearer.expected.audience": "tidemark",
    }
    with secured_cluster(
        tmp_path_factory.mktemp("grpc-logins"),
        txn_coordinators=1,
        share_coordinators=1,
        grpc=options,
    ) as world:
        fill(world)
        yield world


def fill(world: Secured) -> None:
    """Make the topic, the transactional id, and the users of all cases."""
    users = dict(cases())
    world.add_users([SUPER_USER, "nobody", "alice", *users])
    world.add_acls((user, *acl) for user, acls in users.items() for acl in acls)
    world.add_acls(("alice", need, Permission.ALLOW) for need in USES_TOPIC)
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    topics = [{**topic, "assignments": [], "configs": []}]
    with world.login(SUPER_USER) as wire:
        made = ask(wire, ApiKey.CREATE_TOPICS, 7, {"topics": topics})
        world.topic_ids = {one.name: one.topic_id for one in made.topics}
        fields = {
            "transactional_id": TRANSACTION,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        wait_for(lambda: codes(ask(wire, ApiKey.INIT_PRODUCER_ID, 5, fields)) == {0})
        key = {"key_type": 0, "coordinator_keys": [GROUP]}
        wait_for(lambda: codes(ask(wire, ApiKey.FIND_COORDINATOR, 4, key)) == {0})


def header(user: str, password: str | None = None) -> str:
    plain = f"{user}:{user if password is None else password}"
    return f"Basic {base64.b64encode(plain.encode()).decode()}"


@cache
def answer_type(method: MethodDescriptor) -> type[Any]:
    return message_factory.GetMessageClass(method.output_type)


def call(world: Secured, method: MethodDescriptor, content: bytes, value: str | None) -> Any:
    """The answer of one RPC, with this header. Raises grpc.RpcError."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    metadata = None if value is None else (("authorization", value),)
    trusted = grpc.ssl_channel_credentials(world.ca.read_bytes())
    answers: list[bytes] = []

    def answered() -> bool:
        """False while this address has sent more logins than are checked in a second."""
        try:
            if method.server_streaming:
                calls: Any = channel.stream_stream(path, None, None)
                answers.append(next(calls(iter([content]), timeout=PATIENCE_S, metadata=metadata)))
            else:
                one = channel.unary_unary(path, None, None)
                answers.append(one(content, timeout=PATIENCE_S, metadata=metadata))
        except grpc.RpcError as refused:
            if refused.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
        return bool(answers)

    with grpc.secure_channel(f"{HOST}:{world.grpc}", trusted) as channel:
        wait_for(answered)
    return answer_type(method).FromString(answers[0])


def status(world: Secured, method: MethodDescriptor, value: str | None) -> grpc.StatusCode:
    """How an empty request ends."""
    try:
        call(world, method, b"", value)
    except grpc.RpcError as refused:
        code: grpc.StatusCode = refused.code()
        return code
    return grpc.StatusCode.OK


def is_refused(world: Secured, row: GrpcRow, user: str) -> bool:
    request = row.request(world.topic_ids[TOPIC]).SerializeToString()
    answer = call(world, METHODS[row.rpc], request, header(user))
    found = set(codes_in(answer)) & REFUSALS
    if row.shows is None:
        return bool(found)
    assert not found
    return not row.shows(answer)


# -- the matrix


@pytest.mark.feature("SE17", "SE30")
def test_every_rpc_that_clients_reach_has_a_row(secured: Secured) -> None:
    assert {row.rpc for row in ROWS} == set(METHODS)
    trusted = grpc.ssl_channel_credentials(secured.ca.read_bytes())
    with grpc.secure_channel(f"{HOST}:{secured.grpc}", trusted) as channel:
        for name in INTERNAL_ONLY:
            one = channel.unary_unary(f"/tidemark_wire.v1.{name}/WriteMarkers", None, None)
            with pytest.raises(grpc.RpcError) as refused:
                one(b"", timeout=PATIENCE_S, metadata=(("authorization", header(SUPER_USER)),))
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.feature("SE30")
@pytest.mark.parametrize("rpc", METHODS)
def test_nobody_gets_in_without_proof(secured: Secured, rpc: str) -> None:
    method = METHODS[rpc]
    assert status(secured, method, None) is grpc.StatusCode.UNAUTHENTICATED
    assert status(secured, method, header("alice", "wrong")) is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.feature("SE17", "SE18")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rpc)
def test_an_rpc_asks_for_what_its_row_has(secured: Secured, row: GrpcRow) -> None:
    assert is_refused(secured, row, "nobody") == bool(row.needs)
    assert not is_refused(secured, row, user_of(row, "allowed"))
    for number, _ in enumerate(row.needs):
        assert is_refused(secured, row, user_of(row, f"without{number}"))
        assert is_refused(secured, row, user_of(row, f"denied{number}"))


# -- the native client


def settings(world: Secured, mechanism: str = "PLAIN", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"{HOST}:{world.grpc}",
        "transport": "grpc",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "ssl_ca_location": str(world.ca),
        **more,
    }


def password(user: str) -> dict[str, str]:
    return {"sasl_username": user, "sasl_password": user}


@pytest.mark.feature("SE30")
def test_the_native_client_writes_and_reads_with_a_password(secured: Secured) -> None:
    with sync.Producer(**settings(secured, **password("alice"))) as producer:
        first = producer.send(TOPIC, b"mine").offset
        producer.send(TOPIC, b"too")
    with sync.Consumer(**settings(secured, **password("alice"))) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek(TopicPartition(TOPIC, 0), first)
        assert [one.value for one in islice(consumer, 2)] == [b"mine", b"too"]


@pytest.mark.feature("SE30", "SE06")
def test_the_native_client_writes_with_a_token(
    secured: Secured, provider: IdentityProvider
) -> None:
    client = settings(secured, "OAUTHBEARER", sasl_oauthbearer_token=provider.token)
    with sync.Producer(**client) as producer:
        assert producer.send(TOPIC, b"by token").offset >= 0


@pytest.mark.feature("SE30")
@pytest.mark.parametrize("user", ["alice", "unknown"])
def test_a_refused_login_says_so_at_once(secured: Secured, user: str) -> None:
    wrong = settings(secured, sasl_username=user, sasl_password="wrong")
    with pytest.raises(AuthenticationError, match="do not fit"), sync.Producer(**wrong) as producer:
        producer.send(TOPIC, b"lost")


@pytest.mark.feature("SE30")
def test_a_stream_ends_with_its_token_and_goes_on_with_the_next(
    secured: Secured, provider: IdentityProvider
) -> None:
    """Tokens of a few seconds: the stream of appends is opened again, and nothing is lost."""
    made: list[str] = []

    def short() -> str:
        made.append(provider.token(exp=Clock().wall_ms() / 1_000 + 7))
        return made[-1]

    client = settings(secured, "OAUTHBEARER", sasl_oauthbearer_token=short)
    with sync.Producer(**client) as producer:
        offsets = [producer.send(TOPIC, b"first").offset]

        def written_with_a_third() -> bool:
            offsets.append(producer.send(TOPIC, b"next").offset)
            return len(made) >= 3

        wait_for(written_with_a_third)
    assert offsets == sorted(set(offsets))
    assert "the login has ended" not in secured.cluster.log("broker-1")


@pytest.mark.feature("SE30")
def test_an_open_stream_is_ended_when_its_token_ends(
    secured: Secured, provider: IdentityProvider
) -> None:
    token = provider.token(exp=Clock().wall_ms() / 1_000 + 3)
    trusted = grpc.ssl_channel_credentials(secured.ca.read_bytes())
    request = partition_store_pb2.FetchRequest()
    held = threading.Event()

    def requests() -> Iterator[bytes]:
        yield request.SerializeToString()
        held.wait()

    method = METHODS["Fetch"]
    path = f"/{method.containing_service.full_name}/{method.name}"
    with grpc.secure_channel(f"{HOST}:{secured.grpc}", trusted) as channel:
        metadata = (("authorization", f"Bearer {token}"),)
        ends: list[grpc.RpcError] = []

        def has_ended() -> bool:
            """False while this address has sent more logins than are checked in a second."""
            stream: Any = channel.stream_stream(path, None, None)(requests(), metadata=metadata)
            with pytest.raises(grpc.RpcError) as ended:
                list(stream)  # it would go on for ever
            ends.append(ended.value)
            return ended.value.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED

        wait_for(has_ended)
        held.set()
    assert ends[-1].code() is grpc.StatusCode.UNAVAILABLE
    assert "the login has ended" in str(ends[-1].details())


@pytest.mark.feature("SE30")
def test_clients_get_the_addresses_of_their_own_listener(secured: Secured) -> None:
    method = METHODS["DescribeEndpoints"]
    answer = call(secured, method, b"", header("alice"))
    assert [one.grpc_endpoint for one in answer.brokers] == [f"{HOST}:{secured.grpc}"]


# -- attacks


@pytest.mark.feature("SE30")
@pytest.mark.parametrize(
    "value",
    [
        "",
        "Basic",
        "Basic " + "A" * 6_000,
        "Bearer " + "x." * 2_000,
        "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.",
        "Digest username=root",
        "Basic " + base64.b64encode(b"root:root\0").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
    ],
)
def test_a_header_that_proves_nothing_is_refused(secured: Secured, value: str) -> None:
    method = METHODS["DescribeEndpoints"]
    assert status(secured, method, value) is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.feature("SE30")
def test_an_unsigned_token_and_one_of_another_audience_are_refused(
    secured: Secured, provider: IdentityProvider
) -> None:
    method = METHODS["DescribeEndpoints"]
    for token in (provider.token(aud="another"), provider.token(exp=1)):
        found = status(secured, method, f"Bearer {token}")
        assert found is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.feature("SE30")
def test_a_process_of_the_cluster_is_none_here(secured: Secured) -> None:
    """The principal of processes cannot be claimed."""
    method = METHODS["DescribeEndpoints"]
    claimed = status(secured, method, header("Process:tidemark", "x"))
    assert claimed is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.feature("SE30")
def test_without_tls_there_is_no_connection(secured: Secured) -> None:
    with grpc.insecure_channel(f"{HOST}:{secured.grpc}") as channel:
        method = METHODS["DescribeEndpoints"]
        one = channel.unary_unary(
            f"/{method.containing_service.full_name}/{method.name}", None, None
        )
        with pytest.raises(grpc.RpcError) as refused:
            one(b"", timeout=PATIENCE_S, metadata=(("authorization", header("alice")),))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.feature("SE30", "SE24")
def test_no_password_is_in_the_log_and_failures_are(secured: Secured) -> None:
    method = METHODS["DescribeEndpoints"]
    status(secured, method, header("mallory", "s3cret-guess"))
    text = secured.cluster.log("broker-1")
    assert "s3cret-guess" not in text
    assert base64.b64encode(b"mallory:s3cret-guess").decode() not in text
    failed = [line for line in text.splitlines() if "login failed" in line]
    assert any("mallory" in line and "listener=GRPC" in line for line in failed)
    metrics = secured.cluster.ops("broker-1", "/metrics")
    assert 'failed_authentication_total{listener="GRPC"}' in metrics


# -- what the client refuses by itself


@pytest.mark.feature("SE30")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}, "SASL_SSL"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "PLAIN or OAUTHBEARER"),
    ],
)
def test_a_client_does_not_send_its_password_where_it_should_not(
    changed: dict[str, str], words: str
) -> None:
    given: dict[str, Any] = {
        "transport": "grpc",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        **password("alice"),
        **changed,
    }
    with pytest.raises(ClientConfigError, match=words) as refused:
        sync.Producer("127.0.0.1:1", **given)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
