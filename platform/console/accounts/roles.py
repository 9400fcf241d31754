"""What each role may do in the console. Which rows they may do it to is compliance.access."""

from __future__ import annotations

from console.accounts.models import Role

STAFF = frozenset({Role.ADMINISTRATOR, Role.OFFICER})  # who may enter the admin

_VIEW = frozenset(
    {
        "accounts.view_organisation",
        "accounts.view_user",
        "accounts.view_member",
        "accounts.view_apikey",
        "accounts.view_team",
        "audit.view_entry",
        "audit.view_refusal",
        "chat.view_conversation",
        "inference.view_modelversion",
        "inference.view_lifecyclestep",
        "inference.view_canarypolicy",
        "inference.view_evaluationrun",
        "inference.view_evaluationverdict",
        "inference.view_deployment",
        "inference.view_accelerator",
        "inference.view_exchange",
        "inference.view_attempt",
        "inference.view_limit",
        "inference.view_budget",
        "inference.view_budgetcrossing",
        "inference.view_transfer",
        "inference.view_ledgermonth",
    }
)

# Organisations, limits, budgets and the catalog belong to the operator: one organisation's administrator
# would otherwise raise their own limits, or change a model that others use.
PERMISSIONS: dict[str, frozenset[str]] = {
    Role.OFFICER: _VIEW,
    Role.ADMINISTRATOR: _VIEW
    | {
        "accounts.add_user",
        "accounts.change_user",
        "accounts.add_member",
        "accounts.change_member",
        "accounts.add_apikey",
        "accounts.change_apikey",
        "accounts.add_team",
        "accounts.change_team",
    },
    Role.DEVELOPER: frozenset(),
    Role.END_USER: frozenset(),
}
