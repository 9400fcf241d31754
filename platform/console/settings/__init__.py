"""The Django settings. Everything that differs between places comes from the environment (see docs/operator.md)."""

import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from console.settings.mail import mail_server
from console.settings.unfold import UNFOLD as UNFOLD

BASE_DIR = Path(__file__).resolve().parents[3]


def _split(name: str, default: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def _database(url: str) -> dict[str, object]:
    """A libpq URL as Django's settings; the host may be a socket directory given in the query."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or query.get("host", [""])[0],
        "PORT": str(parts.port or query.get("port", [""])[0]),
        # Persistent connections leak under ASGI: a request's thread is not the thread that closes them.
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"connect_timeout": 5},
    }


DATABASE_URL = os.environ.get("BURSAR_DATABASE_URL", "postgresql:///bursar")
VALKEY_URL = os.environ.get("BURSAR_VALKEY_URL", "redis://127.0.0.1:6379/0")
SECRET_KEY = os.environ.get("BURSAR_SECRET_KEY", "")
RECORD_KEY = os.environ.get("BURSAR_RECORD_KEY", "")
# Of at least 32 characters; without them nobody is told anything, and nobody can ask for anything.
ALERT_SECRET = os.environ.get("BURSAR_ALERT_SECRET", "")
METRICS_TOKEN = os.environ.get("BURSAR_METRICS_TOKEN", "")
PUBLIC_URL = os.environ.get("BURSAR_URL", "http://127.0.0.1:8000")

DEBUG = os.environ.get("BURSAR_DEBUG") == "1"
ALLOWED_HOSTS = _split("BURSAR_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
# Origins a browser may open a socket from with a session cookie: the public URL and what is listed.
SOCKET_ORIGINS = frozenset([PUBLIC_URL.rstrip("/"), *_split("BURSAR_ORIGINS", "")])
CSRF_TRUSTED_ORIGINS = sorted(SOCKET_ORIGINS)

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "auditlog",
    "django_celery_beat",
    "axes",
    "console.accounts",
    "console.chat",
    "console.api",
    "console.schedule",
    "inference",
    "compliance.audit",
    "compliance.pii",
]

MIDDLEWARE = [
    "console.http.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "console.http.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.http.AuditActorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",  # answers a sign-in that is refused for too many wrong passwords
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "platform/console/templates"],  # error pages, and pages of the admin in our words
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": _database(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"
# The first looks whether there were too many wrong passwords, before one is checked at all.
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "console.accounts.backends.RoleBackend"]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
# Ten wrong passwords of a user from an address, and fifty from an address (console.accounts.lockout), are followed by
# a quarter of an hour in which none is checked. What is counted is deleted after that time.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address"]
AXES_HANDLER = "console.accounts.lockout.SignInLimits"
AXES_USERNAME_CALLABLE = "console.accounts.lockout.counted_name"
AXES_LOCKOUT_CALLABLE = "console.accounts.lockout.respond"
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "chat"
LOGOUT_REDIRECT_URL = "sign-in"

SECURE = PUBLIC_URL.startswith("https://")
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SECURE_SSL_REDIRECT = SECURE
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
FORMAT_MODULE_PATH = "console.formats"
STATIC_URL = "/static/"
# The web process serves the packages' own files: nothing is collected first and no web server stands in front.
SERVESTATIC_USE_FINDERS = True
SERVESTATIC_AUTOREFRESH = DEBUG
SERVESTATIC_ALLOW_ALL_ORIGINS = False

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "console.accounts.authentication.APIKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["console.parsing.BoundedJSONParser"],
    "EXCEPTION_HANDLER": "console.errors.openai_response",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}
SPECTACULAR_SETTINGS = {"TITLE": "Bursar", "VERSION": "0.1.0"}

# The record holds who asked and what was answered; auditlog holds who changed the configuration.
AUDITLOG_DISABLE_REMOTE_ADDR = True  # it would trust the leftmost X-Forwarded-For

LOG_FORMAT = os.environ.get("BURSAR_LOG_FORMAT", "console")
LOGGING_CONFIG = None  # structlog is set up in console.logging

_mail = mail_server(os.environ.get("BURSAR_MAIL_URL", ""))
EMAIL_HOST, EMAIL_PORT = _mail.host, _mail.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail.user, _mail.password
EMAIL_USE_SSL, EMAIL_USE_TLS = _mail.tls, _mail.starttls
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = os.environ.get("BURSAR_MAIL_FROM", "bursar@localhost")

CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
