"""The command line of ``reshard``."""

import pytest
from tidemark_jobs.keys import KeyRule
from tidemark_jobs.reshard.command import main, parse
from tidemark_jobs.reshard.options import Options
from tidemark_jobs.reshard.partitioners import PartitionRule
from tidemark_spark.errors import OptionError

REQUIRED = ["--bootstrap-servers", "b:9292", "--source", "a", "--target", "b", "--checkpoint", "c/"]


def options(*more: str) -> Options:
    return parse([*REQUIRED, *more])


def test_defaults() -> None:
    found = options()
    assert (found.key, found.partitioner) == (KeyRule("key"), PartitionRule("murmur2"))
    assert (found.group_id, found.sink_id) == ("reshard-a-b", "reshard-a-b")
    assert found.checkpoint == "c"
    assert found.exactly_once
    assert not found.available_now
    assert found.shuffle == "auto"


def test_several_sources() -> None:
    assert parse([*REQUIRED[:2], "--source", "a,b", *REQUIRED[4:5], "c", *REQUIRED[6:]]) == (
        parse([*REQUIRED, "--source", "a,b", "--target", "c"])
    )


def test_options_of_source_and_sink() -> None:
    found = options(
        *("--max-offsets-per-trigger", "500", "--source-option", "minPartitions=8"),
        *("--sink-option", "compression.type=lz4"),
    )
    assert found.source_options == {"maxOffsetsPerTrigger": "500", "minPartitions": "8"}
    assert found.sink_options == {"compression.type": "lz4"}


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--target", "a"], "a is both source and target"),
        (["--dead-letters", "b"], "b is also the source"),
        (["--tasks", "0"], "--tasks is 0 and must be at least 1"),
        (["--key", "user"], "no key rule"),
        (["--partitioner", "random"], "no partitioner"),
        (["--sink-option", "compression"], "--sink-option compression is not NAME=VALUE"),
    ],
)
def test_wrong_options(more: list[str], what: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(*more)
    assert what in caught.value.what


def test_a_wrong_option_is_told_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUIRED, "--key", "user"]) == 2
    assert capsys.readouterr().err.startswith("reshard: there is no key rule 'user'\n  try: ")
