"""The command line of ``reshard``."""

import argparse
from collections.abc import Sequence
from typing import Final

from tidemark_spark.errors import OptionError

from tidemark_jobs.command import (
    add_kafka_properties,
    kafka_options,
    pairs_of,
    print_line,
    run_command,
    start_session,
)
from tidemark_jobs.keys import parse_key
from tidemark_jobs.reshard.options import Options
from tidemark_jobs.reshard.partitioners import parse_partitioner
from tidemark_jobs.reshard.query import run

_DESCRIPTION: Final = (
    "Copy topics into a topic that is sharded by another key: each record exactly once, in the"
    " order of its source partition."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 caught up, 1 failed, 2 wrong option, 130 ^C."""
    return run_command("reshard", lambda: _reshard(arguments))


def _reshard(arguments: Sequence[str] | None) -> None:
    options = parse(arguments)
    run(start_session(options.sink_id), options, print_line)


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line. Raises OptionError."""
    found = _parser().parse_args(arguments)
    group_id = found.group_id or f"reshard-{found.source.replace(',', '-')}-{found.target}"
    source_options = pairs_of("--source-option", found.source_option)
    if found.max_offsets_per_trigger is not None:
        source_options["maxOffsetsPerTrigger"] = str(found.max_offsets_per_trigger)
    if found.target in found.source.split(","):
        raise OptionError(
            f"{found.target} is both source and target", "name another topic with --target"
        )
    if found.dead_letters in (found.target, *found.source.split(",")):
        raise OptionError(
            f"--dead-letters {found.dead_letters} is also the source or the target",
            "name a topic that is neither",
        )
    if found.tasks is not None and found.tasks < 1:
        raise OptionError(f"--tasks is {found.tasks} and must be at least 1", "leave it out")
    return Options(
        bootstrap_servers=found.bootstrap_servers,
        kafka=kafka_options(found),
        source=found.source,
        target=found.target,
        key=parse_key(found.key),
        partitioner=parse_partitioner(found.partitioner),
        checkpoint=found.checkpoint.rstrip("/"),
        group_id=group_id,
        sink_id=found.sink_id or group_id,
        dead_letters=found.dead_letters,
        pin_partitions=found.pin_partitions,
        tasks=found.tasks,
        shuffle=found.shuffle,
        available_now=found.available_now,
        exactly_once=found.delivery == "exactly-once",
        trigger_interval=found.trigger_interval,
        metrics_port=found.metrics_port,
        source_options=source_options,
        sink_options=pairs_of("--sink-option", found.sink_option),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reshard", description=_DESCRIPTION)
    _add_placement(parser)
    _add_execution(parser)
    return parser


def _add_placement(parser: argparse.ArgumentParser) -> None:
    """Add the options that determine the target of each record."""
    add = parser.add_argument
    add(
        "--bootstrap-servers",
        required=True,
        metavar="HOST:PORT,...",
        help="gRPC addresses of some brokers",
    )
    add_kafka_properties(parser)
    add("--source", required=True, metavar="TOPIC,...", help="topics to read")
    add("--target", required=True, metavar="TOPIC", help="topic to write; it must exist")
    add(
        "--key",
        default="key",
        metavar="RULE",
        help="where the new key is: json:user.id, access-log:ip, field:3, ...; default: the"
        " record's key",
    )
    add(
        "--partitioner",
        default="murmur2",
        metavar="RULE",
        help="how a key is placed: murmur2 (default), crc32, case, ranges:a-z=0, ...",
    )
    add(
        "--dead-letters",
        metavar="TOPIC",
        help="topic for records without a key or a partition; without it they end the query",
    )
    add(
        "--pin-partitions",
        action="store_true",
        help="when the target gets more partitions, keep writing to the first ones only",
    )


def _add_execution(parser: argparse.ArgumentParser) -> None:
    """Add the options that determine how the query runs."""
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="DIR", help="checkpoint directory of this query")
    add(
        "--group-id",
        metavar="NAME",
        help="consumer group that the source's offsets are committed to; default:"
        " reshard-SOURCE-TARGET",
    )
    add("--sink-id", metavar="NAME", help="name of the writer in the cluster; default: the group")
    add("--available-now", action="store_true", help="stop after all records present at start")
    add(
        "--trigger-interval",
        default="1 second",
        metavar="TIME",
        help="time between the starts of batches; default: 1 second",
    )
    add(
        "--max-offsets-per-trigger",
        type=int,
        metavar="COUNT",
        help="maximum number of offsets in a batch",
    )
    add(
        "--tasks",
        type=int,
        metavar="COUNT",
        help="number of writing tasks; default: one for each core, at most one for each partition",
    )
    add(
        "--shuffle",
        default="auto",
        choices=["auto", "always"],
        help="always: collect the rows of a target partition in one task before they are written;"
        " default: auto, only with many tasks and partitions",
    )
    add(
        "--delivery",
        default="exactly-once",
        choices=["exactly-once", "at-least-once"],
        help="default: exactly-once",
    )
    add(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve Prometheus metrics on this port; 0: any free port",
    )
    add(
        "--source-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the source; repeatable",
    )
    add(
        "--sink-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the sink; repeatable",
    )
