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

_SCOPES = (
    "sandboxes:read, sandboxes:write, runs:read, runs:write, sessions:read, sessions:write, images:write, llm:use, "
    "llm:read, keys:admin, tenant:all or admin"
)

_RATES = {
    "concurrency": "concurrency",
    "requestsPerMinute": "requests_per_minute",
    "tokensPerMinute": "tokens_per_minute",
}
"""Limits as the API calls them, and as the database does."""


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
                paddock key create ann --scope llm:use --model 'gpt-*' --budget-cost 20 --for-user ann@example.org
                paddock key create acme-admin --tenant acme --scope keys:admin --scope sandboxes:write
            """,
        )(create)
        command(keys, "list", server=True, examples="paddock key list")(list_)
        command(keys, "revoke", server=True, examples="paddock key revoke key-0123456789abcdef")(revoke)


async def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help=f"What it may do: {_SCOPES}.  [default: sandboxes:write; llm:use for a key with models, a budget, "
            "limits or a sandbox]",
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Whose it is.  [default: your own]")] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="How long it works, such as 30d.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A model it may ask for, * for anything.  [default: all]")
    ] = None,
    budget_requests: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Requests to models it may make in all.")
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tokens of models it may use in all.")
    ] = None,
    budget_cost: Annotated[
        float | None, typer.Option(metavar="USD", help="US dollars it may spend on models in all.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Requests to models it may make at a time.")
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Requests to models it may make per minute.")
    ] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tokens of models it may use per minute.")
    ] = None,
    for_user: Annotated[str | None, typer.Option(metavar="USER", help="Who uses it.")] = None,
    for_run: Annotated[str | None, typer.Option(metavar="RUN", help="The run it is for.")] = None,
    for_session: Annotated[str | None, typer.Option(metavar="SESSION", help="The session it is for.")] = None,
    for_sandbox: Annotated[
        str | None, typer.Option(metavar="SANDBOX", help="The sandbox in which alone it works, and with which it ends.")
    ] = None,
) -> None:
    """Make an API key. Its secret is printed now and never again."""
    budget = {"requests": budget_requests, "tokens": budget_tokens, "cost": budget_cost}
    limits = {"concurrency": concurrency, "requestsPerMinute": per_minute, "tokensPerMinute": tokens_per_minute}
    bounds = {"sandbox": for_sandbox, "models": model, "budget": _given(budget), "limits": _given(limits)}
    terms = _given({**bounds, "user": for_user, "run": for_run, "session": for_session})
    until_then = datetime.now(UTC) + timedelta(seconds=parse.duration(expires, "--expires")) if expires else None
    # What bounds the use of models is only of use to a key that is for using them.
    scopes = [_checked(item) for item in scope or ["llm:use" if _given(bounds) else "sandboxes:write"]]
    if _through_server(cli):
        request: dict[str, Any] = {"name": name, "scopes": scopes, **terms}
        if tenant:
            request["tenant"] = tenant
        if until_then:
            request["expiresAt"] = until_then.isoformat()
        async with cli.client() as client:
            made = await client.post("/v1/keys", request)
    else:
        made = await _create_here(cli, name, scopes, tenant, until_then, terms)
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
    if not found:
        return cli.out.nothing("There are no keys. Create one: paddock key create NAME")
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
    cli: Cli, name: str, scopes: list[str], tenant: str | None, expires: datetime | None, given: dict[str, Any]
) -> dict[str, Any]:
    from pydantic import ValidationError

    from paddock.auth.keys import Keys
    from paddock.cli.local import open_store
    from paddock.model.keys import DEFAULT_TENANT, Scope, Terms
    from paddock.store.keys import KeyStore

    if "sandbox" in given:
        raise UsageProblem("--for-sandbox needs a server that runs", hint="start one: paddock serve")
    limits = {_RATES[name]: value for name, value in given.get("limits", {}).items()}
    try:
        terms = Terms.model_validate({**given, "limits": limits})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise UsageProblem(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    async with open_store(cli.data) as store:
        wanted = [Scope(item) for item in scopes]
        key, secret = await Keys(KeyStore(store)).create(name, tenant or DEFAULT_TENANT, wanted, expires, terms=terms)
    return {**_document(key), "secret": secret}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, {}, [])}


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
    for name, value in (("sandbox", key.sandbox), ("run", key.run), ("session", key.session), ("user", key.user)):
        if value is not None:
            document[name] = value
    limits = key.limits.model_dump()
    bounds = {
        "models": list(key.models),
        "budget": key.budget.model_dump(exclude_none=True),
        "limits": _given({said: limits[name] for said, name in _RATES.items()}),
    }
    return {**document, **_given(bounds)}


def _state(key: dict[str, Any]) -> str:
    if key.get("revokedAt"):
        return "revoked"
    expires = moment(key.get("expiresAt"))
    return "expired" if expires and expires <= datetime.now(UTC) else "active"
