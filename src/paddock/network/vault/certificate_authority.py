"""The certificate authority of one sandbox, which signs the certificates that its programs see for bound hosts."""

from __future__ import annotations

import os
import ssl
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=3650)
"""Longer than sandboxes live; the authority ends with its sandbox."""
LEAF_LIFETIME = timedelta(days=90)
CLOCK_SKEW = timedelta(days=1)
MAX_CONTEXTS = 256
"""Hosts whose certificates are kept; a wildcard binding may have any number of hosts."""
HTTP_1 = ["http/1.1"]
_MAX_COMMON_NAME = 64


def generate_authority(sandbox_id: str) -> tuple[str, str]:
    """Return the private key and the certificate of a new authority, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Paddock credential vault"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"Paddock {sandbox_id}"[:_MAX_COMMON_NAME]),
        ]
    )
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _private_pem(key), certificate.public_bytes(serialization.Encoding.PEM).decode()


class SandboxCertificateAuthority:
    """Signs certificates by host name. Used on one thread."""

    def __init__(self, key: str, certificate: str) -> None:
        loaded = serialization.load_pem_private_key(key.encode(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded
        self.certificate_pem = certificate
        self._certificate = x509.load_pem_x509_certificate(certificate.encode())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: OrderedDict[str, tuple[ssl.SSLContext, datetime]] = OrderedDict()

    def context_for(self, host: str) -> ssl.SSLContext:
        """Return the context for handshakes in the name of a host; only HTTP/1.1 is offered."""
        found = self._contexts.get(host)
        now = datetime.now(UTC)
        if found is not None and found[1] > now:
            self._contexts.move_to_end(host)
            return found[0]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(HTTP_1)
        _load_certificate(context, self._sign(host, now) + _private_pem(self._leaf_key))
        self._contexts[host] = context, now + LEAF_LIFETIME / 2
        if len(self._contexts) > MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        return context

    def _sign(self, host: str, now: datetime) -> str:
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, host)] if len(host) <= _MAX_COMMON_NAME else []
        public_key = self._leaf_key.public_key()
        issuer_key = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        leaf = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + LEAF_LIFETIME)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=not subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return leaf.public_bytes(serialization.Encoding.PEM).decode()


def upstream_context(ca_bundle: Path | None) -> ssl.SSLContext:
    """Return the context for connections to real servers: their certificates are verified as the server's own."""
    context = ssl.create_default_context()
    if ca_bundle is not None:
        context.load_verify_locations(cafile=ca_bundle)
    context.set_alpn_protocols(HTTP_1)
    return context


def _load_certificate(context: ssl.SSLContext, pem: str) -> None:
    """Load a certificate and its key from memory, since `ssl` reads them from files only."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
