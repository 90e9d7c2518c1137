"""``tidemark topic`` and ``tidemark log`` against a real cluster."""

import gzip
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.clusters import START_SECONDS, STOP_SECONDS
from e2e.command_line import COMMAND, Cli
from e2e.processes import running
from e2e.shared_zookeeper import with_shared_zookeeper
from search_queries import search_queries
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    layout = Layout.on_free_ports(directory, brokers=2, controllers=1)
    cluster = DevCluster(with_shared_zookeeper(layout))
    try:
        cluster.start(START_SECONDS)
        yield cluster
    finally:
        cluster.stop(STOP_SECONDS)


@pytest.fixture
def cli(cluster: DevCluster) -> Cli:
    return Cli(cluster)


def test_a_topic_lives_from_create_to_delete(cli: Cli) -> None:
    made = cli.json("topic", "create", "life", "-p", "4", "-c", "retention.ms=60000", *cli.kafka)
    assert (made[0]["partitions"], made[0]["replication_factor"]) == (4, 2)
    assert "life" in [row["topic"] for row in cli.json("topic", "list", *cli.kafka)]
    cli.json("topic", "alter", "life", "-p", "6", "-c", "max.message.bytes=1000", *cli.kafka)
    cli.json("topic", "alter", "life", "--unset", "retention.ms", *cli.kafka)
    (described,) = cli.json("topic", "describe", "life", *cli.kafka)
    assert described["configs"] == {"max.message.bytes": "1000"}
    assert {each["leader"] for each in described["partitions"]} == {1, 2}
    cli.json("topic", "delete", "life", "--yes", *cli.kafka)
    assert "life" not in [row["topic"] for row in cli.json("topic", "list", *cli.kafka)]


def test_lines_come_back_with_keys_headers_and_nulls(cli: Cli) -> None:
    cli.json("topic", "create", "lines", "-p", "1", *cli.kafka)
    options = ("-k", ":", "--null", "NULL", "-H", "source=test", *cli.kafka)
    sent = cli.json("topic", "produce", "lines", *options, stdin=b"a:1\nb:\nc:NULL\nNULL:4")
    assert sent["records"] == 4
    read = cli.read("lines")
    assert [(each["key"], each["value"]) for each in read] == [
        ("a", "1"),
        ("b", ""),
        ("c", None),
        (None, "4"),
    ]
    assert read[0]["headers"] == [{"name": "source", "value": "test"}]
    assert [each["offset"] for each in read] == [0, 1, 2, 3]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_file_comes_back_as_it_was(cli: Cli, compression: str, tmp_path: Path) -> None:
    topic = f"queries-{compression}"
    lines = list(search_queries(5_000, seed=3))
    path = tmp_path / "queries.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    cli.json("topic", "create", topic, "-p", "3", *cli.kafka)
    options = ("-i", str(path), "--key-regex", r"user-\d+", "-z", compression, *cli.kafka)
    cli.json("topic", "produce", topic, *options)
    read = cli.read(topic)
    assert Counter(each["value"] for each in read) == Counter(lines)
    partitions = {(each["key"], each["partition"]) for each in read}
    assert len(partitions) == len({each["key"] for each in read})


def test_grpc_carries_the_same_records_both_ways(cli: Cli) -> None:
    cli.json("topic", "create", "doors", "-p", "2", *cli.kafka)
    cli.json("topic", "produce", "doors", "-k", ":", *cli.grpc, stdin=b"a:1\nb:2\n")
    cli.json("topic", "produce", "doors", "-k", ":", *cli.kafka, stdin=b"a:3\nb:4\n")
    by_grpc, by_kafka = cli.read("doors", *cli.grpc), cli.read("doors")
    assert sorted(map(repr, by_grpc)) == sorted(map(repr, by_kafka))
    assert {each["value"] for each in by_kafka} == {"1", "2", "3", "4"}


