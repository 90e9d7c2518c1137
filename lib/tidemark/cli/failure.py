"""Failures that the command line reports: what failed, where, why, and what to try."""

import errno
from collections.abc import Iterator
from typing import Final

from tidemark.runtime.exit_codes import ExitCode

_OF_WRITES: Final = frozenset((errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def is_of_a_write(error: OSError) -> bool:
    """True if only a write fails so: the output is closed or full, whatever was read meanwhile."""
    return error.errno in _OF_WRITES


class CommandError(Exception):
    """Failure that ends a command with a message on stderr and an exit code, never a traceback.

    ``address`` and ``api`` name the request that failed, ``cause`` is the likely reason and
    ``hint`` the next command; '' leaves a line out.
    """

    def __init__(
        self,
        what: str,
        *,
        hint: str = "",
        code: ExitCode = ExitCode.FAILED,
        address: str = "",
        api: str = "",
        cause: str = "",
    ) -> None:
        super().__init__(f"{what}\n{hint}" if hint else what)
        self.what = what
        self.hint = hint
        self.exit_code = code
        self.address = address
        self.api = api
        self.cause = cause

    def lines(self) -> Iterator[str]:
        """Yield the lines of the message."""
        yield f"error: {self.what}"
        for name in ("address", "api", "cause"):
            if text := getattr(self, name):
                yield f"  {name}: {text}"
        if self.hint:
            yield f"  try: {self.hint}"
