"""A fit check in words: the same for the page and the command."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal

from inference.fitting.arithmetic import BITS_PER_WEIGHT, GB, HOURS_PER_MONTH, KEPT_FREE, NODE, WORKING_MEMORY, Fit
from inference.fitting.queries import Report

HEADINGS = ("Accelerator", "Fits on", f"One node of {NODE}", "USD a month", "Best TPOT", "Computes")


def gigabytes(size: int) -> str:
    shown = Decimal(size) / GB
    return f"{shown:,.1f} GB" if shown < 100 else f"{shown:,.0f} GB"


def needs(report: Report) -> Iterator[tuple[str, str]]:
    """What the version takes of memory, by name."""
    load = report.load
    bits = float(BITS_PER_WEIGHT[load.quantization])
    yield "Weights", f"{gigabytes(load.weight_bytes)} ({bits:g} bits a weight, its scales included)"
    if load.kv_bytes is None:
        yield "KV cache", "not known: what follows is without KV cache"
    else:
        each = f"{load.kv_bytes_per_token:,} bytes a token"
        yield "KV cache", f"{gigabytes(load.kv_bytes)} ({each}, {load.tokens:,} tokens, {load.concurrency:,} at once)"
    yield "Together", gigabytes(load.bytes)
    kept, working = float(KEPT_FREE), float(WORKING_MEMORY)
    yield "Overhead", f"{kept:.0%} of each memory is kept free, {working:.0%} is for activations and graphs"
    known = "" if report.active_is_known else ", all of them: the active ones are not known"
    yield "Read for a token", f"{gigabytes(load.active_bytes)} of weights{known}"


def rows(report: Report) -> Iterator[tuple[str, ...]]:
    """By accelerator, in the order of `HEADINGS`."""
    for fit in report.fits:
        cost = fit.usd_per_month.quantize(Decimal(1), ROUND_HALF_UP)
        computes = "native" if fit.is_native else "weight-only"
        yield fit.card.name, size(fit), one_node(fit), f"{cost:,}", f"{fit.best_tpot_ms:.2f} ms", computes


def size(fit: Fit) -> str:
    if fit.nodes == 1:
        return str(fit.count)
    return f"{fit.count} ({fit.nodes} nodes of {NODE})"


def one_node(fit: Fit) -> str:
    usable = gigabytes(fit.card.usable * NODE)
    return f"fits, {usable} usable" if fit.fits_one_node else f"does not fit, {usable} usable"


def notes(report: Report) -> Iterator[str]:
    yield (
        "Arithmetic, nothing measured. Layers that a checkpoint keeps at 16 bits, and key-value heads that tensor"
        " parallelism repeats, take more."
    )
    yield (
        "Best TPOT is a bound: the weights that a token uses, read once by all at their full bandwidth. Nodes that take"
        " turns (pipeline parallel) need it as many times over as there are nodes."
    )
    yield "Weight-only: the weights are widened to 16 bits as they are read, which saves memory and no computing."
    if report.priced_from and report.priced_to:
        days = sorted({report.priced_from.isoformat(), report.priced_to.isoformat()})
        yield (
            f"Prices are assumptions, set {' to '.join(days)}, for {HOURS_PER_MONTH} hours a month; the accelerators'"
            " table has them."
        )
