"""Exit codes of every service and of the command line: sysexits(3) where it has a word for it."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Why a process ended; in words in ``MEANING``."""

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
    ExitCode.OK: "done; a service: stopped as asked, everything drained and closed",
    ExitCode.FAILED: "the command ran and the answer is no: a topic exists already, a check failed",
    ExitCode.USAGE: "wrong arguments on the command line",
    ExitCode.DATA: "input that cannot be read: a damaged file, a line without its separator",
    ExitCode.NO_INPUT: "an input file that is not there",
    ExitCode.UNAVAILABLE: "something needed is not there: no server answers, a port is taken",
    ExitCode.INTERNAL: "a bug of ours; the log has the traceback",
    ExitCode.IO: "a disk failed, is full or belongs to another broker",
    ExitCode.TEMPORARY: "ran out of time: a drain past its deadline; trying again is sensible",
    ExitCode.NO_PERMISSION: "the server or the operating system refused access",
    ExitCode.CONFIG: "a configuration that cannot be: an unknown key, a value out of range",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
}
