import pytest
from tidemark.kubernetes.api import KubernetesError
from tidemark.kubernetes.work import NoReleaseError, OutOfTimeError, Surroundings, Work
from unit.tidemark.kubernetes.memory_api import WHOLE, MemoryApi


class Said(list[str]):
    """Lines that were said; after ten pauses the time is over."""

    pauses = 10

    def wait(self) -> bool:
        self.pauses -= 1
        return self.pauses > 0


def work(api: MemoryApi, said: Said) -> Work:
    return Work(api, "log", "demo", Surroundings(said.wait, said.append))


def evicted(api: MemoryApi) -> list[str]:
    return [line.split()[1].split("/")[2] for line in api.done if "/eviction" in line]


@pytest.mark.feature("KU15")
def test_brokers_are_restarted_before_controllers_and_then_nothing_is_left() -> None:
    api = MemoryApi()
    assert work(api, Said()).roll(again=False) == 2
    assert evicted(api) == ["demo-broker-0", "demo-controller-0"]
    assert work(api, Said()).roll(again=False) == 0


@pytest.mark.feature("KU15")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (KubernetesError(503, "", "no endpoints"), "waiting: no controller answers"),
        ({"of": "an earlier release"}, "waiting: no controller answers"),
        ({**WHOLE, "brokers_fenced": [2]}, "waiting: broker 2 is not alive"),
    ],
)
def test_without_a_good_answer_nothing_is_restarted(answer: object, words: str) -> None:
    api, said = MemoryApi(), Said()
    api.answer = answer  # type: ignore[assignment]
    with pytest.raises(OutOfTimeError):
        work(api, said).roll(again=False)
    assert said == [words]
    assert api.done == []


@pytest.mark.feature("KU15")
def test_an_eviction_that_the_budget_refuses_is_tried_again() -> None:
    api, said = MemoryApi(), Said()
    api.budget = [429]
    assert work(api, said).roll(again=False) == 2
    assert "does not allow the eviction of demo-broker-0" in said[0]


def test_an_eviction_names_the_pod_by_its_uid() -> None:
    api = MemoryApi()
    work(api, Said()).roll(again=False)
    assert "'preconditions': {'uid': '1'}" in api.done[0]


def test_a_failure_that_may_pass_is_waited_for_and_another_is_not() -> None:
    api, said = MemoryApi(), Said()
    api.budget = [500]
    assert work(api, said).roll(again=False) == 2
    assert said[0] == "waiting: Kubernetes: refused"
    api = MemoryApi()
    api.budget = [403]
    with pytest.raises(KubernetesError):
        work(api, Said()).roll(again=False)


def test_chosen_pods_are_restarted_once() -> None:
    api = MemoryApi()
    work(api, Said()).roll(again=False)
    assert work(api, Said()).roll(again=True) == 2
    assert len(evicted(api)) == 4


def test_a_namespace_without_the_release() -> None:
    api = MemoryApi()
    api.sets = []
    with pytest.raises(NoReleaseError):
        work(api, Said()).roll(again=False)


def with_brokers(count: int) -> MemoryApi:
    api = MemoryApi()
    for found in api.sets:
        if found["metadata"]["name"] == "demo-broker":
            found["spec"]["replicas"] = count
    return api


@pytest.mark.feature("KU24")
def test_brokers_that_would_be_removed_are_named_with_the_replicas_that_they_have() -> None:
    api = with_brokers(6)
    api.replicas = {2: 9, 3: 4, 4: 0}  # 5 is not registered
    assert work(api, Said()).held_beyond(3) == {3: 4}
    assert work(api, Said()).held_beyond(6) == {}
    assert api.done == []


@pytest.mark.feature("KU24")
def test_without_an_answer_it_is_not_known_that_a_broker_is_empty() -> None:
    api, said = with_brokers(4), Said()
    api.answer = KubernetesError(503, "", "no endpoints")
    with pytest.raises(OutOfTimeError):
        work(api, said).held_beyond(3)
    assert said == ["waiting: no controller answers"]
    assert work(api, Said()).held_beyond(4) == {}  # nothing is asked


@pytest.mark.feature("KU24")
def test_a_service_that_does_not_exist_is_no_broker_without_replicas() -> None:
    api = with_brokers(4)
    api.answer = KubernetesError(404, "NotFound", "services not found")
    with pytest.raises(OutOfTimeError):
        work(api, Said()).held_beyond(3)
