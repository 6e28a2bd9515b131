"""Pulls OCI images from registries, layouts and archives."""

from __future__ import annotations

import base64
import json
import os
import platform as machine
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr

from paddock.errors import BuildError, ImageNotFound, InvalidInput
from paddock.model.sandbox import FrozenModel, SandboxUser
from paddock.sandbox.images.build_command_runner import BuildCommandFailed, BuildCommandRunner, require_build_program
from paddock.sandbox.images.build_sandbox import BuildStepSandbox, bwrap_die_with_parent, write_etc_placeholder
from paddock.sandbox.images.built_images import ImageBuildWorkspace, ImageManifest, disk_size_of_tree
from paddock.sandbox.images.image_probe import ImageProbeFindings, probe_image
from paddock.sandbox.images.recipe_build import fix_file_owners
from paddock.sandbox.images.registry_settings import PackageRegistrySettings

LOOKUP_SECONDS = 30
"""Time limit of a registry lookup."""

_STEPS = 4
"""Steps of a pull: look, pull, unpack and finish."""
_LOCAL = ("oci:", "oci-archive:", "docker-archive:", "dir:")
_REFERENCE = re.compile(
    r"(?:(?P<registry>localhost(?::\d+)?|[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?|[a-z0-9-]+:\d+)/)?"
    r"(?P<path>[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_REASONS = (
    (
        re.compile(r"no such host|dial tcp|connection re(fused|set)|i/o timeout|no route|unreachable"),
        "{registry} cannot be reached from here",
    ),
    (re.compile(r"manifest unknown|name unknown|not found|no such image"), "{registry} has no such image"),
    (re.compile(r"denied|unauthorized|authentication required"), "{registry} has no such image, or it is private"),
    (re.compile(r"x509|certificate"), "{registry} shows a certificate that this machine does not trust"),
)
"""Plain reasons by messages of skopeo."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_DEFAULT_REGISTRY = "docker.io"


class RegistryCredentials(FrozenModel):
    """Credentials for a registry."""

    username: str
    password: SecretStr = Field(repr=False)


def canonical_image_reference(reference: str) -> str | None:
    """Return the canonical form of an OCI reference, or None if it is invalid."""
    if reference.startswith(_LOCAL):
        return reference
    match = _REFERENCE.fullmatch(reference.removeprefix("docker://"))
    if match is None:
        return None
    registry, path = match["registry"] or _DEFAULT_REGISTRY, match["path"]
    if registry == _DEFAULT_REGISTRY and "/" not in path:
        path = f"library/{path}"
    if match["digest"]:
        return f"{registry}/{path}@{match['digest']}"
    return f"{registry}/{path}:{match['tag'] or 'latest'}"


class OciImagePull:
    """A pull of one image into its workspace."""

    def __init__(
        self,
        reference: str,
        workspace: ImageBuildWorkspace,
        console: BuildCommandRunner,
        credentials: RegistryCredentials | None,
        platform: str | None,
    ) -> None:
        self._reference = reference
        self._source = reference if reference.startswith(_LOCAL) else f"docker://{reference}"
        self._workspace = workspace
        self._console = console
        self._skopeo = [require_build_program("skopeo", "skopeo"), *_platform_options(platform)]
        self._authentication = self._write_credentials(credentials) if credentials else []
        self._digest = ""

    def find(self) -> str:
        """Return the current digest of the reference. Raises `ImageNotFound` within `LOOKUP_SECONDS`."""
        self._console.expect_steps(_STEPS)
        self._console.step("look", 0.0)
        command = [*self._skopeo, "inspect", *self._authentication, "--format", "{{.Digest}}", self._source]
        try:
            self._digest = self._console.capture(command, timeout=LOOKUP_SECONDS).strip().removeprefix("sha256:")
        except BuildCommandFailed as error:
            error_text = _plain_reason(error)
            if self._source == self._reference:
                raise ImageNotFound(f"there is no image at {self._reference}: {error_text}") from None
            registry = self._reference.partition("/")[0]
            reason = next(
                (template for pattern, template in _REASONS if pattern.search(error_text)), "it answered: {error_text}"
            )
            explanation = reason.format(registry=registry, error_text=error_text)
            raise ImageNotFound(f"image {self._reference} could not be pulled: {explanation}") from None
        return self._digest

    def run(self) -> ImageManifest:
        """Fill the workspace. Raises `BuildError`."""
        layout = self._workspace.path / "layout"
        bundle = self._workspace.path / "bundle"
        self._console.step("pull", 0.1)
        # The host's policy.json decides on trust, if it exists.
        policy = [] if Path("/etc/containers/policy.json").is_file() else ["--insecure-policy"]
        copy = [self._skopeo[0], *policy, *self._skopeo[1:], "copy", *self._authentication]
        self._attempt([*bwrap_die_with_parent(), *copy, self._source, f"oci:{layout}:image"])
        config = _image_config(layout)
        self._console.step("unpack", 0.6)
        rootless = [] if os.geteuid() == 0 else ["--rootless"]
        umoci = [
            require_build_program("umoci", "umoci"),
            "unpack",
            *rootless,
            "--image",
            f"{layout}:image",
            str(bundle),
        ]
        self._attempt([*bwrap_die_with_parent(), *umoci])
        (bundle / "rootfs").rename(self._workspace.root)
        self._console.step("finish", 0.9)
        return self._finish(config, layout, bundle)

    def _finish(self, config: Mapping[str, Any], layout: Path, bundle: Path) -> ImageManifest:
        env = dict(item.partition("=")[::2] for item in config.get("Env") or ())
        for name in ("resolv.conf", "hosts"):
            write_etc_placeholder(
                self._workspace.root, name, "127.0.0.1 localhost\n::1 localhost\n" if name == "hosts" else ""
            )
        sandbox = BuildStepSandbox(
            self._workspace.root, self._workspace.path / "tmp", PackageRegistrySettings(layout, {})
        )
        findings = probe_image(self._reference, sandbox, self._console, env)
        fix_file_owners(self._workspace, self._console)
        for leftover in (layout, bundle, self._workspace.path / "tmp", self._workspace.path / "auth.json"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
        return ImageManifest(
            name=self._reference,
            digest=self._digest,
            kind="oci",
            user=_user(str(config.get("User") or ""), findings),
            env=env,
            working_directory=config.get("WorkingDir") or None,
            python=findings.python,
            packages=findings.packages,
            size=disk_size_of_tree(self._workspace.root),
            built_at=datetime.now(UTC),
        )

    def _attempt(self, argv: list[str]) -> None:
        try:
            self._console.run(argv)
        except BuildCommandFailed as error:
            raise BuildError("\n".join([f"image '{self._reference}' {error.reason}:", *error.last_lines])) from None

    def _write_credentials(self, credentials: RegistryCredentials) -> list[str]:
        """Pass credentials in a private file, because process lists are public."""
        registry = self._reference.partition("/")[0]
        secret = f"{credentials.username}:{credentials.password.get_secret_value()}"
        document = {"auths": {registry: {"auth": base64.b64encode(secret.encode()).decode()}}}
        path = self._workspace.path / "auth.json"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(document, file)
        return ["--authfile", str(path)]


def _platform_options(platform: str | None) -> list[str]:
    """Return skopeo options of a platform such as `linux/arm64/v8`; default: this machine's."""
    parts = (platform or f"linux/{_ARCHITECTURES.get(machine.machine(), machine.machine())}").split("/")
    if parts[0] != "linux" or len(parts) not in (2, 3) or not all(re.fullmatch(r"[a-z0-9]+", part) for part in parts):
        raise InvalidInput(f"platform '{platform}' must be written as linux/ARCHITECTURE, such as linux/amd64")
    options = ["--override-os", "linux", "--override-arch", parts[1]]
    return [*options, "--override-variant", parts[2]] if len(parts) == 3 else options


