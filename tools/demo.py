"""The main job end to end, under fire: topic A by server to topic B by user, exactly once.

``make demo`` starts the embedded cluster, feeds made-up search queries (``make demo INPUT=path``: a
file of yours) into topic A from several processes, and runs ``reshard`` with ``spark-submit``. In
the middle it kills -9 a Python worker of Spark, a broker, and the Spark driver twice, each while a
batch is under way. Then it reads both topics as any client does, and compares them with the input,
record by record.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from demo_faults import FAULTS, Arena, Steps, Strike, strike
from demo_feed import FeedPlan
from demo_hook import DIRECTORY_VARIABLE
from demo_input import Input, KeyField, Lines, from_file, made_up
from demo_proof import Reading, problems_of, read_by_grpc, read_by_kafka, tale_of_input
from demo_report import Tiers, connection_lines, connections, show_faults, show_topics
from demo_spark import SparkJob, Submission, archive_options
from rich.console import Console
from spark_zip import JOBS, build
from tidemark.cli.client_calls import as_command_error, run
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import HOST, Layout, Shape
from tidemark.cli.failure import CommandError
from tidemark.client import Admin, NewTopic
from tidemark.client.errors import ClientError
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

_FEED_SECONDS_MAX: Final = 300.0
_RESHARD_SECONDS_MAX: Final = 600.0
_SESSIONS_SECONDS_MAX: Final = 300.0
_POLL_SECONDS: Final = 0.2
_TASKS: Final = 2
_QUERY_SERVERS: Final = 50
_BATCHES_MIN: Final = 20
_NO_FAULTS: Final = "none"
_clock = Clock()
_console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)


@dataclass(slots=True)
class Demo:
    """One run: where, what, and what was seen of it."""

    arguments: argparse.Namespace
    cluster: DevCluster
    source: Input
    key_field: KeyField
    py_files: Path
    name: str = field(default_factory=lambda: f"demo-{uuid.uuid4().hex[:6]}")
    strikes: list[Strike] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    began_ms: int = field(default_factory=_clock.now_ms)

    @property
    def topic_a(self) -> str:
        """Sharded by server."""
        return f"{self.name}.by-server"

    @property
    def topic_b(self) -> str:
        """Sharded by user."""
        return f"{self.name}.by-user"

    @property
    def directory(self) -> Path:
        """Of this run: logs, checkpoints, the report."""
        return self.cluster.layout.directory / "demo" / self.name

    @property
    def checkpoint(self) -> Path:
        """Of the resharding query."""
        return self.directory / "checkpoint"

    @property
    def grpc(self) -> str:
        """The brokers' gRPC addresses."""
        shape = self.cluster.layout.shape
        return ",".join(f"{HOST}:{shape.ports.grpc + place}" for place in range(shape.brokers))

    @property
    def servers(self) -> int:
        """How many are played."""
        return self.source.servers if isinstance(self.source, Lines) else _QUERY_SERVERS

    def say(self, text: str) -> None:
        """One line, with the time since the start."""
        seconds = (_clock.now_ms() - self.began_ms) / 1_000
        _console.print(f"{seconds:6.1f} s  {text}", soft_wrap=True)

    def count_connections(self, phase: str) -> None:
        """Keep the most that were seen at once."""
        shape = self.cluster.layout.shape
        now = connections([shape.ports.client + place for place in range(shape.brokers)])
        self.seen[phase] = max(now, self.seen.get(phase, 0))


# ---- the input into topic A


async def create_topics(demo: Demo) -> None:
    """Both, replicated as far as there are brokers."""
    brokers = demo.cluster.layout.shape.brokers
    replicas = min(3, brokers)
    config = {"min.insync.replicas": str(max(1, replicas - 1))}
    counts = {
        demo.topic_a: demo.arguments.source_partitions,
        demo.topic_b: demo.arguments.partitions,
    }
    async with Admin(demo.cluster.bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(topic, count, replicas, config) for topic, count in counts.items()]
        )


