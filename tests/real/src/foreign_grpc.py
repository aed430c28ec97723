"""gRPC's C core as a client of a CRI server: calls, a refusal, a stream.

Usage: foreign_grpc.py STUBS SOCKET
"""

import sys

sys.path.insert(0, sys.argv[1])

import grpc  # noqa: E402
import importlib  # noqa: E402

messages = importlib.import_module("runtime_v1_pb2")
services = importlib.import_module("runtime_v1_pb2_grpc")

LIMIT = 20

channel = grpc.insecure_channel("unix://" + sys.argv[2])
runtime = services.RuntimeServiceStub(channel)
images = services.ImageServiceStub(channel)

version = runtime.Version(messages.VersionRequest(), timeout=LIMIT)
assert version.runtime_api_version == "v1", version
for _ in range(50):
    runtime.ListPodSandbox(messages.ListPodSandboxRequest(), timeout=LIMIT)
images.ListImages(messages.ListImagesRequest(), timeout=LIMIT)
try:
    runtime.ContainerStatus(messages.ContainerStatusRequest(container_id="x"), timeout=LIMIT)
    raise SystemExit("an unknown container has a status")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND, error

# A stream that is open while a pod comes and goes.
events = runtime.GetContainerEvents(messages.GetEventsRequest(), timeout=3 * LIMIT)
runtime.Status(messages.StatusRequest(), timeout=LIMIT)
pod = messages.PodSandboxConfig(
    metadata=messages.PodSandboxMetadata(name="foreign", uid="u", namespace="default"),
    log_directory="/run/bed/logs",
    linux=messages.LinuxPodSandboxConfig(cgroup_parent="/foreign"),
)
identity = runtime.RunPodSandbox(
    messages.RunPodSandboxRequest(config=pod), timeout=LIMIT
).pod_sandbox_id
runtime.StopPodSandbox(messages.StopPodSandboxRequest(pod_sandbox_id=identity), timeout=LIMIT)
runtime.RemovePodSandbox(messages.RemovePodSandboxRequest(pod_sandbox_id=identity), timeout=LIMIT)
kinds = []
for event in events:
    assert event.container_id == identity, event
    kinds.append(messages.ContainerEventType.Name(event.container_event_type))
    if kinds[-1] == "CONTAINER_DELETED_EVENT":
        break
assert kinds[0] == "CONTAINER_CREATED_EVENT", kinds
events.cancel()
print("C core", grpc.__version__, "was answered by", version.runtime_name, kinds)
