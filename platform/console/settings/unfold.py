"""The admin console's look, and its sections: what the sidebar and the home page show to those who may open it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy


def _may(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.user.has_perm(permission)


def _link(title: str, icon: str, model: str, about: str) -> dict[str, Any]:
    """A link to a model's list; `model` is `app_label.model_name`, `about` is said on the home page."""
    app_label, model_name = model.split(".")
    return {
        "title": title,
        "icon": icon,
        "about": about,
        "link": reverse_lazy(f"admin:{app_label}_{model_name}_changelist"),
        "permission": _may(f"{app_label}.view_{model_name}"),
    }


SECTIONS = [
    {
        "title": "Organisation",
        "items": [
            _link("Organisations", "domain", "accounts.organisation", "Tenants and their limits."),
            _link("Teams", "groups", "accounts.team", "Parts of an organisation with limits and budgets of their own."),
            _link("Users", "group", "accounts.user", "Who signs in, and with which role."),
            _link("API keys", "key", "accounts.apikey", "Which programs may ask; made here and revoked here."),
        ],
    },
    {
        "title": "Money",
        "items": [
            _link("Budgets", "savings", "inference.budget", "What may be spent, what is, and what happens on the way."),
            _link("Limits", "speed", "inference.limit", "Requests, tokens and answers at once that scopes share."),
            _link("Months", "calendar_month", "inference.ledgermonth", "What answers add up to, and as CSV."),
            _link("Ledger", "account_balance_wallet", "inference.transfer", "What each answer cost, and whom."),
        ],
    },
    {
        "title": "Models",
        "items": [
            _link("Model versions", "neurology", "inference.modelversion", "Weights, context, prices and lifecycle."),
            _link("Deployments", "dns", "inference.deployment", "Where a model version runs."),
            _link("Accelerators", "memory", "inference.accelerator", "What versions can fit on, and at what price."),
            _link(
                "Scaling",
                "stacked_bar_chart",
                "inference.scalingpolicy",
                "How many replicas, made by whom.",
            ),
            _link("Scaling steps", "history", "inference.scalingstep", "When replicas were added or taken, and why."),
            _link("Engine events", "electrical_services", "inference.engineevent", "What engines did, and why."),
            _link("Evaluation sets", "rule", "inference.evaluationset", "What a version must answer to go live."),
            _link("Evaluation runs", "fact_check", "inference.evaluationrun", "How versions did; not what they said."),
            _link("Routing rules", "alt_route", "inference.routingruleset", "Which deployment answers what, and why."),
        ],
    },
    {
        "title": "Traffic",
        "items": [
            _link("Conversations", "forum", "chat.conversation", "Whose they are and how long; not what was said."),
            _link(
                "Exchanges",
                "swap_horiz",
                "inference.exchange",
                "Each question: route, cost, latency, findings.",
            ),
            _link("Refusals", "block", "audit.refusal", "Requests that were not served, and why."),
        ],
    },
    {
        "title": "Record",
        "items": [
            _link("Entries", "receipt_long", "audit.entry", "What was recorded: facts in clear, content sealed."),
            _link(
                "Change history", "history", "accounts.configurationchange", "Who changed accounts or models, and how."
            ),
        ],
    },
    {
        "title": "Schedule",
        "items": [
            _link(
                "Periodic tasks",
                "schedule",
                "django_celery_beat.periodictask",
                "What is done by itself, and when.",
            ),
        ],
    },
]

# The greys and the accent are the chat page's (bursar.css). Dark pages take the accent's light form: admin.css.
GREYS = {
    "50": "#fbfaf7",
    "100": "#f3f1ec",
    "200": "#dedad1",
    "300": "#c6c2b8",
    "400": "#a0a8a3",
    "500": "#656a66",
    "600": "#4b504d",
    "700": "#3b413e",
    "800": "#2e3431",
    "900": "#1c201e",
    "950": "#131615",
}
ACCENT = {
    "50": "#f1f7f4",
    "100": "#e4eee9",
    "200": "#c8dfd5",
    "300": "#a2cdb9",
    "400": "#7cc9a9",
    "500": "#2f7a61",
    "600": "#1f5f4b",
    "700": "#17493a",
    "800": "#143c30",
    "900": "#1d2c26",
    "950": "#0d1a15",
}

UNFOLD = {
    "SITE_TITLE": "Bursar",
    "SITE_HEADER": "Bursar",
    "SITE_SUBHEADER": "Console",
    "SITE_SYMBOL": "account_balance",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda _: static("console/mark.svg")}],
    "SITE_URL": None,
    "ACCOUNT": {
        "navigation": [
            {"title": "To the chat", "link": reverse_lazy("chat")},
            {"title": "Change password", "link": reverse_lazy("admin:password_change")},
        ]
    },
    "COLORS": {"base": GREYS, "primary": ACCENT},
    "STYLES": [lambda _: static("console/admin.css")],
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": SECTIONS},
}
