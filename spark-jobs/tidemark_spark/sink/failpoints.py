"""Failpoints: named steps of a write at which tests and the demo pause or kill a process.

In production ``hit`` does nothing. If the environment of the Python processes contains
``TIDEMARK_SPARK_STEP_HOOK="package.module:function"``, the function is called at each step with the
step and its context: ``sink_id``, ``query_id``, ``batch_id``, and in tasks ``partition_id`` and
``writer``.
"""

import importlib
import os
from enum import StrEnum
from functools import cache
from typing import Final, Protocol, cast

HOOK_VARIABLE: Final = "TIDEMARK_SPARK_STEP_HOOK"


class Step(StrEnum):
    """Steps of a batch, in order."""

    ENLIST = "enlist"
    """Task: the writer is enlisted in the transaction; nothing has been sent."""
    SEND = "send"
    """Task: the first records have been sent."""
    FLUSH = "flush"
    """Task: all records are in the log and not visible."""
    MESSAGE = "message"
    """Task: its message is about to be returned to Spark."""
    COMMIT_BEFORE = "commit-before"
    """Driver: all tasks are done; the coordinator has not been called yet."""
    OFFSETS = "offsets"
    """Driver: the offsets of the source's group are in the transaction; only with a group."""
    COMMIT_SENT = "commit-sent"
    """Driver: the coordinator has committed; its response has not been examined yet."""
    COMMIT_AFTER = "commit-after"
    """Driver: the commit is about to be reported to Spark."""
    ABORT = "abort"
    """Driver: the batch is about to be aborted."""


class Hook(Protocol):
    """The function named by ``HOOK_VARIABLE``."""

    def __call__(self, step: Step, **facts: object) -> None:
        """Pause, kill the process, raise or do nothing."""


def hit(step: Step, **facts: object) -> None:
    """Call the hook, if there is one."""
    name = os.environ.get(HOOK_VARIABLE)
    if name:
        _hook(name)(step, **facts)


@cache
def _hook(name: str) -> Hook:
    module, _, function = name.partition(":")
    return cast("Hook", getattr(importlib.import_module(module), function))
