//! Where a pod may run: node selectors, affinity, tolerations, spread.
//!
//! Kept for admission on the node and for writing back; the node schedules nothing.

use super::codec::{object, string_enum};
use super::values::TextMap;

string_enum! {
    pub enum NodeSelectorOperator { In, NotIn, Exists, DoesNotExist, Gt, Lt }
    pub enum LabelSelectorOperator { In, NotIn, Exists, DoesNotExist }
    pub enum TolerationOperator { Equal, Exists, Gt, Lt }
    pub enum TolerationEffect { NoSchedule, PreferNoSchedule, NoExecute }
    pub enum UnsatisfiableAction { DoNotSchedule, ScheduleAnyway }
    pub enum NodeInclusionPolicy { Honor, Ignore }
}

object! {
    pub struct Affinity {
        "nodeAffinity" node_affinity: Option<Box<NodeAffinity>>;
        "podAffinity" pod_affinity: Option<Box<PodAffinity>>;
        "podAntiAffinity" pod_anti_affinity: Option<Box<PodAffinity>>;
    }

    pub struct NodeAffinity {
        "requiredDuringSchedulingIgnoredDuringExecution" required: Option<NodeSelector>;
        "preferredDuringSchedulingIgnoredDuringExecution" preferred: Vec<PreferredSchedulingTerm>;
    }

    pub struct NodeSelector {
        "nodeSelectorTerms" node_selector_terms: Vec<NodeSelectorTerm>, always;
    }

    pub struct NodeSelectorTerm {
        "matchExpressions" match_expressions: Vec<NodeSelectorRequirement>;
        "matchFields" match_fields: Vec<NodeSelectorRequirement>;
    }

    pub struct NodeSelectorRequirement {
        "key" key: Box<str>, always;
        "operator" operator: NodeSelectorOperator, always;
        "values" values: Vec<Box<str>>;
    }

    pub struct PreferredSchedulingTerm {
        "weight" weight: i32, always;
        "preference" preference: NodeSelectorTerm, always;
    }

    pub struct PodAffinity {
        "requiredDuringSchedulingIgnoredDuringExecution" required: Vec<PodAffinityTerm>;
        "preferredDuringSchedulingIgnoredDuringExecution" preferred: Vec<WeightedPodAffinityTerm>;
    }

    pub struct PodAffinityTerm {
        "labelSelector" label_selector: Option<Box<LabelSelector>>;
        "namespaces" namespaces: Vec<Box<str>>;
        "topologyKey" topology_key: Box<str>, always;
        "namespaceSelector" namespace_selector: Option<Box<LabelSelector>>;
        "matchLabelKeys" match_label_keys: Vec<Box<str>>;
        "mismatchLabelKeys" mismatch_label_keys: Vec<Box<str>>;
    }

    pub struct WeightedPodAffinityTerm {
        "weight" weight: i32, always;
        "podAffinityTerm" pod_affinity_term: PodAffinityTerm, always;
    }

    pub struct LabelSelector {
        "matchLabels" match_labels: TextMap;
        "matchExpressions" match_expressions: Vec<LabelSelectorRequirement>;
    }

    pub struct LabelSelectorRequirement {
        "key" key: Box<str>, always;
        "operator" operator: LabelSelectorOperator, always;
        "values" values: Vec<Box<str>>;
    }

    pub struct Toleration {
        "key" key: Box<str>;
        "operator" operator: TolerationOperator;
        "value" value: Box<str>;
        "effect" effect: TolerationEffect;
        "tolerationSeconds" toleration_seconds: Option<i64>;
    }

    pub struct TopologySpreadConstraint {
        "maxSkew" max_skew: i32, always;
        "topologyKey" topology_key: Box<str>, always;
        "whenUnsatisfiable" when_unsatisfiable: UnsatisfiableAction, always;
        "labelSelector" label_selector: Option<Box<LabelSelector>>;
        "minDomains" min_domains: Option<i32>;
        "nodeAffinityPolicy" node_affinity_policy: Option<NodeInclusionPolicy>;
        "nodeTaintsPolicy" node_taints_policy: Option<NodeInclusionPolicy>;
        "matchLabelKeys" match_label_keys: Vec<Box<str>>;
    }
}
