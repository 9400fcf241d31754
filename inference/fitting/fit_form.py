"""What a fit is asked for, on the page and by the command's options."""

from __future__ import annotations

from django import forms
from unfold.widgets import INPUT_CLASSES

from inference.catalog_validation import MAX_CONTEXT

MAX_CONCURRENCY = 100_000


class FitForm(forms.Form):
    """Empty fields are for the version to say."""

    concurrency = forms.IntegerField(
        label="Answers at once",
        required=False,
        min_value=1,
        max_value=MAX_CONCURRENCY,
        help_text="That the KV cache has room for. Empty: what its deployments plan.",
    )
    tokens = forms.IntegerField(
        label="Tokens of each",
        required=False,
        min_value=1,
        max_value=MAX_CONTEXT,
        help_text="Prompt and answer together. Empty: the whole context.",
    )

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        for field in self.fields.values():
            field.widget.attrs["class"] = " ".join(INPUT_CLASSES)
