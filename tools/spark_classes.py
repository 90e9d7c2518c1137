"""``make sparkclasses``: an archive of the classes that a driver of Spark loads (class data sharing
of the JVM), so that a driver starts with less CPU.

Most of what a driver does before its first batch is to read, verify and link 20,000 classes. A
training run of ``reshard`` against a small cluster of its own leaves them in ``build/sparkclasses``
in the form in which the JVM maps them. ``make demo`` uses the archive if it is there. A JVM ignores
an archive of another JVM or of other jars.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from demo_spark import SparkJob, Submission, class_archive
from spark_zip import JOBS, build
from tidemark.cli.client_calls import run
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout
from tidemark.cli.failure import CommandError
from tidemark.client import Admin, NewTopic, Producer
from tidemark.runtime.exit_codes import ExitCode

_PARTITIONS: Final = 4
_RECORDS: Final = 400
_SECONDS_MAX: Final = 600.0


async def _fill(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(one, _PARTITIONS, 1, {}) for one in ("from", "to")])
    async with Producer(bootstrap) as producer:
        for number in range(_RECORDS):
            value = b"user-%d\t%d" % (number % 10, number)
            await producer.send("from", value, partition=number % _PARTITIONS)


def train(directory: Path, place: Path) -> None:
    """Run the job once; its JVM writes the archive when it ends. Raises CommandError."""
    cluster = DevCluster(
        Layout.on_free_ports(directory / "cluster", brokers=1, txn_coordinators=1), report=print
    )
    try:
        cluster.start()
        run(_fill(cluster.bootstrap))
        grpc = f"127.0.0.1:{cluster.layout.shape.ports.grpc}"
        submission = Submission(
            "reshard",
            (
                *("--bootstrap-servers", grpc, "--source", "from", "--target", "to"),
                *("--key", "field:1", "--checkpoint", str(directory / "checkpoint")),
                "--available-now",
            ),
            build(directory / "tidemark_jobs.zip", JOBS),
            {},
            directory / "logs",
            (f"-XX:ArchiveClassesAtExit={place}", "-Xlog:disable", "-Xlog:all=error:stderr"),
        )
        job = SparkJob(submission, print)
        try:
            job.wait(_SECONDS_MAX)
        finally:
            job.close()
    finally:
        cluster.stop()


def main() -> int:
    """Make the archive, unless it is there."""
    try:
        place = class_archive()
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            made = place.with_suffix(".new")
            with tempfile.TemporaryDirectory(prefix="tidemark-sparkclasses-") as directory:
                train(Path(directory), made)
            if not made.exists():
                raise CommandError("the JVM has written no archive")
            made.rename(place)
    except CommandError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    print(place)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
