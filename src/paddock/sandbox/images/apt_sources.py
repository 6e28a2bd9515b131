"""Sources of Debian packages: the configured mirror, or the host's apt sources."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

_SOURCE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")
_FETCH_OPTION = re.compile(
    r'(Acquire::(?:http|https|ftp|Retries|Check-Valid-Until|Check-Date|ForceIPv4|ForceIPv6)\S*) "(.*)";'
)


@dataclass(frozen=True)
class AptSource:
    """One apt source in deb822 terms."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def keyring(self) -> Path | None:
        """Key file of the host, if the source names one."""
        signed_by = self.options.get("Signed-By", "")
        return Path(signed_by) if signed_by.startswith("/") else None

    @property
    def public(self) -> AptSource:
        """Return a copy without user name and password."""
        parts = urlsplit(self.uri)
        return replace(self, uri=urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))

    def stanza(self) -> str:
        fields = {
            "Types": "deb",
            "URIs": self.uri,
            "Suites": " ".join(self.suites),
            "Components": " ".join(self.components),
            **self.options,
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items())


def format_apt_sources(sources: Iterable[AptSource]) -> str:
    """Return the text of a `.sources` file."""
    return "\n".join(source.stanza() for source in sources)


def choose_apt_sources(suite: str, mirror: str | None, apt_directory: Path = Path("/etc/apt")) -> list[AptSource]:
    """Return the sources of a suite; empty if mmdebstrap's default applies.

    `mirror` is an address, or one or more `deb …` lines.
    """
    if mirror is None:
        return read_host_apt_sources(suite, apt_directory)
    lines = _one_line_sources(mirror)
    return lines or [AptSource(uri=mirror.strip(), suites=(suite,), components=("main",))]


def read_host_apt_sources(suite: str, apt_directory: Path) -> list[AptSource]:
    """Return the host's sources of a Debian suite with updates and security, without third parties."""
    found: list[AptSource] = []
    parts = apt_directory / "sources.list.d"
    for path in (apt_directory / "sources.list", *sorted(parts.glob("*.list"))):
        if path.is_file():
            found += _one_line_sources(path.read_text(errors="replace"))
    for path in sorted(parts.glob("*.sources")):
        found += _deb822_sources(path.read_text(errors="replace"))
    wanted = (suite, f"{suite}-updates", f"{suite}-security")
    kept = [
        replace(source, suites=tuple(name for name in source.suites if name in wanted))
        for source in found
        if _is_debian(source) and any(name in wanted for name in source.suites)
    ]
    return kept if any(suite in source.suites for source in kept) else []


def apt_proxy_variables() -> dict[str, str]:
    """Return the host's apt settings for fetching: proxies, certificates, retries."""
    try:
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    matches = (_FETCH_OPTION.fullmatch(line) for line in dump.splitlines())
    return {match[1]: match[2] for match in matches if match and match[2]}


def _one_line_sources(text: str) -> list[AptSource]:
    sources = []
    for line in text.splitlines():
        match = _SOURCE_LINE.fullmatch(line.split("#")[0].strip())
        if match is None:
            continue
        source_options = dict(item.partition("=")[::2] for item in shlex.split(match["options"] or ""))
        options = {"Signed-By": source_options["signed-by"]} if source_options.get("signed-by") else {}
        if source_options.get("trusted") == "yes":
            options["Trusted"] = "yes"
        sources.append(AptSource(match["uri"], (match["suite"],), tuple(match["components"].split()), options))
    return sources


def _deb822_sources(text: str) -> list[AptSource]:
    sources = []
    for paragraph in re.split(r"\n\s*\n", text):
        fields = _fields(paragraph)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        kept = {"Signed-By": "signed-by", "Trusted": "trusted"}
        options = {key: fields[name] for key, name in kept.items() if fields.get(name)}
        for uri in fields.get("uris", "").split():
            suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
            sources.append(AptSource(uri, tuple(suites), tuple(components), options))
    return sources


def _fields(paragraph: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in paragraph.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t") and name:
            # Keep the indentation: inline keys are continuation lines.
            fields[name] += f"\n{line}"
        elif ":" in line:
            key, _, value = line.partition(":")
            name = key.strip().lower()
            fields[name] = value.strip()
    return fields


def _is_debian(source: AptSource) -> bool:
    """Return whether a source looks like Debian's archive or a mirror of it."""
    if not source.uri.startswith(("http://", "https://", "ftp://")) or "main" not in source.components:
        return False
    keyring = source.keyring
    if keyring and keyring.name.startswith("debian-archive"):
        return True
    return urlsplit(source.uri).path.rstrip("/").rpartition("/")[2].startswith("debian")


class AptInstallProgress:
    """Estimates progress from the output of `apt-get install`."""

    _TOTAL = re.compile(r"\d+ upgraded, (\d+) newly installed")
    _STAGES = ("Get:", "Unpacking ", "Setting up ")

    def __init__(self) -> None:
        self._packages = 0
        self._seen = dict.fromkeys(self._STAGES, 0)

    def follow(self, line: str) -> float | None:
        """Return the progress, 0 to 1, if the line contains it."""
        total = self._TOTAL.match(line)
        if total:
            self._packages = int(total[1])
        stage = next((stage for stage in self._STAGES if line.startswith(stage)), None)
        if stage is None or not self._packages:
            return None
        self._seen[stage] += 1
        return sum(min(seen, self._packages) for seen in self._seen.values()) / (self._packages * len(self._STAGES))