def _plain_reason(error: BuildCommandFailed) -> str:
    """Return skopeo's last message without log decoration."""
    if not error.last_lines:
        return error.reason
    match = re.search(r'msg="(.*)"$', error.last_lines[-1])
    return (match[1] if match else error.last_lines[-1]).replace('\\"', '"')


def _image_config(layout: Path) -> Mapping[str, Any]:
    """Return the run configuration of an image."""

    def blob(descriptor: Mapping[str, Any]) -> dict[str, Any]:
        algorithm, _, value = str(descriptor["digest"]).partition(":")
        return dict(json.loads((layout / "blobs" / algorithm / value).read_bytes()))

    index = json.loads((layout / "index.json").read_bytes())
    return dict(blob(blob(index["manifests"][0])["config"]).get("config") or {})


def _user(written: str, findings: ImageProbeFindings) -> SandboxUser:
    """Return the configured user of an image, resolved with its /etc/passwd."""
    user_name, _, group = written.partition(":")
    users = findings.users
    name = user_name or "root"
    if name.isdigit():
        name = next((known for known, (uid, *_) in users.items() if uid == int(name)), "user")
    uid, gid, home, shell = users.get(name, (int(user_name) if user_name.isdigit() else 0, 0, "/", "/bin/sh"))
    if user_name and not user_name.isdigit() and user_name not in users:
        raise BuildError(f"the image runs as user '{user_name}', which its /etc/passwd does not list")
    if group:
        if not group.isdigit() and group not in findings.groups:
            raise BuildError(f"the image runs as group '{group}', which its /etc/group does not list")
        gid = int(group) if group.isdigit() else findings.groups[group]
    return SandboxUser(name=name, uid=uid, gid=gid, home=home, shell=shell)