def test_reading_starts_where_it_is_told(cli: Cli) -> None:
    cli.json("topic", "create", "places", "-p", "1", *cli.kafka)
    cli.json("topic", "produce", "places", *cli.kafka, stdin=b"a\nb\nc\nd\n")
    asked = ("topic", "consume", "places", "--format", "{offset}{value}", *cli.kafka)
    assert cli.run(*asked, "--from", "2", "-e").stdout == b"2c\n3d\n"
    assert cli.run(*asked, "--from", "earliest", "-n", "1").stdout == b"0a\n"
    assert cli.run(*asked, "--from", "2001-01-01", "-n", "2").stdout == b"0a\n1b\n"
    assert cli.run(*asked, "--from", "latest", "-e").stdout == b""


def test_ctrl_c_ends_consume_with_a_summary(cli: Cli) -> None:
    cli.json("topic", "create", "tail", "-p", "1", *cli.kafka)
    argv = [*COMMAND, "topic", "consume", "tail", "--from", "earliest", *cli.kafka]
    with running(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        cli.json("topic", "produce", "tail", *cli.kafka, stdin=b"a\n")
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"a\n"
        tail.send_signal(signal.SIGINT)
        _, said = tail.communicate(timeout=PATIENCE_S)
    assert tail.returncode == ExitCode.OK
    assert b"read 1 records, 1 bytes from tail" in said
    assert b"next offsets 0:1" in said


def test_a_line_is_sent_before_the_next_one_is_typed(cli: Cli) -> None:
    cli.json("topic", "create", "typed", "-p", "1", *cli.kafka)
    argv = [*COMMAND, "topic", "produce", "typed", *cli.kafka]
    with running(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as typing:
        assert typing.stdin is not None
        typing.stdin.write(b"first\n")
        typing.stdin.flush()
        wait_for(lambda: cli.read("typed"), "the line is sent")
        assert [each["value"] for each in cli.read("typed")] == ["first"]
        typing.communicate(b"second", timeout=PATIENCE_S)
    assert [each["value"] for each in cli.read("typed")] == ["first", "second"]


def test_log_dump_shows_what_is_on_disk(cli: Cli) -> None:
    cli.json("topic", "create", "dump", "-p", "1", "-r", "1", *cli.kafka)
    cli.json("topic", "produce", "dump", *cli.kafka, stdin=b"on disk\n")
    data = cli.cluster.layout.directory / "data"
    (segment,) = data.glob("broker-*/dump-0/00000000000000000000.log")
    done = cli.run("log", "dump", "--records", str(segment))
    assert done.returncode == ExitCode.OK, done.stderr.decode()
    assert b"on disk" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("describe", "nowhere"), ExitCode.FAILED, b"UNKNOWN_TOPIC_OR_PARTITION"),
        (("delete", "nowhere", "-y"), ExitCode.FAILED, b"UNKNOWN_TOPIC_OR_PARTITION"),
        (("create", "bad/name"), ExitCode.FAILED, b"bad/name"),
        (("create", "a", "-c", "retention.mss=1"), ExitCode.USAGE, b"retention.mss"),
        (("create", "a", "-r", "9"), ExitCode.FAILED, b"INVALID_REPLICATION_FACTOR"),
    ],
)
def test_what_the_cluster_refuses_is_said_with_its_name(
    cli: Cli, words: tuple[str, ...], code: ExitCode, said: bytes
) -> None:
    done = cli.run("topic", *words, *cli.kafka)
    assert done.returncode == code, done.stderr.decode()
    assert done.stderr.startswith(b"error: ")
    assert said in done.stderr


def test_an_existing_topic_is_a_failure_unless_allowed(cli: Cli) -> None:
    cli.json("topic", "create", "twice", *cli.kafka)
    again = cli.run("topic", "create", "twice", *cli.kafka)
    assert again.returncode == ExitCode.FAILED
    assert b"TOPIC_ALREADY_EXISTS" in again.stderr
    assert (
        cli.json("topic", "create", "twice", "--if-not-exists", *cli.kafka)[0]["outcome"]
        == "exists"
    )


