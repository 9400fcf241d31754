"""The workers that show life this moment, for a page or a command that does not watch them all the time."""

from __future__ import annotations

import structlog
from django.conf import settings
from redis.exceptions import RedisError

from gpu_workers import settings as worker_settings
from gpu_workers.connecting import connect
from gpu_workers.sealing import fingerprint
from inference.fleet import Fleet, FleetState

log = structlog.get_logger(__name__)


async def fleet_now() -> FleetState:
    """Read once; a broker that does not answer is said in the state."""
    valkey = connect(settings.VALKEY_URL)
    try:
        return await Fleet(valkey, fingerprint(worker_settings.seal_key())).read()
    except (RedisError, OSError) as error:
        log.warning("fleet_not_read", error=type(error).__name__)
        return FleetState()
    finally:
        await valkey.aclose()
