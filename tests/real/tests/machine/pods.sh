# Static pods on the unified hierarchy, once with each cgroup driver: limits and weights of every class
# in the right files, ends for lack of memory told as such, also of a child alone, AppArmor profiles, an
# agent killed without a container noticing, a clean end.
# Each fact is one line `DRIVER name: value`, `DRIVER embedded name: value` on our own runtime, or
# `DRIVER reference name: value` of the reference kubelet. WHOLE=1 adds those two.

sure=11111111-2222-3333-4444-555555555555
some=22222222-3333-4444-5555-666666666666
none=33333333-4444-5555-6666-777777777777
pages=88888888-9999-0000-1111-222222222222
greedy=66666666-7777-8888-9999-000000000000
child=77777777-8888-9999-0000-111111111111
armored=99999999-0000-1111-2222-333333333333

# Waits for a command to succeed. Programs are slow in this machine: it is the clock that counts.
wait_for() {
    what=$1
    shift
    until_second=$(($(date +%s) + 240))
    until "$@" > /run/waiting 2>&1; do
        if [ "$(date +%s)" -gt "$until_second" ]; then
            echo "gave up: $what"
            cat /run/waiting
            keelson ps -o wide
            for name in sure some none pages greedy child armored; do keelson explain $name; done
            journalctl --no-pager --unit "keelson-$driver" | tail -n 40
            exit 1
        fi
        sleep 1
    done
}

runs() { keelson ps | grep -q "$1.*$2"; }
# Cheaper than asking, in a machine where every program is dear.
has_process() { [ -n "$(process_of "$(group_of "$1" "$2")" 2> /dev/null)" ]; }
asked() { keelson cri-client --runtime-endpoint "$endpoint" "$@"; }
answers() { asked version; }
is_gone() { ! [ -e "$1" ]; }
containers() { asked ps -q | sort | xargs; }

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
# By default it leaves huge pages of containers to the pods' groups.
[plugins.'io.containerd.cri.v1.runtime']
  disable_hugetlb_controller = false
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

settings() {
    cat > "/run/kubelet-$driver.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failSwapOn: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: $endpoint
staticPodPath: $manifests
podPidsLimit: 77
END
}

# Arguments: name, UID, script or words, resources, more of the specification.
place() {
    cat > "$manifests/$1.yaml" <<END
apiVersion: v1
kind: Pod
metadata: {name: $1, uid: $2}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  $5
  containers:
  - name: main
    image: $BUSYBOX
    command: $3
    resources: $4
END
}

# One pod of each class.
place_classes() {
    place sure $sure '[sleep, "100000"]' '{limits: {cpu: 500m, memory: 64Mi}}'
    place some $some '[sleep, "100000"]' '{requests: {cpu: 200m, memory: 200Mi}, limits: {cpu: 1500m}}'
    place none $none '[sleep, "100000"]' '{}'
    place pages $pages '[sleep, "100000"]' '{limits: {cpu: 100m, memory: 32Mi, hugepages-2Mi: 4Mi}}'
}

# A pod whose containers are confined in every way that there is; one asks for a profile that nobody has
# loaded. In one pod, because each sandbox is dear here.
place_armored() {
    printf 'profile pods-own flags=(attach_disconnected) {\n capability,\n file,\n signal,\n}\n' |
        apparmor_parser --replace --skip-cache || exit 1
    cat > "$manifests/armored.yaml" <<END
apiVersion: v1
kind: Pod
metadata: {name: armored, uid: $armored}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  securityContext: {appArmorProfile: {type: Localhost, localhostProfile: pods-own}}
  containers:
  - {name: inherits, image: $BUSYBOX, command: [sh, -c, "$tell_profile"]}
  - name: default
    image: $BUSYBOX
    command: [sh, -c, "$tell_profile"]
    securityContext: {appArmorProfile: {type: RuntimeDefault}}
  - name: free
    image: $BUSYBOX
    command: [sh, -c, "$tell_profile"]
    securityContext: {appArmorProfile: {type: Unconfined}}
  - name: missing
    image: $BUSYBOX
    command: [sh, -c, "$tell_profile"]
    securityContext: {appArmorProfile: {type: Localhost, localhostProfile: nobody-loaded-it}}
END
}
tell_profile='cat /proc/self/attr/current; exec sleep 100000'

