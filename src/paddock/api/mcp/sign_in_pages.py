# ruff: noqa: RUF001  (Chinese punctuation)
"""Pages that a browser shows at the end of a sign-in at an MCP server. They need no script."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from fastapi.responses import HTMLResponse

if TYPE_CHECKING:
    from paddock.mcp.oauth.sign_ins import Confirmation

PageLanguage = Literal["en", "zh-CN"]
_STYLE = (
    "body{font:16px/1.6 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1.25rem;color:#1c1e21;"
    "background:#fafafa}h1{font-size:1.4rem;margin:0 0 .75rem}dl{display:grid;grid-template-columns:auto 1fr;"
    "gap:.25rem 1rem;margin:1.25rem 0}dt{color:#666}dd{margin:0;overflow-wrap:anywhere}form{display:flex;gap:.75rem;"
    "margin-top:1.5rem}button{font:inherit;padding:.5rem 1.25rem;border-radius:.5rem;border:1px solid #bbb;"
    "background:#fff;color:inherit;cursor:pointer}button.main{background:#1f5fd0;border-color:#1f5fd0;color:#fff}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#e8e8e8}dt{color:#999}"
    "button{background:#24272d;border-color:#444}}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_TEXTS: Mapping[PageLanguage, Mapping[str, str]] = {
    "en": {
        "ask": "Connect {server} to Paddock?",
        "who": "{user} in Paddock will be able to use {server} with the account that you have just approved.",
        "warn": "Continue only if you began this sign-in yourself.",
        "user": "Paddock user",
        "tenant": "Tenant",
        "server": "MCP server",
        "issuer": "Signed in at",
        "scopes": "Scopes",
        "all": "everyone in the tenant",
        "continue": "Continue",
        "cancel": "Cancel",
        "done": "Signed in",
        "done_text": "{server} can be used now. You can close this page.",
        "refused": "Not signed in",
        "refused_text": "Nothing was connected. You can close this page.",
        "failed": "The sign-in failed",
        "failed_text": "Begin it again in the console, or with paddock mcp login.",
    },
    "zh-CN": {
        "ask": "将 {server} 连接到 Paddock？",
        "who": "Paddock 中的 {user} 将能以您刚刚授权的账号使用 {server}。",
        "warn": "仅当此登录由您本人发起时才继续。",
        "user": "Paddock 用户",
        "tenant": "租户",
        "server": "MCP 服务器",
        "issuer": "登录于",
        "scopes": "权限范围",
        "all": "该租户的所有人",
        "continue": "继续",
        "cancel": "取消",
        "done": "登录成功",
        "done_text": "现在可以使用 {server}。您可以关闭此页面。",
        "refused": "未登录",
        "refused_text": "未建立任何连接。您可以关闭此页面。",
        "failed": "登录失败",
        "failed_text": "请在控制台中，或用 paddock mcp login 重新登录。",
    },
}


def choose_language(accept_language: str) -> PageLanguage:
    """Return the language of a page for the header `Accept-Language`."""
    first = accept_language.split(",")[0].strip().lower()
    return "zh-CN" if first == "zh" or first.startswith("zh-") else "en"


def confirmation_page(found: Confirmation, language: PageLanguage) -> HTMLResponse:
    """Ask the person in the browser whether the sign-in is theirs."""
    texts, pending = _TEXTS[language], found.pending
    user = pending.user if pending.key.subject else f"{texts['all']} ({pending.key.tenant})"
    rows = [
        (texts["user"], user),
        (texts["tenant"], pending.key.tenant),
        (texts["server"], f"{pending.server.name} ({urlsplit(pending.server.url or '').netloc})"),
        (texts["issuer"], pending.endpoints.issuer),
    ]
    if pending.scopes:
        rows.append((texts["scopes"], " ".join(pending.scopes)))
    listed = "".join(f"<dt>{_escaped(name)}</dt><dd>{_escaped(value)}</dd>" for name, value in rows)
    body = (
        f"<p>{_filled(texts['who'], server=pending.server.name, user=user)}</p><dl>{listed}</dl>"
        f"<p>{_escaped(texts['warn'])}</p>"
        f'<form method="post"><input type="hidden" name="confirm" value="{_escaped(found.secret)}">'
        f'<button class="main" name="answer" value="continue">{_escaped(texts["continue"])}</button>'
        f'<button name="answer" value="cancel">{_escaped(texts["cancel"])}</button></form>'
    )
    return _page(texts["ask"].replace("{server}", pending.server.name), body, language)


def result_page(outcome: Literal["done", "refused"], server: str, language: PageLanguage) -> HTMLResponse:
    """Say how the sign-in ended."""
    texts = _TEXTS[language]
    return _page(texts[outcome], f"<p>{_filled(texts[f'{outcome}_text'], server=server)}</p>", language)


def failure_page(reason: str, language: PageLanguage, status: int = 400) -> HTMLResponse:
    """Say why the sign-in failed."""
    texts = _TEXTS[language]
    return _page(texts["failed"], f"<p>{_escaped(reason)}</p><p>{_escaped(texts['failed_text'])}</p>", language, status)


def _page(title: str, body: str, language: PageLanguage, status: int = 200) -> HTMLResponse:
    content = (
        f'<!doctype html><html lang="{language}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_escaped(title)}</title><style>{_STYLE}</style><h1>{_escaped(title)}</h1>{body}</html>"
    )
    return HTMLResponse(content, status, {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"})


def _filled(text: str, **values: str) -> str:
    """Return a text with bold, escaped values."""
    shown = _escaped(text)
    for name, value in values.items():
        shown = shown.replace(f"{{{name}}}", f"<b>{_escaped(value)}</b>")
    return shown


def _escaped(text: str) -> str:
    return html.escape(text[:1000])
