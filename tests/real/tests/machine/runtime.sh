# The embedded runtime (`keelson cri`) on the unified hierarchy, once with each cgroup driver: limits,
# the device filter, seccomp, user namespaces, layers of images, ends for lack of memory, servers that die or are
# restarted by systemd, a clean end. Each fact is one line `DRIVER runtime NAME: value`.
# WHOLE=1 adds what a landing has no time for.

cri() { keelson cri-client --runtime-endpoint "unix:///run/cri-$driver.sock" "$@"; }
# The folder of a container's group.
group() {
    case $driver in
        systemd) echo "/sys/fs/cgroup$parent_path/cri-keelson-$1.scope" ;;
        *) echo "/sys/fs/cgroup$parent_path/$1" ;;
    esac
}
told() { echo "$driver runtime $1: $2"; }
ended() { cri inspect "$1" | grep -q '"CONTAINER_EXITED"'; }
serves() { cri version; }
# One field of an inspection.
field() { cri inspect "$1" | sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" | head -n 1; }
first_process() { head -n 1 "$(group "$1")/cgroup.procs"; }
# Empty files are logs that nobody has written to yet.
says() { grep -q "$2" "/run/logs-$driver/$1.log"; }

# What the next functions give up with.
runtime_wait() {
    what=$1
    shift
    tries=0
    until "$@" > /run/waiting 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 120 ]; then
            echo "gave up: $what"
            cat /run/waiting
            cri ps --all
            journalctl --no-pager --unit "cri-$driver" | tail -n 40
            exit 1
        fi
        sleep 0.25
    done
}

# Arguments: name, whose processes its containers see, more of its namespaces, of its security.
sandbox_file() {
    cat > "/run/$driver-$1.json" <<END
{"metadata": {"name": "$1", "uid": "$1-uid", "namespace": "default"},
 "log_directory": "/run/logs-$driver", "linux": {"cgroup_parent": "$parent",
 "security_context": {"namespace_options": {"network": "${network:-NODE}", "pid": "$2" $3} $4}}}
END
}

# Arguments: sandbox's id and file, name, shell text, more of the container's JSON, of its security.
run_container() {
    cat > "/run/$driver-container.json" <<END
{"metadata": {"name": "$3"}, "image": {"image": "$BUSYBOX"}, "log_path": "$3.log",
 "command": ["sh", "-c", "$4"] $5,
 "linux": {"resources": {"memory_limit_in_bytes": "33554432", "memory_swap_limit_in_bytes": "33554432",
   "cpu_quota": "10000", "cpu_period": "50000", "cpu_shares": "512"},
   "security_context": {"capabilities": {"add_capabilities": ["${capability:-MKNOD}"]},
   "seccomp": {"profile_type": "RuntimeDefault"} $6}}}
END
    made=$(cri create "$1" "/run/$driver-container.json" "/run/$driver-$2.json") || exit 1
    cri start "$made" > /dev/null || exit 1
    echo "$made"
}

start_server() {
    systemctl reset-failed "cri-$driver" 2> /dev/null
    systemctl start "cri-$driver" || exit 1
    runtime_wait "keelson cri with $driver" serves
}

serve_with() {
    mkdir -p /run/systemd/system "/run/logs-$driver"
    echo "{\"version\": 1, \"cgroupDriver\": \"$driver\"}" > "/run/cri-$driver.json"
    # The default KillMode: whatever is in the unit's group dies with it.
    cat > "/run/systemd/system/cri-$driver.service" <<END
[Service]
Environment=PATH=$PATH
ExecStart=/payload/bin/keelson cri --listen unix:///run/cri-$driver.sock --root /var/lib/cri-$driver --state /run/cri-$driver --config /run/cri-$driver.json
END
    systemctl daemon-reload
    start_server
    keelson image import --address "unix:///run/cri-$driver.sock" /payload/images/busybox.tar > /dev/null || exit 1
}

limits() {
    for file in memory.max memory.swap.max cpu.max cpu.weight pids.max; do
        told "$1$file" "$(cat "$(group "$main")/$file")"
    done
}

# A disk of this machine, made and read by whoever may: 254:0 is the first virtual disk.
try_disk='rm -f /tmp/disk; mknod /tmp/disk b 254 0; dd if=/tmp/disk of=/dev/null bs=512 count=1 2> /tmp/why && echo it was read || cat /tmp/why'

