"""The named steps of a write: where tests and the demo pause or kill a process.

In production ``reached`` does nothing. With ``TIDEMARK_SPARK_STEP_HOOK="package.module:function"``
in the environment of the Python processes, the function is called at each step with the step and
the facts known there: ``sink_id``, ``query_id``, ``batch_id``, and in tasks ``partition_id`` and
``writer``.
"""

import importlib
import os
from enum import StrEnum
from functools import cache
from typing import Final, Protocol, cast

HOOK_VARIABLE: Final = "TIDEMARK_SPARK_STEP_HOOK"


class Step(StrEnum):
    """In the order in which a batch meets them."""

    ENLIST = "enlist"
    """Task: the writer is in the batch's transaction; nothing was sent."""
    SEND = "send"
    """Task: the first records are on their way."""
    FLUSH = "flush"
    """Task: all records are in the log, invisible."""
    MESSAGE = "message"
    """Task: about to give Spark its message."""
    COMMIT_BEFORE = "commit-before"
    """Driver: all tasks are done; nothing was asked of the coordinator."""
    OFFSETS = "offsets"
    """Driver: the source group's offsets are in the transaction; only with a group."""
    COMMIT_SENT = "commit-sent"
    """Driver: the coordinator has decided; its answer was not looked at."""
    COMMIT_AFTER = "commit-after"
    """Driver: about to tell Spark that the batch is committed."""
    ABORT = "abort"
    """Driver: about to give the batch up."""


class Hook(Protocol):
    """What ``HOOK_VARIABLE`` names."""

    def __call__(self, step: Step, **facts: object) -> None:
        """Pause, kill the process, raise, or nothing."""


def reached(step: Step, **facts: object) -> None:
    """Tell the hook, if there is one."""
    name = os.environ.get(HOOK_VARIABLE)
    if name:
        _hook(name)(step, **facts)


@cache
def _hook(name: str) -> Hook:
    module, _, function = name.partition(":")
    return cast("Hook", getattr(importlib.import_module(module), function))
