"""Send requests with KServe's own client, and print the results as JSON.

Run as a script in an environment with kserve, which needs other versions than Basket.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
from grpc import RpcError
from grpc.aio import insecure_channel
from httpx import HTTPStatusError
from kserve import (
    InferenceGRPCClient,
    InferenceRESTClient,
    InferInput,
    InferRequest,
    RESTConfig,
)
from kserve.protocol.grpc import grpc_predict_v2_pb2 as messages
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub
from kserve.protocol.infer_type import RequestedOutput

ROWS = [[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]]


async def ask_v1(url: str) -> dict[str, Any]:
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        answer = await client.infer(url, {"instances": ROWS}, model_name="echo")
        return {
            "live": await client.is_server_live(url),
            "ready": await client.is_model_ready(url, "echo"),
            "broken is ready": await is_broken_ready(client, url),
            "predictions": answer["predictions"],
            "refusal": await refusal(client, url, {"instances": [["a"]]}),
        }


async def ask_v2(url: str) -> dict[str, Any]:
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        wrong = request(np.array([[1.0]], np.float32), binary=False)
        found = {
            "live": await client.is_server_live(url),
            "ready": await client.is_model_ready(url, "echo"),
            "broken is ready": await is_broken_ready(client, url),
            "refusal": await refusal(client, url, wrong),
        }
        try:
            found["server is ready"] = await client.is_server_ready(url)
        except HTTPStatusError as error:
            found["server is ready"] = str(error)
        for binary in (False, True):
            asked = request(np.array(ROWS, np.float32), binary=binary)
            answer = await client.infer(url, asked, model_name="echo")
            (output,) = answer.outputs
            name = "binary" if binary else "json"
            found[name] = output.as_numpy().tolist()
            found[f"{name} is echoed"] = answer.id == asked.id
        return found


async def is_broken_ready(client: InferenceRESTClient, url: str) -> bool | str:
    """Return whether the model `broken` is ready, or why a server has none."""
    try:
        return await client.is_model_ready(url, "broken")
    except HTTPStatusError as error:
        return str(error)


def request(rows: np.ndarray, *, binary: bool) -> InferRequest:
    """Return a request for the model echo, with an id of its own."""
    tensor = InferInput("input", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    outputs = [RequestedOutput("output", {"binary_data": binary})]
    return InferRequest("echo", [tensor], f"binary {binary}", request_outputs=outputs)


async def refusal(client: InferenceRESTClient, url: str, data: Any) -> str:
    """Return the text of the error with which a request fails."""
    try:
        await client.infer(url, data, model_name="echo")
    except HTTPStatusError as error:
        return str(error)
    return ""


async def ask_grpc(address: str) -> dict[str, Any]:
    async with InferenceGRPCClient(address, retries=0) as client:
        found: dict[str, Any] = {
            "live": await client.is_server_live(),
            "server is ready": await client.is_server_ready(),
            "ready": await client.is_model_ready("echo"),
            "broken is ready": await client.is_model_ready("broken"),
        }
        for binary in (False, True):
            asked = request(np.array(ROWS, np.float32), binary=binary)
            answer = await client.infer(asked)
            (output,) = answer.outputs
            name = "binary" if binary else "contents"
            found[name] = output.as_numpy().tolist()
            found[f"{name} is echoed"] = answer.id == asked.id
        try:
            await client.infer(request(np.array([[1.0]], np.float32), binary=False))
        except RpcError as error:
            found["refusal"] = f"{error.code().name}: {error.details()}"
    return found | await change(address)


async def change(address: str) -> dict[str, Any]:
    """Unload and load the model echo with KServe's stub, which the client lacks."""
    async with insecure_channel(address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        unload = messages.RepositoryModelUnloadRequest(model_name="echo")
        load = messages.RepositoryModelLoadRequest(model_name="echo")
        found: dict[str, Any] = {}
        try:
            await stub.RepositoryModelUnload(unload)
        except RpcError as error:
            found["stranger"] = error.code().name
        admin = [("authorization", "Bearer admin")]
        answer = await stub.RepositoryModelUnload(unload, metadata=admin)
        found["unloaded"] = answer.model_name, answer.isUnloaded
        asked = messages.ModelReadyRequest(name="echo")
        found["ready when unloaded"] = (await stub.ModelReady(asked)).ready
        answer = await stub.RepositoryModelLoad(load, metadata=admin)
        found["loaded"] = answer.model_name, answer.isLoaded
        found["ready when loaded"] = (await stub.ModelReady(asked)).ready
        return found


async def ask(url: str, grpc_address: str = "") -> dict[str, Any]:
    found = {"v1": await ask_v1(url), "v2": await ask_v2(url)}
    if grpc_address:
        found["grpc"] = await ask_grpc(grpc_address)
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ask(*sys.argv[1:]))))
