"""Stacks of all threads and tasks of this process, as text for diagnosis."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Final

TASKS_MAX: Final = 500
_FRAMES_MAX: Final = 40


def stacks() -> str:
    """Return the stacks of every thread, and of the tasks of the running loop, if any."""
    return "\n".join([*_threads(), *_tasks()]) + "\n"


def _threads() -> Iterator[str]:
    names = {thread.ident: thread for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - the only way to other threads' frames
    for ident, frame in frames.items():
        thread = names.get(ident)
        name = "unknown" if thread is None else thread.name
        daemon = ", daemon" if thread is not None and thread.daemon else ""
        yield f"thread {name} ({ident}{daemon})"
        yield "".join(traceback.format_stack(frame, _FRAMES_MAX))


def _tasks() -> Iterator[str]:
    try:
        tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    except RuntimeError:  # called outside of a loop
        return
    yield f"{len(tasks)} tasks"
    for task in tasks[:TASKS_MAX]:
        yield f"task {task.get_name()}"
        for frame in task.get_stack(limit=_FRAMES_MAX):
            code = frame.f_code
            yield f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}'
    if len(tasks) > TASKS_MAX:
        yield f"and {len(tasks) - TASKS_MAX} more"
