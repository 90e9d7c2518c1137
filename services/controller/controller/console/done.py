"""Sentences about changes, shown on the page that follows a form."""

from collections.abc import Mapping
from typing import Final

DONE: Final[Mapping[str, str]] = {
    "topic-created": "The topic has been created.",
    "topic-deleted": "The topic has been deleted.",
    "partitions-added": "The partitions have been added.",
    "records-deleted": "The records have been deleted.",
    "configs-changed": "The configuration has been changed.",
    "group-deleted": "The group has been deleted.",
    "group-reset": "The offsets have been moved.",
    "transaction-aborted": "The transaction has been aborted.",
    "leaders-elected": "The preferred leaders have been elected.",
    "moves-started": "The operation has begun.",
    "operation-cancelled": "The operation is being cancelled.",
    "acl-added": "The ACL has been added.",
    "acl-removed": "The ACL has been removed.",
    "password-set": "The password has been set.",
    "user-removed": "The user has been removed.",
    "quotas-set": "The quotas have been set.",
    "quotas-removed": "The quotas have been removed.",
    "moves-cancelled": "The moves have been cancelled.",
}
