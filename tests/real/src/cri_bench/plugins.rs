//! How long CNI plugins took for each pod, measured by wrappers.
//!
//! Rule: both runtimes call the same programs at the same path. Only the plugins that a runtime
//! itself calls are measured; a plugin that another plugin calls is part of the caller's time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The plugins of the benchmark's networks, and the loopback plugin that a runtime may add.
const CALLED: [&str; 3] = ["bridge", "portmap", "loopback"];

/// Plugins with a wrapper that measures them.
#[derive(Debug)]
pub struct TimedPlugins {
    times: PathBuf,
}

impl TimedPlugins {
    /// Mounts wrappers over the plugins of the directory, in this mount namespace only. `scratch`
    /// is a working directory, `clock` the wrapper program.
    pub fn install(plugins: &Path, scratch: &Path, clock: &Path) -> Result<Self> {
        let real = scratch.join("real-plugins");
        let timed = scratch.join("timed-plugins");
        for dir in [&real, &timed] {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        rustix::mount::mount_bind(plugins, &real).context("the real plugins elsewhere")?;
        // Otherwise the mount over the directory would propagate here as well.
        rustix::mount::mount_change(&real, rustix::mount::MountPropagationFlags::PRIVATE)
            .context("the real plugins for themselves")?;
        Self::fill(&real, &timed, clock)?;
        rustix::mount::mount_bind(&timed, plugins).context("the clocks before the plugins")?;
        Ok(Self { times: plugins.join("times") })
    }

    /// A directory like `real`, with wrappers for the plugins that are called.
    fn fill(real: &Path, timed: &Path, clock: &Path) -> Result<()> {
        let link = |to: &Path, name: &str| {
            let place = timed.join(name);
            std::os::unix::fs::symlink(to, &place).with_context(|| place.display().to_string())
        };
        link(real, "real")?;
        for entry in fs::read_dir(real).with_context(|| real.display().to_string())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if CALLED.contains(&name.as_str()) {
                // Not a link: the clock knows its plugin by its own name.
                fs::copy(clock, timed.join(&name)).with_context(|| clock.display().to_string())?;
            } else {
                link(&real.join(&name), &name)?;
            }
        }
        Ok(())
    }

    /// The plugins' time to add this sandbox.
    pub fn of_adding(&self, sandbox: &str) -> Result<Duration> {
        let text = fs::read_to_string(&self.times)
            .with_context(|| format!("{}: no plugin was called", self.times.display()))?;
        let took = added(&text, sandbox)?;
        ensure!(!took.is_zero(), "no plugin was called for {sandbox}");
        Ok(took)
    }
}

fn added(text: &str, sandbox: &str) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        if let ["ADD", of, _, microseconds] = fields[..]
            && of == sandbox
        {
            sum += Duration::from_micros(microseconds.parse().context("microseconds")?);
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_adds_this_sandbox_counts() {
        let text = "ADD a bridge 1000\nADD b bridge 7\nDEL a bridge 5\nADD a portmap 20\n";
        assert_eq!(added(text, "a").unwrap(), Duration::from_micros(1020));
        assert_eq!(added(text, "c").unwrap(), Duration::ZERO);
        assert!(added("ADD a bridge x\n", "a").is_err());
    }
}
