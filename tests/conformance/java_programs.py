"""The Java programs of this folder: built with Maven once a session, run against a cluster."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from conformance.maven import PROJECT, NotBuiltError, class_path
from tidemark.cli.dev.process import pause_process
from waiting import PATIENCE_S

RUN_S: Final = 150
STOP_S: Final = PATIENCE_S
TAIL: Final = 6_000
# A small machine, many short lives: the first compiler and the simplest collector are enough.
_JVM: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class JavaPrograms:
    """What ``build`` made."""

    def __init__(self, class_path: str) -> None:
        self._class_path = class_path

    def argv(self, program: str, *arguments: str) -> list[str]:
        """What starts a program."""
        main = f"tidemark.conformance.{program}"
        return ["java", *_JVM, "-cp", self._class_path, main, *arguments]

    def tool(self, name: str, *arguments: str) -> list[str]:
        """Return what starts one of Kafka's own tools."""
        main = f"org.apache.kafka.tools.{name}"
        return ["java", *_JVM, "-cp", self._class_path, main, *arguments]

    def facts(self, program: str, *arguments: str) -> dict[str, str]:
        """Runs it to its end; the facts that it told, by name."""
        done = subprocess.run(
            self.argv(program, *arguments),
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, f"{program}:\n{done.stdout[-TAIL:]}\n{done.stderr[-TAIL:]}"
        return dict(_facts(done.stdout))


class RunningProgram:
    """One that runs until it is ended."""

    def __init__(self, argv: list[str], log_path: Path) -> None:
        self._log_path = log_path
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)

    def told(self) -> list[tuple[str, str]]:
        """The facts so far, in order."""
        return list(_facts(self._log_path.read_text(errors="replace")))

    def story(self, size: int | None = TAIL) -> str:
        """The end of what it wrote; None: all."""
        return self._log_path.read_text(errors="replace")[-(size or 0) :]

    def wait(self) -> None:
        """Wait until it has ended by itself, without an error."""
        assert self._process.wait(RUN_S) == 0, self.story()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(STOP_S)

    def pause(self) -> None:
        """SIGSTOP: to everybody else it is dead."""
        pause_process(self._process.pid)

    def resume(self) -> None:
        """SIGCONT: it knows of nothing."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and what does not listen is killed."""
        if self._process.poll() is not None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def started(argv: list[str], log_path: Path) -> Iterator[RunningProgram]:
    """A program, ended with the block."""
    with ExitStack() as ending:
        program = RunningProgram(argv, log_path)
        ending.callback(program.stop)
        yield program


def build(project: Path = PROJECT) -> JavaPrograms:
    """Compile a project. Skips the tests where there is no JDK, no Maven or no registry."""
    try:
        return JavaPrograms(class_path(project))
    except NotBuiltError as problem:
        pytest.skip(str(problem))


def _facts(output: str) -> Iterator[tuple[str, str]]:
    for line in output.splitlines():
        name, tab, value = line.partition("\t")
        if tab and name.strip() == name:
            yield name, value
