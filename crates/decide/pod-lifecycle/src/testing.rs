//! A small language for pods, observations, memory, and expected results.
//!
//! A case is a text of `;`-separated words under the headings `pod:`, `seen:`, `memory:`, `facts:`
//! and `wish:`; times are seconds relative to now. `follows` renders the resulting plan as a map
//! from headings to texts, which table rows compare with. Only for tests, so it may panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use ports::ApiTime;

use crate::happening::Happening;
use crate::memory::PodMemory;
use crate::plan::{PodPlan, plan};
use crate::scene::Scene;
use crate::view::{DesiredPod, Facts, ImageFact, ImageState, ObservedPod, View};

mod facts;
mod memory;
pub(crate) mod pods;
mod seen;
mod told;

pub(crate) const NOW: i64 = 1_000_000;

pub(crate) fn at(seconds: i64) -> ApiTime {
    ApiTime::from_nanos((NOW + seconds) * 1_000_000_000)
}

/// Everything that a plan depends on, owned.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) desired: DesiredPod,
    pub(crate) observed: ObservedPod,
    pub(crate) memory: PodMemory,
    pub(crate) facts: Facts,
    pub(crate) now: ApiTime,
}

impl Case {
    /// Parses a case. Unless it says otherwise the pod is admitted and prepared, its volumes and
    /// images are there, and it was observed just now.
    pub(crate) fn read(text: &str) -> Self {
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        let mut heading = "pod";
        for line in text.lines() {
            let line = line.trim();
            let (found, rest) = match line.split_once(':') {
                Some((word, rest))
                    if ["pod", "seen", "memory", "facts", "wish"].contains(&word) =>
                {
                    (word, rest)
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
        let wish = facts::wish(part("wish"));
        let observed = seen::read(part("seen"), &pod);
        let mut case = Self {
            desired: DesiredPod { pod, wish },
            observed,
            memory: PodMemory::default(),
            facts: Facts::default(),
            now: at(0),
        };
        memory::apply(&mut case, part("memory"));
        facts::apply(&mut case, part("facts"));
        case
    }

    pub(crate) fn view(&self) -> View<'_> {
        View {
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
        let scene = Scene::new(&view);
        let mut images = self.facts.images.clone();
        for (_, _, container) in self.desired.pod.spec.all_containers() {
            let name = container.name.to_string();
            let attempt = scene.next_attempt(&name);
            images.entry(name).or_insert_with(|| {
                let image_ref = format!("ref-{}", container.image);
                Box::new(ImageFact { attempt, state: ImageState::Present { image_ref } })
            });
        }
        self.facts.images = images;
    }
}

/// The result of a case: the plan, and the events when it is executed.
pub(crate) fn follows(text: &str) -> BTreeMap<String, String> {
    let mut case = Case::read(text);
    let plan = case.plan();
    let mut events = Vec::new();
    let mut marks = Vec::new();
    let mut absorb = |case: &mut Case, happening: &Happening<'_>| {
        let now = case.now;
        let desired = case.desired.clone();
        let told = case.memory.absorb(&desired, happening, now);
        events.extend(told.events);
        marks.extend(told.marks);
    };
    absorb(&mut case, &Happening::Planned(&plan));
    for action in &plan.actions {
        absorb(&mut case, &Happening::Began(action));
    }
    told::describe(&plan, &events, &marks)
}

/// A name, a case, expectations: `heading: text`, one per line; `~` for a part of the text.
pub(crate) type Row = (&'static str, &'static str, &'static str);

pub(crate) fn check(rows: &[Row]) {
    check_of("", rows);
}

/// The same for cases that are all about one pod.
pub(crate) fn check_of(pod: &str, rows: &[Row]) {
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
