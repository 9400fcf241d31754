"""The mail server, from one URL: `smtp://user:password@host:587`, or `smtps://` for TLS from the first byte."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class MailServer:
    """`host` is empty where there is none. `starttls` is asked of every server that is not on this machine."""

    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""
    tls: bool = False
    starttls: bool = False


def mail_server(url: str) -> MailServer:
    """Raises `ImproperlyConfigured`, without the URL: it holds the password."""
    if not url:
        return MailServer()
    try:
        parts = urlsplit(url)
        tls = parts.scheme == "smtps"
        port = parts.port or (465 if tls else 587)
    except ValueError:
        raise ImproperlyConfigured("BURSAR_MAIL_URL must look like smtp://user:password@host:587") from None
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise ImproperlyConfigured("BURSAR_MAIL_URL must look like smtp://user:password@host:587")
    return MailServer(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=tls,
        starttls=not tls and parts.hostname not in LOOPBACK,
    )
