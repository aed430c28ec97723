#!/bin/sh
# Labels of containers on a machine with SELinux. Each fact is one line `name: value`.
PATH=/payload/bin:$PATH
BUSYBOX=$1

endpoint=unix:///run/cri.sock
cri() { keelson cri-client --runtime-endpoint $endpoint "$@"; }
told() { echo "$1: $2"; }
serves() { cri version; }
says() { grep -q "$2" "/run/logs/$1.log"; }
field() { cri inspect "$1" | sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" | head -n 1; }

wait_for() {
    what=$1
    shift
    tries=0
    until "$@" > /run/waiting 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 240 ]; then
            echo "gave up: $what"
            cat /run/waiting
            cri ps --all
            journalctl --no-pager --unit "${unit:-cri}" | tail -n 40
            exit 1
        fi
        sleep 0.25
    done
}

serve() {
    systemd-run --quiet --unit=cri --setenv=PATH="$PATH" /payload/bin/keelson cri \
        --listen unix:///run/cri.sock --root /var/lib/cri --state /run/cri || exit 1
    wait_for "keelson cri" serves
}

# Arguments: name, more of its namespaces, of its security.
run_pod() {
    cat > "/run/$1.json" <<END
{"metadata": {"name": "$1", "uid": "$1-uid", "namespace": "default"}, "log_directory": "/run/logs",
 "linux": {"security_context": {"namespace_options": {"network": "${network:-NODE}", "pid": "CONTAINER" $2} $3}}}
END
    cri runp "/run/$1.json"
}

# Arguments: sandbox's id and file, name, more of the container's JSON, of its security.
run_container() {
    cat > /run/container.json <<END
{"metadata": {"name": "$3"}, "image": {"image": "$BUSYBOX"}, "log_path": "$3.log",
 "command": ["sh", "-c", "echo x > /file && echo x > /dev/shm/$3 && echo works; exec sleep 1000"] $4,
 "linux": {"security_context": {"seccomp": {"profile_type": "RuntimeDefault"} $5}}}
END
    made=$(cri create "$1" /run/container.json "/run/$2.json") || return 1
    cri start "$made" > /dev/null || return 1
    echo "$made"
}

# The first process of a container, as the machine knows it.
process_of() { field "$1" pid; }
label_of() { tr -d '\0\n' < "/proc/$(process_of "$1")/attr/current"; }
# The label of a file in a container.
file_label() { ls -dZ "/proc/$(process_of "$1")/root$2" | cut -d ' ' -f 1; }
level() { echo "$1" | cut -d : -f 4-; }
same() { [ "$1" = "$2" ] && echo yes || echo "no: $1 and $2"; }

mkdir -p /run/logs
told "confinement" "$(keelson doctor | grep -o 'SELinux.*permissive')"
echo "own domain: $(tr -d '\0\n' < /proc/self/attr/current)"
echo "defaults: $(grep -h '^process\|^file' /etc/selinux/*/contexts/lxc_contexts | xargs)"
serve
keelson image import --address unix:///run/cri.sock /payload/images/busybox.tar > /dev/null || exit 1

pod=$(run_pod pod) || exit 1
image=', "mounts": [{"container_path": "/image", "image": {"image": "'$BUSYBOX'"}, "readonly": true}]'
plain=$(run_container "$pod" pod plain "$image") || exit 1
wait_for "the plain container" says plain works
process=$(label_of "$plain")
echo "plain process: $process"
told "its type" "$(echo "$process" | cut -d : -f 1-3)"
told "its categories" "$(level "$process" | sed 's/[0-9][0-9]*/N/g')"
for place in / /bin/busybox /file /dev /dev/null /dev/pts /dev/shm /etc/hosts /etc/resolv.conf /image; do
    label=$(file_label "$plain" $place)
    told "label of $place" "$(echo "$label" | cut -d : -f 1-3) $(same "$(level "$label")" "$(level "$process")")"
done
told "an exec" "$(same "$(cri exec "$plain" cat /proc/self/attr/current | tr -d '\0\n')" "$process")"
beside=$(run_container "$pod" pod beside) || exit 1
told "beside it" "$(same "$(label_of "$beside")" "$process")"
systemctl stop cri
serve
later=$(run_container "$pod" pod later) || exit 1
told "after a restart of the server" "$(same "$(label_of "$later")" "$process")"
other=$(run_pod other) || exit 1
apart=$(run_container "$other" other apart) || exit 1
told "in another pod" "$([ "$(label_of "$apart")" = "$process" ] && echo the same || echo another)"

mkdir -p /var/volume/folder /var/untouched
echo x > /var/volume/folder/file
echo x > /var/untouched/file
ln -s /var/untouched/file /var/volume/link
before=$(ls -dZ /var/untouched/file)
volume=', "mounts": [{"container_path": "/volume", "host_path": "/var/volume", "selinux_relabel": true}]'
asked=$(run_container "$pod" pod asked "$volume" ', "selinux_options": {"level": "s0:c1,c2"}') || exit 1
wait_for "the container with a level" says asked works
told "asked process" "$(label_of "$asked")"
told "asked root" "$(file_label "$asked" /)"
told "volume" "$(ls -dZ /var/volume /var/volume/folder/file /var/volume/link | cut -d ' ' -f 1 | sort -u | xargs)"
told "behind its link" "$(same "$(ls -dZ /var/untouched/file)" "$before")"
whole=', "mounts": [{"container_path": "/volume", "host_path": "/etc", "selinux_relabel": true}]'
told "a folder of the machine" "$(run_container "$pod" pod greedy "$whole" 2>&1 | grep -c 'relabeling of /etc is not allowed')"
told "an unknown type" "$(run_container "$pod" pod odd '' ', "selinux_options": {"type": "no_such_t"}' 2>&1 | grep -c 'not known to this machine')"

