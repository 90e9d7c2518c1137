import pytest
from tidemark_spark.sink.failpoints import HOOK_VARIABLE, Step, hit

heard: list[tuple[Step, dict[str, object]]] = []


def listen(step: Step, **facts: object) -> None:
    heard.append((step, facts))


def test_without_a_hook_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOOK_VARIABLE, raising=False)
    heard.clear()
    hit(Step.ENLIST, batch_id=1)
    assert heard == []


def test_a_hook_hears_step_and_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOOK_VARIABLE, f"{__name__}:listen")
    monkeypatch.setattr(
        "importlib.import_module", lambda _name: __import__("sys").modules[__name__]
    )
    heard.clear()
    hit(Step.ENLIST, batch_id=1)
    assert heard == [(Step.ENLIST, {"batch_id": 1})]


def test_a_hook_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOOK_VARIABLE, "no_such_module:hook")
    with pytest.raises(ModuleNotFoundError):
        hit(Step.ENLIST)