# Arguments: what facts begin with.
armor() {
    armored_since=$(date +%s)
    for name in inherits default free; do
        wait_for "$name of armored tells its profile" sh -c "keelson logs armored --container $name | grep ."
        echo "$1 AppArmor of $name: $(xargs < /run/waiting)"
    done
    wait_for "the profile that is not there is told" sh -c "keelson explain armored | grep 'container missing cannot start: CreateContainerError: .*apparmor profile not found nobody-loaded-it'"
    echo "$1 AppArmor of missing: $(grep -o 'CreateContainerError' /run/waiting | head -n 1)"
    echo "$1 AppArmor took $(($(date +%s) - armored_since)) s"
}

# The group of all pods, of a class (`burstable`), of a pod in it.
group_of() {
    class=$1 uid=$2
    case $driver in
        systemd)
            path=kubepods.slice step=kubepods
            [ -z "$class" ] || { step=$step-$class; path=$path/$step.slice; }
            [ -z "$uid" ] || path=$path/$step-pod$(echo "$uid" | tr - _).slice
            ;;
        *) path=kubepods${class:+/$class}${uid:+/pod$uid} ;;
    esac
    echo "/sys/fs/cgroup/$path"
}

# The process of a pod's container, found below its group: its sandbox has another.
process_of() {
    cat "$1"/*/cgroup.procs | while read -r process; do
        case $(cat "/proc/$process/comm") in sleep) echo "$process" ;; esac
    done
}

# Arguments: what facts begin with, whose they are, the group.
values() {
    for file in cpu.weight cpu.max memory.max pids.max; do
        echo "$1 $2 $file: $(cat "$3/$file")"
    done
}

# Arguments: what facts begin with.
table() {
    values "$1" "all pods" "$(group_of)"
    for class in burstable besteffort; do values "$1" $class "$(group_of $class)"; done
    for one in sure some:burstable none:besteffort; do
        name=${one%%:*} class=${one#$name} class=${class#:}
        eval "uid=\$$name"
        own=$(group_of "$class" "$uid")
        values "$1" "$name" "$own"
        process=$(process_of "$own")
        inner=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$process/cgroup")
        # A scope has systemd's own default of tasks; nobody asked for another.
        values "$1" "$name container" "$inner" | grep -v pids.max
        echo "$1 $name container memory.oom.group: $(cat "$inner/memory.oom.group")"
        echo "$1 $name container memory.swap.max: $(cat "$inner/memory.swap.max")"
        echo "$1 $name oom_score_adj: $(cat "/proc/$process/oom_score_adj")"
    done
    own=$(group_of '' $pages)
    inner=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$(process_of "$own")/cgroup")
    echo "$1 pages hugetlb.2MB.max: $(cat "$own/hugetlb.2MB.max")"
    echo "$1 pages container hugetlb.2MB.max: $(cat "$inner/hugetlb.2MB.max")"
}

# What is left of pods: groups, slices and scopes, mounts, folders, processes of containers.
left_of_pods() {
    top=$(group_of)
    find "$top" -mindepth 1 -type d | grep -v "^$(group_of burstable)\$\|^$(group_of besteffort)\$"
    systemctl list-units --all --plain --no-legend '*pod*.slice' 'cri-*.scope' | grep -v '^kubepods\(-burstable\|-besteffort\)\{0,1\}\.slice '
    grep " /var/lib/node-$driver/pods/" /proc/self/mounts
    ls "/var/lib/node-$driver/pods" /var/log/pods /var/log/containers | grep "$sure\|$some\|$none\|$pages\|$greedy\|$child\|$armored\|sure\|greedy"
    asked ps --all --quiet
}
nothing_left() { ! left_of_pods 2> /dev/null | grep .; }

# Arguments: what facts begin with. The runtime runs already.
pods_with() {
    label=$1
    manifests=/run/manifests-$driver
    mkdir -p "$manifests"
    settings
    start_agent
    place_classes
    # Not the driver's business: a landing sees it once.
    if [ "$label" = systemd ] || [ -n "$WHOLE" ]; then place_armored; fi
    # Only a child of the container's first process takes too much: all of it is killed.
    place greedy $greedy '[sh, -c, "tail /dev/zero; echo survived; sleep 1000"]' \
        '{requests: {memory: 8Mi}, limits: {memory: 40Mi}}' 'restartPolicy: Never'
    wait_for "sure has begun" has_process '' $sure
    wait_for "some has begun" has_process burstable $some
    wait_for "none has begun" has_process besteffort $none
    wait_for "pages has begun" has_process '' $pages
    for name in sure some none pages; do wait_for "$name runs" runs $name Running; done
    wait_for "greedy has ended" runs greedy OOMKilled
    wait_for "the end of greedy is told" sh -c "keelson explain greedy | grep 'process tail (pid.*of a limit of 41943040 bytes'"
    table "$label" | tee "/run/table-$driver"
    if [ "$label" = systemd ] || [ -n "$WHOLE" ]; then armor "$label"; fi
    before=$(containers)
    systemctl kill --signal=KILL "keelson-$driver"
    wait_for "the agent is dead" sh -c "! systemctl is-active --quiet keelson-$driver"
    # For containers that come from now on: only the process is killed.
    echo "singleProcessOOMKill: true" >> "/run/kubelet-$driver.yaml"
    start_agent
    for name in sure some none; do wait_for "$name runs again" runs $name Running; done
    # With the next pod the new agent has worked, not only looked.
    place child $child '[sh, -c, "tail /dev/zero; echo survived; exit 9"]' \
        '{requests: {memory: 8Mi}, limits: {memory: 40Mi}}' 'restartPolicy: Never'
    # containerd calls such an end OOMKilled all the same; the code is the container's own, and so is
    # the reason that is told.
    wait_for "child has ended" sh -c "keelson explain child | grep 'exited with 9 (Error)'"
    wait_for "the killed child is told" sh -c "keelson explain child | grep 'OOMKilling.*process tail.*of a limit of 41943040 bytes'"
    echo "$label killed child: $(keelson logs child)"
    [ "$(containers)" = "$before" ] && echo "$label killed agent: same containers"
    table again > /run/again
    echo "$label values after the kill: $(sed "s/^$label /again /" "/run/table-$driver" | diff -q - /run/again > /dev/null && echo the same)"
    rm "$manifests"/*.yaml
    wait_for "nothing is left" nothing_left
    echo "$label left: $(left_of_pods 2> /dev/null | wc -l)"
    systemctl stop "keelson-$driver"
}

# The same pods by the reference kubelet, for the same values.
reference_with() {
    manifests=/run/manifests-reference-$driver
    mkdir -p "$manifests"
    settings
    place_classes
    systemd-run --quiet --unit="reference-$driver" --setenv=PATH="$PATH" \
        kubelet --config="/run/kubelet-$driver.yaml" --root-dir="/var/lib/reference-$driver" --hostname-override=vm
    wait_for "the reference's pods run" sh -c "[ \$(keelson cri-client --runtime-endpoint $endpoint ps -q | wc -l) = 4 ]"
    # The classes' weights come with its first round, a minute apart.
    table "$driver reference"
    systemctl stop "reference-$driver"
    asked pods -q | while read -r id; do asked stopp "$id"; asked rmp "$id"; done > /dev/null
    # Their groups it would have taken away itself; whoever comes next is not to be blamed for them.
    case $driver in
        systemd) systemctl stop 'kubepods*-pod*.slice' ;;
        *) find "$(group_of)" -depth -mindepth 1 -type d -name 'pod*' -exec rmdir {} + ;;
    esac
}

# Before any agent starts: each tells once how many the machine has.
echo 8 > /proc/sys/vm/nr_hugepages
echo "memory in bytes: $(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))"
echo "most tasks: $(sort -n /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max | head -n 1)"
for driver in systemd cgroupfs; do
    case $driver in systemd) start_containerd systemd true ;; *) start_containerd cgroupfs false ;; esac
    pods_with $driver
    [ -z "$WHOLE" ] || reference_with
    systemctl stop containerd-$driver
done
