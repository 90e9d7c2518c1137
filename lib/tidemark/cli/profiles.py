"""Profiles: named settings in one file, of which one may be current."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

VARIABLE: Final = "TIDEMARK_PROFILE"
"""Environment variable that names a profile."""
FILE_VARIABLE: Final = "TIDEMARK_PROFILES"
"""Environment variable that names the file of profiles."""
SECRETS: Final = frozenset({"sasl.password", "ssl.key.password"})
"""Settings that are never shown, and that only the owner of the file may be able to read."""
FORMAT: Final = 1
"""Version of the file's format."""
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Profiles:
    """Content of the file."""

    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Mapping[str, str]:
        """Return one profile. Raises CommandError."""
        if name not in self.profiles:
            known = ", ".join(self.profiles)
            raise CommandError(
                f"there is no profile {name!r} in {path_of_profiles()}",
                hint=f"there are: {known}" if known else "tidemark profile create adds one",
                code=ExitCode.USAGE,
            )
        return self.profiles[name]

    def with_profile(self, name: str, values: Mapping[str, str]) -> "Profiles":
        """Return a copy in which a profile has these values."""
        return replace(self, profiles={**self.profiles, name: dict(values)})

    def without(self, name: str) -> "Profiles":
        """Return a copy without a profile, which is then not current either."""
        left = {each: values for each, values in self.profiles.items() if each != name}
        return Profiles(left, None if self.current == name else self.current)


class Selected(NamedTuple):
    """Profile that applies to this command; name None without one."""

    name: str | None
    values: Mapping[str, str]


def path_of_profiles() -> Path:
    """Return the file: TIDEMARK_PROFILES, or tidemark/profiles.json in the user's configuration."""
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "tidemark" / "profiles.json"


def selected(named: str | None) -> Selected:
    """Return the profile of ``--profile``, of TIDEMARK_PROFILE, or the current one. Raises
    CommandError.
    """
    stored = read_profiles()
    name = named or os.environ.get(VARIABLE) or stored.current
    return Selected(None, {}) if name is None else Selected(name, stored.get(name))


def read_profiles() -> Profiles:
    """Return the file's content, empty without a file. Raises CommandError."""
    path = path_of_profiles()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, written by a newer release")
        stored = {
            str(name): {str(key): str(value) for key, value in values.items()}
            for name, values in content["profiles"].items()
        }
        _check_secrets(path, stored)
        current = content.get("current")
        return Profiles(stored, current if current in stored else None)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise _no_access("read", path, error) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(
            f"{path} is damaged: {error}",
            hint=f"correct it, or remove it and create the profiles again; {FILE_VARIABLE} names"
            " another file",
            code=ExitCode.DATA,
        ) from None


def shown(name: str, value: str) -> str:
    """Return a value as it may be printed."""
    return "(hidden)" if name in SECRETS else value


def _check_secrets(path: Path, stored: Mapping[str, Mapping[str, str]]) -> None:
    """Raise CommandError if others may read a secret."""
    has_secret = any(SECRETS & values.keys() for values in stored.values())
    if has_secret and path.stat().st_mode & _OTHERS:
        raise CommandError(
            f"{path} has a password, and others may read it",
            hint=f"chmod 600 {path}, and change the password",
            code=ExitCode.NO_PERMISSION,
        )


def write_profiles(stored: Profiles) -> None:
    """Replace the whole file; only its owner may read it. Raises CommandError."""
    path = path_of_profiles()
    content = {"format": FORMAT, "current": stored.current, "profiles": stored.profiles}
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        scratch.replace(path)
    except OSError as error:
        raise _no_access("write", path, error) from None


def _no_access(deed: str, path: Path, error: OSError) -> CommandError:
    forbidden = isinstance(error, PermissionError)
    return CommandError(
        f"cannot {deed} {path}: {error.strerror}",
        hint=f"{FILE_VARIABLE} names another file",
        code=ExitCode.NO_PERMISSION if forbidden else ExitCode.IO,
    )