def feed(demo: Demo) -> int:
    """Several processes, each with its own servers; the records that they sent."""
    members = demo.arguments.feeders
    lines = demo.source if isinstance(demo.source, Lines) else None
    plans = [
        FeedPlan(
            demo.cluster.bootstrap,
            demo.topic_a,
            demo.arguments.source_partitions,
            member,
            members,
            str(demo.source.path),
            copies=lines.copies if lines else 0,
            servers=lines.servers if lines else 0,
        )
        for member in range(members)
    ]
    program = str(Path(__file__).parent / "demo_feed.py")
    with ExitStack() as ending:
        processes = []
        for plan in plans:
            argv = [sys.executable, program, plan.as_argument()]
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            processes.append(ending.enter_context(process))
            ending.callback(process.kill)
        _wait_fed(demo, processes)
        return sum(json.loads(process.communicate()[0])["records"] for process in processes)


def _wait_fed(demo: Demo, processes: Sequence["subprocess.Popen[str]"]) -> None:
    deadline = _clock.now_ms() + int(_FEED_SECONDS_MAX * 1_000)
    while any(process.poll() is None for process in processes):
        demo.count_connections("feeding")
        if _clock.now_ms() > deadline:
            raise CommandError(f"the servers did not end within {_FEED_SECONDS_MAX:g} s")
        time.sleep(_POLL_SECONDS)
    if any(process.returncode for process in processes):
        raise CommandError("a server failed; its error is printed above")


# ---- from topic A to topic B


