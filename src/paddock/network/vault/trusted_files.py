"""Files that make programs of a sandbox trust its certificate authority."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, pkcs12
from cryptography.utils import CryptographyDeprecationWarning

SYSTEM_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
"""Bundle of the system store, which curl, git, wget and GnuTLS read."""
LOCAL_CERTIFICATE = "/usr/local/share/ca-certificates/paddock-credential-vault.crt"
"""Source of `update-ca-certificates`, which root of a sandbox may run."""
JAVA_STORE = "/etc/ssl/certs/java/cacerts"
CHROMIUM_POLICIES = (
    "/etc/chromium/policies/managed/paddock-credential-vault.json",
    "/etc/opt/chrome/policies/managed/paddock-credential-vault.json",
)
"""Chromium reads neither the system store nor its variables; this policy is its supported way in."""


def trusted_files(bundle: bytes, authority: str, *, is_root: bool) -> Mapping[str, bytes]:
    """Return contents by path: the host's trusted certificates, and the sandbox's authority."""
    certificate = x509.load_pem_x509_certificate(authority.encode())
    policy = {"CACertificates": [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]}
    files = {
        SYSTEM_BUNDLE: bundle,
        # OpenSSL looks issuers up by a hash of their name.
        f"/etc/ssl/certs/{_openssl_name_hash(certificate):08x}.0": authority.encode(),
        JAVA_STORE: _java_store(bundle),
        **dict.fromkeys(CHROMIUM_POLICIES, json.dumps(policy).encode()),
    }
    if is_root:
        files[LOCAL_CERTIFICATE] = authority.encode()
    return files


def _java_store(bundle: bytes) -> bytes:
    """Return a key store of all certificates; without a password, so that Java opens it as its default."""
    certificates = []
    with warnings.catch_warnings():
        # Some old authorities have serial numbers of zero.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for number, pem in enumerate(_split_bundle(bundle)):
            try:
                certificate = x509.load_pem_x509_certificate(pem)
            except ValueError:
                continue  # One of the host's certificates that the library refuses.
            certificates.append(pkcs12.PKCS12Certificate(certificate, f"certificate-{number}".encode()))
    return pkcs12.serialize_java_truststore(certificates, NoEncryption())


def _split_bundle(bundle: bytes) -> list[bytes]:
    end = b"-----END CERTIFICATE-----"
    parts = (part[part.find(b"-----BEGIN CERTIFICATE-----") :] for part in bundle.split(end)[:-1])
    return [part + end + b"\n" for part in parts]


def _openssl_name_hash(certificate: x509.Certificate) -> int:
    """Return what `openssl x509 -subject_hash` prints: SHA-1 of the canonical name."""
    digest = hashes.Hash(hashes.SHA1())  # noqa: S303 — not for security: the name of a file
    for relative_name in certificate.subject.rdns:
        for attribute in relative_name:
            digest.update(_canonical_attribute(attribute))
    return int.from_bytes(digest.finalize()[:4], "little")


def _canonical_attribute(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return an attribute as DER in OpenSSL's canonical form: lower-case UTF-8 with single spaces."""
    text = " ".join(str(attribute.value).lower().split()).encode()
    numbers = [int(part) for part in attribute.oid.dotted_string.split(".")]
    oid = bytes([numbers[0] * 40 + numbers[1], *numbers[2:]])  # All numbers of these names are below 128.
    sequence = _der(0x06, oid) + _der(0x0C, text)
    return _der(0x31, _der(0x30, sequence))


def _der(tag: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([tag, len(content)]) + content
