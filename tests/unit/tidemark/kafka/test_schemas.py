"""The table of messages: whole and consistent."""

from tidemark.kafka.apis import APIS
from tidemark.kafka.schemas import FieldSchema, covers, load_schema
from unit.tidemark.kafka.catalogue import HAND_WRITTEN


def test_every_api_is_hand_written_or_in_the_table() -> None:
    by_hand = {row.key for row in HAND_WRITTEN}
    assert {key for key in APIS if not covers(key)} == by_hand


def test_the_table_has_the_served_versions() -> None:
    for key in filter(covers, APIS):
        versions = APIS[key]
        assert load_schema(key).versions == range(versions.served_min, versions.max + 1)


def assert_within(fields: tuple[FieldSchema, ...], around: range) -> None:
    for field in fields:
        assert set(field.versions) <= set(around), field.name
        assert set(field.nullable) <= set(field.versions), field.name
        assert_within(field.fields, field.versions)


def test_no_field_outlives_what_holds_it() -> None:
    for key in filter(covers, APIS):
        schema = load_schema(key)
        assert_within(schema.request, schema.versions)
        assert_within(schema.response, schema.versions)