free=$(run_pod free '' ', "privileged": true') || exit 1
trusted=$(run_container "$free" free trusted '' ', "privileged": true') || exit 1
wait_for "the privileged container" says trusted works
told "privileged process" "$(same "$(label_of "$trusted")" "$(tr -d '\0\n' < "/proc/$(systemctl show cri --property=MainPID --value)/attr/current")")"
told "privileged root" "$(file_label "$trusted" / | cut -d : -f 1-3)"

ids='[{"host_id": 2000000, "container_id": 0, "length": 65536}]'
users=", \"userns_options\": {\"mode\": \"POD\", \"uids\": $ids, \"gids\": $ids}"
network=POD
mapped_pod=$(run_pod users "$users") || exit 1
mapped=$(run_container "$mapped_pod" users users '' ", \"namespace_options\": {\"network\": \"POD\", \"pid\": \"CONTAINER\" $users}") || exit 1
network=
wait_for "the container with a user namespace" says users works
told "in a user namespace" "$(label_of "$mapped" | cut -d : -f 1-3) $(file_label "$mapped" / | cut -d : -f 1-3)"

echo "what would have been refused: $(journalctl --no-pager --dmesg | grep -c 'avc:  denied')"
journalctl --no-pager --dmesg | grep 'avc:  denied' | sed 's/.*denied/denied/; s/pid=[0-9]*//; s/ino=[0-9]*//' | sort | uniq -c | sort -rn | sed '21,$d'
for one in "$pod" "$other" "$free" "$mapped_pod"; do cri rmp "$one" > /dev/null || exit 1; done
told "mounts left" "$(grep -c "run/cri/" /proc/self/mountinfo)"
systemctl stop cri

# Static pods over containerd, by our agent and by the reference kubelet: the labels that manifests ask
# for, which volumes are labelled anew and which are not.
endpoint=unix:///run/containerd/containerd.sock
labelled=11111111-2222-3333-4444-555555555555
plain=22222222-3333-4444-5555-666666666666

begin_containerd() {
    cat > /run/containerd.toml <<END
version = 3
[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = true
END
    unit=containerd
    systemd-run --quiet --unit=containerd --property=Delegate=yes --setenv=PATH="$PATH" \
        containerd --config /run/containerd.toml || exit 1
    wait_for "containerd" serves
    for image in /payload/images/*; do ctr --namespace k8s.io images import "$image" > /dev/null || exit 1; done
}

# Arguments: who it is for, name, UID, security of the pod, of the container `own`.
place() {
    cat > "/run/manifests-$1/$2.yaml" <<END
apiVersion: v1
kind: Pod
metadata: {name: $2, uid: $3}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  securityContext: {$4}
  volumes:
  - {name: empty, emptyDir: {}}
  - {name: host, hostPath: {path: /var/hosts-own}}
  containers:
  - name: inherits
    image: $BUSYBOX
    command: [sh, -c, "cat /proc/self/attr/current; echo; exec sleep 100000"]
    volumeMounts: [{name: empty, mountPath: /empty}, {name: host, mountPath: /host}]
  - name: own
    image: $BUSYBOX
    command: [sh, -c, "cat /proc/self/attr/current; echo; exec sleep 100000"]
    securityContext: {$5}
  - name: privileged
    image: $BUSYBOX
    command: [sh, -c, "cat /proc/self/attr/current; echo; exec sleep 100000"]
    securityContext: {privileged: true}
END
}

# Arguments: UID of the pod, name of the container. What it said of itself.
said_label() { cut -d ' ' -f 4- /var/log/pods/default_*_"$1"/"$2"/0.log | tr -d '\0\n' | grep .; }
only_label() { ls -dZ "$@" | cut -d ' ' -f 1 | sort -u | xargs; }

# Arguments: what facts begin with, the program and its first words.
pods_by() {
    unit=$1
    mkdir -p "/run/manifests-$1"
    cat > "/run/$1.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failSwapOn: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: $endpoint
staticPodPath: /run/manifests-$1
END
    place "$1" labelled $labelled 'seLinuxOptions: {level: "s0:c3,c4"}' 'seLinuxOptions: {level: "s0:c5,c6"}'
    place "$1" plain $plain
    before=$(only_label /var/hosts-own /var/hosts-own/file)
    shift
    systemd-run --quiet --unit=$unit --setenv=PATH="$PATH" "$@" \
        --config="/run/$unit.yaml" --root-dir="/var/lib/$unit" --hostname-override=vm || exit 1
    for uid in $labelled $plain; do
        for name in inherits own privileged; do
            wait_for "$name of $uid" said_label $uid $name
        done
    done
    for name in inherits own privileged; do told "$unit labelled $name" "$(said_label $labelled $name)"; done
    process=$(said_label $plain inherits)
    told "$unit plain" "$(echo "$process" | sed 's/[0-9][0-9]*/N/g')"
    told "$unit plain beside it" "$(same "$(said_label $plain own)" "$process")"
    folder=/var/lib/$unit/pods/$labelled
    told "$unit empty" "$(only_label $folder/volumes/kubernetes.io~empty-dir/empty)"
    told "$unit hosts" "$(only_label $folder/etc-hosts)"
    told "$unit termination message" "$(only_label $folder/containers/inherits/*)"
    told "$unit path of the host" "$(same "$(only_label /var/hosts-own /var/hosts-own/file)" "$before")"
    systemctl stop $unit
    cri pods -q | while read -r id; do cri stopp "$id"; cri rmp "$id"; done > /dev/null
    rm -r /var/log/pods
}

mkdir -p /var/hosts-own
echo x > /var/hosts-own/file
begin_containerd
pods_by agent keelson kubelet
pods_by reference kubelet
exit 7
