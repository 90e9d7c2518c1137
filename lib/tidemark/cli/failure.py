"""Failures that the command line reports: what failed, where, and what to try."""

from tidemark.runtime.exit_codes import ExitCode


class CommandError(Exception):
    """Failure that ends a command with a message on stderr and an exit code, never a traceback."""

    def __init__(self, what: str, *, hint: str = "", code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(f"{what}\n{hint}" if hint else what)
        self.what = what
        self.hint = hint
        self.exit_code = code
