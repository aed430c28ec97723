//! Resource usage of a cgroup, with the same meaning on both versions.
//!
//! Rule: times in nanoseconds, sizes in bytes, "no limit" is `None`; what the kernel does not
//! report is `None`, never 0. Reads only; computes no rates.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Result, number, read_if_exists, read_number};
use crate::group::Cgroup;
use crate::hierarchy::{CgroupVersion, Controller};

#[cfg(test)]
mod tests;

/// Version 1 reports "no limit" as the largest whole page of a signed number.
const V1_NO_LIMIT: u64 = 0x7FFF_FFFF_0000_0000;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CgroupStats {
    pub cpu: CpuStats,
    pub memory: MemoryStats,
    pub pids: PidsStats,
    pub io: Vec<DeviceIo>,
    pub io_pressure: Option<PsiStats>,
    pub huge_pages: BTreeMap<String, HugePageStats>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CpuStats {
    pub usage: Option<u64>,
    pub user: Option<u64>,
    pub system: Option<u64>,
    pub periods: Option<u64>,
    pub throttled_periods: Option<u64>,
    pub throttled: Option<u64>,
    pub pressure: Option<PsiStats>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryStats {
    pub usage: Option<u64>,
    pub peak: Option<u64>,
    pub limit: Option<u64>,
    /// Usage without inactive file pages.
    pub working_set: Option<u64>,
    pub anonymous: Option<u64>,
    pub file: Option<u64>,
    pub mapped_file: Option<u64>,
    pub inactive_file: Option<u64>,
    pub active_file: Option<u64>,
    pub shared: Option<u64>,
    pub kernel: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    pub swap: Option<u64>,
    pub swap_limit: Option<u64>,
    pub failures: Option<u64>,
    pub pressure: Option<PsiStats>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PidsStats {
    pub current: Option<u64>,
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceIo {
    pub major: u32,
    pub minor: u32,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HugePageStats {
    pub usage: u64,
    pub peak: Option<u64>,
    pub failures: u64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PsiStats {
    pub some: PsiData,
    pub full: PsiData,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PsiData {
    pub average_10: f64,
    pub average_60: f64,
    pub average_300: f64,
    /// Microseconds.
    pub total: u64,
}

/// `name number` lines.
fn table(path: &Path) -> Result<BTreeMap<String, u64>> {
    let text = read_if_exists(path)?.unwrap_or_default();
    Ok(text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
        .collect())
}

impl Cgroup {
    /// All statistics that the machine has of this cgroup.
    pub fn stats(&self) -> Result<CgroupStats> {
        Ok(CgroupStats {
            cpu: self.cpu_stats()?,
            memory: self.memory_stats()?,
            pids: self.pids_stats()?,
            io: self.io_stats()?,
            io_pressure: self.io_pressure()?,
            huge_pages: self.huge_page_stats()?,
        })
    }

    pub fn cpu_stats(&self) -> Result<CpuStats> {
        match self.hierarchy().version() {
            CgroupVersion::V2 => {
                let Some(dir) = self.dir(Controller::Cpu) else {
                    return Ok(CpuStats::default());
                };
                let table = table(&dir.join("cpu.stat"))?;
                let micros = |name: &str| table.get(name).map(|micros| micros.saturating_mul(1000));
                Ok(CpuStats {
                    usage: micros("usage_usec"),
                    user: micros("user_usec"),
                    system: micros("system_usec"),
                    periods: table.get("nr_periods").copied(),
                    throttled_periods: table.get("nr_throttled").copied(),
                    throttled: micros("throttled_usec"),
                    pressure: pressure(&dir.join("cpu.pressure"))?,
                })
            }
            CgroupVersion::V1 => self.cpu_stats_v1(),
        }
    }

    fn cpu_stats_v1(&self) -> Result<CpuStats> {
        let mut stats = CpuStats::default();
        if let Some(dir) = self.dir(Controller::CpuAccounting) {
            stats.usage = read_number(&dir.join("cpuacct.usage"))?;
            stats.user = read_number(&dir.join("cpuacct.usage_user"))?;
            stats.system = read_number(&dir.join("cpuacct.usage_sys"))?;
        }
        if let Some(dir) = self.dir(Controller::Cpu) {
            let table = table(&dir.join("cpu.stat"))?;
            stats.periods = table.get("nr_periods").copied();
            stats.throttled_periods = table.get("nr_throttled").copied();
            stats.throttled = table.get("throttled_time").copied();
        }
        Ok(stats)
    }

    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let Some(dir) = self.dir(Controller::Memory) else {
            return Ok(MemoryStats::default());
        };
        let mut stats = match self.hierarchy().version() {
            CgroupVersion::V2 => memory_stats_v2(&dir)?,
            CgroupVersion::V1 => memory_stats_v1(&dir)?,
        };
        stats.working_set =
            stats.usage.map(|usage| usage.saturating_sub(stats.inactive_file.unwrap_or_default()));
        Ok(stats)
    }

    pub fn pids_stats(&self) -> Result<PidsStats> {
        let Some(dir) = self.dir(Controller::Pids) else { return Ok(PidsStats::default()) };
        Ok(PidsStats {
            current: read_number(&dir.join("pids.current"))?,
            limit: read_number(&dir.join("pids.max"))?.filter(|limit| *limit != u64::MAX),
        })
    }

    pub fn io_stats(&self) -> Result<Vec<DeviceIo>> {
        let Some(dir) = self.dir(Controller::BlockIo) else { return Ok(Vec::new()) };
        match self.hierarchy().version() {
            CgroupVersion::V2 => {
                let text = read_if_exists(&dir.join("io.stat"))?.unwrap_or_default();
                Ok(text.lines().filter_map(io_line_v2).collect())
            }
            CgroupVersion::V1 => {
                let read = |file: &str| Ok(read_if_exists(&dir.join(file))?.unwrap_or_default());
                let bytes = read("blkio.throttle.io_service_bytes")?;
                Ok(io_tables_v1(&bytes, &read("blkio.throttle.io_serviced")?))
            }
        }
    }

    /// Version 2 only.
    fn io_pressure(&self) -> Result<Option<PsiStats>> {
        let dir = self.dir(Controller::BlockIo);
        match dir.filter(|_| self.hierarchy().version() == CgroupVersion::V2) {
            Some(dir) => pressure(&dir.join("io.pressure")),
            None => Ok(None),
        }
    }

    pub fn huge_page_stats(&self) -> Result<BTreeMap<String, HugePageStats>> {
        let mut all = BTreeMap::new();
        let Some(dir) = self.dir(Controller::HugeTlb) else { return Ok(all) };
        let Ok(entries) = std::fs::read_dir(&dir) else { return Ok(all) };
        let v2 = self.hierarchy().version() == CgroupVersion::V2;
        let usage_suffix = if v2 { ".current" } else { ".usage_in_bytes" };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(size) =
                name.strip_prefix("hugetlb.").and_then(|n| n.strip_suffix(usage_suffix))
            else {
                continue;
            };
            if size.contains('.') {
                continue;
            }
            let file = |suffix: &str| dir.join(format!("hugetlb.{size}.{suffix}"));
            let failures = if v2 {
                table(&file("events"))?.get("max").copied()
            } else {
                read_number(&file("failcnt"))?
            };
            let peak = if v2 { None } else { read_number(&file("max_usage_in_bytes"))? };
            let usage = read_number(&entry.path())?.unwrap_or_default();
            let stats = HugePageStats { usage, peak, failures: failures.unwrap_or_default() };
            all.insert(size.to_owned(), stats);
        }
        Ok(all)
    }
}

fn memory_stats_v2(dir: &Path) -> Result<MemoryStats> {
    let table = table(&dir.join("memory.stat"))?;
    let of = |name: &str| table.get(name).copied();
    let limit = |file: &str| {
        Ok::<_, crate::CgroupError>(
            read_number(&dir.join(file))?.filter(|limit| *limit != u64::MAX),
        )
    };
    let root_usage = || Some(of("anon")? + of("file")? + of("kernel").unwrap_or_default());
    Ok(MemoryStats {
        // The root has no memory.current.
        usage: read_number(&dir.join("memory.current"))?.or_else(root_usage),
        peak: read_number(&dir.join("memory.peak"))?,
        limit: limit("memory.max")?,
        working_set: None,
        anonymous: of("anon"),
        file: of("file"),
        mapped_file: of("file_mapped"),
        inactive_file: of("inactive_file"),
        active_file: of("active_file"),
        shared: of("shmem"),
        kernel: of("kernel"),
        page_faults: of("pgfault"),
        major_page_faults: of("pgmajfault"),
        swap: read_number(&dir.join("memory.swap.current"))?,
        swap_limit: limit("memory.swap.max")?,
        failures: self::table(&dir.join("memory.events"))?.get("max").copied(),
        pressure: pressure(&dir.join("memory.pressure"))?,
    })
}

fn memory_stats_v1(dir: &Path) -> Result<MemoryStats> {
    let table = table(&dir.join("memory.stat"))?;
    let of = |name: &str| table.get(name).copied();
    let usage = read_number(&dir.join("memory.usage_in_bytes"))?;
    let both = read_number(&dir.join("memory.memsw.usage_in_bytes"))?;
    let limit = read_number(&dir.join("memory.limit_in_bytes"))?;
    let both_limit = read_number(&dir.join("memory.memsw.limit_in_bytes"))?;
    let real = |limit: Option<u64>| limit.filter(|limit| *limit < V1_NO_LIMIT);
    Ok(MemoryStats {
        usage,
        peak: read_number(&dir.join("memory.max_usage_in_bytes"))?,
        limit: real(limit),
        working_set: None,
        anonymous: of("total_rss"),
        file: of("total_cache"),
        mapped_file: of("total_mapped_file"),
        inactive_file: of("total_inactive_file"),
        active_file: of("total_active_file"),
        shared: of("total_shmem"),
        kernel: read_number(&dir.join("memory.kmem.usage_in_bytes"))?,
        page_faults: of("total_pgfault"),
        major_page_faults: of("total_pgmajfault"),
        swap: of("total_swap").or_else(|| Some(both?.saturating_sub(usage?))),
        swap_limit: real(both_limit).map(|both| both.saturating_sub(limit.unwrap_or_default())),
        failures: read_number(&dir.join("memory.failcnt"))?,
        pressure: None,
    })
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`
pub(crate) fn pressure(path: &Path) -> Result<Option<PsiStats>> {
    // With pressure accounting disabled the file exists and cannot be read.
    let Ok(Some(text)) = read_if_exists(path) else { return Ok(None) };
    let mut pressure = PsiStats::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        let target = match words.next() {
            Some("some") => &mut pressure.some,
            Some("full") => &mut pressure.full,
            _ => continue,
        };
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            let average = || value.parse().unwrap_or_default();
            match name {
                "avg10" => target.average_10 = average(),
                "avg60" => target.average_60 = average(),
                "avg300" => target.average_300 = average(),
                "total" => target.total = number(path, value)?,
                _ => {}
            }
        }
    }
    Ok(Some(pressure))
}

/// `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`
fn io_line_v2(line: &str) -> Option<DeviceIo> {
    let (device, rest) = line.split_once(' ')?;
    let mut io = device_of(device)?;
    for (name, value) in rest.split(' ').filter_map(|word| word.split_once('=')) {
        let value = value.parse().ok()?;
        match name {
            "rbytes" => io.read_bytes = value,
            "wbytes" => io.write_bytes = value,
            "rios" => io.reads = value,
            "wios" => io.writes = value,
            _ => {}
        }
    }
    Some(io)
}

fn device_of(text: &str) -> Option<DeviceIo> {
    let (major, minor) = text.split_once(':')?;
    Some(DeviceIo { major: major.parse().ok()?, minor: minor.parse().ok()?, ..DeviceIo::default() })
}

/// `8:0 Read 4096` lines, one file for bytes and one for counts.
fn io_tables_v1(bytes: &str, counts: &str) -> Vec<DeviceIo> {
    let mut all: BTreeMap<(u32, u32), DeviceIo> = BTreeMap::new();
    for (text, of_bytes) in [(bytes, true), (counts, false)] {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [device, kind, value] = words[..] else { continue };
            let (Some(empty), Ok(value)) = (device_of(device), value.parse()) else { continue };
            let io = all.entry((empty.major, empty.minor)).or_insert(empty);
            match (kind, of_bytes) {
                ("Read", true) => io.read_bytes = value,
                ("Write", true) => io.write_bytes = value,
                ("Read", false) => io.reads = value,
                ("Write", false) => io.writes = value,
                _ => {}
            }
        }
    }
    all.into_values().collect()
}
