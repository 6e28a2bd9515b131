"""Build of a recipe into a root file system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from paddock.errors import BuildError
from paddock.sandbox.images.apt_sources import (
    AptInstallProgress,
    AptSource,
    apt_proxy_variables,
    choose_apt_sources,
    format_apt_sources,
)
from paddock.sandbox.images.build_command_runner import BuildCommandFailed, BuildCommandRunner, require_build_program
from paddock.sandbox.images.build_sandbox import (
    BuildStepSandbox,
    bwrap_isolation_arguments,
    remove_build_tree,
    write_etc_placeholder,
)
from paddock.sandbox.images.built_images import (
    ImageBuildWorkspace,
    ImageManifest,
    StoredImage,
    disk_size_of_tree,
    remove_privileged_bits,
)
from paddock.sandbox.images.image_probe import probe_image
from paddock.sandbox.images.recipe_library import RecipeBuildPlan
from paddock.sandbox.images.registry_settings import (
    SETTINGS_INSIDE,
    PackageRegistrySettings,
    collect_package_registry_settings,
)

_TRIMMED = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
)
_MANUAL_DIRECTORIES = tuple(f"/usr/share/man/man{section}" for section in range(1, 9))
"""Packages such as Java's put links to manuals there, and cannot be installed without the directories."""
_PHASES = {
    "running apt-get update": 0.02,
    "downloading packages": 0.05,
    "extracting archives": 0.25,
    "installing essential": 0.3,
    "installing remaining": 0.4,
    "cleaning package lists": 0.65,
}
"""Build progress by message of mmdebstrap."""

_FORBID_SERVICES = "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d"
_ADD_USER = """
name=$1 uid=$2 gid=$3 home=$4 shell=$5
group=$(getent group "$gid" | cut -d: -f1)
[ -n "$group" ] || groupadd --gid "$gid" "$name"
if getent passwd "$name" >/dev/null; then
    [ "$(getent passwd "$name" | cut -d: -f3,4,6,7)" = "$uid:$gid:$home:$shell" ] ||
        usermod --uid "$uid" --gid "$gid" --home "$home" --shell "$shell" "$name"
else
    useradd --uid "$uid" --gid "$gid" --home-dir "$home" --shell "$shell" --create-home "$name"
fi
mkdir -p "$home"
"""
_CLEAN = """
rm -rf /usr/sbin/policy-rc.d /root/.cache /root/.npm /usr/lib/python3*/EXTERNALLY-MANAGED
rm -rf /etc/apt/apt.conf.d/99mmdebstrap /var/lib/apt/lists/* /var/cache/apt/*
rm -rf /var/cache/debconf/*-old /var/lib/dpkg/*-old
mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial
find /var/log -type f -delete
rm -f /var/lib/dbus/machine-id && : >/etc/machine-id
chown -R --no-dereference "$1:$2" "$3"
"""


def count_build_steps(plan: RecipeBuildPlan) -> int:
    """Return the number of steps in which the image of a recipe is built."""
    recipe = plan.recipe
    if plan.base and not recipe.changes_files:
        return 1
    optional = (plan.base and recipe.apt, recipe.pip, recipe.npm, recipe.files)
    return 3 + sum(map(bool, optional)) + len(recipe.run)


