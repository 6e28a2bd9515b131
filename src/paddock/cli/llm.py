"""Models: which can be asked, and whether they answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import warn
from paddock.cli.output import ago, moment, plain

if TYPE_CHECKING:
    from paddock.cli.llm_question import Answer

_PROMPT = "Say hello in one short sentence."
_SAID = ("messages", "tools", "answer", "pieces")
"""Of an exchange, what whoever asked knows already."""
_NO_MODELS = """\
No models are configured. Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or name one in paddock.yaml, and
start the server again:

llm:
  providers:
    openai: {kind: openai, key: "${OPENAI_API_KEY}"}
  models:
    gpt-*: openai/gpt-*

Other providers, and some without a network: docs/how-to/connect-a-provider.md"""


def register(app: typer.Typer) -> typer.Typer:
    models = group("Ask models, and look at what was asked of them.")
    app.add_typer(models, name="llm")
    command(models, "list", server=True, examples="paddock llm list\npaddock llm list --json")(list_)
    command(
        models,
        "test",
        server=True,
        examples="""
            paddock llm test fast
            paddock llm test fast --stream --prompt 'Write a haiku about fences.'
            paddock llm test openai/gpt-5-mini
        """,
    )(try_out)
    return models


async def list_(cli: Cli) -> None:
    """List the models that can be asked for.

    For patterns such as `gpt-*` the provider is asked which models it has. A provider that kept failing is left alone
    for a while, and is shown as failing; one that refused its key is shown with the time. A provider that did not list
    its models is shown as not reached until one of them answers, with well-known names.
    """
    async with cli.client() as client:
        found = await client.get("/v1/llm")
    if cli.as_json:
        return cli.out.document(found)
    if lost := found["archive"]["lost"]:
        warn(f"{lost} exchanges could not be archived since the server started; its log says why")
    for each in found["providers"]:
        if each.get("keyRefusedAt"):
            refused = f"provider {each['name']} refused its key {ago(moment(each['keyRefusedAt']))} ago"
            warn(f"{refused}; check {each.get('foundIn') or 'it in paddock.yaml'} and restart the server")
        elif each.get("unreached"):
            warn(f"provider {each['name']} was not reached: {each['listProblem']}")
    patterns, models = found["patterns"], found["models"]
    if not models and not patterns:
        return cli.out.line(_NO_MODELS) if cli.out.for_people else None
    providers = {provider["name"]: provider for provider in found["providers"]}
    falls_back = any(model.get("fallbacks") for model in models)
    rows = [_row(model, providers.get(model["provider"], {}), falls_back) for model in models]
    columns = ["MODEL", "PROVIDER", "KIND", "PROVIDER'S MODEL", "STATE", *(["FALLBACKS"] if falls_back else [])]
    cli.out.table(columns, rows, wraps=["MODEL", "PROVIDER'S MODEL", "FALLBACKS"])
    if cli.out.for_people:
        for line in _notes(found, providers):
            cli.out.line(f"\n{line}")
    return None


def _notes(found: dict[str, Any], providers: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What people should know besides the table."""
    if found.get("default") and len(found["models"]) > 1:
        yield f"Chats that name no model use {found['default']}."
    for name, each in providers.items():
        guessed = any(model["provider"] == name and model.get("wellKnown") for model in found["models"])
        if guessed and each.get("listProblem") and not each.get("keyRefusedAt"):
            yield f"Provider {name} did not list its models: {each['listProblem']}. Well-known names are shown instead."
    patterns = [pattern["name"] for pattern in found["patterns"]]
    if "*" in patterns:
        yield "Any other name can be asked for, too."
    elif patterns:
        yield f"Any other name that fits {', '.join(patterns)} can be asked for, too."
    offered = [f"{name} ({each['foundIn']})" for name, each in providers.items() if each.get("foundIn")]
    if offered:
        yield f"From the environment: {', '.join(offered)}. Name providers in paddock.yaml to choose others."
    used = {model["provider"] for model in [*found["models"], *found["patterns"]]}
    if unused := sorted(providers.keys() - used):
        yield f"Providers without a model of their own: {', '.join(unused)}. Ask for PROVIDER/MODEL."


