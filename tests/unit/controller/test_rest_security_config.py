"""Options of REST's security: what a controller refuses to start with."""

from typing import Any

import pytest
from controller.config import ControllerConfig
from pydantic import ValidationError
from tidemark.runtime.access.authorization_config import STANDARD_AUTHORIZER

FAR = {"rest_listen": "0.0.0.0:8080"}
TLS = {"rest_ssl_certificate_location": "server.pem"}
ENFORCED = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:root"}


def config(**settings: Any) -> ControllerConfig:
    return ControllerConfig(controller_id=1, **settings)


@pytest.mark.feature("SE12")
@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (FAR, "everybody who reaches it may do"),
        ({"rest_listen": "rest.example:1"}, "everybody who reaches it may do"),
        ({**FAR, "rest_authentication_mechanisms": "basic"}, "whose secret anybody"),
        ({"rest_authentication_mechanisms": "mtls"}, "rest.ssl.client.auth"),
        ({"rest_authentication_mechanisms": "mtls", **TLS}, "rest.ssl.client.auth"),
        ({"rest_authentication_mechanisms": "bearer"}, "jwks.endpoint.url"),
        ({"rest_authentication_mechanisms": "digest"}, "there are basic, bearer, mtls"),
        ({"rest_roles": "User:a=viewer"}, "everybody may do everything"),
        ({"rest_roles": "User:a=root", **ENFORCED}, "there are viewer"),
        ({"rest_ssl_principal_mapping_rules": "RULE:("}, "is no rule"),
    ],
)
def test_what_does_not_fit_together_is_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        config(**settings)


@pytest.mark.feature("SE12")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rest_listen": "localhost:1"},
        {"rest_listen": "[::1]:1"},
        {"rest_authentication_mechanisms": "basic"},
        {**FAR, "rest_private_network": True},
        {**FAR, "rest_authentication_mechanisms": "Basic", **TLS},
        {"rest_roles": "User:a=viewer", **ENFORCED},
    ],
)
def test_what_fits_is_taken(settings: dict[str, Any]) -> None:
    assert (config(**settings).rest_tls is None) == (TLS.keys().isdisjoint(settings))