class RecipeBuild:
    """A build of one recipe in its workspace."""

    def __init__(
        self,
        plan: RecipeBuildPlan,
        base: StoredImage | None,
        workspace: ImageBuildWorkspace,
        console: BuildCommandRunner,
        mirror: str | None,
    ) -> None:
        self._plan = plan
        self._base = base
        self._workspace = workspace
        self._console = console
        self._sources = choose_apt_sources(plan.suite, mirror)
        self._settings: PackageRegistrySettings = collect_package_registry_settings(
            workspace.path / "settings", self._sources, os.environ
        )
        self._sandbox = BuildStepSandbox(workspace.root, workspace.path / "tmp", self._settings)

    def run(self) -> ImageManifest:
        """Fill the workspace. Raises `BuildError`."""
        recipe, user = self._plan.recipe, self._plan.user
        self._console.expect_steps(count_build_steps(self._plan))
        if self._base and not recipe.changes_files:
            self._link_base(self._base)
            return self._finish()
        if self._base:
            self._copy_base(self._base)
            if recipe.apt:
                self._install_packages()
        else:
            self._make_debian()
        self._console.step("user", 0.7)
        self._script(_ADD_USER, user.name, str(user.uid), str(user.gid), user.home, user.shell)
        if recipe.pip:
            self._console.step("pip", 0.72)
            self._inside("pip", "python3", "-m", "pip", "install", *recipe.pip)
        if recipe.npm:
            self._console.step("npm", 0.78)
            self._inside("npm", "npm", "install", "--global", "--prefix", "/usr/local", *recipe.npm)
        if recipe.files:
            self._console.step("files", 0.84)
            self._put_files()
        for number, command in enumerate(recipe.run):
            self._console.step(f"run {number + 1} of {len(recipe.run)}", 0.85 + 0.1 * number / len(recipe.run))
            self._inside(f"run[{number}]", "/bin/sh", "-e", "-c", command)
        self._console.step("finish", 0.95)
        self._clean()
        return self._finish()

    def _make_debian(self) -> None:
        plan = self._plan
        self._console.step("debian", 0.0)
        words = [
            require_build_program("mmdebstrap", "mmdebstrap"),
            "--mode=root",
            "--variant=minbase",
            "--format=directory",
        ]
        options = {**apt_proxy_variables(), "APT::Install-Recommends": "false", "Acquire::Languages": "none"}
        words += ["--verbose", *(f'--aptopt={key} "{value}"' for key, value in options.items())]
        words += [f"--dpkgopt={option}" for option in _TRIMMED]
        words += ["--setup-hook=" + "; ".join(f'mkdir -p "$1{path}"' for path in _MANUAL_DIRECTORIES)]
        if plan.recipe.apt:
            words += [f"--include={','.join(plan.recipe.apt)}"]
        words += [plan.suite, str(self._workspace.root)]
        if self._sources:
            path = self._workspace.path / "debian.sources"
            path.write_text(format_apt_sources(self._sources))
            words.append(str(path))
        environment = {
            key: value for key, value in os.environ.items() if key.lower().endswith("_proxy") or key in ("PATH", "HOME")
        }
        environment |= {"LANG": "C.UTF-8", "TMPDIR": str(self._workspace.path / "tmp")}
        self._attempt("apt", [*bwrap_isolation_arguments(), *words], environment, self._follow_debian)
        # Every sandbox gets its own /dev.
        self._attempt(
            "apt",
            [*bwrap_isolation_arguments(), "find", f"{self._workspace.root}/dev", "-mindepth", "1", "-delete"],
            None,
        )
        if self._sources:
            self._leave_sources()

    def _leave_sources(self) -> None:
        """Write the apt sources into the image, without host-specific settings."""
        kept = []
        for source in self._sources:
            public = source.public
            keyring = public.keyring
            if keyring and not (self._workspace.root / keyring.relative_to("/")).is_file():
                options = {key: value for key, value in public.options.items() if key != "Signed-By"}
                public = AptSource(public.uri, public.suites, public.components, options)
            kept.append(public)
        (self._settings.directory / "public.sources").write_text(format_apt_sources(kept))
        self._script(
            "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* && "
            f"install -D -m 644 {SETTINGS_INSIDE}/public.sources /etc/apt/sources.list.d/debian.sources"
        )

    def _copy_base(self, base: StoredImage) -> None:
        self._console.step(f"copy {base.manifest.name}", 0.0)
        source = f"{base.directory}/root"
        self._attempt(
            "base",
            [*bwrap_isolation_arguments(), "cp", "-a", "--reflink=auto", "--", source, str(self._workspace.root)],
            None,
        )

    def _link_base(self, base: StoredImage) -> None:
        """Share the base's files, so that an image without files of its own needs no disk space."""
        self._console.step(f"link {base.manifest.name}", 0.0)
        source = f"{base.directory}/root"
        self._attempt(
            "base",
            [*bwrap_isolation_arguments(), "cp", "--archive", "--link", "--", source, str(self._workspace.root)],
            None,
        )

    def _install_packages(self) -> None:
        self._console.step("apt", 0.1)
        self._script(_FORBID_SERVICES)
        self._inside("apt", "mkdir", "-p", *_MANUAL_DIRECTORIES)
        self._inside("apt", "apt-get", "update")
        self._console.step("apt", 0.15)
        install = AptInstallProgress()

        def follow(line: str) -> None:
            share = install.follow(line)
            if share is not None:
                self._console.advance(0.15 + 0.5 * share)

        words = ["apt-get", "install", "--yes", "--no-install-recommends", *self._plan.recipe.apt]
        self._attempt("apt", self._sandbox.argv(words), self._sandbox.env, follow)

    def _put_files(self) -> None:
        staged = self._settings.directory / "files"
        staged.mkdir()
        for number, (target, file) in enumerate(sorted(self._plan.recipe.files.items())):
            copy = staged / str(number)
            if file.content is not None:
                copy.write_text(file.content, encoding="utf-8")
            else:
                shutil.copyfile(self._plan.sources[target], copy)
            inside = f"{SETTINGS_INSIDE}/files/{number}"
            self._inside(f"files.{target}", "install", "-D", "--mode", file.mode, "--", inside, target)

    def _clean(self) -> None:
        workspace, user = self._workspace, self._plan.user
        self._script(_CLEAN, str(user.uid), str(user.gid), user.home)
        write_etc_placeholder(workspace.root, "resolv.conf")
        write_etc_placeholder(workspace.root, "hosts", "127.0.0.1 localhost\n::1 localhost\n")
        write_etc_placeholder(workspace.root, "hostname", "box\n")

    def _finish(self) -> ImageManifest:
        plan, workspace = self._plan, self._workspace
        findings = probe_image(plan.name, self._sandbox, self._console, plan.env)
        if self._base is None or plan.recipe.changes_files:
            fix_file_owners(workspace, self._console)
        shutil.rmtree(self._settings.directory)
        remove_build_tree(workspace.path / "tmp")
        (workspace.path / "debian.sources").unlink(missing_ok=True)
        return ImageManifest(
            name=plan.name,
            digest=plan.digest,
            kind="recipe",
            description=plan.recipe.description,
            recipe=plan.recipe.model_dump(mode="json", exclude_defaults=True),
            suite=plan.suite,
            user=plan.user,
            env=plan.env,
            services=plan.services,
            nested_namespaces=plan.nested_namespaces,
            root_mode=plan.root_mode,
            python=findings.python,
            packages=findings.packages,
            size=disk_size_of_tree(workspace.root),
            built_at=datetime.now(UTC),
        )

    def _script(self, script: str, *arguments: str) -> None:
        self._inside("builder", "/bin/sh", "-e", "-c", script, "builder", *arguments)

    def _inside(self, field: str, *command: str) -> None:
        self._attempt(field, self._sandbox.argv(command), self._sandbox.env)

    def _follow_debian(self, line: str) -> None:
        for words, fraction in _PHASES.items():
            if line.startswith(f"I: {words}"):
                self._console.advance(fraction)

    def _attempt(
        self,
        field: str,
        argv: list[str],
        env: Mapping[str, str] | None,
        follow: Callable[[str], None] = lambda line: None,
    ) -> None:
        try:
            self._console.run(argv, env=env, listen=follow)
        except BuildCommandFailed as error:
            raise BuildError(
                "\n".join([f"image '{self._plan.name}': step '{field}' {error.reason}:", *error.last_lines])
            ) from None


def fix_file_owners(workspace: ImageBuildWorkspace, console: BuildCommandRunner) -> None:
    """Make the tree safe on the host's disk.

    As root, remove set-user-id bits and capabilities, which sandboxes ignore but host users could exploit. An ordinary
    user owns all files, which has the same effect and allows an overlay on top.
    """
    if os.geteuid() == 0:
        remove_privileged_bits(workspace.root)
        return
    root = str(workspace.root)
    console.run(
        [
            *bwrap_isolation_arguments(),
            "sh",
            "-e",
            "-c",
            'chown -R --no-dereference 0:0 "$1"; chmod -R u+rwX "$1"',
            "own",
            root,
        ]
    )
