"""Packages installed by root of a `code` sandbox under the preset `packages`, from the registries of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.backends.support import (
    FIRST_SUBORDINATE_ID,
    ORDINARY_UID,
    NoOrdinaryUserError,
    run_as_ordinary_user,
)
from tests.support.screen_images import IMAGE_DIRECTORY, build_screen_image, share_screen_images
from tests.support.server import run_in_sandbox, run_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # On a new machine the image is built first.
IS_ROOT = os.geteuid() == 0
REGISTRIES = (
    "http://deb.debian.org/debian/dists/bookworm/InRelease",
    "https://pypi.org/simple/six/",
    "https://registry.npmjs.org/is-number/7.0.0",
)
COPY_IMAGE = """
tar --create --directory="$1" --exclude=usr/lib/gcc --exclude=usr/include --exclude=usr/local/include \
    --exclude=usr/lib/git-core "$2" | tar --extract --preserve-permissions --same-owner --directory="$3"
"""
"""Leaves out the compiler and git, which would take a third of the time."""
INSTALL = "apt-get install --yes --quiet --no-install-recommends --option Dpkg::Options::=--force-unsafe-io"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    for address in REGISTRIES:
        try:
            urllib.request.urlopen(address, timeout=20).close()
        except OSError as error:
            pytest.skip(f"this machine itself does not reach {address}: {error}")
    directory = tmp_path_factory.mktemp("packages")
    share_screen_images(directory / "data", "code")
    with run_server(directory) as server, server.client() as made:
        made.timeout = httpx.Timeout(180.0)
        yield made


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> str:
    """A sandbox with package lists that are up to date."""
    response = client.post("/v1/sandboxes", json={"image": {"uri": "code"}, "user": "root", "network": "packages"})
    assert response.status_code == 202, response.text
    made = str(response.json()["id"])
    succeed(client, made, "apt-get update --quiet")
    return made


def succeed(client: httpx.Client, sandbox: str, command: str, **more: str | int) -> str:
    """Run a command and return the last line that it prints."""
    output, code = run_in_sandbox(client, sandbox, command, **more)
    assert code == 0, output[-3000:]
    return output.rstrip().rpartition("\n")[2]


def test_postgresql_can_be_installed_and_started(client: httpx.Client, sandbox: str) -> None:
    succeed(client, sandbox, f"{INSTALL} postgresql")
    succeed(client, sandbox, "pg_ctlcluster 15 main start")
    query = "psql --no-align --tuples-only --command 'SELECT 6 * 7, current_user'"
    assert succeed(client, sandbox, query, user="postgres") == "42|postgres"
    uid, gid = (int(succeed(client, sandbox, f"id -{which} postgres")) for which in "ug")
    assert succeed(client, sandbox, query, uid=uid) == "42|postgres"
    assert succeed(client, sandbox, "id -u; id -g; id -G", uid=uid, gid=gid) == str(gid)
    output, code = run_in_sandbox(client, sandbox, query, user="agent")
    assert code != 0 and 'role "agent" does not exist' in output
    owner = "stat --format '%U %a' /var/lib/postgresql/15/main"
    assert succeed(client, sandbox, owner) == "postgres 700"


def test_small_packages_can_be_installed(client: httpx.Client, sandbox: str) -> None:
    assert succeed(client, sandbox, f"{INSTALL} hello && hello") == "Hello, world!"
    version = "python3 -c 'import six; print(six.__version__)'"
    assert succeed(client, sandbox, f"pip install --quiet six==1.16.0 && {version}") == "1.16.0"
    is_odd = "node --print \"require('is-number')(7)\""
    command = f"npm install --silent is-number@7.0.0 && {is_odd}"
    assert succeed(client, sandbox, command, user="agent", cwd="/home/agent") == "true"
    totals = client.get(f"/v1/sandboxes/{sandbox}/connections").json()["totals"]
    assert totals and not any(total["denied"] for total in totals)


@pytest.mark.skipif(not IS_ROOT, reason="already run as an ordinary user")
def test_packages_install_if_the_server_runs_as_an_ordinary_user(
    client: httpx.Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if shutil.which("newuidmap") is None:
        pytest.skip("this machine has no newuidmap")
    directory = directory_for_images() / f"paddock-images-{os.getpid()}"
    try:
        copy_image_for_ordinary_user("code", directory)
        tally = run_as_ordinary_user(__file__, subordinate_ids=True, timeout=240.0, env={"TEST_IMAGES": str(directory)})
    except NoOrdinaryUserError as reason:
        pytest.skip(str(reason))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    assert (tally.passed, tally.failed, tally.skipped) == (2, 0, 1), tally.report


def directory_for_images() -> Path:
    """Return a directory of every user, in memory if there is enough."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2 * 2**30 else Path("/var/tmp")


def copy_image_for_ordinary_user(name: str, directory: Path) -> None:
    """Copy an image and give its files to the ids that they would have if that user had built it."""
    root = build_screen_image(name).root
    assert root is not None
    built = root.parent
    directory.mkdir(mode=0o755)
    subprocess.run(["sh", "-c", COPY_IMAGE, "sh", built.parent, built.name, directory], check=True)
    os.chown(directory, ORDINARY_UID, ORDINARY_UID)
    for parent, directories, files in os.walk(directory / built.relative_to(IMAGE_DIRECTORY)):
        for entry in (parent, *(os.path.join(parent, each) for each in (*directories, *files))):
            _give_to_ordinary_user(entry)


def _give_to_ordinary_user(path: str) -> None:
    found = os.lstat(path)
    if found.st_uid == ORDINARY_UID or found.st_uid >= FIRST_SUBORDINATE_ID:
        return
    ids = (FIRST_SUBORDINATE_ID + each - 1 if each else ORDINARY_UID for each in (found.st_uid, found.st_gid))
    os.chown(path, *ids, follow_symlinks=False)
    if not os.path.islink(path):
        os.chmod(path, found.st_mode & 0o7777)
