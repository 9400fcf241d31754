"""What the catalog says of each deployment's engine, told to its hosts."""

from __future__ import annotations

import redis
from django.conf import settings

from gpu_workers import settings as worker_settings
from gpu_workers.specification import Specification, sealed_fields, specification_key
from inference.models import Deployment


def publish_specifications() -> int:
    """Tell all of them anew, so that a broker which lost its data has them again. Raises `redis.RedisError`.

    Hosts take it with their engine's next start.
    """
    seal_key = worker_settings.seal_key()
    rows = Deployment.objects.filter(is_enabled=True).select_related("model_version")
    with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=5) as valkey:
        pipe = valkey.pipeline(transaction=False)
        for row in rows:
            version = row.model_version
            told = Specification(str(version), tuple(version.engine_arguments), version.checksum)
            pipe.hset(specification_key(row.slug), mapping=sealed_fields(seal_key, row.slug, told))
        pipe.execute()
    return len(rows)
