"""The admin of accounts, one module for each model."""

from django.contrib import admin
from django.contrib.auth.models import Group

from console.accounts.admin import api_keys, changes, organisations, teams, users

__all__ = ["api_keys", "changes", "organisations", "teams", "users"]

admin.site.unregister(Group)  # roles stand in the place of groups
