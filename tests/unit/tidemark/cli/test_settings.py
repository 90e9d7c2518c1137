"""Settings: their order, their checks, and profiles."""

import json
from pathlib import Path

import pytest
from tidemark.cli import settings
from tidemark.cli.dev.layout import Ports, Shape
from tidemark.cli.failure import CommandError
from tidemark.cli.main import hoisted, run
from tidemark.cli.output import bootstrap_for
from tidemark.cli.security import security, security_over
from tidemark.client.config import ProducerConfig
from tidemark.runtime.exit_codes import ExitCode

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def no_cluster_here(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


def embedded(directory: Path, base: int) -> None:
    directory.mkdir()
    Shape(brokers=2, ports=Ports.from_base(base)).write(directory / "cluster.json")


@pytest.mark.feature("AD55")
def test_each_source_yields_to_the_one_before_it(tmp_path: Path, monkeypatch: Patch) -> None:
    seen = [bootstrap_for(None)]
    embedded(tmp_path / ".tidemark", 21_000)
    seen.append(bootstrap_for(None))
    run(["profile", "create", "prod", "bootstrap=p:1"])
    seen.append(bootstrap_for(None))
    monkeypatch.setenv("TIDEMARK_BOOTSTRAP", "e:1")
    seen.append(bootstrap_for(None))
    settings.begin(["bootstrap=x:1"], None)
    seen.append(bootstrap_for(None))
    seen.append(bootstrap_for("o:1"))
    default, found, *given = seen
    assert (default, found) == ("127.0.0.1:9092", "127.0.0.1:21030,127.0.0.1:21031")
    assert given == ["p:1", "e:1", "x:1", "o:1"]


@pytest.mark.feature("AD56")
@pytest.mark.parametrize("below", [".", "a/b"])
def test_the_embedded_cluster_is_found_from_a_folder_below_and_named_once(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture, below: str
) -> None:
    embedded(tmp_path / ".tidemark", 21_000)
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / below)
    assert settings.address("grpc-bootstrap") == "127.0.0.1:21050,127.0.0.1:21051"
    assert settings.address("bootstrap") == "127.0.0.1:21030,127.0.0.1:21031"
    said = capsys.readouterr().err
    assert said.count("using the embedded cluster in") == 1
    assert str(tmp_path / ".tidemark") in said


@pytest.mark.feature("AD56")
def test_nothing_is_said_of_an_embedded_cluster_at_the_usual_ports(
    tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / ".tidemark").mkdir()
    Shape(brokers=1).write(tmp_path / ".tidemark/cluster.json")
    assert settings.address("bootstrap") == "127.0.0.1:9092"
    assert capsys.readouterr().err == ""