async def try_out(
    cli: Cli,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model, as in `paddock llm list`.", show_default=False)],
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="What to ask.")] = _PROMPT,
    stream: Annotated[bool, typer.Option("--stream", help="Have the answer come word by word.")] = False,
) -> None:
    """Ask a model one small question, and see how it does.

    It is asked through the running server, as programs would. Exit code 1 when it does not answer, with the provider's
    own reason.
    """
    from paddock.cli.llm_question import ask, find_exchange

    live = stream and not cli.as_json
    async with cli.client() as client:
        with _waiting(f"asking {name}", visible=not cli.as_json) as arrived:

            def show(piece: str) -> None:
                arrived()
                cli.out.write(piece)

            answer = await ask(client, name, prompt, stream=stream, show=show if live else None)
        exchange = await find_exchange(client, answer.exchange) if answer.exchange else None
    if cli.as_json:
        document = {"model": name, "answer": answer.text, "firstByte": answer.first_byte, "total": answer.total}
        usage = answer.usage or (exchange or {}).get("usage")
        known = {key: value for key, value in exchange.items() if key not in _SAID} if exchange else None
        kept = {"usage": usage, "script": answer.script, "exchange": known}
        kept = {key: value for key, value in kept.items() if value is not None}
        return cli.out.document({**document, **kept})
    if not live:
        cli.out.write(answer.text)
    cli.out.line("" if answer.text else "(no text)")
    cli.out.line()
    return cli.out.facts(_facts(answer, exchange))


@contextmanager
def _waiting(what: str, *, visible: bool) -> Iterator[Callable[[], None]]:
    """Show on a terminal that something is waited for, until what is given is called or all is over."""
    if not (visible and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.text import Text

    status = Console(stderr=True).status(Text(plain(what)))
    with status:
        yield status.stop


def _row(model: dict[str, Any], provider: dict[str, Any], falls_back: bool) -> list[str]:
    state = "key refused" if provider.get("keyRefusedAt") else "failing" if provider.get("failing") else "ready"
    if state == "ready" and provider.get("unreached"):
        state = "not reached, well-known name" if model.get("wellKnown") else "not reached"
    row = [model["name"], model["provider"], str(provider.get("kind", "")), model["model"], state]
    return [*row, ", ".join(model.get("fallbacks") or [])] if falls_back else row


def _facts(answer: Answer, exchange: dict[str, Any] | None) -> list[tuple[str, str]]:
    from paddock.cli.llm_words import answered_by, latency, money, tokens

    facts: list[tuple[str, str]] = []
    if exchange:
        facts.append(("answered by", ("a fallback: " if _fell_back(exchange) else "") + answered_by(exchange)))
    elif answer.script:
        facts.append(("answered by", f"{answer.script}, a script; no model was asked"))
    elif answer.recording:
        facts.append(("answered by", "a recording; no model was asked"))
    facts.append(("first byte", latency(answer.first_byte)))
    facts.append(("total", latency(answer.total)))
    known = exchange or {"usage": answer.usage}
    if known.get("usage"):
        facts.append(("tokens", tokens(known)))
    if exchange:
        facts.append(("cost", money(exchange.get("cost")) or "unknown; no price is set for it"))
        facts.append(("exchange", f"{exchange['number']}  {exchange['id']}"))
        facts += [("note", note) for note in exchange.get("notes") or []]
    return facts


def _fell_back(exchange: dict[str, Any]) -> bool:
    """Whether another answered than the one that stands behind the name."""
    route = exchange.get("route")
    return any(str(note).endswith(f" did not answer; asked {route}") for note in exchange.get("notes") or [])
