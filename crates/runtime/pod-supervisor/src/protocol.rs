//! Messages between the server and a pod's supervisor.
//!
//! Rule: length-prefixed protobuf. Field numbers never change; fields and kinds are only added,
//! because a supervisor lives as long as its pod and talks to newer servers. A side rejects a
//! request that it does not know by name, never by silence. Descriptors are sent with the frame
//! that counts them.

use container_create::spec::{ContainerSpec, PodSpec, ProcessSpec, TerminalSize};

pub mod frame;

/// Version of the protocol. Incremented for each new request, so that a server knows what it may
/// send.
pub const VERSION: u32 = 2;
/// Older supervisors ignore a container's hooks without an error.
pub const HOOKS_SINCE: u32 = 2;

/// From the server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SupervisorRequest {
    /// Echoed in the response.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(oneof = "RequestBody", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15")]
    pub body: Option<RequestBody>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(clippy::large_enum_variant, reason = "one at a time, and the largest is the usual one")]
pub enum RequestBody {
    #[prost(message, tag = "2")]
    Hello(Hello),
    /// Creates the pod's namespaces; once.
    #[prost(message, tag = "3")]
    Pod(PodSpec),
    /// Creates a container up to the point where its program would run.
    #[prost(message, tag = "4")]
    Create(ContainerSpec),
    #[prost(message, tag = "5")]
    Start(ContainerName),
    #[prost(message, tag = "6")]
    Kill(Kill),
    /// Descriptors: those of standard input, output and error that are flagged.
    #[prost(message, tag = "7")]
    Exec(Exec),
    /// Descriptors: as in exec.
    #[prost(message, tag = "8")]
    Attach(Attach),
    #[prost(message, tag = "9")]
    Resize(Resize),
    #[prost(message, tag = "10")]
    ReopenLog(ContainerName),
    /// Kills remaining processes of a container, removes its cgroup and its state.
    #[prost(message, tag = "11")]
    Delete(ContainerName),
    #[prost(message, tag = "12")]
    List(Empty),
    /// Kills and removes all containers of the pod; then the supervisor exits.
    #[prost(message, tag = "13")]
    Shutdown(Empty),
    #[prost(message, tag = "14")]
    CloseStdin(ContainerName),
    /// The response carries descriptors of the pod's namespaces, in the order of its list.
    #[prost(message, tag = "15")]
    Namespaces(Empty),
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Version of the program, for logs.
    #[prost(string, tag = "2")]
    pub program: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerName {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Kill {
    #[prost(string, tag = "1")]
    pub id: String,
    /// Signal number.
    #[prost(int32, tag = "2")]
    pub signal: i32,
    /// Sends it to every process of the container instead of the first; SIGKILL only.
    #[prost(bool, tag = "3")]
    pub all: bool,
    /// An exec of the container, instead of the container itself.
    #[prost(string, tag = "4")]
    pub exec: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Exec {
    #[prost(string, tag = "1")]
    pub container: String,
    /// Unique in the pod.
    #[prost(string, tag = "2")]
    pub exec: String,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessSpec>,
    /// After this time the whole tree is killed. 0: no timeout.
    #[prost(uint64, tag = "4")]
    pub timeout_milliseconds: u64,
    #[prost(bool, tag = "5")]
    pub stdin: bool,
    #[prost(bool, tag = "6")]
    pub stdout: bool,
    #[prost(bool, tag = "7")]
    pub stderr: bool,
    /// Overrides the container's user.
    #[prost(message, optional, tag = "8")]
    pub user: Option<ExecUser>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecUser {
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    #[prost(uint32, tag = "2")]
    pub gid: u32,
    #[prost(uint32, repeated, tag = "3")]
    pub additional_gids: Vec<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Attach {
    #[prost(string, tag = "1")]
    pub container: String,
    #[prost(bool, tag = "2")]
    pub stdin: bool,
    #[prost(bool, tag = "3")]
    pub stdout: bool,
    #[prost(bool, tag = "4")]
    pub stderr: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Resize {
    #[prost(string, tag = "1")]
    pub container: String,
    /// An exec of the container, instead of the container itself.
    #[prost(string, tag = "2")]
    pub exec: String,
    #[prost(message, optional, tag = "3")]
    pub size: Option<TerminalSize>,
}

/// From the supervisor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SupervisorMessage {
    #[prost(oneof = "MessageBody", tags = "1, 2")]
    pub body: Option<MessageBody>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum MessageBody {
    #[prost(message, tag = "1")]
    Response(Response),
    #[prost(message, tag = "2")]
    Event(Event),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(message, optional, tag = "2")]
    pub error: Option<RequestError>,
    #[prost(oneof = "ResponseBody", tags = "3, 4, 5, 6, 7")]
    pub body: Option<ResponseBody>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ResponseBody {
    #[prost(message, tag = "3")]
    Hello(Hello),
    #[prost(message, tag = "4")]
    Done(Empty),
    #[prost(message, tag = "5")]
    State(PodState),
    #[prost(message, tag = "6")]
    Container(ContainerState),
    /// An exec; with a terminal, its master side is passed as a descriptor.
    #[prost(message, tag = "7")]
    Exec(ExecState),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestError {
    #[prost(enumeration = "RequestErrorKind", tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RequestErrorKind {
    /// None of the others.
    Other = 0,
    /// No such container or exec.
    NotFound = 1,
    /// It exists already.
    Exists = 2,
    /// It is not in the state that the request needs.
    WrongState = 3,
    /// The specification contradicts itself or cannot be met on this node.
    InvalidSpec = 4,
    /// The program could not be run: it is missing or not executable.
    ProgramNotFound = 5,
    /// This supervisor does not know the request.
    Unknown = 6,
    /// The deadline has passed.
    Deadline = 7,
}

/// The supervisor's whole state.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodState {
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<ContainerState>,
    #[prost(message, repeated, tag = "2")]
    pub execs: Vec<ExecState>,
    #[prost(bool, tag = "3")]
    pub pod_created: bool,
    /// The namespaces that the pod has: `net`, `ipc`, `uts`, `pid`, `user`.
    #[prost(string, repeated, tag = "4")]
    pub namespaces: Vec<String>,
    #[prost(uint32, tag = "5")]
    pub supervisor_pid: u32,
    /// The pod's init, if it has one.
    #[prost(uint32, tag = "6")]
    pub init_pid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ContainerPhase {
    Creating = 0,
    Created = 1,
    Running = 2,
    Exited = 3,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerState {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(enumeration = "ContainerPhase", tag = "2")]
    pub phase: i32,
    /// PID in the host's PID namespace; 0 before the process exists.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// Nanoseconds since 1970; 0: not yet created.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    #[prost(int64, tag = "5")]
    pub started_at: i64,
    #[prost(message, optional, tag = "6")]
    pub exit: Option<ProcessExit>,
    /// The first process's start time in clock ticks since boot: together with the PID it
    /// identifies the process uniquely.
    #[prost(uint64, tag = "7")]
    pub start_ticks: u64,
    /// The cgroup's path.
    #[prost(string, tag = "8")]
    pub cgroup: String,
    /// OOM kills in the container's cgroup.
    #[prost(uint64, tag = "9")]
    pub out_of_memory_kills: u64,
    /// Start was requested, but it is not known yet whether the program runs.
    #[prost(bool, tag = "10")]
    pub starting: bool,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProcessExit {
    /// As a shell reports it: the code, or 128 plus the signal.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// 0: not ended by a signal.
    #[prost(int32, tag = "2")]
    pub signal: i32,
    /// A process of the container was OOM killed.
    #[prost(bool, tag = "3")]
    pub out_of_memory: bool,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub finished_at: i64,
    /// The timeout of an exec had expired.
    #[prost(bool, tag = "5")]
    pub timed_out: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecState {
    #[prost(string, tag = "1")]
    pub exec: String,
    #[prost(string, tag = "2")]
    pub container: String,
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    #[prost(message, optional, tag = "4")]
    pub exit: Option<ProcessExit>,
}

/// A change of state. A list request returns the same information.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    #[prost(oneof = "EventBody", tags = "1, 2, 3")]
    pub body: Option<EventBody>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum EventBody {
    /// Its exit is on disk.
    #[prost(message, tag = "1")]
    ContainerExited(ContainerState),
    #[prost(message, tag = "2")]
    ExecExited(ExecState),
    /// A process of it was OOM killed.
    #[prost(message, tag = "3")]
    OutOfMemory(ContainerState),
}

/// A container's exit on disk, in the pod's directory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExitRecord {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(message, optional, tag = "2")]
    pub state: Option<ContainerState>,
}
