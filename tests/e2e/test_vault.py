"""`paddock sandbox vault` and the option `--vault`."""

from __future__ import annotations

import base64

from tests.e2e.cli_driver import PaddockCliServer

SECRET = "a-secret-value"


def test_credentials_are_written_bound_listed_and_removed(server: PaddockCliServer) -> None:
    sandbox = server.output("sandbox", "create", "--image", "host", "--network", "api.example.com", "--vault")
    assert server.json_output("sandbox", "vault", "list", sandbox)["credentials"] == []
    written = server.run("sandbox", "vault", "set", sandbox, "token", stdin=f"{SECRET}\n".encode())
    assert written.stdout.startswith(b"token  revision 1, bind it"), written.stderr
    words = ("--host", "api.example.com", "--path", "/v1/*", "--method", "get", "--port", "8443")
    bound = server.output("sandbox", "vault", "bind", sandbox, "token", *words)
    assert bound == "token  token  Authorization: Bearer  GET https://api.example.com:8443 /v1/*"
    server.output(
        "sandbox", "vault", "bind", sandbox, "token", "--host", "*.example.com", "--header", "X-Key", "--as", "key"
    )
    rotated = server.run("sandbox", "vault", "set", sandbox, "token", "--from-env", "TOKEN", TOKEN=SECRET)
    assert rotated.stdout == b"token  revision 4, used by token, key\n", rotated.stderr
    login = server.run("sandbox", "vault", "set", sandbox, "login", "--user", "alice", stdin=b"password")
    assert login.returncode == 0, login.stderr
    basic = server.json_output("sandbox", "vault", "bind", sandbox, "login", "--basic", "--host", "login.example.com")
    assert basic["bindings"][2]["auth"] == {"type": "basic", "credential": "login"}
    listed = server.output("sandbox", "vault", "list", sandbox)
    assert "https://*.example.com" in listed and "Authorization: Basic" in listed
    assert SECRET not in listed and base64.b64encode(b"alice:password").decode() not in listed
    assert server.output("sandbox", "vault", "rm", sandbox, "token") == "removed token"
    left = server.json_output("sandbox", "vault", "list", sandbox)
    assert [each["name"] for each in left["bindings"]] == ["login"]
    assert server.output("sandbox", "vault", "rm", sandbox, "--all") == "removed all credentials"


def test_mistakes_are_explained(server: PaddockCliServer) -> None:
    plain = server.output("sandbox", "create", "--image", "host")
    for words, text, problem in (
        (("set", plain, "token"), SECRET, "was created without a credential vault"),
        (("set", plain, "token"), "", "standard input has no value"),
        (("set", plain, "token", "--from-env", "NONE"), "", "the environment has no NONE"),
        (("rm", plain), "", "give names of credentials, or --all"),
        (("bind", plain, "token", "--host", "a.test", "--basic", "--header", "X"), "", "cannot be combined"),
    ):
        done = server.run("sandbox", "vault", *words, stdin=text.encode())
        assert done.returncode != 0 and problem in done.stderr.decode(), done.stderr
