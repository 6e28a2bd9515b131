"""Files, directories and archives."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from .daemon import Answer, Daemon, ask

BOUNDARY = "paddock-boundary"


def form(*files: tuple[dict[str, Any], bytes]) -> bytes:
    body = b""
    for metadata, content in files:
        for name, data in (("metadata", json.dumps(metadata).encode()), ("file", content)):
            disposition = f'Content-Disposition: form-data; name="{name}"; filename="{name}"'
            body += f"--{BOUNDARY}\r\n{disposition}\r\n\r\n".encode() + data + b"\r\n"
    return body + f"--{BOUNDARY}--\r\n".encode()


def upload(daemon: Daemon, body: bytes, **headers: str) -> Answer:
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return daemon.call("POST", "/files/upload", body, Content_Type=kind, **headers)


def download(daemon: Daemon, path: str | Path, query: str = "", **headers: str) -> Answer:
    return daemon.call("GET", f"/files/download?path={quote(os.fsencode(path))}{query}", **headers)


def test_upload_and_download_several_files(daemon: Daemon) -> None:
    tricky = b"\r\n--paddock-boundar\r\n--" * 1000 + os.urandom(300_000) + b"\r\n--"
    target = daemon.directory / "new" / "folder"
    body = form(({"path": f"{target}/a", "mode": 600}, tricky), ({"path": f"{target}/b b"}, b""))
    assert upload(daemon, body).status == 200
    assert download(daemon, target / "a").body == tricky
    assert download(daemon, target / "b b").body == b""
    assert stat.S_IMODE((target / "a").stat().st_mode) == 0o600
    assert sorted(path.name for path in target.iterdir()) == ["a", "b b"]


def test_upload_in_tiny_chunks(daemon: Daemon) -> None:
    body = form(({"path": "tiny"}, b"content\r\n--paddock"))
    connection = daemon.connect()
    headers = {"Content_Type": f'multipart/form-data; boundary="{BOUNDARY}"', "Transfer_Encoding": "chunked"}
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    assert ask(connection, "POST", "/files/upload", chunks, **headers).status == 200
    connection.close()
    assert (daemon.directory / "tiny").read_bytes() == b"content\r\n--paddock"


def test_upload_replaces_the_old_file_only_when_complete(daemon: Daemon) -> None:
    target = daemon.directory / "file"
    target.write_text("old")
    target.chmod(0o640)
    body = form(({"path": str(target)}, b"new"))
    assert upload(daemon, body[:-8]).status == 400
    assert target.read_text() == "old"
    assert os.listdir(daemon.directory) == ["file"]
    assert upload(daemon, body).status == 200
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        form(({"path": ""}, b"x")),
        form(({"path": "a\0b"}, b"x")),
        form(({"path": "f", "mode": 999}, b"x")),
        form(({"path": "f", "owner": "nobody-at-all"}, b"x")),
        form(({"path": "/"}, b"x")),
        form(({}, b"x")),
        form(({"path": "f"}, b"x")).replace(b'name="metadata"', b'name="other"'),
        form(({"path": "f"}, b"x")).replace(b'{"path": "f"}', b"{"),
        form(({"path": "f"}, b"x")).replace(b'name="file"', b'nom="file"'),
    ],
)
def test_invalid_uploads_are_refused(daemon: Daemon, body: bytes) -> None:
    assert upload(daemon, body).status == 400
    assert os.listdir(daemon.directory) == []


def test_byte_ranges_are_downloaded(daemon: Daemon) -> None:
    (daemon.directory / "digits").write_bytes(b"0123456789")
    for range_header, status, body, content_range in [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=5-100", 206, b"56789", "bytes 5-9/10"),
        ("lines=1-2", 200, b"0123456789", None),
    ]:
        answer = download(daemon, "digits", Range=range_header)
        assert (answer.status, answer.body, answer.headers.get("Content-Range")) == (status, body, content_range)
    for range_header in ("bytes=10-", "bytes=-0", "bytes=7-3"):
        assert download(daemon, "digits", Range=range_header).status == 416
    head = daemon.call("HEAD", "/files/download?path=digits")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", "10")


def test_line_ranges_are_downloaded(daemon: Daemon) -> None:
    (daemon.directory / "lines").write_text("".join(f"line {n}\n" for n in range(1, 50001)) + "last")
    assert download(daemon, "lines", "&offset=2&limit=2").body == b"line 2\nline 3\n"
    assert download(daemon, "lines", "&limit=1").body == b"line 1\n"
    assert download(daemon, "lines", "&offset=50000").body == b"line 50000\nlast"
    assert download(daemon, "lines", "&offset=60000").body == b""
    assert download(daemon, "lines", "&limit=0").body == b""
    assert download(daemon, "lines", "&offset=1", Range="bytes=0-1").status == 400
    assert download(daemon, "lines", "&offset=x").status == 400


def test_undownloadable_paths_are_refused(daemon: Daemon) -> None:
    os.mkfifo(daemon.directory / "pipe")
    assert (download(daemon, "none").status, download(daemon, "none").error()) == (404, "FILE_NOT_FOUND")
    assert download(daemon, daemon.directory).error() == "INVALID_FILE"
    assert download(daemon, "pipe").error() == "INVALID_FILE"
    assert daemon.call("GET", "/files/download?path=a%00b").status == 400
    assert daemon.call("GET", "/files/download").error() == "MISSING_QUERY"


def test_files_have_metadata_permissions_and_can_be_moved(daemon: Daemon) -> None:
    path = daemon.directory / "file"
    path.write_text("x")
    assert daemon.call("POST", "/files/permissions", {str(path): {"mode": 700}}).status == 200
    info = daemon.call("GET", f"/files/info?path={path}").json()[str(path)]
    assert (info["mode"], info["size"], info["type"]) == (700, 1, "file")
    assert daemon.call("POST", "/files/mv", [{"src": str(path), "dest": "deep/er/moved"}]).status == 200
    assert (daemon.directory / "deep/er/moved").read_text() == "x"
    assert daemon.call("POST", "/files/mv", [{"src": "none", "dest": "other"}]).status == 404
    assert daemon.call("GET", "/files/info?path=none").status == 404
    assert daemon.call("DELETE", "/files?path=deep/er/moved").status == 200
    assert daemon.call("DELETE", "/files?path=deep/er/moved").status == 404


def test_uid_gid_path_prefix_is_accepted(daemon: Daemon) -> None:
    (daemon.directory / "file").write_text("x")
    own = f"/v1/filesystem/{os.getuid()}/{os.getgid()}/files/info?path=file"
    assert daemon.call("GET", own).status == 200
    assert daemon.call("GET", "/v1/filesystem/54321/54321/files/info?path=file").error() == "NOT_SUPPORTED"


def test_directories_are_created_listed_and_deleted(daemon: Daemon) -> None:
    assert daemon.call("POST", "/directories", {"a/b/c": {"mode": 700}, "d": {"mode": 755}}).status == 200
    (daemon.directory / "a/file").write_text("x")
    (daemon.directory / "a/link").symlink_to("/etc")

    def names(query: str) -> list[str]:
        listing = daemon.call("GET", f"/directories/list?path={daemon.directory}{query}").json()
        return [str(Path(entry["path"]).relative_to(daemon.directory)) for entry in listing]

    assert names("") == ["a", "d"]
    assert names("&depth=9") == ["a", "a/b", "a/b/c", "a/file", "a/link", "d"]
    assert daemon.call("GET", "/directories/list?path=none").status == 404
    assert daemon.call("GET", "/directories/list?path=a/file").status == 400
    assert daemon.call("DELETE", "/directories?path=a&path=d").status == 200
    assert os.listdir(daemon.directory) == []
    assert Path("/etc/passwd").exists()
    assert daemon.call("DELETE", "/directories?path=/").status == 400


def test_files_are_searched_and_replaced_in(daemon: Daemon) -> None:
    for name in ("one.py", "sub/two.py", "sub/deep/three.txt"):
        path = daemon.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("host=localhost localhost\n")

    def search(pattern: str) -> list[str]:
        found = daemon.call("GET", f"/files/search?path={daemon.directory}&pattern={quote(pattern)}").json()
        return [str(Path(entry["path"]).relative_to(daemon.directory)) for entry in found]

    assert search("*.py") == ["one.py", "sub/two.py"]
    assert search("sub/*.py") == ["sub/two.py"]
    assert search("sub/**") == ["sub/deep/three.txt", "sub/two.py"]
    assert search("**/three.*") == ["sub/deep/three.txt"]
    assert search("{one,two}.p[xy]") == ["one.py", "sub/two.py"]
    assert search("") == ["one.py", "sub/deep/three.txt", "sub/two.py"]
    assert search("nothing") == []
    wanted = {"one.py": {"old": "localhost", "new": "ö"}, "sub/two.py": {"old": "z", "new": ""}}
    counted = daemon.call("POST", "/files/replace?verbose=true", wanted)
    assert counted.json() == {"one.py": {"replacedCount": 2}, "sub/two.py": {"replacedCount": 0}}
    assert (daemon.directory / "one.py").read_text() == "host=ö ö\n"
    assert daemon.call("POST", "/files/replace", {"one.py": {"old": "", "new": "x"}}).status == 400


def test_non_utf8_names_are_handled(daemon: Daemon) -> None:
    raw = os.fsencode(daemon.directory) + b"/bad\xff"
    with open(raw, "wb") as stream:
        stream.write(b"content")
    (entry,) = daemon.call("GET", f"/directories/list?path={daemon.directory}").json()
    assert entry["path"].endswith("/bad\ufffd")
    assert entry["path_raw"].endswith("/bad%FF")
    assert daemon.call("GET", f"/files/download?path={entry['path_raw']}").body == b"content"
    assert daemon.call("POST", "/files/mv", [{"src": "bad\udcff", "dest": "good"}]).status == 200
    assert (daemon.directory / "good").exists()


@pytest.fixture
def root(daemon: Daemon) -> Path:
    """A directory with links that lead out of it."""
    root = daemon.directory / "root"
    (root / "sub").mkdir(parents=True)
    (root / "inner").write_text("inner")
    (root / "relative").symlink_to("sub/../inner")
    (root / "absolute").symlink_to(root / "inner")
    (root / "out-file").symlink_to("/etc/passwd")
    (root / "out-relative").symlink_to("../../../../../../etc/passwd")
    (root / "out-directory").symlink_to("/etc")
    (root / "loop").symlink_to("loop")
    (daemon.directory / "secret").write_text("secret")
    return root


def test_paths_below_the_root_are_accessible(daemon: Daemon, root: Path) -> None:
    for path in ("inner", "relative", "absolute", f"{root}/inner", "sub/../inner", "./sub/.././inner"):
        assert download(daemon, path, X_Paddock_Root=str(root)).body == b"inner"
    listing = daemon.call("GET", "/directories/list?path=.&depth=5", X_Paddock_Root=str(root))
    assert len(listing.json()) == 9 - 1


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../secret", "sub/../../secret", "out-file", "out-relative", "out-directory/passwd", "loop"],
)
def test_paths_outside_the_root_are_refused(daemon: Daemon, root: Path, path: str) -> None:
    for answer in (
        download(daemon, path, X_Paddock_Root=str(root)),
        upload(daemon, form(({"path": path}, b"evil")), X_Paddock_Root=str(root)),
        daemon.call("POST", "/files/mv", [{"src": "inner", "dest": f"{path}/x"}], X_Paddock_Root=str(root)),
        daemon.call("POST", "/files/permissions", {path: {"mode": 777}}, X_Paddock_Root=str(root)),
        daemon.call("POST", "/files/replace", {path: {"old": "s", "new": "x"}}, X_Paddock_Root=str(root)),
        daemon.call("GET", f"/archive?path={path}", X_Paddock_Root=str(root)),
    ):
        assert answer.status in ({400, 403} if path == "loop" else {403}), answer.body
    assert (daemon.directory / "secret").read_text() == "secret"
    assert (root / "inner").read_text() == "inner"


def archive(*members: tuple[str, bytes, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                member.linkname = content
                tar.addfile(member)
    return buffer.getvalue()


@pytest.mark.parametrize("gzip", ["0", "1"])
def test_ten_thousand_small_files_round_trip(daemon: Daemon, gzip: str) -> None:
    for number in range(10_000):
        if number % 100 == 0:
            (daemon.directory / f"many/{number // 100}").mkdir(parents=True)
        (daemon.directory / f"many/{number // 100}/{number}").write_text(str(number))
    packed = daemon.call("GET", f"/archive?path=many&gzip={gzip}")
    assert packed.status == 200
    assert packed.body.startswith(b"\x1f\x8b") == (gzip == "1")
    assert daemon.call("PUT", "/archive?path=copy/of", packed.body).status == 200
    found = {path.name: path.read_text() for path in (daemon.directory / "copy/of").rglob("*") if path.is_file()}
    assert found == {str(number): str(number) for number in range(10_000)}


def test_unpacking_merges_directories_and_replaces_files(daemon: Daemon) -> None:
    target = daemon.directory / "target"
    (target / "both/kept").mkdir(parents=True)
    (target / "both/file").write_text("old")
    (target / "was-file").write_text("x")
    (target / "was-directory").mkdir()
    data = archive(
        ("both/file", tarfile.REGTYPE, b"new"),
        ("was-file/x", tarfile.REGTYPE, b"1"),
        ("was-directory", tarfile.REGTYPE, b"2"),
    )
    assert daemon.call("PUT", "/archive?path=target", data).status == 200
    assert (target / "both/file").read_text() == "new"
    assert (target / "both/kept").is_dir()
    assert (target / "was-file/x").read_text() == "1"
    assert (target / "was-directory").read_text() == "2"
    assert sorted(os.listdir(target)) == ["both", "was-directory", "was-file"]


@pytest.mark.parametrize(
    "data",
    [
        archive(("../evil", tarfile.REGTYPE, b"x")),
        archive(("a/../../evil", tarfile.REGTYPE, b"x")),
        archive(("/tmp/../evil", tarfile.REGTYPE, b"x")),
        archive(("link", tarfile.SYMTYPE, "../victim"), ("link/evil", tarfile.REGTYPE, b"x")),
        archive(("link", tarfile.SYMTYPE, "/"), ("link/evil", tarfile.REGTYPE, b"x")),
        archive(("existing/evil", tarfile.REGTYPE, b"x")),
        archive(("hard", tarfile.LNKTYPE, "../secret"), ("hard", tarfile.REGTYPE, b"x")),
        archive(("existing", tarfile.REGTYPE, b"x")),
        b"not a tar archive" * 100,
        b"",
    ],
)
def test_archives_cannot_write_outside_the_directory(daemon: Daemon, data: bytes) -> None:
    victim = daemon.directory / "victim"
    victim.mkdir()
    (daemon.directory / "secret").write_text("secret")
    target = daemon.directory / "target"
    target.mkdir()
    (target / "existing").symlink_to(victim)
    assert daemon.call("PUT", "/archive?path=target", data).status in (200, 400)
    assert os.listdir(victim) == []
    assert (daemon.directory / "secret").read_text() == "secret"
    assert sorted(os.listdir(daemon.directory)) == ["secret", "target", "victim"]
    assert not Path("/evil").exists()
    assert not [name for name in os.listdir(target) if name.startswith(".unpacking")]
