"""What came of a run, for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.cli.llm_words import count, money
from paddock.cli.output import Output, plain, size
from paddock.cli.run_progress import STAGES, SUCCEEDED, one_line, tidy
from paddock.cli.run_shapes import STATE_STYLES, took, words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_SHOWN_FILES = 12
_EVIDENCE_LINES = 12


def console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else 100_000
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def print_summary(
    run: Mapping[str, Any], *, folder: Path | None = None, placed: Mapping[str, Path] | None = None, full: bool = False
) -> None:
    """State and reason, and then what there is to know, a line each."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(headline(run))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows(run, folder, placed or {}, full):
        table.add_row(Text(f"  {name}", style="bold"), value)
    with out.capture() as capture:
        out.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
    sys.stdout.flush()


def headline(run: Mapping[str, Any]) -> Text:
    from rich.text import Text

    state = str(run.get("state"))
    result = run.get("result") or {}
    mark = {SUCCEEDED: "✓", "queued": "…", "running": "…"}.get(state, "✗")
    said = Text(f"{mark} {one_line(str(run.get('name')))} {words(state)}", style=f"bold {STATE_STYLES.get(state, '')}")
    if result:
        said.append(f" after {took(float(result.get('seconds') or 0))}", style="default not bold")
        said.append(f": {one_line(str(result.get('reason') or ''))}", style="default not bold")
    elif run.get("stage"):
        said.append(f" in stage {run['stage']}", style="default not bold")
    return said


def rows(
    run: Mapping[str, Any], folder: Path | None, placed: Mapping[str, Path], full: bool
) -> Sequence[tuple[str, Text]]:
    from rich.text import Text

    result = run.get("result") or {}
    found: list[tuple[str, Text]] = [("run", Text(str(run.get("id"))))]
    if full:
        for name in ("group", "agent", "sandboxId", "cancelling"):
            if run.get(name) and not (name == "cancelling" and result):
                found.append((name.removesuffix("Id"), Text(one_line(str(run[name])))))
    if int(run.get("attempt") or 1) > 1:
        found.append(("attempt", Text(str(run["attempt"]))))
    if result:
        found += [("ended by", _ended_by(result)), *_checks(result), *_model(run, result, full), *_time(result, full)]
    elif run.get("model"):
        found.append(("model", Text(one_line(str(run["model"])))))
    found += _deliverables(run, result, folder, placed)
    found += [
        (
            "missing",
            Text(
                f"{one_line(str(each['path']))}: {one_line(str(each['reason']))}",
                style="" if not each["required"] else "red",
            ),
        )
        for each in result.get("missing") or []
    ]
    if run.get("state") not in (SUCCEEDED, None) and result.get("evidence"):
        found += _evidence(result["evidence"])
    if folder is not None:
        found.append(("folder", Text(short(folder))))
    return found


def _ended_by(result: Mapping[str, Any]) -> Text:
    from rich.text import Text

    how = str(result.get("endedBy"))
    code = result.get("exitCode")
    return Text(words(how) if code is None else f"{words(how)}, exit code {code}")


