"""Clone git repositories and bundles on the host without running hooks or configured programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.errors import InvalidInput

_INSPECT_TIMEOUT = 30
_CLONE_TIMEOUT = 900
_GIT_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.logAllRefUpdates=false",  # The reflog would reveal the host path.
    "protocol.allow=never",
    "protocol.file.allow=always",
    "advice.detachedHead=false",
)


class UnusableGitRepository(InvalidInput):
    """The git repository cannot be used."""


def check_git_source(path: Path, ref: str | None) -> None:
    """Raise `UnusableGitRepository` for problems that can be found without cloning."""
    if path.is_file():
        with path.open("rb") as file:
            if not file.read(9).startswith(b"# v"):
                raise UnusableGitRepository(
                    "is neither a git repository nor a bundle; make one with: git bundle create"
                )
    with _git() as git:
        refs = [line.partition("\t")[2] for line in git("ls-remote", "--", str(path)).splitlines()]
    if ref is None and "HEAD" not in refs:
        branches = [name.removeprefix("refs/heads/") for name in refs if name.startswith("refs/heads/")]
        if not branches:
            raise UnusableGitRepository("has no commits yet; commit something")
        raise UnusableGitRepository(f"has no HEAD; add 'ref', which may be: {', '.join(branches[:10])}")
    # Abbreviated commit ids can be resolved only in a clone.
    if ref is not None and not _is_hexadecimal(ref) and not {f"refs/heads/{ref}", f"refs/tags/{ref}", ref} & set(refs):
        names = [name.split("/", 2)[2] for name in refs if name.startswith(("refs/heads/", "refs/tags/"))]
        shown = ", ".join(name for name in names[:10] if not name.endswith("^{}"))
        raise UnusableGitRepository(f"has no branch or tag {ref!r}; there is: {shown or 'none'}")


@contextmanager
def clone_git_repository(path: Path, ref: str | None) -> Iterator[tuple[Path, int]]:
    """Yield a temporary clone at a branch, tag or commit, and its commit time."""
    with TemporaryDirectory(prefix="paddock-clone-") as scratch, _git() as git:
        clone = Path(scratch) / "clone"
        git(
            *("clone", "--quiet", "--no-local", "--no-hardlinks", "--no-checkout", "--no-recurse-submodules"),
            *("--template=", "--", str(path), str(clone)),
            seconds=_CLONE_TIMEOUT,
        )
        at = ("-C", str(clone))
        ref = None if ref == "HEAD" else ref
        if ref is not None and _has_commit(git, clone, f"refs/remotes/origin/{ref}"):
            git(*at, "checkout", "--quiet", "--no-track", "-B", ref, f"refs/remotes/origin/{ref}")
        elif ref is not None:
            if not _has_commit(git, clone, f"{ref}^{{commit}}"):
                raise UnusableGitRepository(f"has no branch, tag or commit {ref!r}")
            git(*at, "checkout", "--quiet", "--detach", f"{ref}^{{commit}}")
        elif _has_commit(git, clone, "HEAD^{commit}"):
            git(*at, "reset", "--quiet", "--hard", "HEAD")
        else:
            raise UnusableGitRepository("has no HEAD with a commit; add 'ref'")
        # The sandbox must not learn the host path and cannot reach it.
        git(*at, "remote", "remove", "origin")
        yield clone, int(git(*at, "log", "-1", "--format=%ct"))


def _has_commit(git: _Git, clone: Path, name: str) -> bool:
    try:
        git("-C", str(clone), "rev-parse", "--quiet", "--verify", "--end-of-options", name)
    except UnusableGitRepository:
        return False
    return True


def _is_hexadecimal(ref: str) -> bool:
    return len(ref) >= 4 and all(character in "0123456789abcdef" for character in ref)


class _Git:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def __call__(self, *words: str, seconds: float = _INSPECT_TIMEOUT) -> str:
        settings = [word for setting in _GIT_SETTINGS for word in ("-c", setting)]
        try:
            done = subprocess.run(
                ["git", *settings, *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise UnusableGitRepository("needs git on this machine; install it") from None
        except subprocess.TimeoutExpired:
            raise UnusableGitRepository(f"git did not finish within {seconds:.0f} s") from None
        if done.returncode:
            error_lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
            fatal = [line for line in error_lines if line.startswith(("fatal:", "error:"))]
            raise UnusableGitRepository(
                f"git says: {(fatal or error_lines)[0].removeprefix('fatal: ').removeprefix('error: ')}"
            )
        return done.stdout.decode(errors="surrogateescape")


@contextmanager
def _git() -> Iterator[_Git]:
    """Run git without system and user configuration, which may name programs; keep only `safe.directory`."""
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    plain |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file", "GIT_LFS_SKIP_SMUDGE": "1"}
    try:
        trusted = _Git(plain)("-C", "/", "config", "--get-all", "safe.directory").splitlines()
    except UnusableGitRepository:
        trusted = []
    with TemporaryDirectory(prefix="paddock-git-") as scratch:
        settings = Path(scratch) / "config"
        settings.write_text("".join(f"[safe]\n\tdirectory = {_quote_config_value(each)}\n" for each in trusted))
        yield _Git({**plain, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": str(settings), "HOME": scratch})


def _quote_config_value(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
