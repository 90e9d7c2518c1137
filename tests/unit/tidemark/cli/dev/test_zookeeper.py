from pathlib import Path

import pytest
from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.zookeeper import find_jars, find_java, zookeeper_argv, zookeeper_problem
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode


def _java(directory: Path, version: str) -> None:
    path = directory / "bin" / "java"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)


def test_a_missing_java_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CommandError, match="apt install openjdk-17") as caught:
        find_java()
    assert caught.value.exit_code is ExitCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("version", "enough"), [("11.0.2", False), ("17.0.15", True), ("21", True)]
)
def test_java_must_be_new_enough(
    version: str, enough: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if enough:
        assert find_java() == str(tmp_path / "bin" / "java")
    else:
        with pytest.raises(CommandError, match=r"is Java 11; ZooKeeper needs Java 17"):
            find_java()


def test_missing_jars_say_where_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMARK_ZOOKEEPER_JARS", str(tmp_path))
    with pytest.raises(CommandError, match="pip install pyspark"):
        find_jars()
    (tmp_path / "zookeeper-3.9.9.jar").touch()
    assert find_jars() == tmp_path


def test_the_configuration_names_directory_and_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _java(tmp_path, "17")
    (tmp_path / "zookeeper-3.9.9.jar").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_ZOOKEEPER_JARS", str(tmp_path))
    layout = Layout(tmp_path)
    layout.run_directory.mkdir()
    argv = zookeeper_argv(layout)
    configuration = Path(argv[-1]).read_text().splitlines()
    assert f"dataDir={layout.data_path('zookeeper')}" in configuration
    assert "clientPort=2181" in configuration


def test_nobody_listening_is_a_problem_with_words() -> None:
    problem = zookeeper_problem(1)
    assert problem is not None
    assert "refused" in problem
