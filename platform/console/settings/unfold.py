"""The admin console's look and its navigation: each entry is shown to those whose role may view it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy


def _may(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.user.has_perm(permission)


def _link(title: str, icon: str, model: str) -> dict[str, Any]:
    """A link to a model's list; `model` is `app_label.model_name`."""
    app_label, model_name = model.split(".")
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{app_label}_{model_name}_changelist"),
        "permission": _may(f"{app_label}.view_{model_name}"),
    }


UNFOLD = {
    "SITE_TITLE": "Bursar",
    "SITE_HEADER": "Bursar",
    "SITE_SYMBOL": "account_balance",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda _: static("console/mark.svg")}],
    "SIDEBAR": {
        "show_search": True,
        "show_all_applications": False,
        "navigation": [
            {
                "title": "Use",
                "items": [
                    _link("Exchanges", "swap_horiz", "inference.exchange"),
                    _link("Conversations", "forum", "chat.conversation"),
                    _link("Record", "receipt_long", "audit.entry"),
                ],
            },
            {
                "title": "Accounts",
                "separator": True,
                "items": [
                    _link("Organisations", "domain", "accounts.organisation"),
                    _link("Users", "group", "accounts.user"),
                    _link("API keys", "key", "accounts.apikey"),
                ],
            },
            {
                "title": "Catalog",
                "separator": True,
                "items": [
                    _link("Model versions", "neurology", "inference.modelversion"),
                    _link("Deployments", "dns", "inference.deployment"),
                ],
            },
            {
                "title": "Operation",
                "separator": True,
                "items": [
                    _link("Changes", "history", "auditlog.logentry"),
                    _link("Schedules", "schedule", "django_celery_beat.periodictask"),
                ],
            },
        ],
    },
}
