"""Named steps at which tests kill processes."""

import pytest
from tidemark.runtime import failpoints

steps: list[str] = []


def note(step: str) -> None:
    """Hook of the test."""
    steps.append(step)


def test_without_a_hook_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(failpoints.HOOK_VARIABLE, raising=False)
    steps.clear()
    failpoints.hit("share-letters-copy")
    assert steps == []


def test_the_hook_is_called_with_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.HOOK_VARIABLE, f"{__name__}:note")
    steps.clear()
    failpoints.hit("share-letters-copy")
    assert steps == ["share-letters-copy"]