def reshard(demo: Demo) -> Steps:
    """Run the job to its end, with the faults that were asked for in its middle."""
    steps = Steps(demo.directory / "steps")
    batches = demo.arguments.batches
    submission = Submission(
        "reshard",
        (
            *("--bootstrap-servers", demo.grpc),
            *("--source", demo.topic_a, "--target", demo.topic_b),
            *("--key", demo.key_field.rule, "--checkpoint", str(demo.checkpoint)),
            *("--sink-id", demo.name, "--group-id", demo.name, "--tasks", str(_TASKS)),
            *("--max-offsets-per-trigger", str(max(1, demo.arguments.records // batches))),
            "--available-now",
        ),
        demo.py_files,
        {
            "PYTHONPATH": str(Path(__file__).parent),
            "TIDEMARK_SPARK_STEP_HOOK": "demo_hook:at_step",
            DIRECTORY_VARIABLE: str(steps.directory),
        },
        demo.directory / "logs",
        archive_options(),
    )

    def start() -> SparkJob:
        return SparkJob(submission, demo.say)

    arena = Arena(
        demo.cluster,
        demo.grpc,
        demo.cluster.bootstrap,
        demo.name,
        demo.topic_b,
        demo.checkpoint,
        steps,
        start(),
        start,
        demo.say,
    )
    try:
        for name in demo.arguments.faults:
            demo.strikes.append(strike(arena, name, batches))
            demo.count_connections("resharding")
        arena.job.wait(_RESHARD_SECONDS_MAX)
    finally:
        arena.job.close()
    return steps


# ---- the proof, and what is shown


def prove(demo: Demo, steps: Steps) -> list[str]:
    """Read everything back and compare; what is wrong, a line each."""
    expected = tale_of_input(demo.source, demo.key_field)
    servers, users = demo.arguments.source_partitions, demo.arguments.partitions
    a = Reading(demo.topic_a, servers, demo.source, demo.key_field, keyed=False)
    b = Reading(demo.topic_b, users, demo.source, demo.key_field, keyed=True)
    bootstrap = demo.cluster.bootstrap
    tales = {
        "the input": expected,
        f"{demo.topic_a} by librdkafka": read_by_kafka(bootstrap, a),
        f"{demo.topic_b} by librdkafka": read_by_kafka(bootstrap, b),
        f"{demo.topic_b} by gRPC": run(read_by_grpc(demo.grpc, b)),
    }
    show_topics(_console, tales)
    (_, of_input), (name_a, of_a), *of_b = tales.items()
    problems = problems_of(of_input, of_a, f"{name_a}, against the input")
    for name, found in of_b:
        problems += problems_of(of_a, found, f"{name}, against topic A")
        if found.torn:
            problems.append(f"{name}: {len(found.torn):,} keys in more than one partition")
    return problems + _problems_of_run(demo, steps)


def _problems_of_run(demo: Demo, steps: Steps) -> list[str]:
    """Whether the run was what it was meant to be: enough batches, and faults that hurt."""
    runs = {batch_id: len(tokens) for batch_id, tokens in steps.runs_by_batch().items()}
    tries = {each.batch_id: steps.attempts(each.batch_id) for each in demo.strikes}
    show_faults(_console, demo.strikes, runs, tries)
    replayed = sorted(batch_id for batch_id, count in runs.items() if count > 1)
    _console.print(f"\n{len(runs)} batches; replayed after a restart: {replayed or 'none'}")
    problems = [f"{each}: the batch was over" for each in demo.strikes if not each.unfinished]
    if len(runs) < demo.arguments.batches:
        problems.append(f"only {len(runs)} batches, instead of {demo.arguments.batches}")
    killed_drivers = [name for name in demo.arguments.faults if FAULTS[name].victim == "driver"]
    if killed_drivers and not replayed:
        problems.append("no batch was replayed")
    return problems


def sessions(demo: Demo) -> None:
    """The report of who asked what, from topic B; the job tells where it is."""
    report = demo.directory / "sessions.html"
    queries = not isinstance(demo.source, Lines)
    submission = Submission(
        "sessions",
        (
            *("--bootstrap-servers", demo.grpc, "--source", demo.topic_b),
            *("--format", "search-queries" if queries else "access-log"),
            *("--checkpoint", str(demo.directory / "checkpoint-sessions")),
            *("--available-now", "--report", str(report), "--title", demo.source.path.name),
        ),
        demo.py_files,
        {},
        demo.directory / "logs",
        archive_options(),
    )
    job = SparkJob(submission, demo.say)
    try:
        job.wait(_SESSIONS_SECONDS_MAX)
    finally:
        job.close()


def demonstrate(arguments: argparse.Namespace) -> ExitCode:
    """Everything. Raises CommandError."""
    source, key_field = choose_input(arguments)
    with a_cluster(arguments.dir, keep=arguments.keep) as cluster:
        py_files = build(arguments.dir.absolute() / "demo" / "tidemark_jobs.zip", JOBS)
        demo = Demo(arguments, cluster, source, key_field, py_files)
        demo.directory.mkdir(parents=True)
        try:
            problems = _act(demo)
        except ClientError as error:
            raise as_command_error(error) from None
    _console.print()
    for problem in problems:
        _console.print(f"FAILED: {problem}", soft_wrap=True)
    if problems:
        return ExitCode.FAILED
    demo.say(
        "topic B holds exactly topic A's records: none missing, none twice, the order of every"
        " server's records kept for every key, each key in one partition"
    )
    return ExitCode.OK


def console_lines(demo: Demo) -> list[str]:
    """Where the run can be watched in the console."""
    console = f"http://{HOST}:{demo.cluster.layout.shape.ports.rest}"
    topic = quote(demo.topic_b, safe="")
    return [
        f"watch it in the console: {console}/ shows throughput, lag, and the kills as changes",
        f"  {console}/transactions shows the open transaction, {console}/groups/{demo.name} the"
        f" lag of the job, {console}/topics/{topic}/messages?from=tail its output",
    ]


def _act(demo: Demo) -> list[str]:
    for line in console_lines(demo):
        demo.say(line)
    demo.say(f"{demo.source.path}, key field {demo.key_field.number}, into {demo.topic_a}")
    run(create_topics(demo))
    count = feed(demo)
    demo.say(
        f"{demo.arguments.feeders} processes sent {count:,} records for {demo.servers} servers"
    )
    steps = reshard(demo)
    demo.say("reading everything back")
    problems = prove(demo, steps)
    tiers = Tiers(demo.servers, _TASKS, demo.arguments.partitions)
    _console.print()
    for line in connection_lines(tiers, demo.seen):
        _console.print(line, soft_wrap=True)
    if demo.arguments.report:
        demo.say("sessions of the users, from topic B")
        sessions(demo)
    shutil.rmtree(demo.checkpoint, ignore_errors=True)
    return problems


def choose_input(arguments: argparse.Namespace) -> tuple[Input, KeyField]:
    """A file of the user's, or queries made up. Raises CommandError."""
    if arguments.input is None:
        made = made_up(arguments.dir, arguments.records, arguments.seed)
        return made, KeyField()
    if not arguments.input.is_file():
        raise CommandError(f"there is no file {arguments.input}", code=ExitCode.NO_INPUT)
    separator = arguments.separator.encode().decode("unicode_escape").encode()
    lines = from_file(arguments.input, arguments.records, _QUERY_SERVERS)
    return lines, KeyField(arguments.key_field, separator)


@contextmanager
def a_cluster(directory: Path, *, keep: bool) -> Iterator[DevCluster]:
    """The embedded cluster: started if it is not running, and stopped again if it was started
    here.
    """
    kept = Shape.read(Layout(directory).shape_path)
    shape = kept or Shape.default()
    cluster = DevCluster(Layout(directory, shape), report=_console.print)
    if not shape.txn_coordinators:
        raise CommandError(
            f"the cluster in {directory} has no txn-coordinator", hint="--dir another-directory"
        )
    ran_before = bool(cluster.running())
    try:
        cluster.start()
        yield cluster
    finally:
        if not ran_before and not keep:
            cluster.stop()


def _faults(text: str) -> list[str]:
    names = [] if text in ("", _NO_FAULTS) else text.split(",")
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is not one of {', '.join(FAULTS)}")
    return [name for name in FAULTS if name in names]


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--input", type=Path, help="file of lines, plain or .gz; default: generated queries")
    add("--records", type=int, default=500_000, help="at least this many; a short file is repeated")
    add("--seed", type=int, default=7, help="seed of generated queries")
    add("--key-field", type=int, default=1, help="field of a line that is the key, from 1")
    add("--separator", default=" ", help="separator of a line's fields; default: a space")
    add("--feeders", type=int, default=4, help="processes that act as servers")
    add("--source-partitions", type=int, default=8, help="partitions of topic A")
    add("--partitions", type=int, default=12, help="partitions of topic B")
    add("--batches", type=int, default=24, help="minimum number of batches")
    add(
        "--faults",
        type=_faults,
        default=",".join(FAULTS),
        help=f"some of {', '.join(FAULTS)}, separated by commas; or {_NO_FAULTS}",
    )
    add(
        "--report",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write a report of sessions",
    )
    add("--dir", type=Path, default=Path(".tidemark"), help="directory of the cluster")
    add("--keep", action="store_true", help="leave the cluster running if the demo started it")
    arguments = parser.parse_args()
    numbers = ("records", "key_field", "feeders", "source_partitions", "partitions", "batches")
    if min(getattr(arguments, name) for name in numbers) < 1:
        parser.error("numbers start at 1")
    if arguments.faults and arguments.batches < _BATCHES_MIN:
        parser.error(f"faults need --batches {_BATCHES_MIN} or more")
    return arguments


def main() -> int:
    """Run it; errors as one message on stderr."""
    try:
        return demonstrate(read_arguments())
    except CommandError as error:
        sys.stderr.write(
            f"error: {error.what}\n" + (f"  try: {error.hint}\n" if error.hint else "")
        )
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
