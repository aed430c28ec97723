//! Containers of all three kinds: what they run, with which environment, mounts and resources.
//!
//! An ephemeral container is a container with a target; everything else is shared. Which fields
//! each kind may use is validation's business.

use super::codec::{DecodeNode, ObjectFields, object, object_codec, read_field, string_enum};
use super::handler::{Lifecycle, Probe};
use super::resources::ResourceRequirements;
use super::security::SecurityContext;
use crate::Quantity;

string_enum! {
    pub enum ContainerRestartPolicy { Always, Never, OnFailure }
    pub enum RestartRuleAction { Restart, RestartAllContainers }
    pub enum ExitCodeOperator { In, NotIn }
    pub enum ResizeRestartPolicy { NotRequired, RestartContainer }
    pub enum PullPolicy { Always, IfNotPresent, Never }
    pub enum TerminationMessagePolicy { File, FallbackToLogsOnError }
    pub enum PortProtocol { Sctp = "SCTP", Tcp = "TCP", Udp = "UDP" }
    pub enum MountPropagation { Bidirectional, HostToContainer, NoPropagation = "None" }
    pub enum RecursiveReadOnly { Disabled, Enabled, IfPossible }
}

object! {
    pub struct Container {
        "name" name: Box<str>, always;
        "image" image: Box<str>;
        "command" command: Vec<Box<str>>;
        "args" args: Vec<Box<str>>;
        "workingDir" working_dir: Box<str>;
        "ports" ports: Vec<ContainerPort>;
        "envFrom" env_from: Vec<EnvFromSource>;
        "env" env: Vec<EnvVar>;
        "resources" resources: ResourceRequirements, always;
        "resizePolicy" resize_policy: Vec<ContainerResizePolicy>;
        "restartPolicy" restart_policy: Option<ContainerRestartPolicy>;
        "restartPolicyRules" restart_policy_rules: Vec<ContainerRestartRule>;
        "volumeMounts" volume_mounts: Vec<VolumeMount>;
        "volumeDevices" volume_devices: Vec<VolumeDevice>;
        "livenessProbe" liveness_probe: Option<Box<Probe>>;
        "readinessProbe" readiness_probe: Option<Box<Probe>>;
        "startupProbe" startup_probe: Option<Box<Probe>>;
        "lifecycle" lifecycle: Option<Box<Lifecycle>>;
        "terminationMessagePath" termination_message_path: Box<str>;
        "terminationMessagePolicy" termination_message_policy: TerminationMessagePolicy;
        "imagePullPolicy" image_pull_policy: PullPolicy;
        "securityContext" security_context: Option<Box<SecurityContext>>;
        "stdin" stdin: bool;
        "stdinOnce" stdin_once: bool;
        "tty" tty: bool;
    }

    pub struct ContainerPort {
        "name" name: Box<str>;
        "hostPort" host_port: i32;
        "containerPort" container_port: i32, always;
        "protocol" protocol: PortProtocol;
        "hostIP" host_ip: Box<str>;
    }

    pub struct EnvFromSource {
        "prefix" prefix: Box<str>;
        "configMapRef" config_map_ref: Option<Box<OptionalReference>>;
        "secretRef" secret_ref: Option<Box<OptionalReference>>;
    }

    /// A ConfigMap or a Secret by name, that may be missing if so said.
    pub struct OptionalReference {
        "name" name: Box<str>;
        "optional" optional: Option<bool>;
    }

    pub struct EnvVar {
        "name" name: Box<str>, always;
        "value" value: Box<str>;
        "valueFrom" value_from: Option<Box<EnvVarSource>>;
    }

    pub struct EnvVarSource {
        "fieldRef" field_ref: Option<Box<ObjectFieldSelector>>;
        "resourceFieldRef" resource_field_ref: Option<Box<ResourceFieldSelector>>;
        "configMapKeyRef" config_map_key_ref: Option<Box<KeySelector>>;
        "secretKeyRef" secret_key_ref: Option<Box<KeySelector>>;
        "fileKeyRef" file_key_ref: Option<Box<FileKeySelector>>;
    }

    pub struct ObjectFieldSelector {
        "apiVersion" api_version: Box<str>;
        "fieldPath" field_path: Box<str>, always;
    }

    pub struct ResourceFieldSelector {
        "containerName" container_name: Box<str>;
        "resource" resource: Box<str>, always;
        "divisor" divisor: Quantity, always;
    }

    /// One key of a ConfigMap or a Secret.
    pub struct KeySelector {
        "name" name: Box<str>;
        "key" key: Box<str>, always;
        "optional" optional: Option<bool>;
    }

    pub struct FileKeySelector {
        "volumeName" volume_name: Box<str>, always;
        "path" path: Box<str>, always;
        "key" key: Box<str>, always;
        "optional" optional: Option<bool>;
    }

    pub struct ContainerResizePolicy {
        "resourceName" resource_name: Box<str>, always;
        "restartPolicy" restart_policy: ResizeRestartPolicy, always;
    }

    pub struct ContainerRestartRule {
        "action" action: RestartRuleAction;
        "exitCodes" exit_codes: Option<ExitCodes>;
    }

    pub struct ExitCodes {
        "operator" operator: ExitCodeOperator;
        "values" values: Vec<i32>;
    }

    pub struct VolumeMount {
        "name" name: Box<str>, always;
        "readOnly" read_only: bool;
        "recursiveReadOnly" recursive_read_only: Option<RecursiveReadOnly>;
        "mountPath" mount_path: Box<str>, always;
        "subPath" sub_path: Box<str>;
        "mountPropagation" mount_propagation: Option<MountPropagation>;
        "subPathExpr" sub_path_expr: Box<str>;
    }

    pub struct VolumeDevice {
        "name" name: Box<str>, always;
        "devicePath" device_path: Box<str>, always;
    }
}

/// A container for looking into a running pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EphemeralContainer {
    pub container: Container,
    pub target_container_name: Box<str>,
}

impl Container {
    /// Whether, as an init container, it stays while the others run.
    pub fn is_restarted_always(&self) -> bool {
        self.restart_policy == Some(ContainerRestartPolicy::Always)
    }
}

const TARGET: &str = "targetContainerName";

impl ObjectFields for EphemeralContainer {
    const NAMES: &'static [&'static str] = {
        const OTHERS: &[&str] = Container::NAMES;
        const WITH_TARGET: [&str; OTHERS.len() + 1] = {
            let mut names = [TARGET; OTHERS.len() + 1];
            let mut at = 0;
            while at < OTHERS.len() {
                names[at] = OTHERS[at];
                at += 1;
            }
            names
        };
        &WITH_TARGET
    };

    fn read_entry(&mut self, name: &str, node: &dyn DecodeNode) -> bool {
        if name == TARGET {
            read_field(&mut self.target_container_name, node);
            return true;
        }
        self.container.read_entry(name, node)
    }

    fn write_entries<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.container.write_entries(map)?;
        if !self.target_container_name.is_empty() {
            map.serialize_entry(TARGET, &self.target_container_name)?;
        }
        Ok(())
    }

    fn fields_heap_bytes(&self) -> usize {
        self.container.fields_heap_bytes() + self.target_container_name.len()
    }
}

object_codec!(EphemeralContainer);
