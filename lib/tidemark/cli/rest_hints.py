"""Advice of REST as commands: it names methods and paths, which no caller of a command sees."""

import re
from typing import Final

_OF_CLUSTER: Final = r"GET /v3/clusters/[^/ ]+"
_TO_COMMANDS: Final = (
    (r"GET /v3/operations lists the operations", "tidemark operations list"),
    (r"DELETE /v3/operations/(\S+)", r"tidemark operations cancel \1"),
    (rf"{_OF_CLUSTER}/brokers lists the brokers", "tidemark cluster brokers"),
    (rf"{_OF_CLUSTER}/topics lists the topics", "tidemark topic list"),
    (rf"{_OF_CLUSTER}/users lists the users", "tidemark user list"),
    (rf"{_OF_CLUSTER}/quotas lists the quotas", "tidemark quota list"),
    (rf"{_OF_CLUSTER}/topics/\S+ lists the moves", "tidemark cluster reassign watch"),
    (
        r"GET /openapi\.json lists all paths",
        "the controller may be of another release than this command",
    ),
    (r"GET /(openapi\.json|v3/clusters) .*", ""),
)


def as_commands(remedy: str) -> str:
    """Return a remedy with commands in place of requests."""
    for pattern, command in _TO_COMMANDS:
        remedy = re.sub(pattern, command, remedy)
    return remedy
