"""Settings of the command line's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark.cli import profiles, settings


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings of this test alone: none of the environment, of a user's profiles or of the test
    before it.
    """
    for name in settings.SETTINGS:
        monkeypatch.delenv(settings.variable_of(name), raising=False)
    monkeypatch.delenv("TIDEMARK_DIR", raising=False)
    monkeypatch.setenv(profiles.FILE_VARIABLE, str(tmp_path / "profiles.json"))
    settings.begin((), None)
    yield
    settings.begin((), None)