def _checks(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    from rich.text import Text

    checks = result.get("checks") or []
    if result.get("score") is None:
        return []
    passed = sum(bool(check["passed"]) for check in checks)
    found = [
        ("score", Text(f"{float(result['score']):.2f}".rstrip("0").rstrip(".") + f", {passed} of {len(checks)} checks"))
    ]
    for check in checks:
        mark = Text("✓ ", style="green") if check["passed"] else Text("✗ ", style="red")
        note = "" if check["passed"] else f" (exit code {check.get('exitCode')})"
        found.append(("", mark + Text(f"{one_line(str(check['name']))} {took(float(check['seconds']))}{note}")))
        if not check["passed"] and str(check.get("output") or "").strip():
            tail = tidy(str(check["output"])).strip().splitlines()[-3:]
            found += [("", Text(f"  {line}", style="dim")) for line in tail]
    return found


def _model(run: Mapping[str, Any], result: Mapping[str, Any], full: bool) -> list[tuple[str, Text]]:
    from rich.text import Text

    traffic = result.get("traffic") or {}
    requests = int(traffic.get("requests") or 0)
    if not requests:
        return [("model", Text("not asked"))] if full or run.get("agent") else []
    if traffic.get("scripted"):
        said = Text("a script answered; no model was asked", style="yellow")
    else:
        said = Text(one_line(str(traffic.get("model") or run.get("model") or "")))
    turns = int(result.get("turns") or 0)
    said.append(f"; {turns} turns, " if turns else "; ", style="default")
    said.append(
        f"{requests} requests, {int(traffic.get('inputTokens') or 0):,} tokens in, "
        f"{int(traffic.get('outputTokens') or 0):,} out",
        style="default",
    )
    if traffic.get("cost") is not None:
        said.append(f", {money(float(traffic['cost']))}", style="default")
    if traffic.get("failed"):
        said.append(f"; {traffic['failed']} failed: {one_line(str(traffic.get('lastError') or ''))}", style="red")
    return [("model", said)]


def _time(result: Mapping[str, Any], full: bool) -> list[tuple[str, Text]]:
    from rich.text import Text

    stages = result.get("stages") or {}
    least = 0.0 if full else 0.05
    said = [f"{stage} {took(float(stages[stage]))}" for stage in STAGES if float(stages.get(stage, -1)) >= least]
    return [("time", Text(", ".join(said)))] if said else []


def _deliverables(
    run: Mapping[str, Any], result: Mapping[str, Any], folder: Path | None, placed: Mapping[str, Path]
) -> list[tuple[str, Text]]:
    from rich.text import Text

    items = result.get("deliverables") or []
    found: list[tuple[str, Text]] = []
    for item in items[:_SHOWN_FILES]:
        path = str(item["path"])
        here = placed.get(path) or (folder / "deliverables" / path if folder is not None else None)
        shown = short(here) if here is not None and here.exists() else f"{path}  (paddock runs get {run.get('id')})"
        amount = Text(f"{size(item['size'])}  ", style="dim")
        found.append(("" if found else "deliverables", amount + Text(plain(shown), style="default")))
        if item.get("note"):
            found.append(("", Text(one_line(str(item["note"])), style="yellow")))
    if len(items) > _SHOWN_FILES:
        total = sum(int(item["size"]) for item in items)
        found.append(("", Text(f"and {len(items) - _SHOWN_FILES} more; {size(total)} in all", style="dim")))
    return found


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {_said(each).strip()}" for name, each in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _evidence(evidence: Mapping[str, Any]) -> list[tuple[str, Text]]:
    from rich.text import Text

    found: list[tuple[str, Text]] = []
    for name, value in evidence.items():
        text = _said(value)
        lines = [line for line in tidy(text).splitlines() if line.strip()][-_EVIDENCE_LINES:]
        for place, line in enumerate(lines):
            found.append((words(one_line(str(name))) if place == 0 else "", Text(line, style="dim")))
    return found


def print_table(runs: Sequence[Mapping[str, Any]], wanted: int, data: Path | None = None) -> None:
    """Many runs, a row for each, and a line about all."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    wide = out.width >= 100
    table.add_column("NAME", no_wrap=True, overflow="ellipsis", max_width=max(16, out.width // 3))
    table.add_column("RUN", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    for title in ("TURNS", "TOKENS", "COST", "TIME", "SCORE", "FILES") if wide else ("TOKENS", "TIME"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("REASON", no_wrap=True, overflow="ellipsis")
    for run in runs:
        state, result = str(run.get("state")), run.get("result") or {}
        traffic = result.get("traffic") or {}
        tokens = int(traffic.get("inputTokens") or 0) + int(traffic.get("outputTokens") or 0)
        time = took(float(result["seconds"])) if "seconds" in result else ""
        numbers = [count(tokens) if tokens else "", time]
        if wide:
            files = result.get("deliverables") or []
            numbers.insert(0, str(result.get("turns") or ""))
            numbers.insert(2, money(traffic.get("cost")))
            score = result.get("score")
            numbers += ["" if score is None else f"{float(score):.2f}", str(len(files) or "")]
        table.add_row(
            Text(one_line(str(run.get("name")))),
            str(run.get("id")),
            Text(words(state), style=STATE_STYLES.get(state, "")),
            *numbers,
            Text(one_line(str(result.get("reason") or "")), style="dim"),
        )
    with out.capture() as capture:
        out.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
    succeeded = sum(run.get("state") == SUCCEEDED for run in runs)
    scripted = any(((run.get("result") or {}).get("traffic") or {}).get("scripted") for run in runs)
    said = Text(f"{succeeded} of {wanted} succeeded", style="bold green" if succeeded == wanted else "bold red")
    if scripted:
        said.append("; scripts answered, no model was asked", style="yellow")
    out.print(said)
    if data is not None:
        out.print(Text(f"what they made: {short(data / 'runs')}/RUN/deliverables", style="dim"))


def short(path: Path) -> str:
    """A path as one would type it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if sys.stdout.isatty() and path.is_relative_to(home) else str(path)


def print_content(out: Output, path: str, text: str) -> None:
    """A short deliverable, in a frame."""
    shown = tidy(text).rstrip("\n")
    if not sys.stdout.isatty():
        out.line(f"--- {path} ---\n{shown}\n---")
        return
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    console().print(Panel(Text(shown), title=Text(one_line(path)), title_align="left", box=box.ROUNDED, padding=(0, 1)))
