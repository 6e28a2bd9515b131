"""`paddock sandbox vault`: credentials that requests of a sandbox get on their way, without the sandbox having them."""

from __future__ import annotations

import base64
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import UsageError
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

CredentialArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the credential.", show_default=False)]


def register_commands(sandboxes: typer.Typer) -> None:
    vaults = command_group("Give requests of a sandbox credentials that the sandbox does not have.")
    sandboxes.add_typer(vaults, name="vault")
    register_command(
        vaults,
        "set",
        server=True,
        examples="""
            paddock sandbox vault set 3f2a github < token.txt
            paddock sandbox vault set 3f2a github --from-env GITHUB_TOKEN
            paddock sandbox vault set 3f2a registry --user alice --from-env PASSWORD
        """,
    )(set_credential)
    register_command(
        vaults,
        "bind",
        server=True,
        examples="""
            paddock sandbox vault bind 3f2a github --host api.github.com
            paddock sandbox vault bind 3f2a models --host api.example.com --header X-Api-Key
            paddock sandbox vault bind 3f2a reader --host api.example.com --path "/v1/*" --method GET
        """,
    )(bind_credential)
    register_command(vaults, "list", server=True, examples="paddock sandbox vault list 3f2a")(list_vault)
    register_command(
        vaults,
        "rm",
        server=True,
        examples="paddock sandbox vault rm 3f2a github\npaddock sandbox vault rm 3f2a --all",
    )(remove_credentials)


async def set_credential(
    cli: CliContext,
    sandbox: SandboxArgument,
    name: CredentialArgument,
    from_env: Annotated[
        str | None, typer.Option("--from-env", metavar="VAR", help="Environment variable with the value.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="The value is this user's password, for bind --basic.")
    ] = None,
) -> None:
    """Write a credential. The value is read from standard input, or from an environment variable.

    It is stored encrypted, never shown again, and used by the next request. The sandbox must have been created with
    --vault.
    """
    value = _read_value(from_env)
    if user is not None:
        if ":" in user:
            raise UsageError("--user: the name of a user cannot contain a colon")
        value = base64.b64encode(f"{user}:{value}".encode()).decode()
    async with cli.open_client() as client:
        path = await _vault_path(client, sandbox)
        vault = await client.request_json("PUT", f"{path}/credentials/{quote(name, safe='')}", json={"value": value})
    if cli.as_json:
        return cli.out.print_json(vault)
    bindings = [each["name"] for each in vault["bindings"] if name in _credential_names(each["auth"])]
    used = f"used by {', '.join(bindings)}" if bindings else "bind it to requests with: paddock sandbox vault bind"
    return cli.out.print_line(f"{name}  revision {vault['revision']}, {used}")


async def bind_credential(
    cli: CliContext,
    sandbox: SandboxArgument,
    name: CredentialArgument,
    host: Annotated[
        list[str], typer.Option("--host", metavar="HOST", help="Host, or *.DOMAIN for one more label; repeatable.")
    ],
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME", help="Header with the value; repeatable.  [default: a bearer token]"),
    ] = None,
    basic: Annotated[bool, typer.Option("--basic", help="Use it for Basic authentication.")] = False,
    scheme: Annotated[
        list[str] | None, typer.Option("--scheme", metavar="NAME", help="https or http; repeatable.  [default: https]")
    ] = None,
    port: Annotated[
        list[int] | None,
        typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port besides that of the scheme; repeatable."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="NAME", help="Method, such as GET; repeatable.  [default: all]"),
    ] = None,
    path: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="PATH", help="Path, `*` stands for any characters; repeatable.  [default: all]"),
    ] = None,
    binding: Annotated[
        str | None,
        typer.Option("--as", metavar="BINDING", help="Name of the binding.  [default: the credential's name]"),
    ] = None,
) -> None:
    """Put a credential into the requests to a host, in place of an earlier binding of this name.

    The value is sent as `Authorization: Bearer VALUE`, or as --basic and --header say. A request must match every
    part that is given, and no other binding.
    """
    if header and basic:
        raise UsageError("--header and --basic cannot be combined; give one")
    match: dict[str, Any] = {"hosts": host}
    given = {"schemes": scheme, "ports": port, "methods": method, "paths": path}
    match |= {key: values for key, values in given.items() if values}
    body = {"match": match, "auth": _auth_body(name, header or [], basic)}
    async with cli.open_client() as client:
        address = f"{await _vault_path(client, sandbox)}/bindings/{quote(binding or name, safe='')}"
        vault = await client.request_json("PUT", address, json=body)
    if cli.as_json:
        return cli.out.print_json(vault)
    bound = next(each for each in vault["bindings"] if each["name"] == (binding or name))
    return cli.out.print_line("  ".join(_binding_row(bound)))


