"""Names of partitions on the command line: ``orders:3``."""

from tidemark.cli.failure import CommandError
from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode


def partition_named(name: str, *, what: str = "not topic:partition") -> TopicPartition:
    """Return the partition of a name. A topic's name has no colon. Raises CommandError: it is
    ``what``.
    """
    topic, colon, number = name.rpartition(":")
    if not (colon and topic and number.isascii() and number.isdecimal()):
        raise CommandError(f"{name} is {what}", hint="for example orders:3", code=ExitCode.USAGE)
    return TopicPartition(topic, int(number))
