# Static pods on the unified hierarchy, once with each cgroup driver: limits in the right files, an
# end for lack of memory told as such, an agent killed without a container noticing, a clean end.
# Each fact is one line `DRIVER name: value`, or `DRIVER embedded name: value` on our own runtime.

steady=11111111-2222-3333-4444-555555555555
greedy=66666666-7777-8888-9999-000000000000

# Waits for a command to succeed.
wait_for() {
    what=$1
    shift
    tries=0
    until "$@" > /run/waiting 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 240 ]; then
            echo "gave up: $what"
            cat /run/waiting
            keelson ps -o wide
            keelson explain steady
            keelson explain greedy
            journalctl --no-pager --unit "keelson-$driver" | tail -n 40
            exit 1
        fi
        sleep 0.5
    done
}

runs() { keelson ps | grep -q "$1.*$2"; }
asked() { keelson cri-client --runtime-endpoint "$endpoint" "$@"; }
answers() { asked version; }
is_gone() { ! [ -e "$1" ]; }
container() { asked ps -q | head -n 1; }

start_agent() {
    systemctl reset-failed "keelson-$driver" 2> /dev/null
    systemd-run --quiet --unit="keelson-$driver" --property=Type=notify --setenv=PATH="$PATH" \
        keelson kubelet --config="/run/kubelet-$driver.yaml" --root-dir="/var/lib/node-$driver" \
        --hostname-override=vm || journalctl --no-pager -u "keelson-$driver"
}

start_containerd() {
    driver=$1 endpoint=unix:///run/containerd/containerd.sock
    cat > "/run/containerd-$driver.toml" <<END
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = $2
END
    systemd-run --quiet --unit="containerd-$driver" --property=Delegate=yes --setenv=PATH="$PATH" \
        containerd --config "/run/containerd-$driver.toml"
    wait_for "containerd with $driver" answers
    for image in /payload/images/*; do
        ctr --namespace k8s.io images import "$image" > /dev/null || exit 1
    done
}

# Arguments: what facts begin with, the folder of all pods' groups, the pod's group in it. The runtime
# runs already.
pods_with() {
    label=$1 top=$2 pod=$3
    manifests=/run/manifests-$driver
    mkdir -p "$manifests"
    cat > "/run/kubelet-$driver.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failSwapOn: false
containerRuntimeEndpoint: $endpoint
staticPodPath: $manifests
podPidsLimit: 77
END
    start_agent
    cat > "$manifests/steady.yaml" <<END
apiVersion: v1
kind: Pod
metadata: {name: steady, uid: $steady}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: $BUSYBOX
    command: [sleep, "100000"]
    resources: {limits: {cpu: 100m, memory: 32Mi}}
END
    # Only a child of the container's first process takes too much.
    cat > "$manifests/greedy.yaml" <<END
apiVersion: v1
kind: Pod
metadata: {name: greedy, uid: $greedy}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: $BUSYBOX
    command: [sh, -c, 'tail /dev/zero']
    resources: {requests: {memory: 8Mi}, limits: {memory: 16Mi}}
END
    wait_for "steady runs" runs steady Running
    wait_for "greedy has ended" runs greedy OOMKilled
    echo "$label status: $(keelson ps | grep -c 'Running\|OOMKilled')"
    echo "$label pod memory.max: $(cat "$top/$pod/memory.max")"
    echo "$label pod cpu.max: $(cat "$top/$pod/cpu.max")"
    echo "$label pod pids.max: $(cat "$top/$pod/pids.max")"
    # The sandbox beside it has no limits of its own: numbers sort before `max`.
    echo "$label container memory.max: $(cat "$top/$pod"/*/memory.max | sort | head -n 1)"
    echo "$label container cpu.max: $(cat "$top/$pod"/*/cpu.max | sort | head -n 1)"
    before=$(container)
    systemctl kill --signal=KILL "keelson-$driver"
    wait_for "the agent is dead" sh -c "! systemctl is-active --quiet keelson-$driver"
    start_agent
    wait_for "steady runs again" runs steady Running
    [ "$(container)" = "$before" ] && echo "$label killed agent: same container"
    rm "$manifests/steady.yaml" "$manifests/greedy.yaml"
    wait_for "the pod's cgroup is gone" is_gone "$top/$pod"
    wait_for "the pod's folder is gone" is_gone "/var/lib/node-$driver/pods/$steady"
    echo "$label containers left: $(asked ps -q | wc -l)"
    systemctl stop "keelson-$driver"
}

underscored=$(echo $steady | tr - _)
start_containerd systemd true
pods_with systemd /sys/fs/cgroup/kubepods.slice "kubepods-pod$underscored.slice"
systemctl stop containerd-systemd
start_containerd cgroupfs false
pods_with cgroupfs /sys/fs/cgroup/kubepods "pod$steady"
systemctl stop containerd-cgroupfs
