"""How a job ends: what went wrong as one line on stderr, and the exit code."""

import sys
from collections.abc import Callable
from typing import Final

from pyspark.errors import StreamingQueryException
from tidemark.client.errors import ClientError

from tidemark_spark.errors import OptionError, TidemarkSparkError
from tidemark_spark.progress import reason_of

DONE: Final = 0
FAILED: Final = 1
WRONG_OPTION: Final = 2
INTERRUPTED: Final = 130


def ended(job: str, work: Callable[[], int | None]) -> int:
    """Do the work. The exit code is its own or 0 when it came to its end, 1 for what went wrong, 2
    for a wrong option, 130 for ^C.
    """
    try:
        return work() or DONE
    except OptionError as problem:
        return _said(f"{job}: {problem}", WRONG_OPTION)
    except (TidemarkSparkError, ClientError) as problem:
        return _said(f"{job}: {problem}", FAILED)
    except StreamingQueryException as problem:
        return _said(f"{job}: the query failed: {reason_of(str(problem))}", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def tell(line: str) -> None:
    """A line of progress, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _said(line: str, code: int) -> int:
    sys.stderr.write(f"{line}\n")
    return code
