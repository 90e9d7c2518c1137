"""Work of ``tidemark k8s provision``."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from tidemark.cli.failure import CommandError
from tidemark.cli.output import say
from tidemark.cli.passwords import first_line
from tidemark.cli.security import security
from tidemark.client.errors import ClientError
from tidemark.kubernetes.api import KubernetesApi
from tidemark.kubernetes.provisioning import ConfigMapNotes, Notes, Place, may_pass
from tidemark.kubernetes.provisioning import provision as provision_once
from tidemark.kubernetes.work import POLL_S
from tidemark.plans.errors import PlanError
from tidemark.plans.provisioning import Wanted, read_wanted
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode


class Task(NamedTuple):
    """Arguments of the command. ``timeout_s``: None without an end."""

    file: Path
    passwords: Path | None
    bootstrap: str
    timeout_s: float | None


def notes_of(
    api: KubernetesApi, namespace: str, name: str, labels: Mapping[str, str]
) -> ConfigMapNotes:
    """Return the notes in a ConfigMap."""
    return ConfigMapNotes(api, namespace, name, labels)


def provision(task: Task, notes: Notes) -> list[str]:
    """Make what is missing, when brokers are there; return a line for each change. Raises
    CommandError, KubernetesError.
    """
    wanted = _read(task.file)
    passwords = _passwords(task.passwords, wanted)
    place = Place(task.bootstrap, security(task.bootstrap))
    clock, last = Clock(), ""
    end_ms = None if task.timeout_s is None else clock.now_ms() + int(task.timeout_s * 1_000)
    while True:
        try:
            return asyncio.run(provision_once(place, wanted, passwords, notes))
        except PlanError as problem:
            raise CommandError(problem.what, hint=problem.remedy, code=ExitCode.CONFIG) from None
        except ClientError as error:
            over = end_ms is not None and clock.now_ms() + POLL_S * 1_000 > end_ms
            if over or not may_pass(error):
                code = ExitCode.TEMPORARY if over else ExitCode.FAILED
                raise CommandError(str(error), address=task.bootstrap, code=code) from None
            if str(error) != last:
                last = str(error)
                say(f"not yet: {last}")
        time.sleep(POLL_S)


def _read(file: Path) -> Wanted:
    try:
        document: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        return read_wanted(document or {})
    except FileNotFoundError:
        raise CommandError(f"there is no file {file}", code=ExitCode.NO_INPUT) from None
    except (OSError, yaml.YAMLError) as error:
        raise CommandError(f"cannot read {file}: {error}", code=ExitCode.DATA) from None
    except PlanError as problem:
        raise CommandError(
            f"{file}: {problem.what}", hint=problem.remedy, code=ExitCode.CONFIG
        ) from None


def _passwords(directory: Path | None, wanted: Wanted) -> dict[str, str]:
    """Return the password of each wanted user. Raises CommandError."""
    if not wanted.users:
        return {}
    if directory is None:
        raise CommandError(
            f"users need --passwords: {', '.join(wanted.users)}", code=ExitCode.USAGE
        )
    found = {name: first_line(directory / name) for name in wanted.users}
    empty = [name for name, password in found.items() if not password]
    if empty:
        raise CommandError(f"the password in {directory / empty[0]} is empty", code=ExitCode.DATA)
    return found
