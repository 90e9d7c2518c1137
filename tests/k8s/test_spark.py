"""Spark's image in the cluster: a job reads and writes a secured topic, each record once, although
its driver is killed on the way.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from k8s.cluster_waiting import wait_for
from k8s.load import PARTITIONS, Load, read_partition
from k8s.release import Release, run
from k8s.test_nodes import MANY, load
from lab import node
from lab.settings import IMAGES, node_name

__all__ = ["load"]

IMAGE: Final = IMAGES / "spark.tar"
NODE: Final = 4
CHECKPOINTS: Final = "checkpoints"
BATCH: Final = 2_000
"""Records of a batch at most: there are several before the driver is killed, and after."""
_JOB: Final = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {checkpoints}}}
spec:
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 1Gi}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: reshard}}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {{kubernetes.io/hostname: {node}}}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        fsGroup: 10001
        seccompProfile: {{type: RuntimeDefault}}
      containers:
        - name: spark
          image: localhost/tidemark-spark:0.1.0
          imagePullPolicy: Never
          command:
            - /opt/spark/bin/spark-submit
            - --master=local[2,4]
            - --driver-memory=512m
            - --conf=spark.ui.enabled=false
            - --conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
            - local:///opt/tidemark/jobs/reshard.py
            - --bootstrap-servers={name}-bootstrap.{name}.svc.cluster.local:9792
            - --kafka-properties=/etc/tidemark-client/client.spark.properties
            - --source={topic}
            - --target={topic}-out
            - --key=field:1
            - --max-offsets-per-trigger={batch}
            - --checkpoint=/checkpoints/{topic}
          env:
            - {{name: HOME, value: /tmp}}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {{drop: [ALL]}}
          volumeMounts:
            - {{name: tmp, mountPath: /tmp}}
            - {{name: checkpoints, mountPath: /checkpoints}}
            - {{name: client, mountPath: /etc/tidemark-client, readOnly: true}}
      volumes:
        - name: tmp
          emptyDir: {{}}
        - name: checkpoints
          persistentVolumeClaim: {{claimName: {checkpoints}}}
        - name: client
          secret: {{secretName: {name}-client, defaultMode: 0440}}
"""


@pytest.fixture(scope="module")
def image() -> None:
    """Spark's image on a node."""
    if not IMAGE.exists():
        pytest.skip(f"{IMAGE} is missing: run make images ARGS=spark")
    node.load(NODE, [IMAGE])


@pytest.fixture
def job(release: Release, load: Load, image: None) -> Iterator[str]:
    """The topic that a job in the cluster copies from, as long as this lasts."""
    topic = load.topic
    release.tidemark("topic", "create", f"{topic}-out", "--partitions", str(PARTITIONS))
    words = {"name": release.name, "topic": topic, "node": node_name(NODE), "batch": BATCH}
    run(
        *("kubectl", "-n", release.name, "apply", "-f", "-"),
        given=_JOB.format(checkpoints=CHECKPOINTS, **words),
    )
    yield topic
    release.kubectl("delete", "job", "reshard")
    release.kubectl("delete", "pvc", CHECKPOINTS)


@pytest.mark.feature("KU26")
def test_a_job_in_the_cluster_copies_a_secured_topic_exactly_once(
    release: Release, load: Load, job: str
) -> None:
    with load:
        wait_for(lambda: len(copied(release, job)) > MANY, lambda: logs(release))
        (killed,) = release.objects("pods", "-l", "job-name=reshard")
        release.kubectl("delete", "pod", killed["metadata"]["name"], "--grace-period=0", "--force")
        seen = len(copied(release, job))
        wait_for(lambda: len(copied(release, job)) > seen + MANY, lambda: logs(release))
    load.check()
    written = sorted(int(it.value) for it in load.acknowledged)
    wait_for(lambda: len(copied(release, job)) >= len(written), lambda: logs(release))
    assert copied(release, job) == written


def copied(release: Release, topic: str) -> list[int]:
    """Committed records of the target."""
    client = release.client()
    return sorted(
        int(value)
        for partition in range(PARTITIONS)
        for value in read_partition(client, f"{topic}-out", partition, isolation="read_committed")
    )


def logs(release: Release) -> str:
    """Output of the job's pods."""
    return release.kubectl("logs", "-l", "job-name=reshard", "--tail=50")
