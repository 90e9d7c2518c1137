"""Failures that the command line tells people about: what failed, where, and what to try."""

from tidemark.runtime.exit_codes import ExitCode


class CommandError(Exception):
    """Ends a command with one message on stderr and an exit code; never with a traceback."""

    def __init__(self, what: str, *, hint: str = "", code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(f"{what}\n{hint}" if hint else what)
        self.what = what
        self.hint = hint
        self.exit_code = code
