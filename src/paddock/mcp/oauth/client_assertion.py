"""Signed statements by which a client proves its identity with a private key (RFC 7523)."""

from __future__ import annotations

import base64
import json
import secrets
import time

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from paddock.errors import McpSignInFailed

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LIFETIME = 120
_CURVES: dict[str, tuple[str, hashes.HashAlgorithm]] = {
    "secp256r1": ("ES256", hashes.SHA256()),
    "secp384r1": ("ES384", hashes.SHA384()),
}


def sign_client_assertion(client_id: str, audience: str, private_key: str) -> str:
    """Return a statement of a client for an authorization server. Raises `McpSignInFailed` for an unusable key."""
    try:
        key = serialization.load_pem_private_key(private_key.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise McpSignInFailed("oauth.private_key: the secret is no private key in PEM without a password") from None
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        algorithm, digest = _CURVES[key.curve.name]
    elif isinstance(key, rsa.RSAPrivateKey):
        algorithm, digest = "RS256", hashes.SHA256()
    else:
        raise McpSignInFailed("oauth.private_key: use an RSA key, or an elliptic curve key on P-256 or P-384")
    now = int(time.time())
    claims = {"iss": client_id, "sub": client_id, "aud": audience, "iat": now, "exp": now + LIFETIME}
    claims["jti"] = secrets.token_urlsafe(16)
    signed = f"{_encoded_json({'alg': algorithm, 'typ': 'JWT'})}.{_encoded_json(claims)}"
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(signed.encode(), padding.PKCS1v15(), digest)
    else:
        size = (key.curve.key_size + 7) // 8
        first, second = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(digest)))
        signature = first.to_bytes(size, "big") + second.to_bytes(size, "big")
    return f"{signed}.{_encoded(signature)}"


def _encoded_json(value: object) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
