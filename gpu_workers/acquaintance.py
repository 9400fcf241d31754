"""What a host asks the broker before it joins: whether it answers, and whether the platform has the same seal key."""

from __future__ import annotations

import re

import msgspec
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from gpu_workers.connecting import connect
from gpu_workers.messages import WORKERS_KEY, decode_heartbeat, owner_key, worker_key
from gpu_workers.sealing import fingerprint
from gpu_workers.streams import present_values, set_members

_NO_ADDRESS = "the broker's address is not a redis://, rediss:// or unix:// URL."
_REFUSED_US = (AuthenticationError, NoPermissionError)
_FINGERPRINT = re.compile(rb"[0-9a-f]{16}\Z")


class JoinRefused(ValueError):
    """This host cannot join. The message says why in one line, without a password, token or key."""


async def meet_platform(valkey_url: str, seal_key: bytes) -> bool:
    """Whether anybody was there to compare seal keys with. Raises `JoinRefused`.

    Web processes decide, since it is their tasks that a worker opens; workers are asked where no web process runs.
    """
    try:
        valkey = connect(valkey_url)
    except (ValueError, RedisError):
        raise JoinRefused(_NO_ADDRESS) from None
    try:
        seen = await _web_seals(valkey) or await _worker_seals(valkey)
    except (RedisError, OSError, ValueError) as error:
        raise JoinRefused(_why(error)) from None
    finally:
        await valkey.aclose()
    if seen and fingerprint(seal_key) not in seen:
        raise JoinRefused("the platform at this broker has another seal key: make a new token there.")
    return bool(seen)


def _why(error: Exception) -> str:
    # The client wraps a refused password in what any lost connection is.
    if isinstance(error, _REFUSED_US) or isinstance(error.__cause__, _REFUSED_US):
        return "the broker refuses the user or password in its address."
    return f"the broker does not answer ({type(error).__name__})."


async def _web_seals(valkey: Redis) -> set[str]:
    """The seal keys' fingerprints that living web processes show (console.runtime)."""
    keys = [key async for key in valkey.scan_iter(match=owner_key("*"), count=1000)]
    # An evaluation run shows life, too, and no fingerprint with it.
    return {sign.decode() for sign in await present_values(valkey, keys) if _FINGERPRINT.match(sign)}


async def _worker_seals(valkey: Redis) -> set[str]:
    names = await set_members(valkey, WORKERS_KEY)
    seals: set[str] = set()
    for beat in await present_values(valkey, [worker_key(name) for name in names]):
        try:
            seals.add(decode_heartbeat(beat).seal)
        except msgspec.MsgspecError:
            continue  # of another version: it says nothing that we understand
    return seals
