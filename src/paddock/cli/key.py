"""API keys: made, listed, revoked, through the server when one runs and in its database otherwise."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import parse
from paddock.cli.commands import command, group
from paddock.cli.context import Cli, is_served
from paddock.cli.failure import CliError, UsageProblem
from paddock.cli.output import ago, moment, until

if TYPE_CHECKING:
    from paddock.model.keys import Key

_SCOPES = "sandboxes:read, sandboxes:write, images:write, keys:admin or admin"


def register(app: typer.Typer) -> None:
    for name in ("key", "keys"):  # the plural, because it is what fingers type
        keys = group("Make, list and revoke API keys.")
        app.add_typer(keys, name=name, hidden=name == "keys")
        command(
            keys,
            "create",
            server=True,
            examples="""
                paddock key create ci
                paddock key create dashboard --scope sandboxes:read --expires 30d
                paddock key create acme-admin --tenant acme --scope keys:admin --scope sandboxes:write
            """,
        )(create)
        command(keys, "list", server=True, examples="paddock key list")(list_)
        command(keys, "revoke", server=True, examples="paddock key revoke key-0123456789abcdef")(revoke)


async def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", metavar="SCOPE", help=f"What it may do: {_SCOPES}.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Whose it is.  [default: your own]")] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="How long it works, such as 30d.")] = None,
) -> None:
    """Make an API key. Its secret is printed now and never again."""
    until_then = datetime.now(UTC) + timedelta(seconds=parse.duration(expires, "--expires")) if expires else None
    scopes = [_checked(item) for item in scope or ["sandboxes:write"]]
    if _through_server(cli):
        request: dict[str, Any] = {"name": name, "scopes": scopes}
        if tenant:
            request["tenant"] = tenant
        if until_then:
            request["expiresAt"] = until_then.isoformat()
        async with cli.client() as client:
            made = await client.post("/v1/keys", request)
    else:
        made = await _create_here(cli, name, scopes, tenant, until_then)
    if cli.as_json:
        return cli.out.document(made)
    if sys.stdout.isatty():
        cli.out.line(f"Key {made['id']} ({made['name']}) is made. This is its secret; it is not shown again:\n")
    return cli.out.line(str(made["secret"]))


async def list_(
    cli: Cli,
    everything: Annotated[bool, typer.Option("--all", help="Revoked and expired ones too.")] = False,
) -> None:
    """List API keys, without their secrets."""
    if _through_server(cli):
        async with cli.client() as client:
            found = await client.items("/v1/keys")
    else:
        from paddock.auth.keys import Keys
        from paddock.cli.local import open_store
        from paddock.store.keys import KeyStore

        async with open_store(cli.data) as store:
            found = [_document(key) for key in await Keys(KeyStore(store)).list()]
    if not everything:
        found = [key for key in found if _state(key) == "active"]
    if cli.as_json:
        return cli.out.document(found)
    rows = [
        [
            str(key["id"]),
            str(key["name"]),
            str(key.get("tenant", "")),
            " ".join(sorted(key.get("scopes") or [])),
            _state(key) if _state(key) != "active" else until(moment(key.get("expiresAt"))),
            f"{used} ago" if (used := ago(moment(key.get("lastUsedAt")))) else "never",
        ]
        for key in found
    ]
    return cli.out.table(["ID", "NAME", "TENANT", "SCOPES", "EXPIRES", "USED"], rows, wraps=["SCOPES"])


async def revoke(
    cli: Cli,
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY", help="Ids, or beginnings of secrets.", show_default=False)
    ],
) -> None:
    """Stop API keys from working, from now on."""
    if _through_server(cli):
        async with cli.client() as client:
            ids = [_choose(await client.items("/v1/keys"), item) for item in keys]
            for item in ids:
                await client.delete(f"/v1/keys/{item}")
    else:
        from paddock.auth.keys import Keys
        from paddock.cli.local import open_store
        from paddock.store.keys import KeyStore

        async with open_store(cli.data) as store:
            known = Keys(KeyStore(store))
            ids = [_choose([_document(key) for key in await known.list()], item) for item in keys]
            for item in ids:
                await known.revoke(item)
    if cli.as_json:
        return cli.out.document({"revoked": ids})
    return cli.out.line("\n".join(ids))


async def _create_here(
    cli: Cli, name: str, scopes: list[str], tenant: str | None, expires: datetime | None
) -> dict[str, Any]:
    from paddock.auth.keys import Keys
    from paddock.cli.local import open_store
    from paddock.model.keys import DEFAULT_TENANT, Scope
    from paddock.store.keys import KeyStore

    async with open_store(cli.data) as store:
        keys = Keys(KeyStore(store))
        key, secret = await keys.create(name, tenant or DEFAULT_TENANT, [Scope(item) for item in scopes], expires)
    return {**_document(key), "secret": secret}


def _through_server(cli: Cli) -> bool:
    return cli.names_server or is_served(cli.data)


def _checked(text: str) -> str:
    from paddock.model.keys import Scope

    if text not in list(Scope):
        raise UsageProblem(f"--scope {text!r} is not known", hint=f"write {_SCOPES}")
    return text


def _choose(keys: list[dict[str, Any]], wanted: str) -> str:
    by_prefix = [key for key in keys if wanted.startswith("pdk_") and wanted.startswith(str(key.get("prefix")))]
    found = [key for key in keys if key["id"] == wanted] or by_prefix
    found = found or [key for key in keys if key["name"] == wanted and _state(key) == "active"]
    if len(found) != 1:
        many = f"{wanted} means more than one key" if found else f"there is no key {wanted}"
        raise CliError(many, hint="see their ids: paddock key list --all")
    return str(found[0]["id"])


def _document(key: Key) -> dict[str, Any]:
    """A key as the API says it."""
    dates = {"createdAt": key.created_at, "expiresAt": key.expires_at, "revokedAt": key.revoked_at}
    document: dict[str, Any] = {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "scopes": sorted(key.scopes),
        "prefix": key.prefix,
    }
    for name, date in {**dates, "lastUsedAt": key.last_used_at}.items():
        if date is not None:
            document[name] = date.isoformat()
    return document


def _state(key: dict[str, Any]) -> str:
    if key.get("revokedAt"):
        return "revoked"
    expires = moment(key.get("expiresAt"))
    return "expired" if expires and expires <= datetime.now(UTC) else "active"
