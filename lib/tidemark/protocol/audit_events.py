"""Audit events in the form of the Open Cybersecurity Schema Framework (OCSF 1.3): classes 3002
(Authentication) and 6003 (API Activity).
"""

from collections.abc import Mapping
from typing import Any, Final

from tidemark.model.errors import ErrorCode
from tidemark.protocol.audit import Access, Changes, Entry, Login

OCSF_VERSION: Final = "1.3.0"
AUTHENTICATION: Final = 3002
API_ACTIVITY: Final = 6003
CREATE, READ, UPDATE, DELETE, OTHER = 1, 2, 3, 4, 99
LOGON: Final = 1
SUCCESS, FAILURE = 1, 2
INFORMATIONAL, MEDIUM = 1, 3

_ACTIVITIES: Final[Mapping[str, int]] = {
    "Create": CREATE,
    "CreateAcls": CREATE,
    "CreatePartitions": UPDATE,
    "CreateTopics": CREATE,
    "Read": READ,
    "Describe": READ,
    "DescribeConfigs": READ,
    "Write": UPDATE,
    "Alter": UPDATE,
    "AlterConfigs": UPDATE,
    "AlterQuotas": UPDATE,
    "AlterUsers": UPDATE,
    "Delete": DELETE,
    "DeleteAcls": DELETE,
    "DeleteTopics": DELETE,
}
"""Activities of OCSF by operation or API; others are OTHER."""

Event = dict[str, Any]


def event_of(entry: Entry, *, cluster_id: str, node: str, version: str) -> Event:
    """Return one entry as an event. ``node`` is the process that wrote it down."""
    subject = entry.subject
    body = _login(subject) if isinstance(subject, Login) else _activity(subject)
    return {
        "time": entry.last_ms,
        "start_time": entry.first_ms,
        "end_time": entry.last_ms,
        "count": entry.count,
        "metadata": {
            "version": OCSF_VERSION,
            "product": {"name": "Tidemark", "vendor_name": "Tidemark", "version": version},
            "log_provider": node,
            "uid": cluster_id,
        },
        **body,
    }


def _classed(class_uid: int, activity_id: int, *, succeeded: bool) -> Event:
    return {
        "class_uid": class_uid,
        "category_uid": class_uid // 1_000,
        "activity_id": activity_id,
        "type_uid": class_uid * 100 + activity_id,
        "severity_id": INFORMATIONAL if succeeded else MEDIUM,
        "status_id": SUCCESS if succeeded else FAILURE,
        "status": "Success" if succeeded else "Failure",
    }


def _login(login: Login) -> Event:
    return {
        **_classed(AUTHENTICATION, LOGON, succeeded=login.succeeded),
        "user": {"name": login.user},
        "auth_protocol": login.mechanism,
        "auth_protocol_id": OTHER,
        "src_endpoint": {"ip": login.host},
        "service": {"name": login.listener},
        **({"status_detail": login.reason} if login.reason else {}),
    }


def _activity(subject: Access | Changes) -> Event:
    actor: Event = {"user": {"name": subject.requester.principal}}
    resource = {"type": subject.resource_type, "name": subject.resource}
    if isinstance(subject, Access):
        operation, succeeded = subject.operation, subject.allowed
        policy = {"name": subject.reason, **({"desc": subject.rule} if subject.rule else {})}
        decision = "allowed" if succeeded else "denied"
        actor["authorizations"] = [{"decision": decision, "policy": policy}]
        api: Event = {"operation": operation}
    else:
        operation, succeeded = subject.api, subject.error is ErrorCode.NONE
        api = {"operation": operation, "response": {"code": int(subject.error)}}
        if not succeeded:
            api["response"]["error"] = subject.error.name
    return {
        **_classed(API_ACTIVITY, _ACTIVITIES.get(operation, OTHER), succeeded=succeeded),
        "actor": actor,
        "api": api,
        "resources": [resource],
        "src_endpoint": {"ip": subject.requester.host},
    }
