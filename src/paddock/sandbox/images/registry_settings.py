"""Package registry settings of the host, available to build steps but not stored in images."""

from __future__ import annotations

import configparser
import shutil
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddock.sandbox.images.apt_sources import AptSource, apt_proxy_variables, format_apt_sources

SETTINGS_INSIDE = "/run/paddock-build"
"""Directory of the settings in build steps, on a tmpfs, so that no mount point stays in the image."""

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")
_CERTIFICATES = (
    "SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_CAFILE",
)  # fmt: skip
_REPLACED_VARIABLES = frozenset({
    "PIP_CONFIG_FILE", "PIP_CACHE_DIR", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER",
    "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG", "NPM_CONFIG_PREFIX", "NPM_CONFIG_CACHE",
})  # fmt: skip
_HOST_ONLY_NPM_KEYS = ("prefix", "cafile", "cache", "nodedir", "userconfig", "globalconfig")
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True)
class PackageRegistrySettings:
    """Settings files to bind into a build, with the variables that name them."""

    directory: Path
    env: Mapping[str, str]
    directories: Mapping[str, Path] = field(default_factory=dict)
    """Host directories named by pip's settings, by their path in build steps."""


class _LocalDirectories:
    """Translates host directories in settings to their paths in build steps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.seen: dict[str, Path] = {}

    def rewrite(self, value: str) -> str:
        return " ".join(self._word(word) for word in value.split())

    def _word(self, word: str) -> str:
        path = Path(word.removeprefix("file://"))
        if not path.is_absolute() or not path.is_dir():
            return word
        # Pages of a package index link to sibling files.
        shared = path.parent if word.startswith("file://") and path.parent != Path("/") else path
        inside = next((name for name, host in self.seen.items() if host == shared), None)
        if inside is None:
            number = str(len(self.seen))
            (self._directory / "links" / number).mkdir(parents=True)
            inside = f"{SETTINGS_INSIDE}/links/{number}"
            self.seen[inside] = shared
        renamed = Path(inside) / path.relative_to(shared)
        return f"file://{renamed}" if word.startswith("file://") else str(renamed)


def collect_package_registry_settings(
    directory: Path, sources: list[AptSource], environment: Mapping[str, str]
) -> PackageRegistrySettings:
    """Write the host's settings for apt, pip and npm into `directory`."""
    directory.mkdir()
    local = _LocalDirectories(directory)
    env = {key: value for key, value in environment.items() if key.upper() in _PROXIES}
    for key, value in environment.items():
        if key.upper().startswith(("PIP_", "NPM_CONFIG_")) and key.upper() not in _REPLACED_VARIABLES:
            env[key] = local.rewrite(value) if key.startswith("PIP_") else value
    bundle = _certificates(environment)
    if bundle:
        shutil.copyfile(bundle, directory / "certificates.pem")
        env |= dict.fromkeys(_CERTIFICATES, f"{SETTINGS_INSIDE}/certificates.pem")
    (directory / "pip.conf").write_text(_pip_settings(local, environment))
    (directory / "npmrc").write_text(_npm_settings())
    _write_apt_settings(directory / "apt", sources, bundle is not None)
    env |= {
        "APT_CONFIG": f"{SETTINGS_INSIDE}/apt/apt.conf",
        "PIP_CONFIG_FILE": f"{SETTINGS_INSIDE}/pip.conf",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "NPM_CONFIG_USERCONFIG": f"{SETTINGS_INSIDE}/npmrc",
        "NPM_CONFIG_CACHE": "/tmp/npm-cache",  # noqa: S108
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    }
    return PackageRegistrySettings(directory, env, local.seen)


def _certificates(environment: Mapping[str, str]) -> Path | None:
    candidates = (environment.get("SSL_CERT_FILE"), *_BUNDLES, ssl.get_default_verify_paths().cafile)
    return next((Path(path) for path in candidates if path and Path(path).is_file()), None)


def _pip_settings(local: _LocalDirectories, environment: Mapping[str, str]) -> str:
    merged = configparser.RawConfigParser()
    named = [Path(environment["PIP_CONFIG_FILE"])] if "PIP_CONFIG_FILE" in environment else []
    home = Path.home()
    merged.read([Path("/etc/pip.conf"), home / ".pip/pip.conf", home / ".config/pip/pip.conf", *named])
    lines: list[str] = []
    for section in merged.sections():
        lines.append(f"[{section}]")
        for key, value in merged.items(section):
            if key not in ("cert", "cache-dir", "target", "prefix", "user"):
                lines.append(f"{key} = {local.rewrite(value)}")
    return "\n".join(lines) + "\n"


def _npm_settings() -> str:
    lines: list[str] = []
    for path in ("/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc", Path.home() / ".npmrc"):
        if Path(path).is_file():
            lines += Path(path).read_text(errors="replace").splitlines()
    kept = [line for line in lines if line.partition("=")[0].strip() not in _HOST_ONLY_NPM_KEYS]
    return "\n".join(kept) + "\n"


def _write_apt_settings(directory: Path, sources: list[AptSource], certificates: bool) -> None:
    (directory / "sources.list.d").mkdir(parents=True)
    inside = f"{SETTINGS_INSIDE}/apt"
    options = {
        # A proxy detection program of the host does not exist inside.
        **{key: value for key, value in apt_proxy_variables().items() if "Auto-Detect" not in key},
        "APT::Install-Recommends": "false",
        # apt's unprivileged user cannot write to the image of an unprivileged build.
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    if certificates:
        options["Acquire::https::CAInfo"] = f"{SETTINGS_INSIDE}/certificates.pem"
    if sources:
        options |= {"Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": f"{inside}/sources.list.d"}
    local_sources = []
    for number, source in enumerate(sources):
        if source.keyring and source.keyring.is_file():
            keyring = f"{number}{source.keyring.suffix}"
            shutil.copyfile(source.keyring, directory / keyring)
            local_sources.append(replace(source, options={**source.options, "Signed-By": f"{inside}/{keyring}"}))
        else:
            local_sources.append(source)
    (directory / "sources.list.d/paddock.sources").write_text(format_apt_sources(local_sources))
    (directory / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in options.items()))