isolation() {
    told "device" "$(cri exec "$main" sh -c "$try_disk")"
    told "device number" "$(ls -l /dev/vda | sed 's/ *//g' | grep -c '254,0')"
    told "seccomp of the container" "$(grep -m 1 -o 'Seccomp:.*' "/run/logs-$driver/main.log" | tr -s '\t' ' ')"
    told "seccomp of an exec" "$(cri exec "$main" grep Seccomp: /proc/self/status | tr -s '\t' ' ')"
    told "AppArmor of the container" "$(cat "/proc/$(first_process "$main")/attr/current")"
    told "AppArmor of an exec" "$(cri exec "$main" cat /proc/self/attr/current)"
    told "cgroup of an exec" "$(cri exec --time-limit 60 "$main" cat /proc/self/cgroup | sed 's/keelson-exec-.*/keelson-exec/')"
    told "own cgroup" "$(grep -m 1 -o '0::.*' "/run/logs-$driver/main.log")"
}

# Counts up every fifth of a second, until a file says otherwise.
COUNT='grep Seccomp: /proc/self/status; cat /proc/self/cgroup; i=0; while ! [ -e /tmp/end ]; do i=$((i+1)); echo line $i; sleep 0.2; done; exit 5'

counted() { sed -n 's/.* line //p' "/run/logs-$driver/main.log"; }
gaps() { counted | awk 'NR > 1 && $1 != last + 1 { gaps++ } { last = $1 } END { print gaps + 0 }'; }

servers_come_and_go() {
    before=$(first_process "$main")
    # It ends while nobody serves.
    cri exec "$quits" touch /tmp/end
    systemctl kill --signal=KILL "cri-$driver"
    runtime_wait "the server is dead" sh -c "! systemctl is-active --quiet cri-$driver"
    runtime_wait "its last line" says quits "stdout F end"
    start_server
    told "exit code of one that ended alone" "$(field "$quits" exitCode)"
    systemctl restart "cri-$driver"
    runtime_wait "keelson cri with $driver again" serves
    [ "$(first_process "$main")" = "$before" ] && told "killed and restarted server" "same process"
    lines=$(counted | wc -l)
    sleep 3
    told "lines go on" "$([ "$(counted | wc -l)" -gt "$lines" ] && echo yes)"
    told "gaps in the log" "$(gaps)"
}

user_namespace() {
    ids='[{"host_id": 2000000, "container_id": 0, "length": 65536}]'
    users=", \"userns_options\": {\"mode\": \"POD\", \"uids\": $ids, \"gids\": $ids}"
    # The built-in one: a user namespace needs a network namespace of its own.
    network=POD
    sandbox_file users CONTAINER "$users"
    network=
    users_pod=$(cri runp "/run/$driver-users.json") || exit 1
    # Not on a tmpfs: those show mapped ids only since Linux 6.3.
    mkdir -p "/var/volume-$driver"
    echo from outside > "/var/volume-$driver/file"
    map='"uidMappings": '"$ids"', "gidMappings": '"$ids"
    mapped=$(run_container "$users_pod" users users \
        'stat -c %u /volume/file /bin/busybox; touch /volume/mine /mine && echo done; exec sleep 1000' \
        ', "mounts": [{"container_path": "/volume", "host_path": "/var/volume-'"$driver"'", '"$map"'}]' \
        ", \"namespace_options\": {\"network\": \"POD\", \"pid\": \"CONTAINER\" $users}") || exit 1
    runtime_wait "the pod with a user namespace" says users "stdout F done"
    told "owners seen inside" "$(sed -n 's/.*stdout F \([0-9]*\)$/\1/p' "/run/logs-$driver/users.log" | xargs)"
    told "owner of what it wrote" "$(stat -c %u "/var/volume-$driver/mine")"
    told "its process outside" "$(stat -c %u "/proc/$(first_process "$mapped")")"
    told "its map" "$(cri exec "$mapped" cat /proc/self/uid_map | xargs)"
    cri rmp "$users_pod" > /dev/null
}

