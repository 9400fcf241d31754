"""Structured logs for every process: JSON in production, readable lines on one machine."""

from __future__ import annotations

import logging
import os
import sys

import structlog


def configure_logging() -> None:
    """Set up structlog, and send the standard library's records through the same renderer."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    as_json = os.environ.get("BURSAR_LOG_FORMAT") == "json"
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # The default formatter prints local variables where it can: those would hold prompts.
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    errors: list[structlog.typing.Processor] = [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *errors, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(os.environ.get("BURSAR_LOG_LEVEL", "INFO"))
    # uvicorn.error logs the whole query of a handshake, and with it tickets.
    for noisy in ("uvicorn.error", "celery.worker.strategy", "celery.app.trace", "httpx", "presidio-analyzer", "kombu"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
