"""Client quotas in the admin client (KIP-546)."""

from collections.abc import Iterable, Mapping

from tidemark.client.admin import answers as admin_answers
from tidemark.client.admin.calls import AdminCalls
from tidemark.client.errors import error_for
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import DEFAULT, MatchType, QuotaEntity


class QuotaAdmin(AdminCalls):
    """Methods of Admin for client quotas."""

    async def describe_quotas(
        self, wanted: QuotaEntity | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return values by entity and key: those of entities with the parts of ``wanted``, or all.
        ``strict``: without those that have other parts, too.
        """
        parts = {} if wanted is None else wanted.parts
        components = [
            {
                "entity_type": entity_type,
                "match_type": int(MatchType.EXACT if name else MatchType.DEFAULT),
                "match": name or None,
            }
            for entity_type, name in parts.items()
        ]
        fields = {"components": components, "strict": strict}
        answer = await self._ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, fields)
        if answer.error_code != ErrorCode.NONE:
            raise error_for(answer.error_code, f"describing quotas failed: {answer.error_message}")
        found = {
            _entity(one): {each.key: each.value for each in one.values}
            for one in answer.entries or ()
        }
        return dict(sorted(found.items(), key=lambda one: [name or "" for name in one[0]]))

    async def alter_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas by entity and key; None removes one. Raises ClientError."""
        entries = [
            {
                "entity": [
                    {"entity_type": entity_type, "entity_name": name or None}
                    for entity_type, name in entity.parts.items()
                ],
                "ops": _operations(values),
            }
            for entity, values in changes.items()
        ]
        fields = {"entries": entries, "validate_only": validate_only}
        answer = await self._ask_any(ApiKey.ALTER_CLIENT_QUOTAS, fields)
        admin_answers.by_name(answer.entries, _entity, "setting the quotas of {}")

    async def remove_quotas(self, entity: QuotaEntity, keys: Iterable[str]) -> None:
        """Remove quotas of an entity. Raises ClientError."""
        await self.alter_quotas({entity: dict.fromkeys(keys)})


def _operations(values: Mapping[str, float | None]) -> list[dict[str, object]]:
    return [
        {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
        for key, value in values.items()
    ]


def _entity(wire: Struct) -> QuotaEntity:
    parts = {one.entity_type: one.entity_name or DEFAULT for one in wire.entity}
    return QuotaEntity(parts.get("user"), parts.get("client-id"), parts.get("ip"))