# An image of three layers, on a kernel that takes them only in one text: busybox, users above it,
# and a file above another.
layered_image() {
    mkdir -p /run/layered/archive /run/layered/etc
    cd /run/layered || exit 1
    tar -xf /payload/images/busybox.tar -C archive
    zcat "archive/blobs/sha256/$(ls -S archive/blobs/sha256 | head -n 1)" > 0.tar || exit 1
    echo lower > etc/top
    printf 'root:x:0:0::/:/bin/sh\nlayered:x:7:7::/:/bin/sh\n' > etc/passwd
    tar -cf 1.tar etc
    echo upper > etc/top
    tar -cf 2.tar etc/top
    ids=$(sha256sum 0.tar 1.tar 2.tar | sed 's/\([0-9a-f]*\) .*/"sha256:\1"/' | paste -sd ,)
    echo "{\"architecture\": \"amd64\", \"os\": \"linux\", \"config\": {},
        \"rootfs\": {\"type\": \"layers\", \"diff_ids\": [$ids]}}" > config.json
    echo '[{"Config": "config.json", "RepoTags": ["'"$LAYERED"'"], "Layers": ["0.tar", "1.tar", "2.tar"]}]' > manifest.json
    tar -cf image.tar config.json manifest.json 0.tar 1.tar 2.tar
    keelson image import --address "unix:///run/cri-$driver.sock" image.tar > /dev/null || exit 1
    cd /
}
LAYERED=docker.io/library/layered:1

layers() {
    layered_image
    layered=$(BUSYBOX=$LAYERED run_container "$pod" pod layered \
        'id -u; cat /etc/top /image/etc/top; touch /image/new || echo done' \
        ', "mounts": [{"container_path": "/image", "image": {"image": "'"$LAYERED"'"}, "readonly": true}]' \
        ', "run_as_username": "layered"') || exit 1
    runtime_wait "the container of several layers" says layered "stdout F done"
    told "several layers" "$(sed -n 's/.*stdout F //p' "/run/logs-$driver/layered.log" | xargs)"
}

memory() {
    greedy=$(run_container "$pod" pod greedy 'tail /dev/zero') || exit 1
    runtime_wait "the greedy container has ended" ended "$greedy"
    told "greedy" "$(field "$greedy" reason) $(field "$greedy" exitCode)"
}

left() {
    told "groups left" "$(find "/sys/fs/cgroup$parent_path" /sys/fs/cgroup/keelson* -mindepth 1 -type d 2> /dev/null | grep -c "$pod\|$main\|$quits\|$greedy")"
    told "scopes left" "$(systemctl list-units --all --plain --no-legend '*keelson*.scope' | wc -l)"
    told "supervisors left" "$(grep -l '^Name:.keelson-pod' /proc/[0-9]*/status 2> /dev/null | wc -l)"
    told "mounts left" "$(grep -c "cri-$driver/" /proc/self/mountinfo)"
}

# Limits that are changed, also past a reload of systemd, which writes its own values again.
changes() {
    echo '{"memory_limit_in_bytes": "50331648", "cpu_quota": "20000", "cpu_period": "100000"}' > /run/update.json
    cri update "$main" /run/update.json > /dev/null || exit 1
    limits "changed "
    systemctl daemon-reload
    limits "reloaded "
    told "device after a reload" "$(cri exec "$main" sh -c "$try_disk")"
    echo 100663296 > "/sys/fs/cgroup$parent_path/memory.max"
    echo '{"memory_limit_in_bytes": "83886080", "cpu_quota": "20000", "cpu_period": "100000"}' > /run/update.json
    cri updatep "$pod" /run/update.json > /dev/null || exit 1
    told "pod memory.max" "$(cat "/sys/fs/cgroup$parent_path/memory.max")"
    told "pod cpu.max" "$(cat "/sys/fs/cgroup$parent_path/cpu.max")"
    echo max > "/sys/fs/cgroup$parent_path/memory.max"
}

# One PID namespace for all, with an init; and a container that may use every device.
other_pods() {
    sandbox_file shared POD
    shared=$(cri runp "/run/$driver-shared.json") || exit 1
    one=$(run_container "$shared" shared one 'echo started; exec sleep 1000' '' \
        ', "namespace_options": {"network": "NODE", "pid": "POD"}') || exit 1
    runtime_wait "the pod with shared processes" says one started
    # An init of ours, by the name of its program, which may be the supervisor's.
    told "first process of a shared pod" "$(cri exec "$one" cut -c 1-7 /proc/1/comm)"
    cri rmp "$shared" > /dev/null || exit 1
    sandbox_file free CONTAINER '' ', "privileged": true'
    free=$(cri runp "/run/$driver-free.json") || exit 1
    trusted=$(run_container "$free" free trusted 'echo started; exec sleep 1000' '' ', "privileged": true') || exit 1
    runtime_wait "the privileged container" says trusted started
    told "device of a privileged one" "$(cri exec "$trusted" sh -c "$try_disk")"
    # As a systemd inside would do: then its group itself takes no process any more.
    inner=$(group "$trusted")/inner
    mkdir "$inner"
    cat "$(group "$trusted")/cgroup.procs" | while read -r process; do echo "$process" > "$inner/cgroup.procs"; done
    echo +memory > "$(group "$trusted")/cgroup.subtree_control"
    told "exec beside groups of its own" "$(cri exec "$trusted" echo inside) $(cri exec --time-limit 60 "$trusted" echo inside)"
    cri rmp "$free" > /dev/null || exit 1
}

