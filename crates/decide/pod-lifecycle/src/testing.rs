//! A small language for pods, observations, memory, and expected results.
//!
//! A case is a text of `;`-separated words under the headings `pod:`, `seen:`, `memory:`, `facts:`
//! and `desired_state:`; times are seconds relative to now. `follows` renders the resulting plan as a map
//! from headings to texts, which table rows compare with. Only for tests, so it may panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use ports::ApiTime;

use crate::input::PodInput;
use crate::memory::PodMemory;
use crate::plan::{PodPlan, plan};
use crate::plan_context::PlanContext;
use crate::view::{AttemptImage, DesiredPod, ImageState, LifecycleFacts, ObservedPod, PodView};

mod describe_plan;
mod facts;
mod memory;
pub(crate) mod pods;
mod seen;

pub(crate) const NOW: i64 = 1_000_000;

pub(crate) fn at(seconds: i64) -> ApiTime {
    ApiTime::from_nanos((NOW + seconds) * 1_000_000_000)
}

/// Everything that a plan depends on, owned.
#[derive(Debug, Clone)]
pub(crate) struct PlanCase {
    pub(crate) desired: DesiredPod,
    pub(crate) observed: ObservedPod,
    pub(crate) memory: PodMemory,
    pub(crate) facts: LifecycleFacts,
    pub(crate) now: ApiTime,
}

impl PlanCase {
    /// Parses a case. Unless it says otherwise the pod is admitted and prepared, its volumes and
    /// images are there, and it was observed just now.
    pub(crate) fn read(text: &str) -> Self {
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        let mut heading = "pod";
        for line in text.lines() {
            let line = line.trim();
            let (found, rest) = match line.split_once(':') {
                Some((token, rest))
                    if ["pod", "seen", "memory", "facts", "wish"].contains(&token) =>
                {
                    (token, rest)
                }
                _ => (heading, line),
            };
            heading = found;
            let part = parts.entry(heading).or_default();
            if !part.is_empty() {
                part.push(';');
            }
            part.push_str(rest.trim());
        }
        let part = |name: &str| parts.get(name).map_or("", String::as_str);
        let pod = Arc::new(pods::read(part("pod")));
        let desired_state = facts::desired_state(part("wish"));
        let observed = seen::read(part("seen"), &pod);
        let mut case = Self {
            desired: DesiredPod { pod, desired_state },
            observed,
            memory: PodMemory::default(),
            facts: LifecycleFacts::default(),
            now: at(0),
        };
        memory::apply(&mut case, part("memory"));
        facts::apply(&mut case, part("facts"));
        case
    }

    pub(crate) fn view(&self) -> PodView<'_> {
        PodView {
            desired: &self.desired,
            observed: &self.observed,
            memory: &self.memory,
            facts: &self.facts,
            now: self.now,
        }
    }

    pub(crate) fn plan(&self) -> PodPlan {
        plan(&self.view())
    }

    /// Gives every container the image that its next start needs, unless the case sets one.
    pub(crate) fn supply_images(&mut self) {
        let view = self.view();
        let plan_context = PlanContext::new(&view);
        let mut images = self.facts.images.clone();
        for (_, _, container) in self.desired.pod.spec.all_containers() {
            let name = container.name.to_string();
            let attempt = plan_context.next_attempt(&name);
            images.entry(name).or_insert_with(|| {
                let image_ref = format!("ref-{}", container.image);
                Box::new(AttemptImage { attempt, state: ImageState::Present { image_ref } })
            });
        }
        self.facts.images = images;
    }
}

/// The result of a case: the plan, and the events when it is executed.
pub(crate) fn follows(text: &str) -> BTreeMap<String, String> {
    let mut case = PlanCase::read(text);
    let plan = case.plan();
    let mut events = Vec::new();
    let mut marks = Vec::new();
    let mut apply_input = |case: &mut PlanCase, input: &PodInput<'_>| {
        let now = case.now;
        let desired = case.desired.clone();
        let outputs = case.memory.apply_input(&desired, input, now);
        events.extend(outputs.events);
        marks.extend(outputs.marks);
    };
    apply_input(&mut case, &PodInput::Planned(&plan));
    for action in &plan.actions {
        apply_input(&mut case, &PodInput::ActionBegun(action));
    }
    describe_plan::describe(&plan, &events, &marks)
}

/// A name, a case, expectations: `heading: text`, one per line; `~` for a part of the text.
pub(crate) type PlanCaseRow = (&'static str, &'static str, &'static str);

pub(crate) fn check(rows: &[PlanCaseRow]) {
    check_of("", rows);
}

/// The same for cases that are all about one pod.
pub(crate) fn check_of(pod: &str, rows: &[PlanCaseRow]) {
    let mut wrong = Vec::new();
    for (name, case, expected) in rows {
        let case = if pod.is_empty() { (*case).to_owned() } else { format!("pod: {pod}\n{case}") };
        let found = follows(&case);
        for line in expected.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (heading, text) = line.split_once(':').expect("heading: text");
            let text = text.trim();
            let have = found.get(heading.trim()).map_or("", String::as_str);
            let equal = match text.strip_prefix('~') {
                Some(part) => have.contains(part.trim()),
                None => have == text,
            };
            if !equal {
                wrong.push(format!(
                    "{name}\n  {heading}: expected {text}\n  {heading}: found    {have}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows are wrong\n{}", wrong.len(), wrong.join("\n"));
}
