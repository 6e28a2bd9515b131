"""The proxy of outgoing connections: addresses, variables, and targets without a proxy."""

from __future__ import annotations

import base64
from ipaddress import ip_address
from pathlib import Path

import pytest
from pydantic import SecretStr

from paddock.config.loader import list_settings, load_config
from paddock.config.outgoing import OutgoingConfig
from paddock.config.outgoing_proxy import OutgoingProxies, check_ca_bundle, parse_proxy, read_outgoing_proxies
from paddock.errors import ConfigError

PASSWORD = "s3cr3t-p4ss"
ADDRESS = f"http://alice:{PASSWORD}@proxy.example:3128"


def proxies(no_proxy: str) -> OutgoingProxies:
    return read_outgoing_proxies({"https_proxy": "http://proxy.example:3128", "NO_PROXY": no_proxy})


@pytest.mark.parametrize(
    ("no_proxy", "host", "port", "is_direct"),
    [
        ("", "api.example.com", 443, False),
        ("example.com", "example.com", 443, True),
        ("example.com", "api.example.com", 443, True),
        ("example.com", "API.Example.COM.", 443, True),
        ("example.com", "notexample.com", 443, False),
        (".example.com", "api.example.com", 443, True),
        (".example.com", "example.com", 443, True),
        ("*.example.com", "api.example.com", 443, True),
        ("Example.com.", "api.example.com", 443, True),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("a.test, b.test", "b.test", 443, True),
        ("a.test b.test", "b.test", 443, True),
        ("a.test,,b.test,", "c.test", 443, False),
        ("*", "api.example.com", 443, True),
        ("a.test,*", "api.example.com", 443, True),
        ("10.1.2.3", "10.1.2.3", 443, True),
        ("10.1.2.3", "10.1.2.30", 443, False),
        ("10.0.0.0/8", "10.200.1.1", 443, True),
        ("10.1.2.3/8", "10.200.1.1", 443, True),
        ("10.0.0.0/8", "11.0.0.1", 443, False),
        ("10.0.0.0/8:8443", "10.0.0.1", 443, False),
        ("fd00::/8", "[fd12::1]", 443, True),
        ("[fd12::1]:443", "fd12::1", 443, True),
        ("[fd12::1]:443", "fd12::1", 444, False),
        ("10.0.0.0/8", "::ffff:10.1.1.1", 443, True),
        ("192.168.*,under score/x,%%", "192.168.1.1", 443, False),
        ("1.2.3.4", "1.2.3.4.example.com", 443, False),
        ("", "localhost", 443, True),
        ("", "app.localhost", 443, True),
        ("", "127.0.0.7", 443, True),
        ("", "::1", 443, True),
        ("", "::ffff:127.0.0.1", 443, True),
    ],
)
def test_targets_without_a_proxy(no_proxy: str, host: str, port: int, is_direct: bool) -> None:
    assert (proxies(no_proxy).choose("https", host, port) is None) is is_direct


def test_the_address_of_a_name_is_matched_if_it_is_known() -> None:
    found = proxies("10.0.0.0/8,private.test")
    assert found.choose("https", "git.test", 443) is not None
    assert found.choose("https", "git.test", 443, ip_address("10.1.1.1")) is None
    assert found.choose("https", "git.test", 443, ip_address("127.0.0.1")) is None
    assert found.choose("https", "git.test", 443, ip_address("93.184.216.34")) is not None
    assert found.choose("https", "private.test", 443, ip_address("93.184.216.34")) is None


def test_variables_choose_by_scheme_and_lower_case_first() -> None:
    both = {"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:2", "HTTP_PROXY": "c:3", "http_proxy": " "}
    found = read_outgoing_proxies(both)
    assert (str(found.https), str(found.http)) == ("http://b:2 (https_proxy)", "http://c:3 (HTTP_PROXY)")
    only_https = read_outgoing_proxies({"HTTPS_PROXY": "http://[fd00::1]"})
    assert only_https.choose("http", "x.test", 80) is None
    assert str(only_https.choose("https", "x.test", 443)) == "http://[fd00::1]:80 (HTTPS_PROXY)"


