"""Exit codes of every service and of the command line: those of sysexits(3) where they fit."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Reason for the end of a process; ``MEANING`` describes each."""

    OK = 0
    FAILED = 1
    USAGE = 64
    DATA = 65
    NO_INPUT = 66
    UNAVAILABLE = 69
    INTERNAL = 70
    IO = 74
    TEMPORARY = 75
    NO_PERMISSION = 77
    CONFIG = 78
    INTERRUPTED = 130


MEANING: Final[Mapping[ExitCode, str]] = {
    ExitCode.OK: "done; a service: stopped on request, everything drained and closed",
    ExitCode.FAILED: "a negative result: a topic exists already, a check failed",
    ExitCode.USAGE: "wrong arguments on the command line",
    ExitCode.DATA: "input that cannot be read: a damaged file, a line without its separator, a"
    " znode of a newer release",
    ExitCode.NO_INPUT: "an input file that does not exist",
    ExitCode.UNAVAILABLE: "something is not available: no server answers, a port is taken",
    ExitCode.INTERNAL: "an internal error; the log has the traceback",
    ExitCode.IO: "a disk failed, is full or belongs to another broker",
    ExitCode.TEMPORARY: "out of time: a drain past its deadline; try again",
    ExitCode.NO_PERMISSION: "the server or the operating system refused access",
    ExitCode.CONFIG: "an invalid configuration: an unknown key, a value out of range",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
}

OF_SERVICES: Final = (
    ExitCode.OK,
    ExitCode.DATA,
    ExitCode.UNAVAILABLE,
    ExitCode.INTERNAL,
    ExitCode.IO,
    ExitCode.TEMPORARY,
    ExitCode.CONFIG,
)
"""Codes with which a service ends; the others are the command line's."""
