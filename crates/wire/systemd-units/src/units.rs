//! The calls to systemd's manager that transient units need.
//!
//! Rule: a unit exists, or is gone, when a call returns: the job is waited for. Errors distinguish
//! a unit that exists already, or is gone already.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::connection::DbusConnection;
use crate::message::{DbusMessage, DbusWriter, MessageKind, MethodCall, PropertyValue};

const NAME: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

pub type Properties<'a> = &'a [(&'a str, PropertyValue)];

#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    #[error("systemd at {path}: {source}", path = path.display())]
    Unreachable { path: PathBuf, source: io::Error },
    #[error("unit {0} exists")]
    Exists(String),
    #[error("no unit {0}")]
    Missing(String),
    #[error("systemd refused {member} of {unit}: {name}: {text}")]
    Refused { member: &'static str, unit: String, name: String, text: String },
    #[error("the job for unit {unit} ended with {result:?}")]
    Failed { unit: String, result: String },
}

impl UnitError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Failed { .. })
    }
}

/// The socket of systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemdAddress {
    /// systemd's private socket.
    Private(PathBuf),
    /// A bus on which systemd has its name.
    Bus(PathBuf),
}

impl SystemdAddress {
    pub fn path(&self) -> &Path {
        match self {
            Self::Private(path) | Self::Bus(path) => path,
        }
    }

    /// The usual sockets, the preferred one first.
    pub fn default_addresses() -> Vec<Self> {
        vec![
            Self::Private(PathBuf::from("/run/systemd/private")),
            Self::Bus(PathBuf::from("/run/dbus/system_bus_socket")),
        ]
    }
}

#[derive(Debug)]
pub struct Systemd {
    connection: DbusConnection,
    path: PathBuf,
    destination: Option<&'static str>,
    limit: Duration,
}

impl Systemd {
    /// Connects to the first of the sockets that answers; each call then has this timeout.
    pub fn connect(addresses: &[SystemdAddress], limit: Duration) -> Result<Self, UnitError> {
        let mut failed = UnitError::Unreachable {
            path: PathBuf::from("/run/systemd/private"),
            source: io::ErrorKind::NotFound.into(),
        };
        for address in addresses {
            match Self::connect_to(address, limit) {
                Ok(systemd) => return Ok(systemd),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn connect_to(address: &SystemdAddress, limit: Duration) -> Result<Self, UnitError> {
        let path = address.path().to_owned();
        let connection = DbusConnection::open(&path, limit)
            .map_err(|source| UnitError::Unreachable { path: path.clone(), source })?;
        let mut systemd = Self { connection, path, destination: None, limit };
        if matches!(address, SystemdAddress::Bus(_)) {
            systemd.join_bus()?;
        }
        Ok(systemd)
    }

    fn join_bus(&mut self) -> Result<(), UnitError> {
        let bus = |member: &'static str, rule: Option<&str>| {
            let mut body = DbusWriter::default();
            if let Some(rule) = rule {
                body.text(rule);
            }
            MethodCall {
                destination: Some("org.freedesktop.DBus"),
                path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus",
                member,
                signature: if rule.is_some() { "s" } else { "" },
                body,
            }
        };
        let rule = "type='signal',interface='org.freedesktop.systemd1.Manager',member='JobRemoved'";
        for call in [bus("Hello", None), bus("AddMatch", Some(rule))] {
            let path = self.path.clone();
            self.connection
                .call(&call)
                .map_err(|source| UnitError::Unreachable { path, source })?;
        }
        self.destination = Some(NAME);
        self.call_manager("Subscribe", "", "", DbusWriter::default()).map(drop)
    }

    /// Starts a transient unit and waits until it is active.
    pub fn start_transient(
        &mut self,
        unit: &str,
        properties: Properties<'_>,
    ) -> Result<(), UnitError> {
        let mut body = DbusWriter::default();
        body.text(unit);
        body.text("replace");
        body.properties(properties);
        // No auxiliary units.
        body.array(8, |_| {});
        let answer = self.call_manager("StartTransientUnit", unit, "ssa(sv)a(sa(sv))", body)?;
        self.wait_job(unit, &answer)
    }

    /// Changes a unit until the next boot.
    pub fn set_properties(
        &mut self,
        unit: &str,
        properties: Properties<'_>,
    ) -> Result<(), UnitError> {
        let mut body = DbusWriter::default();
        body.text(unit);
        body.word(1);
        body.properties(properties);
        self.call_manager("SetUnitProperties", unit, "sba(sv)", body).map(drop)
    }

    /// Stops a unit with all in it and waits until it is gone.
    pub fn stop(&mut self, unit: &str) -> Result<(), UnitError> {
        let mut body = DbusWriter::default();
        body.text(unit);
        body.text("replace");
        let answer = self.call_manager("StopUnit", unit, "ss", body)?;
        self.wait_job(unit, &answer)
    }

    /// Makes systemd forget a failed unit. One that did not fail is no error.
    pub fn reset_failed(&mut self, unit: &str) -> Result<(), UnitError> {
        let mut body = DbusWriter::default();
        body.text(unit);
        match self.call_manager("ResetFailedUnit", unit, "s", body) {
            Ok(_) | Err(UnitError::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn call_manager(
        &mut self,
        member: &'static str,
        unit: &str,
        signature: &str,
        body: DbusWriter,
    ) -> Result<DbusMessage, UnitError> {
        self.connection.set_deadline(self.limit);
        let destination = self.destination;
        let call =
            MethodCall { destination, path: PATH, interface: MANAGER, member, signature, body };
        let answer =
            self.connection.call(&call).map_err(|source| self.unreachable_error(source))?;
        if answer.kind != MessageKind::MethodError {
            return Ok(answer);
        }
        let text = answer.first_text().unwrap_or_default();
        match answer.error_name.strip_prefix("org.freedesktop.systemd1.") {
            Some("UnitExists") => Err(UnitError::Exists(unit.to_owned())),
            Some("NoSuchUnit") => Err(UnitError::Missing(unit.to_owned())),
            _ => Err(UnitError::Refused {
                member,
                unit: unit.to_owned(),
                name: answer.error_name.clone(),
                text,
            }),
        }
    }

    fn wait_job(&mut self, unit: &str, answer: &DbusMessage) -> Result<(), UnitError> {
        let Some(job) = answer.first_text() else {
            return Err(self
                .unreachable_error(io::Error::new(io::ErrorKind::InvalidData, "it named no job")));
        };
        loop {
            let ended = self.connection.signals.iter().find_map(|signal| job_result(signal, &job));
            match ended.as_deref() {
                Some("done") => return Ok(()),
                Some(result) => {
                    let (unit, result) = (unit.to_owned(), result.to_owned());
                    return Err(UnitError::Failed { unit, result });
                }
                None => self
                    .connection
                    .wait_signal()
                    .map_err(|source| self.unreachable_error(source))?,
            }
        }
    }

    fn unreachable_error(&self, source: io::Error) -> UnitError {
        UnitError::Unreachable { path: self.path.clone(), source }
    }
}

/// How a job ended, if a signal reports it: `JobRemoved(u id, o job, s unit, s result)`.
fn job_result(signal: &DbusMessage, job: &str) -> Option<String> {
    if signal.member != "JobRemoved" || signal.signature != "uoss" {
        return None;
    }
    let mut body = signal.body();
    body.word()?;
    let which = body.text()?;
    body.text()?;
    body.text().filter(|_| which == job)
}
