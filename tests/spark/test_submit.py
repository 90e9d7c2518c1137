"""The commands of docs/operating/spark-submit.md: ``spark-submit`` on this machine and to a
standalone master, with the package as one zip file.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import confluent_kafka
import pyspark
import pytest
from e2e.clusters import Cluster
from spark.spark_records import create, produce
from waiting import COMMAND_S, PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
START_S = PATIENCE_S
STOP_S = PATIENCE_S
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PARTITIONS = 3


def environment() -> dict[str, str]:
    """Nothing on PYTHONPATH: what a job needs comes in its zip file, or is installed."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"SPARK_HOME", "PYTHONPATH"}
        and not name.startswith(("TIDEMARK_", "PYSPARK_"))
    }
    return {
        **inherited,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
    }


@pytest.fixture(scope="module")
def py_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("packages")
    builder = ROOT / "tools" / "spark_zip.py"
    subprocess.run([sys.executable, str(builder), str(directory)], check=True, capture_output=True)
    return directory / "tidemark_jobs.zip"


def submit(master: str, py_files: Path, job: str, *arguments: str) -> str:
    """What the job printed."""
    conf: Mapping[str, str] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SMALL,
        "spark.executor.extraJavaOptions": SMALL,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
    }
    argv = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
    argv += ["--driver-memory", "512m", "--py-files", str(py_files)]
    argv += [f"--conf={name}={value}" for name, value in conf.items()]
    argv += [str(ROOT / "spark-jobs" / "jobs" / f"{job}.py"), *arguments]
    done = subprocess.run(
        argv, env=environment(), capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout


def values(cluster: Cluster, topic: str, partitions: int) -> list[str]:
    """Every committed record, sorted."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(partitions)])
    found: list[str] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + START_S
    with contextlib.closing(reader):
        while len(ended) < partitions and time.monotonic() < deadline:
            for message in reader.consume(500, timeout=1.0):
                if message.error() is None:
                    found.append((message.value() or b"").decode())
                else:
                    ended.add(message.partition())
    return sorted(found)


@contextlib.contextmanager
def daemon(log_path: Path, name: str, *arguments: str) -> Iterator[Callable[[str], str]]:
    """One of Spark's own servers, killed with the block; gives ``wait_for(pattern)``, which answers
    the first group of what it logs.
    """
    argv = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with log_path.open("wb") as log:
        process = subprocess.Popen(argv, env=environment(), stdout=log, stderr=log)

    def wait_for(pattern: str) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            found = re.search(pattern, log_path.read_text(errors="replace"))
            if found is not None:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(f"no {pattern!r}:\n{log_path.read_text(errors='replace')[-3_000:]}")

    try:
        yield wait_for
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and a worker on loopback; the master's address."""
    quiet = ("--host", "127.0.0.1", "--webui-port", "0")
    with daemon(tmp_path / "master.log", "master.Master", *quiet, "--port", "0") as wait_for:
        address = wait_for(r"Starting Spark master at (spark://\S+)")
        resources = ("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        with daemon(
            tmp_path / "worker.log", "worker.Worker", *quiet, *resources, address
        ) as wait_for_worker:
            wait_for_worker(r"(Successfully registered) with master")
            yield address


def reshard(master: str, py_files: Path, cluster: Cluster, topic: str, checkpoint: Path) -> str:
    """200 lines from one topic into another, where each must be once; what the job printed."""
    lines = [f"{number}\tuser-{number % 7}" for number in range(200)]
    create(cluster, f"{topic}.a")
    create(cluster, f"{topic}.b", PARTITIONS)
    produce(cluster, f"{topic}.a", [line.encode() for line in lines])
    printed = submit(
        master,
        py_files,
        "reshard",
        *("--bootstrap-servers", cluster.grpc(), "--source", f"{topic}.a"),
        *("--target", f"{topic}.b", "--key", "field:2", "--checkpoint", str(checkpoint)),
        "--available-now",
    )
    assert values(cluster, f"{topic}.b", PARTITIONS) == sorted(lines)
    return printed


@pytest.mark.feature("X05")
def test_a_job_runs_in_one_process(
    py_files: Path, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    printed = reshard("local[2,4]", py_files, cluster, topic_name("local"), tmp_path / "checkpoint")
    assert "200 records" in printed


@pytest.mark.feature("X05")
def test_a_job_runs_under_a_standalone_master(
    standalone: str,
    py_files: Path,
    cluster: Cluster,
    topic_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    printed = reshard(
        standalone, py_files, cluster, topic_name("standalone"), tmp_path / "checkpoint"
    )
    assert "200 records" in printed
