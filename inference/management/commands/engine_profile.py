"""`manage.py engine_profile FILE`: measure a real engine, so that the simulated one can take as long."""

from __future__ import annotations

import asyncio
import os
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import BaseCommand, CommandError

from gpu_workers.engine_state import ActiveEngine, state_file
from gpu_workers.engines.base import EngineBroken, EngineRefused
from gpu_workers.engines.latency import Measured, Profile, write_profile
from gpu_workers.engines.openai import OpenAIEngine
from gpu_workers.engines.profiling import Plan, measure
from gpu_workers.settings import SettingsError, default_run_directory

MOST_AT_ONCE = 1024


def counts(text: str) -> tuple[int, ...]:
    """Numbers as they are typed: `1,2,4`."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise ArgumentTypeError("expected whole numbers of 1 or more, such as 1,2,4")
    return found


class Command(BaseCommand):
    help = (
        "Measure an engine that serves, and save what it takes for the first token by prompt length and for the next"
        " ones by requests at once. The engine is asked for some hundred answers: not one that people wait for. Its key"
        " is read from BURSAR_ENGINE_API_KEY."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        plan = Plan()
        parser.add_argument("file", type=Path)
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--url", default=os.environ.get("BURSAR_ENGINE_URL", ""), help="http://host:port/v1")
        where.add_argument("--deployment", default="", help="the one that is active on this host, by its name")
        parser.add_argument(
            "--model", default=os.environ.get("BURSAR_ENGINE_MODEL", ""), help="the engine's name for it"
        )
        parser.add_argument("--host", default="", help="what it runs on, in words: kept in the profile")
        parser.add_argument("--vllm", action="store_true", help="a vLLM server: its counts as it goes are used")
        parser.add_argument("--words", type=counts, default=plan.words)
        parser.add_argument("--at-once", type=counts, default=plan.at_once)
        parser.add_argument("--repeats", type=int, choices=range(1, 1001), metavar="N", default=plan.repeats)
        parser.add_argument("--rounds", type=int, choices=range(1, 1001), metavar="N", default=plan.rounds)
        parser.add_argument(
            "--answer-tokens", type=int, choices=range(2, 4097), metavar="N", default=plan.answer_tokens
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if max(options["at_once"]) > MOST_AT_ONCE:
            raise CommandError(f"--at-once: at most {MOST_AT_ONCE}.")
        if not options["model"]:
            raise CommandError("--model is missing.")
        names = ("words", "repeats", "at_once", "rounds", "answer_tokens")
        plan = Plan(**{name: options[name] for name in names})
        url = _url(options["url"], options["deployment"])
        try:
            profile = asyncio.run(_measure(url, plan, options["model"], options["host"], vllm=options["vllm"]))
            options["file"].write_bytes(write_profile(profile))
        except (EngineBroken, EngineRefused) as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"The profile cannot be written: {error.strerror}.") from None
        self.stdout.write("\n".join(_lines(profile)))


def _url(url: str, deployment: str) -> str:
    if deployment:
        directory = Path(os.environ.get("BURSAR_RUN_DIRECTORY", "") or default_run_directory())
        try:
            url = ActiveEngine("", state_file(directory, deployment)).current().url
        except SettingsError as error:
            raise CommandError(str(error)) from None
        if not url:
            raise CommandError("--deployment: no engine of it is active on this host.")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError("--url must look like http://host:port/v1.")
    return url.rstrip("/")


async def _measure(url: str, plan: Plan, model: str, host: str, *, vllm: bool) -> Profile:
    key = os.environ.get("BURSAR_ENGINE_API_KEY", "")
    engine = OpenAIEngine(ActiveEngine(url), model, key, vllm=vllm, simulated=False)
    await engine.start()
    try:
        name = f"vLLM {await engine.version()}".rstrip() if vllm else "OpenAI-compatible server"
        return await measure(engine, plan, name=name, model=model, host=host)
    finally:
        await engine.stop()


def _lines(profile: Profile) -> list[str]:
    first = [f"TTFT  {_said(one)}  with {one.at} tokens of prompt" for one in profile.ttft]
    then = [f"ITL   {_said(one)}  with {one.at} at once: {_rate(one):.0f} tokens/s" for one in profile.itl]
    return [*first, *then]


def _rate(itl: Measured) -> float:
    """Tokens a second of all the requests together."""
    return itl.at * 1000 / max(itl.mean, 0.001)


def _said(one: Measured) -> str:
    return f"p50 {one.value(0.5):8.1f} ms  p95 {one.value(0.95):8.1f} ms  ({one.samples} samples)"
