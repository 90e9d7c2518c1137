from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service_config import (
    Address,
    CommaList,
    ConfigError,
    HostPort,
    ServiceConfig,
    TlsServiceConfig,
    config_keys,
    load,
    load_or_exit,
)


class ExampleConfig(ServiceConfig):
    broker_id: int = Field(default=1, ge=0, description="unique in the cluster")
    log_dirs: CommaList = Field(default=("data",), min_length=1)
    auto_create_topics_enable: bool = True
    rack: str | None = None
    grpc_listen: Address = "127.0.0.1:9292"


def read(*argv: str, environ: Mapping[str, str] | None = None) -> ExampleConfig:
    return load(ExampleConfig, argv, "TIDEMARK_EXAMPLE_", environ or {})


def problems(*argv: str, environ: Mapping[str, str] | None = None) -> Sequence[str]:
    with pytest.raises(ConfigError) as caught:
        read(*argv, environ=environ)
    return caught.value.problems


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("broker.id: 1\nrack: file\nlog.dirs: [a, b]\n")
    environ = {"TIDEMARK_EXAMPLE_BROKER_ID": "2", "TIDEMARK_EXAMPLE_RACK": "environment"}
    config = read("--config", str(path), "--broker.id=3", environ=environ)
    assert (config.broker_id, config.rack, config.log_dirs) == (3, "environment", ("a", "b"))


def test_the_file_may_be_named_in_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("broker.id: 7\n")
    assert read(environ={"TIDEMARK_EXAMPLE_CONFIG": str(path)}).broker_id == 7


@pytest.mark.parametrize("key", ["log.dirs", "log_dirs", "log-dirs", "LOG.DIRS"])
def test_a_key_may_be_written_with_dots_underscores_or_dashes(key: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(f"{key}: x,y\n")
    assert read(f"--{key}", "x,y").log_dirs == ("x", "y")
    assert read("--config", str(path)).log_dirs == ("x", "y")


def test_a_nested_file_reads_as_dotted_keys(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("broker: {id: 4}\nlog: {dirs: d}\nrack: 12\n")
    config = read("--config", str(path))
    assert (config.broker_id, config.log_dirs, config.rack) == (4, ("d",), "12")


def test_an_unknown_key_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("brokerid: 1\n")
    assert problems("--log.dir", "x") == ("unknown key: --log.dir; did you mean log.dirs?",)
    assert "did you mean broker.id?" in problems("--config", str(path))[0]
    found = problems(environ={"TIDEMARK_EXAMPLE_RACKS": "r"})
    assert found == ("unknown key: TIDEMARK_EXAMPLE_RACKS in the environment; did you mean rack?",)


def test_a_key_unlike_any_other_points_to_help() -> None:
    assert problems("--zzz", "1") == ("unknown key: --zzz; --help lists every key",)


def test_the_addresses_kubernetes_injects_are_not_taken_for_keys() -> None:
    environ = {
        "TIDEMARK_EXAMPLE_SERVICE_HOST": "10.0.0.1",
        "TIDEMARK_EXAMPLE_PORT_9092_TCP_ADDR": "10.0.0.1",
        "TIDEMARK_EXAMPLE_SERVICE_PORT_CLIENT": "9092",
    }
    assert read(environ=environ) == ExampleConfig()


def test_a_bad_value_is_named_with_what_may_stand_there() -> None:
    assert problems("--broker.id", "-1") == (
        "--broker.id: '-1' is not valid; expected a whole number at least 0",
    )
    assert "expected true or false" in problems("--auto.create.topics.enable=maybe")[0]
    assert "expected one of: json, text" in problems("--log.format", "xml")[0]
    assert "expected host:port" in problems("--grpc.listen", "9292")[0]


def test_every_problem_is_told_at_once() -> None:
    assert len(problems("--broker.idd", "1", "--log.format", "xml", "--ops.listen", "x")) == 3


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["broker.id=1"], "is not a flag"),
        (["--broker.id"], "needs a value"),
        (["--config", "/nowhere/at/all.yaml"], "cannot read the configuration file"),
    ],
)
def test_a_malformed_command_line_is_refused(argv: list[str], said: str) -> None:
    assert said in problems(*argv)[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1, 2]", "must contain 'key: value' lines"),
        ("a: [", "is not YAML"),
        ("broker.id: 1\nbroker_id: 2\n", "sets broker.id twice"),
    ],
)
def test_a_malformed_file_is_refused(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(content)
    assert said in problems("--config", str(path))[0]


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("# all defaults\n")
    assert read("--config", str(path)) == ExampleConfig()


def test_the_log_level_is_read_in_any_case() -> None:
    assert read("--log.level", "debug").log_level == "DEBUG"


def test_help_lists_every_key_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load_or_exit(ExampleConfig, ["--help"], service="example")
    text = capsys.readouterr().out
    assert ended.value.code == ExitCode.OK
    assert all(f"--{key.name}\n" in text for key in config_keys(ExampleConfig))
    assert "a whole number at least 0; default: 1" in text


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load_or_exit(ExampleConfig, ["--version"], service="example")
    assert ended.value.code == ExitCode.OK
    assert capsys.readouterr().out.startswith("tidemark-example ")


def test_a_bad_configuration_exits_with_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load_or_exit(ExampleConfig, ["--broker.idd=1"], service="example")
    assert ended.value.code == ExitCode.CONFIG
    assert "tidemark-example: unknown key: --broker.idd" in capsys.readouterr().err


def test_building_a_config_reads_nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_ID", "9")
    assert ExampleConfig().broker_id == 1


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "[::1]:9092", "broker-1.local:0"])
def test_an_address_reads_back_as_written(text: str) -> None:
    assert str(HostPort.parse(text)) == text


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        address = HostPort.parse(text)
    except ValueError:
        return
    assert 0 <= address.port <= 65_535


class SecretConfig(TlsServiceConfig):
    shared_secret: str = Field(default="", max_length=3)


@pytest.mark.feature("SE24")
def test_a_secret_is_no_argument_and_in_no_message() -> None:
    for words in (["--ssl.key.password", "pa55"], ["--listener.name.x.ssl.key.password=pa55"]):
        with pytest.raises(ConfigError, match="may not be an argument") as refused:
            load(SecretConfig, words, "X_", {})
        assert "pa55" not in str(refused.value)
    with pytest.raises(ConfigError, match="X_SHARED_SECRET in the environment: the value") as bad:
        load(SecretConfig, [], "X_", {"X_SHARED_SECRET": "pa55"})
    assert "pa55" not in str(bad.value)
