"""Turns a recipe into a root file system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from paddock.errors import BuildError
from paddock.sandbox.images.apt import Install, Source, fetch_options, sources_for, stanzas
from paddock.sandbox.images.console import CommandFailed, Console, program
from paddock.sandbox.images.fence import BuildBox, fence, placeholder, remove_tree
from paddock.sandbox.images.library import Plan
from paddock.sandbox.images.probe import probe
from paddock.sandbox.images.settings import SETTINGS_INSIDE, HostSettings, gather_settings
from paddock.sandbox.images.shelf import Manifest, Stored, Workspace, disarm, tree_size

_TRIMMED = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
)
_PHASES = {
    "running apt-get update": 0.02,
    "downloading packages": 0.05,
    "extracting archives": 0.25,
    "installing essential": 0.3,
    "installing remaining": 0.4,
    "cleaning package lists": 0.65,
}
"""How far a whole build is when mmdebstrap says this."""

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


class RecipeBuild:
    """One build of one recipe, in a workspace of its own."""

    def __init__(
        self, plan: Plan, base: Stored | None, workspace: Workspace, console: Console, mirror: str | None
    ) -> None:
        self._plan = plan
        self._base = base
        self._workspace = workspace
        self._console = console
        self._sources = sources_for(plan.suite, mirror)
        self._settings: HostSettings = gather_settings(workspace.path / "settings", self._sources, os.environ)
        self._box = BuildBox(workspace.root, workspace.path / "tmp", self._settings)

    def run(self) -> Manifest:
        """Fill the workspace. Raises `BuildError`."""
        recipe, user = self._plan.recipe, self._plan.user
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
        words = [program("mmdebstrap", "mmdebstrap"), "--mode=root", "--variant=minbase", "--format=directory"]
        options = {**fetch_options(), "APT::Install-Recommends": "false", "Acquire::Languages": "none"}
        words += ["--verbose", *(f'--aptopt={key} "{value}"' for key, value in options.items())]
        words += [f"--dpkgopt={option}" for option in _TRIMMED]
        if plan.recipe.apt:
            words += [f"--include={','.join(plan.recipe.apt)}"]
        words += [plan.suite, str(self._workspace.root)]
        if self._sources:
            path = self._workspace.path / "debian.sources"
            path.write_text(stanzas(self._sources))
            words.append(str(path))
        environment = {
            key: value for key, value in os.environ.items() if key.lower().endswith("_proxy") or key in ("PATH", "HOME")
        }
        environment |= {"LANG": "C.UTF-8", "TMPDIR": str(self._workspace.path / "tmp")}
        self._attempt("apt", [*fence(), *words], environment, self._follow_debian)
        # Every box gets a /dev of its own.
        self._attempt("apt", [*fence(), "find", f"{self._workspace.root}/dev", "-mindepth", "1", "-delete"], None)
        if self._sources:
            self._leave_sources()

    def _leave_sources(self) -> None:
        """Leave the image's apt the sources it came from, without what only the host knows."""
        kept = []
        for source in self._sources:
            public = source.public
            keyring = public.keyring
            if keyring and not (self._workspace.root / keyring.relative_to("/")).is_file():
                options = {key: value for key, value in public.options.items() if key != "Signed-By"}
                public = Source(public.uri, public.suites, public.components, options)
            kept.append(public)
        (self._settings.directory / "public.sources").write_text(stanzas(kept))
        self._script(
            "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* && "
            f"install -D -m 644 {SETTINGS_INSIDE}/public.sources /etc/apt/sources.list.d/debian.sources"
        )

    def _copy_base(self, base: Stored) -> None:
        self._console.step(f"copy {base.manifest.name}", 0.0)
        source = f"{base.directory}/root"
        self._attempt("base", [*fence(), "cp", "-a", "--reflink=auto", "--", source, str(self._workspace.root)], None)

    def _link_base(self, base: Stored) -> None:
        """Have the base's files under another name: an image that adds no file takes no room."""
        self._console.step(f"link {base.manifest.name}", 0.0)
        source = f"{base.directory}/root"
        self._attempt("base", [*fence(), "cp", "--archive", "--link", "--", source, str(self._workspace.root)], None)

    def _install_packages(self) -> None:
        self._console.step("apt", 0.1)
        self._script(_FORBID_SERVICES)
        self._inside("apt", "apt-get", "update")
        self._console.step("apt", 0.15)
        install = Install()

        def follow(line: str) -> None:
            share = install.follow(line)
            if share is not None:
                self._console.advance(0.15 + 0.5 * share)

        words = ["apt-get", "install", "--yes", "--no-install-recommends", *self._plan.recipe.apt]
        self._attempt("apt", self._box.argv(words), self._box.env, follow)

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
        placeholder(workspace.root, "resolv.conf")
        placeholder(workspace.root, "hosts", "127.0.0.1 localhost\n::1 localhost\n")
        placeholder(workspace.root, "hostname", "box\n")

    def _finish(self) -> Manifest:
        plan, workspace = self._plan, self._workspace
        findings = probe(plan.name, self._box, self._console, plan.env)
        if self._base is None or plan.recipe.changes_files:
            settle_owners(workspace, self._console)
        shutil.rmtree(self._settings.directory)
        remove_tree(workspace.path / "tmp")
        (workspace.path / "debian.sources").unlink(missing_ok=True)
        return Manifest(
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
            python=findings.python,
            packages=findings.packages,
            size=tree_size(workspace.root),
            built_at=datetime.now(UTC),
        )

    def _script(self, script: str, *arguments: str) -> None:
        self._inside("builder", "/bin/sh", "-e", "-c", script, "builder", *arguments)

    def _inside(self, field: str, *command: str) -> None:
        self._attempt(field, self._box.argv(command), self._box.env)

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
        except CommandFailed as error:
            raise BuildError(
                "\n".join([f"image '{self._plan.name}': step '{field}' {error.reason}:", *error.last_lines])
            ) from None


def settle_owners(workspace: Workspace, console: Console) -> None:
    """Make the tree safe to lie on the host's disk.

    Root takes away what would let a user of the host become root by running a program of the image; boxes do not
    honour it anyway. An ordinary user takes everything, which does the same, to be able to put an overlay on it.
    """
    if os.geteuid() == 0:
        disarm(workspace.root)
        return
    root = str(workspace.root)
    console.run([*fence(), "sh", "-e", "-c", 'chown -R --no-dereference 0:0 "$1"; chmod -R u+rwX "$1"', "own", root])