@pytest.mark.feature("AD51")
def test_what_is_done_is_shown_before_the_one_that_fails(cli: Cli) -> None:
    made = cli.json("topic", "create", "one", "bad/name", "two", *cli.kafka, code=ExitCode.FAILED)
    assert [(row["topic"], row["outcome"]) for row in made] == [("one", "created")]
    scope = ("--topic", "one", "--to-latest", "--execute")
    cli.json("group", "reset", "first", *scope, *cli.kafka)
    left = cli.json("group", "delete", "first", "nobody", "-y", *cli.kafka, code=ExitCode.FAILED)
    assert left == [{"group": "first", "outcome": "deleted"}]
    gone = cli.json("topic", "delete", "one", "nowhere", "-y", *cli.kafka, code=ExitCode.FAILED)
    assert gone == [{"topic": "one", "outcome": "deleted"}]


def test_no_broker_is_told_with_what_to_try() -> None:
    argv = [*COMMAND, "topic", "list", "-b", "127.0.0.1:1"]
    done = subprocess.run(argv, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == ExitCode.UNAVAILABLE
    assert b"address: 127.0.0.1:1" in done.stderr
    assert b"try: " in done.stderr


@pytest.mark.feature("AD53")
def test_an_error_names_address_api_cause_and_next_command(cli: Cli) -> None:
    done = cli.run("topic", "create", "a", "-r", "9", *cli.kafka)
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith("error: creating topic 'a' failed")
    assert lines[1:] == [
        f"  address: {cli.cluster.bootstrap}",
        "  api: CreateTopics",
        "  cause: fewer brokers are alive than replicas were asked for",
        "  try: tidemark cluster brokers",
    ]


@pytest.mark.feature("AD56")
def test_a_command_in_the_folder_of_an_embedded_cluster_finds_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / ".tidemark").symlink_to(cli.cluster.layout.directory)
    argv = [*COMMAND, "cluster", "brokers", "-o", "json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False)
    assert [row["broker"] for row in json.loads(done.stdout)] == [1, 2]
    assert b"using the embedded cluster in" in done.stderr


def completed(cli: Cli, shell: str, words: str) -> str:
    """What a shell is offered after these words."""
    environment = {
        "_TIDEMARK_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "TIDEMARK_BOOTSTRAP": cli.cluster.bootstrap,
    }
    asked = subprocess.run(
        COMMAND, env={**os.environ, **environment}, capture_output=True, check=False
    )
    return asked.stdout.decode()


@pytest.mark.feature("AD57")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_options_and_topics(cli: Cli, shell: str) -> None:
    cli.json("topic", "create", "complete-me", "--if-not-exists", *cli.kafka)
    assert "describe" in completed(cli, shell, "tidemark topic desc")
    assert "--all" in completed(cli, shell, "tidemark topic describe --a")
    assert "complete-me" in completed(cli, shell, "tidemark topic describe complete")
    assert "group" in completed(cli, shell, "tidemark gr")


@pytest.mark.feature("AD57")
def test_the_shell_completes_groups_and_nothing_without_a_cluster(cli: Cli) -> None:
    cli.json("topic", "create", "of-group", *cli.kafka)
    scope = ("--topic", "of-group", "--to-latest", "--execute")
    cli.json("group", "reset", "billing", *scope, *cli.kafka)
    assert completed(cli, "bash", "tidemark group describe bil").split() == ["billing"]
    away = "tidemark topic describe -b 127.0.0.1:1 c"
    assert completed(cli, "bash", away).split() == []


@pytest.mark.feature("AD54")
@pytest.mark.parametrize("words", [("topic", "delete", "x"), ("group", "delete", "x")])
def test_nothing_is_deleted_without_an_answer_or_yes(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli.run(*words, *cli.kafka)
    assert done.returncode == ExitCode.USAGE
    assert b"--yes" in done.stderr
