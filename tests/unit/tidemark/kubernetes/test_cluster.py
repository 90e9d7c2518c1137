import pytest
from tidemark.kubernetes.api import Document, KubernetesError, Request
from tidemark.kubernetes.cluster import ReleaseOnKubernetes
from tidemark.model.ids import WallMs
from tidemark.plans.kubernetes.replacement import DeleteClaim, DeletePod, RetainVolume, Step
from unit.tidemark.kubernetes.memory_api import MemoryApi


class Refusing(MemoryApi):
    """Every change is refused with this status."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status

    def send(self, request: Request) -> Document:
        raise KubernetesError(self.status, "", request.method)


@pytest.mark.feature("KU31")
@pytest.mark.parametrize(
    ("step", "request_"),
    [
        (
            RetainVolume("pv-1"),
            "PATCH /api/v1/persistentvolumes/pv-1"
            " {'spec': {'persistentVolumeReclaimPolicy': 'Retain'}}",
        ),
        (
            DeleteClaim("disk0", "7"),
            "DELETE /persistentvolumeclaims/disk0 {'preconditions': {'uid': '7'}}",
        ),
        (
            DeletePod("broker-1", "8", at_once=True),
            "DELETE /pods/broker-1 {'preconditions': {'uid': '8'}, 'gracePeriodSeconds': 0}",
        ),
        (
            DeletePod("broker-1", "8", at_once=False),
            "DELETE /pods/broker-1 {'preconditions': {'uid': '8'}}",
        ),
    ],
)
def test_steps_name_what_they_change_by_its_uid(step: Step, request_: str) -> None:
    api = MemoryApi()
    ReleaseOnKubernetes(api, "log", "demo").perform(step)
    assert api.done == [request_]


@pytest.mark.feature("KU31")
@pytest.mark.parametrize("status", [404, 409])
def test_what_is_gone_or_made_again_is_no_failure(status: int) -> None:
    ReleaseOnKubernetes(Refusing(status), "log", "demo").perform(DeleteClaim("disk0", "7"))


def test_a_refusal_is_a_failure() -> None:
    with pytest.raises(KubernetesError):
        ReleaseOnKubernetes(Refusing(403), "log", "demo").perform(DeleteClaim("disk0", "7"))


@pytest.mark.feature("KU32")
def test_an_event_is_about_a_set() -> None:
    api = MemoryApi()
    on_kubernetes = ReleaseOnKubernetes(api, "log", "demo")
    on_kubernetes.report("demo-broker", "NodeAlive", "it is ready", now=WallMs(0))
    assert "'kind': 'StatefulSet', 'name': 'demo-broker'" in api.done[0]
    assert "'type': 'Warning'" in api.done[0]
    assert "'firstTimestamp': '1970-01-01T00:00:00Z'" in api.done[0]
    assert "'reason': 'NodeAlive', 'message': 'it is ready'" in api.done[0]
