"""The block that a person sees when everything runs, and the same values as a file for programs."""

from pathlib import Path

from console.local import credentials
from console.local.composition import Composition
from console.local.terminal import show


def announce(var: Path, what: Composition) -> None:
    """Print where to go and how to sign in; write the same to var/demo.env (0600)."""
    file = var / "demo.env"
    model = {"BURSAR_URL": what.url, "BURSAR_MODEL_NAME": what.settings["BURSAR_MODEL_NAME"]}
    credentials.write(file, {**model, **what.demo})
    demo = what.demo
    accounts = [
        ("chat", "/", demo["BURSAR_USER"], demo["BURSAR_USER_PASSWORD"]),
        ("administration", "/admin/", demo["BURSAR_ADMIN_USER"], demo["BURSAR_ADMIN_PASSWORD"]),
        ("compliance", "/admin/", demo["BURSAR_OFFICER_USER"], demo["BURSAR_OFFICER_PASSWORD"]),
    ]
    lines = ["", f"Bursar answers at {what.url} with {what.settings['BURSAR_MODEL_NAME']}", ""]
    lines += [f"  {name:<15} {what.url + path:<32} {user:<8} {password}" for name, path, user, password in accounts]
    lines += ["", f"  API key         {demo['BURSAR_API_KEY']}   (base URL {what.url}/v1)"]
    lines += ['  from a shell    .venv/bin/python manage.py ask "What is an audit log?"', ""]
    lines += [f"The same values are in {file}. Ctrl-C stops everything.", ""]
    show("\n".join(lines))
