"""The job under ``spark-submit``: started, watched, killed and started again."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from tidemark.cli.dev.process import ProcessFile, process_identity, send_signal, wait_ended
from tidemark.cli.failure import CommandError

ROOT: Final = Path(__file__).parents[1]
JOBS: Final = ROOT / "spark-jobs" / "jobs"
SUBMIT: Final = Path(pyspark.__file__).parent / "bin" / "spark-submit"
# local[N,F]: a task may fail F - 1 times. Without F the first failure would end the query.
MASTER: Final = "local[2,4]"
CONF: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
# Four drivers that live a minute each: what the JVM's second compiler makes comes too late.
JAVA_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_END_SECONDS: Final = 20.0
_LOG_LINES_SHOWN: Final = 15


def class_archive() -> Path:
    """Return the place of the class archive of this JVM and this PySpark, which may not be there
    (``make sparkclasses``). Raises CommandError without a JVM.
    """
    try:
        java = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    except OSError:
        raise CommandError("there is no java", hint="install a JDK 17") from None
    place = f"{pyspark.__version__} {pyspark.__file__}".encode()
    name = hashlib.sha256(java + place).hexdigest()[:16]
    return ROOT / "build" / "sparkclasses" / f"{name}.jsa"


def archive_options() -> Sequence[str]:
    """Return the options of a JVM that uses the class archive, if there is one."""
    archive = class_archive()
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


@dataclass(frozen=True, slots=True)
class Submission:
    """What to submit: a job of spark-jobs/jobs, its options, and what its processes see."""

    job: str
    options: Sequence[str]
    py_files: Path
    environment: Mapping[str, str]
    log_directory: Path
    java_options: Sequence[str] = ()
    """Further options of the driver's JVM."""

    def argv(self) -> list[str]:
        """The command."""
        conf = [f"--conf={name}={value}" for name, value in CONF.items()]
        java_options = " ".join((*JAVA_OPTIONS, *self.java_options))
        return [
            str(SUBMIT),
            *("--master", MASTER, "--driver-memory", "1g", "--py-files", str(self.py_files)),
            *conf,
            f"--conf=spark.driver.extraJavaOptions={java_options}",
            str(JOBS / f"{self.job}.py"),
            *self.options,
        ]

    def variables(self) -> dict[str, str]:
        """The environment of the driver; its Python processes inherit it."""
        inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        return {
            **inherited,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONWARNINGS": "ignore",  # Spark's own, among what the job prints
            **self.environment,
        }


class SparkJob:
    """One life of a submission. ``tell`` gets the lines that the job prints."""

    def __init__(self, submission: Submission, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._job = submission.job
        directory = submission.log_directory
        directory.mkdir(parents=True, exist_ok=True)
        self._errors = directory / f"{submission.job}.err"
        output = directory / f"{submission.job}.out"
        with output.open("wb") as out, self._errors.open("ab") as err:
            self._process = subprocess.Popen(
                submission.argv(),
                env=submission.variables(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # ^C is ours to handle
            )
        self._output = output.open(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        """Of the driver's JVM: spark-submit becomes it."""
        return self._process.pid

    def check_alive(self) -> None:
        """Raise CommandError when it has ended; pass on what it printed."""
        self.follow()
        if self._process.poll() is not None:
            raise self._failure("ended too early")

    def follow(self) -> None:
        """Pass on what it has printed since."""
        for line in self._output:
            self._tell(line.rstrip("\n"))

    def wait(self, timeout_s: float, poll_s: float = 0.5) -> None:
        """Until it ends well. Raises CommandError."""
        left_s = timeout_s
        while True:
            try:
                code = self._process.wait(poll_s)
                break
            except subprocess.TimeoutExpired:
                self.follow()
                left_s -= poll_s
                if left_s <= 0:
                    raise self._failure(f"has not ended within {timeout_s:g} s") from None
        self.follow()
        if code != 0:
            raise self._failure(f"failed with exit code {code}")

    def kill(self) -> None:
        """kill -9 the JVM and the driver's Python process. What they started ends by itself."""
        family = descendants(self.pid)
        children = [one for one in family if parent_of(one.pid) == self.pid]
        drivers = [one for one in children if str(JOBS / f"{self._job}.py") in command_of(one.pid)]
        self._process.kill()
        for one in drivers:
            send_signal(one, signal.SIGKILL)
        self._process.wait()
        self._end(family)

    def close(self) -> None:
        """End it, if it still runs, and everything that it started."""
        if self._process.poll() is None:
            family = descendants(self.pid)
            self._process.kill()
            self._process.wait()
            self._end(family)
        self._output.close()

    @staticmethod
    def _end(family: Sequence[ProcessFile]) -> None:
        for one in family:
            if not wait_ended(one, _END_SECONDS):
                send_signal(one, signal.SIGKILL)

    def _failure(self, what: str) -> CommandError:
        lines = self._errors.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(f"  | {line}" for line in lines[-_LOG_LINES_SHOWN:])
        return CommandError(f"{self._job} {what}\n{tail}", hint=f"its log: {self._errors}")


# ---- the process table


def descendants(pid: int) -> list[ProcessFile]:
    """Every process below one, by its parents, known again by its start time."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        number = int(entry.name)
        children.setdefault(parent_of(number), []).append(number)
    found: list[ProcessFile] = []
    left = [pid]
    while left:
        for child in children.get(left.pop(), []):
            identity = process_identity(child)
            if identity is not None:
                found.append(ProcessFile(child, identity, 0))
            left.append(child)
    return found


def parent_of(pid: int) -> int:
    """0 when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def command_of(pid: int) -> list[str]:
    """Its arguments; none when it has ended."""
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return content.decode("utf-8", "replace").split("\0")
