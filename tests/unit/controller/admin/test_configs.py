"""Configuration over REST: ETags, and topics whose settings the caller may not see."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest
from controller.admin import configs, topic_changes
from controller.admin.configs import ConfigView
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.admin.topic_changes import ConfigChange
from tidemark.client.admin.types import AlterConfig, ConfigResource
from tidemark.model.authorization import Operation, topic_resource
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster, a_topic


def view(name: str, value: str) -> ConfigView:
    return ConfigView(
        name=name,
        value=value,
        is_default=False,
        is_read_only=False,
        is_sensitive=False,
        source="DYNAMIC_TOPIC_CONFIG",
        synonyms=[],
        type="long",
        documentation=None,
    )


class Settings:
    """Settings of every topic, and the client of the brokers that changes them."""

    def __init__(self) -> None:
        self.values = {"retention.ms": "1", "segment.ms": "2"}
        self.asked: list[str] = []

    def views(self) -> list[ConfigView]:
        return [view(*each) for each in self.values.items()]

    async def describe(
        self, _: AdminContext, resources: Iterable[ConfigResource], **__: object
    ) -> dict[str, list[ConfigView] | AdminError]:
        self.asked += [one.name for one in resources]
        return {one: self.views() for one in self.asked}

    async def alter_configs(
        self, changes: dict[ConfigResource, Sequence[AlterConfig]], *, validate_only: bool
    ) -> None:
        assert not validate_only
        for alterations in changes.values():
            self.values |= {one.name: one.value or "" for one in alterations}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    made = Settings()
    monkeypatch.setattr(configs, "describe", made.describe)
    return made


def context(settings: Settings, **topics: tuple[Operation, ...]) -> AdminContext:
    image = a_cluster(a_topic("open", (1,)), a_topic("secret", (1,))).image
    allowed = {topic_resource(name): operations for name, operations in topics.items()}
    return a_context(image, allowed, settings)


def alter(settings: Settings, if_match: str, *names: str) -> None:
    ctx = context(settings, open=(Operation.DESCRIBE, Operation.ALTER_CONFIGS))
    changes = [ConfigChange(name=name, value="9") for name in names]
    asyncio.run(topic_changes.alter_topic(ctx, "open", changes, if_match=if_match))


def test_the_etag_of_a_setting_guards_a_change_of_it(settings: Settings) -> None:
    etag = configs.etag([view("retention.ms", "1")])
    settings.values["segment.ms"] = "3"  # another setting
    alter(settings, f"W/{etag}", "retention.ms")
    assert settings.values["retention.ms"] == "9"
    with pytest.raises(AdminError) as late:
        alter(settings, etag, "retention.ms")
    assert late.value.status == 412


def test_the_etag_of_a_setting_guards_no_other_change(settings: Settings) -> None:
    etag = configs.etag([view("retention.ms", "1")])
    for names in (["segment.ms"], ["retention.ms", "segment.ms"]):
        with pytest.raises(AdminError, match="has changed"):
            alter(settings, etag, *names)
    assert "9" not in settings.values.values()


def test_the_etag_of_the_list_guards_every_change(settings: Settings) -> None:
    alter(settings, configs.etag(settings.views()), "retention.ms", "segment.ms")
    assert set(settings.values.values()) == {"9"}
    alter(settings, "*", "segment.ms")


def test_a_topic_whose_settings_may_not_be_seen_leaves_those_of_others(settings: Settings) -> None:
    ctx = context(settings, open=(Operation.DESCRIBE_CONFIGS,), secret=(Operation.DESCRIBE,))
    found = asyncio.run(configs.many_topics(ctx, ["open", "secret"]))
    assert found["open"] == settings.views()
    refusal = found["secret"]
    assert isinstance(refusal, AdminError)
    assert refusal.status == 403
    assert settings.asked == ["open"]