def test_settings_replace_the_variables() -> None:
    environment = {"HTTPS_PROXY": "http://a:1", "NO_PROXY": "x.test"}
    one = OutgoingConfig(proxy=SecretStr("http://b:2")).proxies(environment)
    assert str(one.https) == str(one.http) == "http://b:2 (outgoing.proxy)"
    assert one.choose("https", "x.test", 443) is None
    assert OutgoingConfig(no_proxy=()).proxies(environment).choose("https", "x.test", 443) is not None
    assert OutgoingConfig(no_proxy=("*",)).proxies(environment).choose("https", "y.test", 443) is None
    assert OutgoingConfig(proxy=SecretStr("none")).proxies(environment) == OutgoingProxies(bypass=one.bypass)


def test_credentials_are_decoded_and_never_shown() -> None:
    found = parse_proxy("http://al%40ice:p%3A%C3%A4@proxy.example:3128/", "HTTPS_PROXY")
    assert found is not None
    assert found.authorization == "Basic " + base64.b64encode("al@ice:p:ä".encode()).decode()
    assert str(found) == "http://proxy.example:3128 (HTTPS_PROXY)"
    assert found.authorization not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        f"https://alice:{PASSWORD}@proxy.example",
        f"socks5://alice:{PASSWORD}@proxy.example",
        f"http://alice:{PASSWORD}/@proxy.example:3128",
        f"http://alice:{PASSWORD}#@proxy.example:3128",
        f"http://alice:{PASSWORD}@proxy.example:port",
        f"http://alice:{PASSWORD}@proxy.example:99999",
        f"http://alice:{PASSWORD}@proxy.example/path",
        f"http://alice:{PASSWORD}@pro xy",
        f"http://alice:{PASSWORD}@",
        f"http://[alice:{PASSWORD}",
        f"ftp://alice:{PASSWORD}@proxy.example",
    ],
)
def test_invalid_addresses_are_refused_without_showing_them(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="proxy") as caught:
        parse_proxy(text, "x")
    with pytest.raises(ConfigError, match="HTTPS_PROXY") as from_variable:
        read_outgoing_proxies({"HTTPS_PROXY": text})
    provider = {"PADDOCK_LLM__PROVIDERS__P__KIND": "openai", "PADDOCK_LLM__PROVIDERS__P__PROXY": text}
    with pytest.raises(ConfigError, match=r"outgoing\.proxy.*\n.*llm\.providers\.p\.proxy|proxy") as from_setting:
        load_config(environ={"PADDOCK_OUTGOING__PROXY": text, **provider}, cwd=tmp_path)
    for error in (caught, from_variable, from_setting):
        assert PASSWORD not in str(error.value)


def test_configuration_never_shows_the_address_of_a_proxy(tmp_path: Path) -> None:
    file = f"""
        outgoing: {{proxy: "{ADDRESS}", no_proxy: [10.0.0.0/8, "*.corp.test"]}}
        llm: {{providers: {{p: {{kind: openai, proxy: "{ADDRESS}"}}, q: {{kind: openai, proxy: none}}}}}}
    """
    (tmp_path / "paddock.yaml").write_text(file)
    loaded = load_config(environ={}, cwd=tmp_path)
    shown = {line.key: line.value for line in list_settings(loaded)}
    assert shown["outgoing.proxy"] == shown["llm.providers.p.proxy"] == "********"
    assert PASSWORD not in str(shown) and PASSWORD not in repr(loaded)


def test_invalid_settings_are_named(tmp_path: Path) -> None:
    for environ, problem in (
        ({"PADDOCK_OUTGOING__NO_PROXY": "a b"}, "outgoing.no_proxy"),
        (
            {"PADDOCK_LLM__PROVIDERS__S__KIND": "litellm", "PADDOCK_LLM__PROVIDERS__S__PROXY": "none"},
            "not support proxy",
        ),
    ):
        with pytest.raises(ConfigError, match=problem):
            load_config(environ=environ, cwd=tmp_path)


def test_certificates_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    check_ca_bundle(None)
    with pytest.raises(ConfigError, match=r"outgoing\.ca_bundle: .*No such file"):
        check_ca_bundle(tmp_path / "missing.pem")
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="no CA certificates in PEM format"):
        check_ca_bundle(tmp_path / "empty.pem")
