"""An engine behind a SageMaker real-time endpoint: vLLM's body, streamed as parts of an AWS event stream."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EventStreamError

from gpu_workers.engines.base import End, EngineBroken, EngineRefused, Piece
from gpu_workers.engines.completions import EventReader, refusal, request_body
from gpu_workers.engines.metrics import EngineLoad
from gpu_workers.messages import GenerateTask
from gpu_workers.settings import WorkerSettings

CONNECT_TIMEOUT_S = 3.0
SILENCE_TIMEOUT_S = 30.0
MAX_LINE_BYTES = 1_048_576
# A thread waits for each stream's next part.
MAX_STREAMS = 256
TRIES = 3
PAUSE_S = 0.2
# The control plane is throttled for the whole account: it is not asked with every heartbeat.
READY_TTL_S = 15.0
OVERLOADED = frozenset(
    {"ThrottlingException", "ServiceUnavailable", "ServiceUnavailableException", "ModelNotReadyException"}
)


class SageMakerEngine:
    """Streams from an endpoint, or from one inference component of it. `runtime` and `control` are boto3's clients."""

    simulated = False

    def __init__(self, runtime: Any, control: Any, endpoint: str, component: str, model: str) -> None:
        self._runtime = runtime
        self._control = control
        self._target = {"EndpointName": endpoint} | ({"InferenceComponentName": component} if component else {})
        self._model = model
        self._threads = ThreadPoolExecutor(MAX_STREAMS, thread_name_prefix="sagemaker")
        self._asked_at = float("-inf")
        self._ready = False

    async def start(self) -> None:
        """Nothing: boto3's clients connect with the first call."""

    async def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def load(self) -> EngineLoad:
        """SageMaker says nothing of its engine's load."""
        return EngineLoad()

    async def is_ready(self) -> bool:
        """Whether the endpoint or the component is in service, as of `READY_TTL_S` ago at the most."""
        if time.monotonic() - self._asked_at >= READY_TTL_S:
            self._asked_at = time.monotonic()
            try:
                # Not in the streams' threads: a heartbeat does not wait until one of them is free.
                self._ready = await asyncio.to_thread(self._in_service)
            except (BotoCoreError, ClientError):
                self._ready = False
        return self._ready

    def _in_service(self) -> bool:
        component = self._target.get("InferenceComponentName")
        if component:
            answer = self._control.describe_inference_component(InferenceComponentName=component)
            return bool(answer["InferenceComponentStatus"] == "InService")
        answer = self._control.describe_endpoint(EndpointName=self._target["EndpointName"])
        return bool(answer["EndpointStatus"] == "InService")

    async def stream(self, task: GenerateTask) -> AsyncIterator[Piece | End]:
        parts = None
        try:
            parts = (await self._invoke(msgspec.json.encode(request_body(task, self._model, vllm=True))))["Body"]
            async for item in self._read(parts):
                yield item
        except (EngineBroken, EngineRefused):
            raise
        except EventStreamError as error:
            # The event's name is the service's own; its text is the model's, and may quote the prompt.
            raise EngineBroken(f"The endpoint broke the answer off ({_code(error)}).") from None
        except Exception as error:
            raise EngineBroken(f"The endpoint's answer broke off ({type(error).__name__}).") from None
        finally:
            if parts is not None:
                _cut(parts)

    async def _invoke(self, body: bytes) -> dict[str, Any]:
        """Tried again where the endpoint has no room: nothing was generated yet, so nothing is paid twice."""
        invoke = functools.partial(
            self._runtime.invoke_endpoint_with_response_stream,
            **self._target,
            ContentType="application/json",
            Body=body,
        )
        for attempt in range(1, TRIES + 1):
            try:
                return await self._opened(invoke)
            except ClientError as error:
                if _code(error) not in OVERLOADED:
                    raise _refused(error) from None
            if attempt < TRIES:
                await asyncio.sleep(PAUSE_S * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 - not a secret
        raise EngineBroken("The endpoint is overloaded.")

    async def _opened(self, invoke: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A caller that leaves before the endpoint answers leaves no stream behind."""
        future = self._threads.submit(invoke)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_cut_late)
            raise

    async def _read(self, parts: Any) -> AsyncIterator[Piece | End]:
        reader, rest, events = EventReader(), b"", iter(parts)
        while not reader.done and (event := await self._thread(next, events, None)) is not None:
            # Parts are cut anywhere, also within a character: only whole lines are read.
            *lines, rest = (rest + event.get("PayloadPart", {}).get("Bytes", b"")).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                raise EngineBroken("The endpoint sent a line that does not end.")
            for line in lines:
                for piece in reader.read(line):
                    yield piece
        if not reader.done:
            for piece in reader.read(rest):
                yield piece
        yield reader.end()

    async def _thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _refused(error: ClientError) -> EngineRefused | EngineBroken:
    code = _code(error)
    if code == "ValidationError" or code == "ValidationException":
        return refusal(400, str(error))
    if code == "ModelError":
        return refusal(int(error.response.get("OriginalStatusCode", 500)), str(error.response.get("OriginalMessage")))
    return EngineBroken(f"The endpoint refused the call ({code}).")


def _cut_late(future: Future[dict[str, Any]]) -> None:
    if not future.cancelled() and future.exception() is None:
        _cut(future.result()["Body"])


def _cut(parts: Any) -> None:
    """Close the stream, so that the endpoint stops generating; a thread that waits for its next part wakes."""
    raw = parts._raw_stream
    # It may be read to its end, or closed from the other side.
    with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):
        raw.shutdown()
    raw.close()


def sagemaker_engine(settings: WorkerSettings, endpoint_url: str | None = None) -> SageMakerEngine:
    """Credentials are found by boto3's own chain. `endpoint_url` stands for AWS's own address."""
    session = boto3.Session(region_name=settings.sagemaker_region)
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=SILENCE_TIMEOUT_S,
        max_pool_connections=MAX_STREAMS,
        # Its own retries would send a prompt again after a timeout, and be paid twice.
        retries={"total_max_attempts": 1},
    )
    runtime = session.client("sagemaker-runtime", config=config, endpoint_url=endpoint_url)
    control = session.client(
        "sagemaker", config=config.merge(Config(read_timeout=CONNECT_TIMEOUT_S)), endpoint_url=endpoint_url
    )
    return SageMakerEngine(
        runtime, control, settings.sagemaker_endpoint, settings.sagemaker_component, settings.engine_model
    )