@pytest.mark.feature("AD55")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timeout-ms=soon", "whole number"),
        ("timeout-ms=99", "100 to"),
        ("timout-ms=1000", "timeout-ms"),
        ("output=xml", "yaml"),
        ("bootstrap=", "empty"),
        ("bootstrap", "KEY=VALUE"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_may_be(text: str, words: str) -> None:
    with pytest.raises(CommandError, match=words) as refused:
        settings.begin([text], None)
    assert refused.value.exit_code is ExitCode.USAGE


def test_a_wrong_environment_variable_is_named(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setenv("TIDEMARK_TIMEOUT_MS", "soon")
    assert run(["topic", "list"]) == ExitCode.USAGE
    assert "TIDEMARK_TIMEOUT_MS" in capsys.readouterr().err


@pytest.mark.feature("AD55")
def test_a_profile_lives_from_create_to_delete(tmp_path: Path, capsys: Capture) -> None:
    assert run(["profile", "create", "a", "bootstrap=a:1"]) == ExitCode.OK
    assert run(["profile", "create", "b", "bootstrap=b:1", "output=json"]) == ExitCode.OK
    assert bootstrap_for(None) == "a:1"
    run(["profile", "use", "b"])
    run(["profile", "set", "b", "bootstrap=c:1", "timeout-ms=500"])
    assert bootstrap_for(None) == "c:1"
    capsys.readouterr()
    run(["profile", "list"])
    listed = {row["profile"]: row for row in json.loads(capsys.readouterr().out)}
    assert [listed[name]["current"] for name in "ab"] == [False, True]
    assert run(["profile", "delete", "b", "--yes"]) == ExitCode.OK
    assert bootstrap_for(None) == "127.0.0.1:9092"
    assert (tmp_path / "profiles.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.feature("AD55")
def test_profile_show_names_each_settings_source(monkeypatch: Patch, capsys: Capture) -> None:
    run(["profile", "create", "prod", "bootstrap=p:1"])
    monkeypatch.setenv("TIDEMARK_CLIENT_ID", "me")
    run(["profile", "show", "-o", "json", "-X", "timeout-ms=500"])
    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["bootstrap"]["value"], rows["bootstrap"]["source"]) == ("p:1", "profile prod")
    assert (rows["client-id"]["value"], rows["client-id"]["source"]) == ("me", "TIDEMARK_CLIENT_ID")
    assert (rows["timeout-ms"]["value"], rows["timeout-ms"]["source"]) == ("500", "-X")
    assert rows["output"]["source"] == "default"


@pytest.mark.parametrize(
    "words",
    [
        ("create", "a/b"),
        ("create", "x", "bootstrop=a:1"),
        ("use", "nothing"),
        ("use",),
        ("show", "nothing"),
        ("delete", "a"),
        ("set", "a", "timeout-ms="),
        ("list", "--profile", "nothing", "-o", "json"),
    ],
)
def test_what_profiles_refuse(words: tuple[str, ...]) -> None:
    run(["profile", "create", "a"])
    expected = ExitCode.OK if words[0] == "list" else ExitCode.USAGE
    assert run(["profile", *words]) == expected


@pytest.mark.feature("SE24")
@pytest.mark.parametrize("words", [("topic", "list", "-X"), ("profile", "create", "a")])
def test_a_secret_is_no_argument(words: tuple[str, ...], capsys: Capture) -> None:
    assert run([*words, "sasl.password=pa55"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "TIDEMARK_SASL_PASSWORD" in said
    assert "pa55" not in said


@pytest.mark.feature("SE24")
def test_a_profile_keeps_a_password_for_its_owner(tmp_path: Path, capsys: Capture) -> None:
    secret, stored = tmp_path / "secret", tmp_path / "profiles.json"
    secret.write_text("pa55\n")
    run(["profile", "create", "a", "sasl.username=alice", "--password-file", str(secret)])
    capsys.readouterr()
    for words in (("show",), ("show", "a"), ("list",)):
        assert run(["profile", *words]) == ExitCode.OK
    assert "pa55" not in capsys.readouterr().out
    assert settings.look_up("sasl.password").value == "pa55"
    stored.chmod(0o640)
    assert run(["topic", "list"]) == ExitCode.NO_PERMISSION
    assert "chmod 600" in capsys.readouterr().err


def test_the_login_is_that_of_the_settings(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pa55\n")
    given = ["sasl.username=alice", "security.protocol=SASL_SSL", f"sasl.password.file={secret}"]
    settings.begin(given, None)
    found = security()
    assert (found["sasl_username"], found["sasl_password"]) == ("alice", "pa55")
    assert found["security_protocol"] == "SASL_SSL"
    assert security_over({"transport": "grpc"}) == {"transport": "grpc"}


@pytest.mark.feature("SE30")
def test_a_login_over_grpc_sends_the_password_and_kafkas_listeners_keep_theirs(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setenv("TIDEMARK_SASL_PASSWORD", "pencil")
    login = ["security.protocol=SASL_SSL", "sasl.username=alice"]
    settings.begin([*login, "grpc.security.protocol=SASL_SSL"], None)
    found = security_over({"transport": "grpc"}, "prod:9792")
    assert (found["security_protocol"], found["sasl_mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (found["sasl_username"], found["sasl_password"]) == ("alice", "pencil")
    assert found["kafka_security"].sasl_mechanism == "SCRAM-SHA-512"
    ProducerConfig(**found)
    settings.begin([*login, "grpc.security.protocol=SSL"], None)
    own = ProducerConfig(**security_over({"transport": "grpc"}))
    assert (own.uses_sasl, own.kafka_security and own.kafka_security.uses_sasl) == (False, True)


@pytest.mark.feature("SE25", "SE30")
def test_the_listener_grpc_of_a_secure_embedded_cluster_is_found(tmp_path: Path) -> None:
    secure_cluster(tmp_path / ".tidemark")
    (tmp_path / ".tidemark/secure").mkdir()
    (tmp_path / ".tidemark/secure/admin.password").write_text("secret\n")
    address = settings.address("grpc-bootstrap")
    assert address == "127.0.0.1:21130,127.0.0.1:21131"
    found = security_over({"transport": "grpc"}, address)
    assert (found["security_protocol"], found["sasl_password"]) == ("SASL_SSL", "secret")
    assert security_over({"transport": "grpc"}, "prod:9792") == {"transport": "grpc"}


def test_the_root_options_may_follow_the_command() -> None:
    words = ["topic", "list", "-X", "bootstrap=a:1", "--profile", "p", "-o", "json"]
    assert hoisted(words) == [*words[2:6], "topic", "list", "-o", "json"]


def test_what_is_no_setting_stays_where_it_is() -> None:
    words = ["topic", "produce", "t", "-k", "-X", "--", "-X", "output=json"]
    assert hoisted(words) == words


def secure_cluster(directory: Path) -> None:
    directory.mkdir()
    shape = Shape(brokers=2, ports=Ports.from_base(21_000), is_secure=True)
    shape.write(directory / "cluster.json")


@pytest.mark.feature("SE25")
def test_the_login_of_a_secure_embedded_cluster_is_found(tmp_path: Path) -> None:
    secure_cluster(tmp_path / ".tidemark")
    (tmp_path / ".tidemark/secure").mkdir()
    (tmp_path / ".tidemark/secure/admin.password").write_text("secret\n")
    for given in (None, "127.0.0.1:21031", "https://127.0.0.1:21020"):
        found = security(given)
        assert (found["security_protocol"], found["sasl_username"]) == ("SASL_SSL", "admin")
        assert found["sasl_password"] == "secret"
        assert found["ssl_ca_location"] == str(tmp_path / ".tidemark/secure/ca.pem")


@pytest.mark.feature("SE25")
def test_it_is_not_sent_to_other_addresses(tmp_path: Path, monkeypatch: Patch) -> None:
    secure_cluster(tmp_path / ".tidemark")
    plain = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
    other = {"ssl_endpoint_identification_algorithm": "https"}
    assert security("prod:9092") == plain | other
    assert security("https://prod:8080") == plain | other
    assert security("127.0.0.1:21030,prod:9092") == plain | other
    monkeypatch.setenv("TIDEMARK_BOOTSTRAP", "prod:9092")
    assert security() == plain | other


@pytest.mark.feature("SE25")
def test_a_user_from_elsewhere_replaces_name_and_password_together(tmp_path: Path) -> None:
    secure_cluster(tmp_path / ".tidemark")
    (tmp_path / "word").write_text("theirs\n")
    settings.begin(["sasl.username=alice", "sasl.password.file=word"], None)
    found = security()
    assert (found["sasl_username"], found["sasl_password"]) == ("alice", "theirs")
    assert found["security_protocol"] == "SASL_SSL"
    settings.begin(["security.protocol=PLAINTEXT"], None)
    assert "sasl_username" not in security()


@pytest.mark.feature("AD55")
def test_a_profile_ends_with_its_command() -> None:
    words = ["profile", "list", "-o", "json", "--profile", "nothing", "-X", "bootstrap=x:1"]
    assert run(words) == ExitCode.OK
    assert bootstrap_for(None) == "127.0.0.1:9092"
