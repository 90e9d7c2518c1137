"""Check of bearer tokens: JSON web tokens (RFC 7519) signed by an identity provider (RFC 8725).

Only algorithms with a public key are accepted, and a token is checked with the key that it names: a
token without a signature, and one signed with the public key as a shared secret, fail.

The libraries are loaded with the first key set: they take 9 MB, which a service without such logins
does not need.
"""

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
    from joserfc.jwt import JWTClaimsRegistry

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
)  # fmt: skip
"""Algorithms that may be allowed."""
ALGORITHMS_DEFAULT: Final = ("RS256", "PS256", "ES256")
TOKEN_BYTES_MAX: Final = 16 * 1024
KEYS_MAX: Final = 100


class BearerError(Exception):
    """The token is refused. The text is for the log."""


class UnknownKeyError(BearerError):
    """The token names a key that the key set does not have: it may be a new one."""


class KeySetError(Exception):
    """A document is no usable key set."""


class TokenRules(NamedTuple):
    """Demands on a token."""

    issuer: str
    audiences: tuple[str, ...]
    """The token must be for one of them."""
    algorithms: tuple[str, ...] = ALGORITHMS_DEFAULT
    principal_claim: str = "sub"
    skew_s: int = 30
    """Largest difference between the clocks of the identity provider and this machine."""


class VerifiedToken(NamedTuple):
    """A token that is valid now."""

    user: str
    expires_at_s: float


Keys = Mapping[str, "Key"]
"""Public keys by their id."""


def read_keys(document: bytes) -> Keys:
    """Return the public keys of a JSON web key set (RFC 7517). Raises KeySetError."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        found = json.loads(document)["keys"]
        if not isinstance(found, list) or len(found) > KEYS_MAX:
            raise KeySetError(f"a key set has a list of at most {KEYS_MAX} keys")
        public = [one for one in found if isinstance(one, dict) and one.get("kty") != "oct"]
        keys = list(KeySet.import_key_set({"keys": public})) if public else []
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise KeySetError(f"not a JSON web key set: {problem}") from None
    if not keys:
        raise KeySetError("the key set has no public key")
    return {str(one.kid): one for one in keys}


def verify(token: str, keys: Keys, rules: TokenRules, now_s: float) -> VerifiedToken:
    """Check signature and claims. Raises BearerError; UnknownKeyError if the key is not known."""
    from joserfc import jws, jwt
    from joserfc.errors import JoseError

    if len(token) > TOKEN_BYTES_MAX:
        raise BearerError(f"a token of {len(token)} bytes")
    assert set(rules.algorithms) <= set(ALGORITHMS), "checked by the configuration"
    try:
        header = jws.extract_compact(token.encode()).headers()
        key = _key_for(header, keys, rules)
        claims = jwt.decode(token, _as_library(key), algorithms=list(rules.algorithms)).claims
        _registry(rules, now_s).validate(claims)
    except (JoseError, ValueError, TypeError, RecursionError) as problem:
        raise BearerError(f"{type(problem).__name__}: {problem}") from None
    user, expires_at_s = claims.get(rules.principal_claim), claims["exp"]
    if not isinstance(user, str) or not user:
        raise BearerError(f"the claim {rules.principal_claim!r} names no principal")
    if isinstance(expires_at_s, bool) or not math.isfinite(expires_at_s):
        raise BearerError("the claim 'exp' is no time")
    return VerifiedToken(user, float(expires_at_s))


def _as_library(key: "Key") -> "RSAKey | ECKey | OKPKey":
    return cast("RSAKey | ECKey | OKPKey", key)


def _key_for(header: Mapping[str, Any], keys: Keys, rules: TokenRules) -> "Key":
    """Return the key that a token names; without a name, the only one."""
    if header.get("alg") not in rules.algorithms:
        raise BearerError(f"the algorithm {header.get('alg')!r} is not allowed")
    key_id = header.get("kid")
    if key_id is None and len(keys) == 1:
        return next(iter(keys.values()))
    if not isinstance(key_id, str) or key_id not in keys:
        raise UnknownKeyError(f"there is no key {key_id!r}")
    return keys[key_id]


def _registry(rules: TokenRules, now_s: float) -> "JWTClaimsRegistry":
    from joserfc.jwt import JWTClaimsRegistry

    return JWTClaimsRegistry(
        now=int(now_s),
        leeway=rules.skew_s,
        iss={"essential": True, "value": rules.issuer},
        aud={"essential": True, "values": list(rules.audiences)},
        exp={"essential": True},
    )
