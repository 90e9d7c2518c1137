import fcntl
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from tidemark.cli import main as command_line
from tidemark.cli import profiles
from tidemark.cli.dev.layout import Shape
from tidemark.cli.main import main
from tidemark.codec.records import build_batch
from tidemark.runtime.exit_codes import ExitCode


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tidemark", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == ExitCode.OK
    assert capsys.readouterr().out.startswith("tidemark ")


def test_help_names_every_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == ExitCode.OK
    text = capsys.readouterr().out
    assert all(name in text for name in ("dev", "topic", "group", "share", "txn", "log"))
    assert "Exit codes" in text


@pytest.mark.parametrize(
    "words",
    [
        ("nothing",),
        ("topic", "create"),
        ("topic", "consume", "a", "--count", "0"),
        ("dev", "up", "--port", "client"),
        ("dev", "up", "--brokers", "10"),
        ("topic", "alter", "a"),
        ("group", "reset", "g"),
        ("group", "config", "g", "--validate-only"),
        ("group", "config", "g", "-c", "no value"),
        ("group", "reset", "g", "--to-latest", "--shift-by", "1"),
        ("group", "reset", "g", "--by-duration", "soon"),
        ("share", "reset", "g"),
        ("share", "reset", "g", "--to-latest", "--to-offset", "1"),
        ("share", "config", "g", "--validate-only"),
        ("share", "browse", "g", "t", "-1"),
        ("share", "consume", "g", "t", "--format", "{nothing}"),
        ("txn", "abort"),
        ("txn", "abort", "x", "--topic", "t"),
        ("txn", "forget"),
    ],
)
def test_wrong_arguments_have_their_own_code(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMARK_DIR", str(tmp_path))
    assert run(monkeypatch, *words) == ExitCode.USAGE


def test_a_failure_is_one_message_with_what_to_try(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "dev", "status", "--dir", str(tmp_path)) == ExitCode.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err
        == f"error: there is no cluster in {tmp_path}\n  try: tidemark dev up creates one\n"
    )


def test_down_where_nothing_runs_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "dev", "down", "--dir", str(tmp_path)) == ExitCode.OK
    assert "nothing is running" in capsys.readouterr().err


COMMAND = [sys.executable, "-m", "tidemark.cli.main"]


def damage_profiles(path: Path) -> list[str]:
    (path / "profiles.json").write_text("{")
    return ["profile", "list"]


def hide_profiles(path: Path) -> list[str]:
    (path / "profiles.json").mkdir()
    return ["profile", "list"]


def lock_cluster(path: Path) -> list[str]:
    (path / "run").mkdir()
    Shape(brokers=1, controllers=1).write(path / "cluster.json")
    file = (path / "run/lock").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    KEPT.append(file)
    return ["dev", "down", "--dir", str(path)]


KEPT: list[IO[str]] = []
"""Files whose locks a test holds until its end."""


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    while KEPT:
        KEPT.pop().close()


REACHED: dict[ExitCode, Callable[[Path], list[str]]] = {
    ExitCode.OK: lambda path: ["--version"],
    ExitCode.FAILED: lambda path: ["dev", "status", "--dir", str(path)],
    ExitCode.USAGE: lambda path: ["nothing"],
    ExitCode.DATA: damage_profiles,
    ExitCode.NO_INPUT: lambda path: ["log", "dump", str(path / "nothing.log")],
    ExitCode.UNAVAILABLE: lambda path: ["topic", "list", "-b", "127.0.0.1:1"],
    ExitCode.IO: hide_profiles,
    ExitCode.TEMPORARY: lock_cluster,
}
ELSEWHERE = {ExitCode.INTERNAL, ExitCode.NO_PERMISSION, ExitCode.INTERRUPTED}
"""Reached by the tests below, and by those of the client's errors."""


@pytest.mark.feature("AD52")
@pytest.mark.parametrize("code", REACHED)
def test_every_documented_exit_code_is_reached(code: ExitCode, tmp_path: Path) -> None:
    assert command_line.run(REACHED[code](tmp_path)) == code


@pytest.mark.feature("AD52")
def test_the_documented_exit_codes_are_those_that_are_reached() -> None:
    documented = {int(code) for code in re.findall(r"(\d+) ", command_line.app.info.epilog or "")}
    assert documented == {*REACHED, *ELSEWHERE}


@pytest.mark.feature("AD52")
def test_a_bug_has_a_code_and_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(profiles, "read_profiles")
    assert command_line.run(["profile", "list"]) == ExitCode.INTERNAL
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.feature("AD53")
def test_share_consume_without_a_broker_is_not_a_group_without_records() -> None:
    words = ("share", "consume", "mailers", "orders", "--idle", "1", "-b", "127.0.0.1:1")
    assert command_line.run(words) == ExitCode.UNAVAILABLE


@pytest.mark.feature("AD52", "AD67")
def test_ctrl_c_ends_a_command_that_waits_for_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        argv = [*COMMAND, "topic", "list", "-b", f"127.0.0.1:{port}"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE) as waiting:
            peer, _ = silent.accept()
            waiting.send_signal(signal.SIGINT)
            _, said = waiting.communicate()
            peer.close()
    assert (waiting.returncode, said) == (ExitCode.INTERRUPTED, b"interrupted\n")


@pytest.mark.feature("AD67")
def test_an_argument_that_is_not_utf_8_is_refused_by_its_place() -> None:
    argv = [*(word.encode() for word in COMMAND), b"topic", b"describe", b"\xff"]
    done = subprocess.run(argv, capture_output=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert b"argument 3 is not UTF-8" in done.stderr


@pytest.mark.feature("AD67")
def test_a_reader_that_closes_the_output_ends_the_command_in_silence(tmp_path: Path) -> None:
    log = tmp_path / "recovery-point-offset-checkpoint"
    log.write_text("0\n20000\n" + "".join(f"topic {n} {n}\n" for n in range(20_000)))
    argv = [*COMMAND, "log", "dump", "-n", "0", str(log)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        dump.stdout.readline()
        dump.stdout.close()
        said = dump.stderr.read()
    assert (dump.returncode, said) == (ExitCode.OK, b"")


@pytest.mark.feature("AD67")
@pytest.mark.parametrize("options", [[], ["-r"], ["-o", "json"]])
def test_a_dump_of_a_segment_is_no_failure_when_its_reader_has_gone(
    options: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "00000000000000000000.log"
    batch = build_batch([(1_700_000_000_000, None, b"v", ())], base_offset=0)
    log.write_bytes(batch * 20_000)
    argv = [*COMMAND, "log", "dump", "-n", "0", *options, str(log)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        dump.stdout.readline()
        dump.stdout.close()
        said = dump.stderr.read()
    assert (dump.returncode, b"error" in said) == (ExitCode.OK, False)


@pytest.mark.feature("AD52", "AD67")
def test_an_output_that_is_full_is_no_bug() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "profile", "show"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == ExitCode.IO
    assert done.stderr == b"error: cannot write the output: No space left on device\n"


@pytest.mark.feature("AD67")
def test_streams_that_are_closed_are_no_bug() -> None:
    argv = shlex.join([*COMMAND, "profile", "show"])
    done = subprocess.run(f"{argv} <&- >&-", shell=True, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.OK, b"")
