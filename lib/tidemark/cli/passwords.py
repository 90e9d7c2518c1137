"""Secrets of a command, from a prompt, a file or stdin: never from its arguments, which others can
read.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File whose first line is the password; - is stdin. Default: a prompt.",
    ),
]


def ask_password(user: str, file: Path | None) -> str:
    """Return the password from a file, or from a prompt. Raises CommandError without one."""
    if file is None:
        if not sys.stdin.isatty():
            raise CommandError(
                "there is no terminal to ask for the password",
                hint="--password-file FILE, or --password-file - for stdin",
                code=ExitCode.USAGE,
            )
        password = str(
            typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        )
    else:
        password = first_line(file)
    if not password:
        raise CommandError("the password is empty", code=ExitCode.USAGE)
    return password


def first_line(file: Path) -> str:
    """Return the first line of a file, or of stdin for ``-``. Raises CommandError."""
    if str(file) == "-":
        return sys.stdin.readline().rstrip("\r\n")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise CommandError(f"there is no file {file}", code=ExitCode.NO_INPUT) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {file}: {error}", code=ExitCode.IO) from None
    return lines[0] if lines else ""
