"""The history of configuration: who changed what, from what to what. It spans organisations: superusers see it."""

from __future__ import annotations

from auditlog.models import LogEntry
from django.contrib import admin
from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from compliance.access import RecordAdmin
from console.accounts.models import ConfigurationChange

admin.site.unregister(LogEntry)  # the same rows, under a name that is not the product's

_ROW = '<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>'
_TABLE = (
    '<div class="scrolls"><table class="changes">'
    '<tr><th scope="col">Field</th><th scope="col">Before</th><th scope="col">After</th></tr>{}</table></div>'
)
_ACTIONS = {
    LogEntry.Action.CREATE: "Created",
    LogEntry.Action.UPDATE: "Changed",
    LogEntry.Action.DELETE: "Deleted",
    LogEntry.Action.ACCESS: "Opened",
}


@admin.register(ConfigurationChange)
class ConfigurationChangeAdmin(RecordAdmin):
    date_hierarchy = "timestamp"
    list_display = ["changed", "changed_by", "done", "kind", "name", "fields_changed"]
    list_select_related = ["content_type", "actor"]
    list_filter = ["action", ("content_type", admin.RelatedOnlyFieldListFilter)]
    search_fields = ["object_repr", "actor__username"]
    search_help_text = "The name of what was changed, or of who changed it"
    fields = ["changed", "changed_by", "done", "kind", "name", "identifier", "before_and_after"]
    readonly_fields = ["changed", "changed_by", "done", "kind", "name", "identifier", "before_and_after"]

    @admin.display(description="When", ordering="timestamp")
    def changed(self, change: ConfigurationChange) -> str:
        return str(localize(change.timestamp))

    @admin.display(description="By", ordering="actor__username")
    def changed_by(self, change: ConfigurationChange) -> str:
        return str(change.actor or "the installation")

    @admin.display(description="Done", ordering="action")
    def done(self, change: ConfigurationChange) -> str:
        return _ACTIONS[change.action]

    @admin.display(description="Kind", ordering="content_type__model")
    def kind(self, change: ConfigurationChange) -> str:
        return str(capfirst(change.content_type.name))

    @admin.display(description="Name", ordering="object_repr")
    def name(self, change: ConfigurationChange) -> str:
        return str(change.object_repr)

    @admin.display(description="Identifier")
    def identifier(self, change: ConfigurationChange) -> str:
        return str(change.object_pk)

    @admin.display(description="Fields")
    def fields_changed(self, change: ConfigurationChange) -> str:
        names = (name for name in change.changes_dict if name != "id")
        return ", ".join(name.replace("_", " ") for name in names) or "-"

    @admin.display(description="Before and after")
    def before_and_after(self, change: ConfigurationChange) -> SafeString:
        shown = change.changes_display_dict.items()
        rows = ((capfirst(field), _value(before), _value(after)) for field, (before, after) in shown)
        return format_html(_TABLE, format_html_join("", _ROW, rows))


def _value(kept: str) -> str:
    """auditlog keeps every value as text, nothing as well."""
    return "-" if kept in ("None", "") else kept