async def list_vault(cli: CliContext, sandbox: SandboxArgument) -> None:
    """List the credentials of a sandbox, without their values, and the requests that get them."""
    from paddock.cli.output.errors import RequestRefused

    async with cli.open_client() as client:
        try:
            vault = await client.get(await _vault_path(client, sandbox))
        except RequestRefused as error:
            if error.server_code != "NOT_FOUND":
                raise
            vault = {"revision": 0, "credentials": [], "bindings": []}
    if cli.as_json:
        return cli.out.print_json(vault)
    if not vault["credentials"]:
        return cli.out.print_if_interactive("No credentials. Write one: paddock sandbox vault set SANDBOX NAME")
    bound = {name for each in vault["bindings"] for name in _credential_names(each["auth"])}
    rows = [_binding_row(each) for each in vault["bindings"]]
    rows += [["", each["name"], "", "not bound"] for each in vault["credentials"] if each["name"] not in bound]
    return cli.out.print_table(["BINDING", "CREDENTIAL", "SENT AS", "REQUESTS"], rows)


async def remove_credentials(
    cli: CliContext,
    sandbox: SandboxArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Names of credentials.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all credentials and bindings.")] = False,
) -> None:
    """Remove credentials and the bindings that use them. The next request is sent without them."""
    if bool(names) == everything:
        raise UsageError("give names of credentials, or --all")
    async with cli.open_client() as client:
        path = await _vault_path(client, sandbox)
        if everything:
            await client.delete(path)
            vault: dict[str, Any] = {"credentials": [], "bindings": []}
        else:
            removed = set(names or [])
            current = await client.get(path)
            bindings = [each["name"] for each in current["bindings"] if removed & _credential_names(each["auth"])]
            body: dict[str, Any] = {"expectedRevision": current["revision"], "credentials": {"delete": sorted(removed)}}
            if bindings:
                body["bindings"] = {"delete": bindings}
            vault = await client.request_json("PATCH", path, json=body)
    if cli.as_json:
        return cli.out.print_json(vault)
    return cli.out.print_line("removed all credentials" if everything else f"removed {', '.join(sorted(removed))}")


def _read_value(variable: str | None) -> str:
    """Return the value, without the line break at its end. Raises `UsageError`."""
    if variable is not None:
        value = os.environ.get(variable)
        if not value:
            raise UsageError(f"--from-env: the environment has no {variable}")
    elif sys.stdin.isatty():
        import getpass

        value = getpass.getpass("Value: ")
    else:
        value = sys.stdin.read(64 * 1024)
    value = value.rstrip("\r\n")
    if not value:
        raise UsageError("standard input has no value; give one there, or name a variable with --from-env VAR")
    return value


def _auth_body(credential: str, headers: list[str], basic: bool) -> dict[str, Any]:
    if not headers:
        return {"type": "basic" if basic else "bearer", "credential": credential}
    if len(headers) == 1:
        return {"type": "apiKey", "credential": credential, "name": headers[0]}
    return {"type": "customHeaders", "headers": [{"name": each, "credential": credential} for each in headers]}


async def _vault_path(client: ServerClient, sandbox: str) -> str:
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    return f"/v1/sandboxes/{await find_sandbox(client, sandbox)}/vault"


def _credential_names(auth: dict[str, Any]) -> set[str]:
    return {each["credential"] for each in (auth, *auth.get("headers", ())) if each.get("credential")}


def _binding_row(binding: dict[str, Any]) -> list[str]:
    match, auth = binding["match"], binding["auth"]
    sent = {"bearer": "Authorization: Bearer", "basic": "Authorization: Basic", "apiKey": auth.get("name", "")}
    headers = ", ".join(each["name"] for each in auth.get("headers", ()))
    methods = ",".join(match.get("methods", ()))
    ports = "".join(f":{port}" for port in match.get("ports", ()))
    hosts = [f"{scheme}://{host}{ports}" for scheme in match["schemes"] for host in match["hosts"]]
    requests = " ".join(filter(None, (methods, ", ".join(hosts), ", ".join(match.get("paths", ())))))
    return [binding["name"], ", ".join(sorted(_credential_names(auth))), sent.get(auth["type"]) or headers, requests]
