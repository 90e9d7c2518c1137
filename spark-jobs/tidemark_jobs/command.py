"""Parts of every job's command: the session, output, NAME=VALUE options and exit codes."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tidemark.client.errors import ClientError
from tidemark_spark import register
from tidemark_spark.errors import OptionError, TidemarkSparkError
from tidemark_spark.progress import reason_of
from tidemark_spark.security import client_security, kafka_properties

DONE: Final = 0
FAILED: Final = 1
WRONG_OPTION: Final = 2
INTERRUPTED: Final = 130
LAST_REPORT_SECONDS: Final = 10.0
"""Time for which a job waits for Spark's last progress report after its query has ended."""

Echo = Callable[[str], object]
"""A function that prints a line."""


def run_command(job: str, work: Callable[[], int | None]) -> int:
    """Run ``work`` and return the exit code of the process.

    The code is the one that ``work`` returns, DONE for None, FAILED for an error, WRONG_OPTION for
    an OptionError and INTERRUPTED for ^C. An error is printed as one line to stderr. Any other
    exception is a bug and is not caught.
    """
    try:
        return work() or DONE
    except OptionError as problem:
        return _print_error(f"{job}: {problem}", WRONG_OPTION)
    except (TidemarkSparkError, ClientError) as problem:
        return _print_error(f"{job}: {problem}", FAILED)
    except StreamingQueryException as problem:
        return _print_error(f"{job}: the query failed: {reason_of(str(problem))}", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def print_line(line: str) -> None:
    """Print a line of progress and flush it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def start_session(name: str) -> SparkSession:
    """Start the Spark session of the job ``name`` and register the format ``tidemark``."""
    spark = SparkSession.builder.appName(f"tidemark-{name}").getOrCreate()
    register(spark)
    return spark


def pairs_of(flag: str, values: Iterable[str]) -> dict[str, str]:
    """Parse the values of an option that takes NAME=VALUE. Raises OptionError."""
    pairs = list(values)
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise OptionError(f"{flag} {wrong[0]} is not NAME=VALUE", f"{flag} name=value")
    return dict(pair.split("=", 1) for pair in pairs)


def add_kafka_properties(parser: argparse.ArgumentParser) -> None:
    """Add the option with a configuration of TLS and login."""
    parser.add_argument(
        "--kafka-properties",
        type=Path,
        metavar="FILE",
        help="configuration of Kafka's Java clients with security.*, sasl.* and ssl.* for the"
        " brokers' Kafka listeners",
    )


def kafka_options(found: argparse.Namespace) -> dict[str, str]:
    """Return the options of source and sink in the file of ``--kafka-properties``, checked. Raises
    OptionError.
    """
    file: Path | None = found.kafka_properties
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise OptionError(f"--kafka-properties: cannot read {file}: {problem}") from None
    options = kafka_properties(text)
    client_security(options)
    return options


def _print_error(line: str, code: int) -> int:
    sys.stderr.write(f"{line}\n")
    return code
