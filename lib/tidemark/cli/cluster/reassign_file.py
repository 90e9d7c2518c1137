"""Kafka's reassignment JSON: ``{"version":1,"partitions":[{"topic","partition","replicas"}]}``.

An entry may have ``log_dirs``: for each replica its directory, or ``any``.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidemark.cli.failure import CommandError
from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode

STDIN: Final = "-"
VERSION: Final = 1
_FORM: Final = (
    'write {"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]},'
    " as `tidemark cluster reassign plan -o json` does"
)
ANY_DIRECTORY: Final = "any"

Replicas = tuple[int, ...]
Directories = dict[tuple[TopicPartition, int], str]
"""Log directory by partition and broker, where the file names one."""


class PlanFile(NamedTuple):
    """Content of a file."""

    target: dict[TopicPartition, Replicas]
    directories: Directories


def read_file(name: str) -> dict[TopicPartition, Replicas]:
    """Read the target of each partition from a file, or from stdin ("-"). Raises CommandError."""
    return read_plan(name).target


def read_plan(name: str) -> PlanFile:
    """Read a file, or stdin ("-"). Raises CommandError."""
    where = "stdin" if name == STDIN else name
    try:
        text = sys.stdin.read() if name == STDIN else Path(name).read_text(encoding="utf-8")
    except OSError as problem:
        raise CommandError(
            f"{where} cannot be read: {problem.strerror}",
            hint="check the path; - reads stdin",
            code=ExitCode.NO_INPUT,
        ) from None
    except UnicodeDecodeError as problem:
        raise _bad(f"{where} is not UTF-8 text: {problem.reason} at byte {problem.start}") from None
    return parse_plan(text, where)


def parse(text: str, where: str) -> dict[TopicPartition, Replicas]:
    """Return the target of each partition in a document. Raises CommandError."""
    return parse_plan(text, where).target


def parse_plan(text: str, where: str) -> PlanFile:
    """Parse a document. Raises CommandError with the place of the error."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as problem:
        raise _bad(
            f"{where}, line {problem.lineno}, column {problem.colno}: {problem.msg}"
        ) from None
    except RecursionError:
        raise _bad(f"{where}: nested too deep") from None
    if not isinstance(document, dict):
        raise _bad(f"{where}: the document is not an object")
    if document.get("version", VERSION) != VERSION:
        raise _bad(f"{where}: version is {document['version']!r}, but only 1 is supported")
    listed = document.get("partitions")
    if not isinstance(listed, list):
        raise _bad(f'{where}: "partitions" is missing or not a list')
    plan = PlanFile({}, {})
    for index, each in enumerate(listed):
        place = f"{where}: partitions[{index}]"
        partition, replicas = _entry(each, place)
        if partition in plan.target:
            raise _bad(f"{place}: {partition} is listed twice")
        plan.target[partition] = replicas
        for broker, path in _log_dirs(each, place, partition, replicas):
            plan.directories[partition, broker] = path
    return plan


def text_of(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the document in one line, as Kafka's tool prints it."""
    document = {
        "version": VERSION,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in sorted(assignment.items())
        ],
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _entry(each: Any, where: str) -> tuple[TopicPartition, Replicas]:
    if not isinstance(each, dict):
        raise _bad(f"{where} is not an object")
    topic, partition, replicas = each.get("topic"), each.get("partition"), each.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise _bad(f'{where}: "topic" is missing or not a name')
    if not isinstance(partition, int) or not _is_number(partition):
        raise _bad(f'{where}: "partition" is missing or not a number from 0 on')
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        raise _bad(f'{where}: "replicas" is missing, empty or not a list of broker ids')
    named = TopicPartition(topic, partition)
    if len(set(replicas)) != len(replicas):
        raise _bad(f"{where}: {named} names a broker twice: {replicas}")
    return named, tuple(replicas)


def _log_dirs(
    each: Any, where: str, named: TopicPartition, replicas: Replicas
) -> list[tuple[int, str]]:
    """Return the brokers of an entry for which it names a directory."""
    paths = each.get("log_dirs") or [ANY_DIRECTORY] * len(replicas)
    if not isinstance(paths, list) or len(paths) != len(replicas):
        raise _bad(f'{where}: "log_dirs" of {named} has not one directory for each replica')
    for path in paths:
        if path != ANY_DIRECTORY and not (isinstance(path, str) and path.startswith("/")):
            raise _bad(
                f'{where}: {named}: {path!r} in "log_dirs" is no absolute path, and not "any"'
            )
    return [pair for pair in zip(replicas, paths, strict=True) if pair[1] != ANY_DIRECTORY]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _bad(what: str) -> CommandError:
    return CommandError(what, hint=_FORM, code=ExitCode.DATA)
