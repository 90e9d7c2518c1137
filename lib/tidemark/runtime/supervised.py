"""The znodes of a process that runs under a supervisor, in a file that both have open."""

import os
from typing import BinaryIO, Final

from tidemark.runtime.witness import ProcessZnodes

DESCRIPTOR_VARIABLE: Final = "TIDEMARK_SUPERVISOR_FD"
"""Environment variable with the descriptor of the file; unset without a supervisor."""
PID_DESCRIPTOR_VARIABLE: Final = "TIDEMARK_SUPERVISOR_PID_FD"
"""Environment variable of a supervisor: descriptor to which it writes the pid of the service, as a
line, and which it then closes.
"""
CONTENT_BYTES_MAX: Final = 4_096
"""A write of one page is whole or absent, however the process ends."""


def make_file() -> BinaryIO:
    """Return a new file for the znodes of a process. It has no name, and ends with the last process
    that has it open.
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("tidemark-supervised"), "r+b", buffering=0)
    import tempfile  # it would take the supervisor a megabyte where it is not needed

    return tempfile.TemporaryFile(buffering=0)


def announce(znodes: ProcessZnodes) -> None:
    """Write down the znodes that this process leaves behind, for its supervisor if there is one.
    Replaces what was written before. With names of files that are too long, nothing is recorded.
    """
    descriptor = os.environ.get(DESCRIPTOR_VARIABLE, "")
    if not descriptor.isdigit():
        return
    content = znodes.encode()
    if len(content) > CONTENT_BYTES_MAX:
        content = b""
    os.pwrite(int(descriptor), content.ljust(CONTENT_BYTES_MAX), 0)


def read(descriptor: int) -> ProcessZnodes | None:
    """Return the znodes of a process; None if it ended before it wrote them."""
    content = os.pread(descriptor, CONTENT_BYTES_MAX, 0)
    return ProcessZnodes.decode(content) if content.strip() else None
