// Command foreign-grpc is a client of a CRI server by gRPC's Go library, dialled in the ways that
// CRI clients of others have: a custom dialer with the socket's path as target, `unix` addresses,
// authorities by hand.
//
// Which authority a way sends is a fact of the library; it is looked at with a server of that library
// first, so that no way is called tried that was sent otherwise.
//
// Usage: foreign-grpc SOCKET
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const limit = 20 * time.Second

// way is one manner of dialling a socket, with the authority that the library then sends.
type way struct {
	name      string
	dial      func(socket string) (*grpc.ClientConn, error)
	authority func(socket string) string
}

func ways() []way {
	plain := func(socket string) string { return socket }
	escaped := func(socket string) string { return strings.ReplaceAll(socket, "/", "%2F") }
	always := func(text string) func(string) string { return func(string) string { return text } }
	with := func(prefix string, more ...grpc.DialOption) func(string) (*grpc.ClientConn, error) {
		return func(socket string) (*grpc.ClientConn, error) {
			return grpc.NewClient(prefix+socket, append(options(), more...)...)
		}
	}
	dialer := grpc.WithContextDialer(dialUnix)
	all := []way{
		{"a bare path and a dialer", func(socket string) (*grpc.ClientConn, error) {
			// What most CRI clients were written with; NewClient would ask a name server.
			return grpc.Dial(socket, append(options(), dialer)...)
		}, escaped},
		{"passthrough and a dialer", with("passthrough:///", dialer), escaped},
		{"unix://", with("unix://"), always("localhost")},
		{"unix:", with("unix:"), always("localhost")},
		{"the path itself as authority", func(socket string) (*grpc.ClientConn, error) {
			// As versions before the escaping sent it.
			return with("passthrough:///", dialer, grpc.WithAuthority(socket))(socket)
		}, plain},
	}
	for _, text := range []string{"a b\\c:d", "unix:///run/x.sock", "%zz", "[::", "user@host:0:1", "é"} {
		odd := with("passthrough:///", dialer, grpc.WithAuthority(text))
		all = append(all, way{fmt.Sprintf("the authority %q", text), odd, always(text)})
	}
	return all
}

func options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// seen is the authority that reaches a server of the library when it is dialled so.
func seen(way way) (string, error) {
	folder, err := os.MkdirTemp("", "foreign-grpc")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	socket := filepath.Join(folder, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return "", err
	}
	authority := ""
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		fields, _ := metadata.FromIncomingContext(stream.Context())
		authority = strings.Join(fields.Get(":authority"), " and ")
		return status.Error(codes.Unimplemented, "it was only looked at")
	}))
	defer server.Stop()
	go server.Serve(listener)
	connection, err := way.dial(socket)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err = connection.Invoke(ctx, "/any.Service/Call", &emptypb.Empty{}, &emptypb.Empty{})
	if status.Code(err) != codes.Unimplemented {
		return "", fmt.Errorf("the library's own server: %w", err)
	}
	if expected := way.authority(socket); authority != expected {
		return "", fmt.Errorf("the library sent the authority %q, not %q", authority, expected)
	}
	return strings.ReplaceAll(authority, folder, "…"), nil
}

// use calls the runtime: a version, lists, a refusal, and a stream while a pod comes and goes.
func use(connection *grpc.ClientConn, index int) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	runtime := cri.NewRuntimeServiceClient(connection)
	version, err := runtime.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return 0, fmt.Errorf("Version: %w", err)
	}
	if version.RuntimeApiVersion != "v1" {
		return 0, fmt.Errorf("Version: %v", version)
	}
	if _, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{}); err != nil {
		return 0, fmt.Errorf("ListContainers: %w", err)
	}
	if _, err := cri.NewImageServiceClient(connection).ListImages(ctx, &cri.ListImagesRequest{}); err != nil {
		return 0, fmt.Errorf("ListImages: %w", err)
	}
	_, err = runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: "x"})
	if status.Code(err) != codes.NotFound {
		return 0, fmt.Errorf("ContainerStatus of nobody: %w", err)
	}
	events, err := runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		return 0, fmt.Errorf("GetContainerEvents: %w", err)
	}
	// The stream is open when its head has come; what happens after that must be in it.
	if _, err := events.Header(); err != nil {
		return 0, fmt.Errorf("the head of GetContainerEvents: %w", err)
	}
	id, err := aPodThatComesAndGoes(ctx, runtime, index)
	if err != nil {
		return 0, err
	}
	for count := 1; ; count++ {
		event, err := events.Recv()
		if err != nil {
			return 0, fmt.Errorf("the events after %d: %w", count-1, err)
		}
		if event.ContainerId != id {
			return 0, fmt.Errorf("an event of another: %v", event)
		}
		if event.ContainerEventType == cri.ContainerEventType_CONTAINER_DELETED_EVENT {
			return count, nil
		}
	}
}

func aPodThatComesAndGoes(ctx context.Context, runtime cri.RuntimeServiceClient, index int) (string, error) {
	name := fmt.Sprintf("dialled-%d", index)
	made, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
		LogDirectory: "/run/bed/logs",
		Linux:        &cri.LinuxPodSandboxConfig{CgroupParent: "/foreign"},
	}})
	if err != nil {
		return "", fmt.Errorf("RunPodSandbox: %w", err)
	}
	id := made.PodSandboxId
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return "", fmt.Errorf("StopPodSandbox: %w", err)
	}
	if _, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return "", fmt.Errorf("RemovePodSandbox: %w", err)
	}
	return id, nil
}

func try(way way, index int, socket string) error {
	authority, err := seen(way)
	if err != nil {
		return err
	}
	connection, err := way.dial(socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	events, err := use(connection, index)
	if err != nil {
		return err
	}
	fmt.Printf("Go %s, %s (sent as %q): answered, %d events\n", grpc.Version, way.name, authority, events)
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: foreign-grpc SOCKET")
		os.Exit(2)
	}
	var wrong []error
	for index, way := range ways() {
		if err := try(way, index, os.Args[1]); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", way.name, err))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