# What the right to mount is worth under the default profile, without one, and under one of the machine's.
confinement() {
    printf 'profile own flags=(attach_disconnected) {\n capability,\n file,\n mount,\n}\n' |
        apparmor_parser --replace --skip-cache || exit 1
    for kind in RuntimeDefault Unconfined Localhost; do
        name=
        [ $kind != Localhost ] || name=own
        tries_mount=$(capability=SYS_ADMIN run_container "$pod" pod "mount-$kind" \
            'cat /proc/self/attr/current; mount -t tmpfs none /tmp && echo done || echo refused' '' \
            ', "apparmor": {"profile_type": "'$kind'", "localhost_ref": "'$name'"}') || exit 1
        runtime_wait "the end of mount-$kind" ended "$tries_mount"
        told "a mount with $kind" "$(sed -n 's/.*stdout F //p' "/run/logs-$driver/mount-$kind.log" | xargs)"
    done
    told "a profile that is not there" "$(run_container "$pod" pod missing true '' \
        ', "apparmor": {"profile_type": "Localhost", "localhost_ref": "missing"}' 2>&1 |
        grep -c 'apparmor profile not found missing')"
}

whole() {
    changes
    confinement
    other_pods
    cri exec --time-limit 1 "$main" sh -c 'setsid sleep 777 & sleep 777' > /dev/null 2>&1
    told "left of a late exec" "$(grep -l -a '^sleep.777' /proc/[0-9]*/cmdline 2> /dev/null | wc -l)"
    before=$(first_process "$main")
    for _ in 1 2 3; do
        systemctl kill --signal=KILL "cri-$driver"
        runtime_wait "the server is dead" sh -c "! systemctl is-active --quiet cri-$driver"
        start_server
    done
    [ "$(first_process "$main")" = "$before" ] && told "killed again and again" "same process"
    told "gaps in the log at last" "$(gaps)"
    told "metrics" "$(cri metricsp | grep -c "^container_memory_usage_bytes{container=\"main\".*name=\"$main\"")"
    told "features" "$(cri info -o json | grep -c '"userNamespaces": true\|"recursiveReadOnlyMounts": true')"
}

# Arguments: driver, cgroup parent, its path.
runtime_with() {
    driver=$1 parent=$2 parent_path=$3
    serve_with
    told "driver" "$(cri info -o json | sed -n 's/.*"cgroupDriver": "\(.*\)".*/\1/p')"
    sandbox_file pod CONTAINER
    pod=$(cri runp "/run/$driver-pod.json") || exit 1
    main=$(run_container "$pod" pod main "$COUNT") || exit 1
    quits=$(run_container "$pod" pod quits 'while ! [ -e /tmp/end ]; do sleep 0.2; done; sleep 1; echo end; exit 5') || exit 1
    runtime_wait "the first line" says main "line 1"
    limits ""
    isolation
    servers_come_and_go
    # The driver does not matter to it; a landing does it once.
    if [ "$driver" = systemd ] || [ -n "$WHOLE" ]; then user_namespace; layers; fi
    memory
    [ -z "$WHOLE" ] || whole
    cri stop --grace 0 "$main" > /dev/null
    told "killed" "$(field "$main" exitCode)"
    cri rmp "$pod" > /dev/null || exit 1
    runtime_wait "the pod's scopes are gone" sh -c "! systemctl list-units --all --plain --no-legend '*keelson*.scope' | grep -q ."
    left
    systemctl stop "cri-$driver"
}

runtime_with systemd kubepods-burstable-podrun.slice /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podrun.slice
runtime_with cgroupfs /kubepods/burstable/podrun /kubepods/burstable/podrun

# The agent over our own runtime, which tells it the driver.
agent_with() {
    driver=$1 endpoint=unix:///run/cri-$1.sock
    start_server
    pods_with "$1 embedded"
    told "groups left of the agent's" "$(find /sys/fs/cgroup -type d -path '*kubepods*' -name '*keelson*' | wc -l)"
    systemctl stop "cri-$driver"
}

if [ -n "$WHOLE" ]; then
    agent_with systemd
    agent_with cgroupfs
fi
