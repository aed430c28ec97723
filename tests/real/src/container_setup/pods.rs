//! The pods that both agents run.
//!
//! The rule it keeps: together they use every field that a static pod may use and that affects
//! requests to a runtime. `init...` containers exit at once, all others stay.

/// The node's name, which is a suffix of every static pod's name.
pub const NODE: &str = "reference";

pub const RESOLV_CONF: &str =
    "nameserver 8.8.8.8\nsearch example.com corp.example.com\noptions timeout:2 edns0\n";

/// A pod by name, with more metadata, and its specification in YAML's flow style.
pub struct SamplePod {
    pub name: &'static str,
    metadata: &'static str,
    spec: &'static str,
}

impl SamplePod {
    pub fn manifest(&self, number: usize) -> String {
        let Self { name, metadata, spec } = self;
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: {}, {metadata}}}\nspec: {spec}\n",
            uid(number)
        )
    }
}

pub fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

const fn sample(name: &'static str, spec: &'static str) -> SamplePod {
    SamplePod { name, metadata: "", spec }
}

/// Pods that reach Running.
pub const RUNNING: &[SamplePod] = &[
    sample("plain", "{containers: [{name: app, image: \"app:1\"}]}"),
    SamplePod {
        name: "labelled",
        metadata: "labels: {app: shop, tier: \"1\"}, annotations: {note: \"a <b>\", container.apparmor.security.beta.kubernetes.io/app: unconfined}",
        spec: "{terminationGracePeriodSeconds: 17, containers: [{name: app, image: \"app:1\", ports: [{name: http, containerPort: 80}, {containerPort: 53, protocol: UDP, hostPort: 5353}], lifecycle: {preStop: {exec: {command: [sh, -c, \"a<b && c\"]}}}, terminationMessagePath: /tmp/message, terminationMessagePolicy: FallbackToLogsOnError}]}",
    },
    SamplePod {
        name: "environment",
        metadata: "labels: {b: two, a: one}, annotations: {say: \"hi \\\"you\\\"\"}",
        spec: "{serviceAccountName: \"\", containers: [{name: app, image: \"app:1\", command: [sh, -c, \"echo $(PLAIN) $$(PLAIN) $(NOBODY)\"], args: [\"$(JOINED)\", $, \"$(\"], workingDir: /srv, stdin: true, stdinOnce: true, tty: true, resources: {requests: {cpu: 250m, memory: 100Mi}, limits: {cpu: 1500m, memory: 200Mi, ephemeral-storage: 1Gi}}, env: [{name: PLAIN, value: v}, {name: EMPTY}, {name: JOINED, value: \"$(PLAIN)-$(LATER)-$$(PLAIN)\"}, {name: LATER, value: l}, {name: PLAIN, value: \"$(PLAIN)2\"}, {name: F1, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: F2, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, {name: F3, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}, {name: F4, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a']\"}}}, {name: F5, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['say']\"}}}, {name: F6, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, {name: F7, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}, {name: F8, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}, {name: F9, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}, {name: F10, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: F11, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}, {name: R1, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}, {name: R2, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}, {name: R3, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: R4, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}, {name: R5, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Gi}}}, {name: R6, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage, divisor: 1Gi}}}, {name: R7, valueFrom: {resourceFieldRef: {containerName: app, resource: limits.cpu, divisor: 1m}}}]}]}",
    },
    sample(
        "guaranteed",
        "{containers: [{name: app, image: \"app:1\", resources: {requests: {cpu: 100m, memory: 10Mi}, limits: {cpu: 100m, memory: 10Mi}}}]}",
    ),
    sample(
        "burstable",
        "{initContainers: [{name: init, image: \"app:1\", resources: {requests: {memory: 20Mi}}}, {name: side, image: \"app:1\", restartPolicy: Always, resources: {requests: {memory: 1Mi}}}], containers: [{name: a, image: \"app:1\", resources: {requests: {cpu: 3m, memory: 64Mi}, limits: {memory: 128Mi}}}, {name: b, image: \"app:1\", resources: {limits: {cpu: 5m}}}, {name: c, image: \"app:1\"}]}",
    ),
    sample(
        "pod-level",
        "{resources: {requests: {cpu: 500m, memory: 256Mi}, limits: {cpu: \"1\", memory: 512Mi}}, containers: [{name: a, image: \"app:1\", resources: {requests: {memory: 64Mi}}}, {name: b, image: \"app:1\", resources: {limits: {memory: 32Mi}}}]}",
    ),
    sample(
        "security",
        "{securityContext: {runAsUser: 1000, runAsGroup: 1001, fsGroup: 1002, supplementalGroups: [1003, 1004], supplementalGroupsPolicy: Strict, seLinuxOptions: {level: \"s0:c1,c2\", type: t}, seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: Unconfined}}, containers: [{name: inherits, image: \"app:1\"}, {name: own, image: \"app:1\", securityContext: {runAsUser: 0, runAsGroup: 5, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN], drop: [ALL]}, seLinuxOptions: {user: u}, seccompProfile: {type: Localhost, localhostProfile: profiles/strict.json}, appArmorProfile: {type: Unconfined}}}, {name: privileged, image: \"app:1\", securityContext: {privileged: true, seccompProfile: {type: Unconfined}}}]}",
    ),
    sample(
        "users",
        "{containers: [{name: named, image: \"named:1\"}, {name: number, image: \"number:1\", securityContext: {runAsNonRoot: true}}, {name: asked, image: \"named:1\", securityContext: {runAsNonRoot: true, runAsUser: 7}}]}",
    ),
    sample(
        "host-network",
        "{hostNetwork: true, hostAliases: [{ip: 1.2.3.4, hostnames: [a, b]}], containers: [{name: app, image: \"app:1\", ports: [{containerPort: 8080}], env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]}]}",
    ),
    sample(
        "host-network-dns",
        "{hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "host-spaces",
        "{hostPID: true, hostIPC: true, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "shared-processes",
        "{shareProcessNamespace: true, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "named-host",
        "{hostname: front, subdomain: sub, setHostnameAsFQDN: true, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "short-host",
        "{hostname: front, subdomain: sub, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "other-host",
        "{hostnameOverride: other.example.com, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "a-name-that-is-longer-than-the-sixty-three-characters-which-a-hostname-may-have",
        "{containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "dns-default",
        "{dnsPolicy: Default, dnsConfig: {nameservers: [8.8.8.8, 1.1.1.1], searches: [own.net, example.com], options: [{name: ndots, value: \"3\"}, {name: edns0}, {name: timeout, value: \"5\"}]}, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "dns-none",
        "{dnsPolicy: None, dnsConfig: {nameservers: [9.9.9.9]}, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "dns-cluster",
        "{dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3], options: [{name: ndots, value: \"1\"}]}, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "ports",
        "{containers: [{name: a, image: \"app:1\", ports: [{containerPort: 1}, {containerPort: 1, protocol: UDP}, {containerPort: 2, hostIP: 127.0.0.1, hostPort: 22222}, {containerPort: 3, protocol: SCTP, name: s}]}, {name: b, image: \"app:1\", ports: [{containerPort: 4, name: s}]}]}",
    ),
    sample(
        "volumes",
        "{volumes: [{name: data, emptyDir: {}}, {name: etc, hostPath: {path: /etc}}], containers: [{name: app, image: \"app:1\", env: [{name: WHO, value: me}], volumeMounts: [{name: etc, mountPath: /host/etc, readOnly: true, mountPropagation: HostToContainer}, {name: data, mountPath: /data}, {name: data, mountPath: /sub, subPath: x/y}, {name: data, mountPath: /who, subPathExpr: \"$(WHO)/z\", readOnly: true, recursiveReadOnly: IfPossible}]}]}",
    ),
    sample(
        "own-hosts",
        "{volumes: [{name: etc, hostPath: {path: /etc/hosts}}], containers: [{name: app, image: \"app:1\", volumeMounts: [{name: etc, mountPath: /etc/hosts}]}]}",
    ),
    sample(
        "sysctls",
        "{securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: \"1\"}, {name: net/ipv4/ip_local_port_range, value: \"1024 2048\"}]}, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample("host-users", "{hostUsers: true, containers: [{name: app, image: \"app:1\"}]}"),
];

/// Pods whose container cannot be set up.
pub const WAITING: &[SamplePod] = &[
    sample(
        "root-image",
        "{securityContext: {runAsNonRoot: true}, containers: [{name: app, image: \"app:1\"}]}",
    ),
    sample(
        "named-image",
        "{containers: [{name: app, image: \"named:1\", securityContext: {runAsNonRoot: true}}]}",
    ),
    sample(
        "asked-for-root",
        "{securityContext: {runAsNonRoot: true, runAsUser: 0}, containers: [{name: app, image: \"number:1\"}]}",
    ),
    sample(
        "missing-variable",
        "{volumes: [{name: data, emptyDir: {}}], containers: [{name: app, image: \"app:1\", volumeMounts: [{name: data, mountPath: /d, subPathExpr: \"$(NOBODY)\"}]}]}",
    ),
    sample(
        "backsteps",
        "{volumes: [{name: data, emptyDir: {}}], containers: [{name: app, image: \"app:1\", env: [{name: UP, value: \"../x\"}], volumeMounts: [{name: data, mountPath: /d, subPathExpr: \"$(UP)\"}]}]}",
    ),
    sample(
        "absolute",
        "{volumes: [{name: data, emptyDir: {}}], containers: [{name: app, image: \"app:1\", env: [{name: ROOT, value: \"/\"}], volumeMounts: [{name: data, mountPath: /d, subPathExpr: \"$(ROOT)x\"}]}]}",
    ),
];
