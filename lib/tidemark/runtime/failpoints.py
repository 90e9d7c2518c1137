"""Failpoints: named steps of a service at which tests kill or pause processes.

In production ``hit`` does nothing. If the environment of a process has
``TIDEMARK_STEP_HOOK="package.module:function"``, the function is called with the name of each step.
"""

import importlib
import os
from functools import cache
from typing import Final, Protocol, cast

HOOK_VARIABLE: Final = "TIDEMARK_STEP_HOOK"


class Hook(Protocol):
    """The function named by ``HOOK_VARIABLE``."""

    def __call__(self, step: str) -> None:
        """Kill or pause processes, raise or do nothing."""


def hit(step: str) -> None:
    """Call the hook, if there is one."""
    name = os.environ.get(HOOK_VARIABLE)
    if name:
        _hook(name)(step)


@cache
def _hook(name: str) -> Hook:
    module, _, function = name.partition(":")
    return cast("Hook", getattr(importlib.import_module(module), function))
