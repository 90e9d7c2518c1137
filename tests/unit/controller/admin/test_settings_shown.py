"""Settings of topics are shown to who may see settings, wherever they are shown."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from controller.admin import diagnostics
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.console.pages import topic_changes
from tidemark.model.authorization import CLUSTER, Operation, topic_resource
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster, a_topic

SEES = (Operation.DESCRIBE,)
SETTINGS = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


def context(**topics: tuple[Operation, ...]) -> AdminContext:
    made = [replace(a_topic(name, (1,)), configs={"retention.ms": "42"}) for name in topics]
    allowed = {topic_resource(name): operations for name, operations in topics.items()}
    return a_context(a_cluster(*made).image, {**allowed, CLUSTER: SEES})


def test_a_bundle_has_the_settings_of_topics_whose_settings_the_caller_may_see() -> None:
    shown = asyncio.run(diagnostics.topics(context(open=SETTINGS, closed=SEES)))
    assert {one["name"]: one["configs"] for one in shown} == {
        "open": {"retention.ms": "42"},
        "closed": None,
    }
    assert json.dumps(shown)


def test_a_topic_is_cloned_by_who_may_see_its_settings() -> None:
    visit = SimpleNamespace(query={"clone": "closed"}, admin=context(closed=SEES))
    with pytest.raises(AdminError, match="may not DESCRIBE_CONFIGS closed"):
        asyncio.run(topic_changes.show_create(cast("Any", visit)))
