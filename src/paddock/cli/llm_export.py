"""`paddock llm export`: conversations as lines of JSON."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from paddock.cli import llm_filters as by
from paddock.cli.commands import command
from paddock.cli.context import Cli


def register(models: typer.Typer) -> None:
    command(
        models,
        "export",
        server=True,
        examples="""
            paddock llm export -o conversations.jsonl
            paddock llm export --sandbox 3f2a --form anthropic
            paddock llm export --since 7d --outcome ok | jq -c .messages
        """,
    )(export)


async def export(
    cli: Cli,
    sandbox: by.Sandbox = None,
    run: by.Run = None,
    session: by.Session = None,
    model: by.Model = None,
    outcome: by.OutcomeOption = None,
    since: by.Since = None,
    until: by.Until = None,
    search: by.Search = None,
    form: Annotated[
        Literal["openai", "anthropic"], typer.Option(metavar="openai|anthropic", help="Whose form messages have.")
    ] = "openai",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write, instead of standard output."),
    ] = None,
) -> None:
    """Write conversations as lines of JSON.

    There is one on each line, for training, evaluation and other tools. How many there were is said on standard error.
    A file appears only once it is whole.
    """
    from paddock.cli.whole import counting, whole_file

    lines = 0
    async with cli.reading() as client:
        query = await by.query(
            client,
            sandbox=sandbox,
            run=run,
            session=session,
            model=model,
            outcome=outcome,
            since=since,
            until=until,
            search=search,
        )
        with (
            whole_file(output) if output else nullcontext(sys.stdout.buffer) as file,
            # On standard output the lines themselves show that it goes on.
            counting("conversations") if output else nullcontext(lambda _: None) as show,
        ):
            async with client.request("GET", "/v1/exchanges/export", params={**query, "form": form}) as answer:
                async for piece in answer.content.iter_any():
                    file.write(piece)
                    lines += piece.count(b"\n")
                    show(lines)
            file.flush()
    if cli.as_json and output:
        return cli.out.document({"file": str(output), "conversations": lines})
    where = f" in {output}" if output else ""
    sys.stderr.write(f"{lines:,} {'conversation' if lines == 1 else 'conversations'}{where}\n")
    return None
