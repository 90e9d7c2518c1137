"""TLS from PEM files: handshakes in memory, and gRPC over a socket."""

import asyncio
import ssl
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tidemark.runtime.channel import open_channel
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.server import GrpcServer, make_grpc_server
from tidemark.runtime.tls import (
    ClientAuth,
    ServerTls,
    TlsError,
    TlsSettings,
    channel_credentials,
    client_context,
)
from unit.pem_files import SERVER, PemFiles
from waiting import PATIENCE_S

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def files(tmp_path: Path) -> PemFiles:
    return PemFiles(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> PemFiles:
    """Of an authority that nobody trusts."""
    return PemFiles(tmp_path / "theirs")


def handshake(
    server: ServerTls, client: ssl.SSLContext, name: str = SERVER
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after it, the server's first. Raises what fails either."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.context.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    )
    waiting = list(ends)
    while waiting:
        for end in tuple(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    return ends


def serial_number(end: ssl.SSLObject) -> object:
    shown = end.getpeercert()
    return None if shown is None else shown.get("serialNumber")


# -- who is trusted


def test_a_client_that_trusts_the_authority_gets_in(files: PemFiles) -> None:
    server, client = handshake(ServerTls(files.identity), client_context(files.trust))
    assert server.getpeercert() is None
    assert client.version() in ("TLSv1.2", "TLSv1.3")


def test_older_versions_are_not_spoken(files: PemFiles) -> None:
    assert ServerTls(files.identity).context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert client_context(files.trust).minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_server_of_another_authority_is_refused(files: PemFiles, theirs: PemFiles) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        handshake(ServerTls(theirs.identity), client_context(files.trust))


def test_a_client_told_of_no_authority_trusts_the_systems(files: PemFiles) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        handshake(ServerTls(files.identity), client_context(TlsSettings()))


def test_a_server_of_another_name_is_refused_unless_names_do_not_matter(files: PemFiles) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(ServerTls(files.identity), client_context(files.trust), "broker-2.local")
    lenient = client_context(files.trust, check_host=False)
    handshake(ServerTls(files.identity), lenient, "broker-2.local")


@pytest.mark.parametrize("asked", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_a_clients_certificate_is_seen_when_asked_for(files: PemFiles, asked: ClientAuth) -> None:
    tls = ServerTls(files.identity._replace(client_auth=asked))
    server, client = handshake(tls, client_context(files.identity))
    assert serial_number(server) == serial_number(client) is not None


@pytest.mark.parametrize("asked", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_a_clients_certificate_of_another_authority_is_refused(
    files: PemFiles, theirs: PemFiles, asked: ClientAuth
) -> None:
    tls = ServerTls(files.identity._replace(client_auth=asked))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls, client_context(theirs.identity._replace(ca=files.ca)))


def test_only_where_it_is_required_must_a_client_show_one(files: PemFiles) -> None:
    requested = ServerTls(files.identity._replace(client_auth=ClientAuth.REQUESTED))
    server, _ = handshake(requested, client_context(files.trust))
    assert server.getpeercert() is None
    required = ServerTls(files.identity._replace(client_auth=ClientAuth.REQUIRED))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(required, client_context(files.trust))


# -- what the files may be


def test_the_key_may_stand_in_the_certificates_file(files: PemFiles) -> None:
    files.certificate.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    handshake(ServerTls(files.identity._replace(key=None)), client_context(files.trust))


def test_a_key_may_have_a_password(files: PemFiles) -> None:
    files.encrypt_key("open sesame")
    tls = ServerTls(files.identity._replace(key_password="open sesame"))
    handshake(tls, client_context(files.trust))


def refused(settings: TlsSettings) -> str:
    """What both ends, and gRPC, say of it."""
    with pytest.raises(TlsError) as failed:
        ServerTls(settings)
    assert failed.value.exit_code is ExitCode.CONFIG
    for make in (client_context, channel_credentials):
        with pytest.raises(TlsError) as again:
            make(settings)
        assert str(again.value) == str(failed.value)
    return str(failed.value)


def test_a_file_that_is_not_there_is_named_with_its_key(files: PemFiles) -> None:
    absent = files.certificate.with_name("absent.pem")
    why = f"cannot read {absent}: No such file or directory"
    ours = files.identity
    assert refused(ours._replace(certificate=absent)) == f"ssl.certificate.location: {why}"
    assert refused(ours._replace(key=absent)) == f"ssl.key.location: {why}"
    assert refused(ours._replace(ca=absent)) == f"ssl.ca.location: {why}"


def test_a_file_of_another_kind_is_named_with_its_key(files: PemFiles) -> None:
    swapped = files.identity._replace(certificate=files.key, key=files.certificate)
    assert refused(swapped) == (
        f"ssl.certificate.location: {files.key} contains no PEM certificate"
    )
    no_key = files.identity._replace(key=files.ca)
    assert refused(no_key) == f"ssl.key.location: {files.ca} contains no PEM private key"
    no_ca = files.identity._replace(ca=files.key)
    assert refused(no_ca) == f"ssl.ca.location: {files.key} contains no usable PEM certificate"


def test_the_key_of_another_certificate_is_named(files: PemFiles, theirs: PemFiles) -> None:
    said = refused(files.identity._replace(key=theirs.key))
    assert str(theirs.key) in said
    assert f"is not that of the first certificate in {files.certificate}" in said


@pytest.mark.parametrize("password", ["", "open barley"])
def test_a_password_that_does_not_fit_is_said_and_not_shown(files: PemFiles, password: str) -> None:
    files.encrypt_key("open sesame")
    said = refused(files.identity._replace(key_password=password))
    assert said.startswith(f"ssl.key.password does not open the private key in {files.key}")
    assert "barley" not in said


def test_between_processes_a_key_has_no_password(files: PemFiles) -> None:
    files.encrypt_key("open sesame")
    said = refused(files.identity._replace(prefix="grpc."))
    assert said.startswith(f"grpc.ssl.key.location: {files.key} needs a password; store it without")


def test_a_truncated_certificate_is_refused(files: PemFiles) -> None:
    files.certificate.write_bytes(files.certificate.read_bytes()[:200])
    assert refused(files.identity).startswith(f"ssl.certificate.location: {files.certificate} with")


def test_a_server_needs_a_certificate_and_someone_to_check_clients_against(files: PemFiles) -> None:
    with pytest.raises(TlsError, match=r"ssl\.certificate\.location must be set"):
        ServerTls(files.trust)
    alone = files.identity._replace(ca=None, client_auth=ClientAuth.REQUIRED)
    with pytest.raises(TlsError, match=r"ssl\.ca\.location must be set: with .*=required"):
        ServerTls(alone)


# -- files that change


def test_a_new_certificate_counts_from_the_next_handshake(files: PemFiles) -> None:
    server, client = ServerTls(files.identity), client_context(files.trust)
    _, before = handshake(server, client)
    files.issue()
    _, after = handshake(server, client)
    assert serial_number(before) != serial_number(after)


def test_a_new_authority_counts_for_clients_certificates(files: PemFiles, theirs: PemFiles) -> None:
    server = ServerTls(files.identity._replace(client_auth=ClientAuth.REQUIRED))
    client = client_context(theirs.identity._replace(ca=files.ca))
    files.ca.write_bytes(theirs.ca.read_bytes())
    handshake(server, client)


def test_files_in_the_middle_of_a_change_leave_the_old_ones_in_force(
    files: PemFiles, theirs: PemFiles, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = ServerTls(files.identity), client_context(files.trust)
    key = files.key.read_bytes()
    files.key.write_bytes(theirs.key.read_bytes())
    for _ in range(3):
        handshake(server, client)
    assert [record.message for record in caplog.records] == ["TLS files cannot be used"]
    with pytest.raises(TlsError, match="is not that of the first certificate"):
        server.reload()
    files.key.write_bytes(key)
    handshake(server, client)
    assert server.reload() is False


def test_a_removed_file_leaves_the_old_ones_in_force(files: PemFiles) -> None:
    server, client = ServerTls(files.identity), client_context(files.trust)
    files.certificate.unlink()
    handshake(server, client)
    with pytest.raises(TlsError, match="No such file"):
        server.reload()


# -- gRPC


async def asked(server: GrpcServer, credentials: grpc.ChannelCredentials | None) -> int | str:
    """What a health check answers, or the status that it fails with."""
    async with open_channel(str(server.address), credentials) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        try:
            return int((await check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)).status)
        except grpc.aio.AioRpcError as error:
            return error.code().name


def serving(tls: ServerTls) -> GrpcServer:
    return make_grpc_server("127.0.0.1:0", [], lambda _: None, credentials=tls.credentials())


def test_grpc_with_certificates_on_both_sides(files: PemFiles) -> None:
    tls = ServerTls(files.identity._replace(client_auth=ClientAuth.REQUIRED))
    clients = (channel_credentials(files.identity), channel_credentials(files.trust), None)

    async def main() -> list[int | str]:
        async with serving(tls) as server:
            return [await asked(server, client) for client in clients]

    assert asyncio.run(main()) == [NOT_SERVING, "UNAVAILABLE", "UNAVAILABLE"]


def test_grpc_takes_new_files_at_the_next_handshake(files: PemFiles, theirs: PemFiles) -> None:
    ours, other = channel_credentials(files.trust), channel_credentials(theirs.trust)

    async def main() -> list[int | str]:
        async with serving(ServerTls(files.identity)) as server:
            before = [await asked(server, ours), await asked(server, other)]
            files.certificate.write_bytes(theirs.certificate.read_bytes())
            files.key.write_bytes(theirs.key.read_bytes())
            return [*before, await asked(server, ours), await asked(server, other)]

    assert asyncio.run(main()) == [NOT_SERVING, "UNAVAILABLE", "UNAVAILABLE", NOT_SERVING]


def test_grpc_does_not_take_an_encrypted_key(files: PemFiles) -> None:
    files.encrypt_key("open sesame")
    settings = files.identity._replace(key_password="open sesame")
    with pytest.raises(TlsError, match="gRPC cannot use a private key with a password"):
        ServerTls(settings).credentials()
    with pytest.raises(TlsError, match="gRPC cannot use a private key with a password"):
        channel_credentials(settings)
