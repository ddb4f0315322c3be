//! What recording needs from the system, what is missing, and the one command that mends it.
//!
//! Looks only; nothing is changed and no program is loaded. Used by `doctor`, and by every error that the kernel's
//! refusal causes.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Oldest kernel that can run the programs (attach cookies).
pub const OLDEST_KERNEL: (u32, u32) = (5, 15);
/// File descriptors that a job with a few libraries takes: one a probe.
const DESCRIPTORS: u64 = 8192;

const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;
/// From this kernel on two smaller capabilities do.
const SMALLER_KERNEL: (u32, u32) = (6, 6);

/// One thing that recording needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// What it is.
    pub name: &'static str,
    /// Whether it is there.
    pub ok: bool,
    /// Whether nothing can be recorded without it; else only a part is missing, which `detail` says.
    pub required: bool,
    /// What was found.
    pub detail: String,
    /// The one command that mends it; empty if it is there or no command does.
    pub fix: String,
}

impl Requirement {
    fn met(name: &'static str, detail: impl Into<String>) -> Requirement {
        Requirement { name, ok: true, required: true, detail: detail.into(), fix: String::new() }
    }

    fn missing(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Requirement {
        Requirement { name, ok: false, required: true, detail: detail.into(), fix: fix.into() }
    }

    fn optional(self) -> Requirement {
        Requirement { required: false, ..self }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.detail)?;
        if !self.fix.is_empty() {
            write!(f, "; to mend it: {}", self.fix)?;
        }
        Ok(())
    }
}

/// Checks everything, in the order in which to mend it.
pub fn check() -> Vec<Requirement> {
    let capabilities = Capabilities::read();
    vec![
        architecture(),
        kernel(),
        uprobes(),
        types(),
        lockdown(fs::read_to_string("/sys/kernel/security/lockdown").ok().as_deref()),
        admin(&capabilities, kernel_release()),
        bpf(),
        other_processes(&capabilities),
        descriptors(&capabilities),
    ]
}

/// What is missing and needed to record anything at all.
pub fn missing() -> Vec<Requirement> {
    check().into_iter().filter(|requirement| !requirement.ok && requirement.required).collect()
}

/// Version of the running kernel.
pub fn kernel_release() -> Option<(u32, u32)> {
    parse_release(&fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
}

fn parse_release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

fn architecture() -> Requirement {
    const NAME: &str = "processor";
    if cfg!(target_arch = "x86_64") {
        Requirement::met(NAME, "x86-64")
    } else {
        Requirement::missing(
            NAME,
            format!(
                "{}: recording was never run on it, so it is refused; traces can be analyzed",
                std::env::consts::ARCH
            ),
            "",
        )
    }
}

fn kernel() -> Requirement {
    const NAME: &str = "kernel";
    let (major, minor) = OLDEST_KERNEL;
    match kernel_release() {
        Some(found) if found >= OLDEST_KERNEL => Requirement::met(NAME, format!("Linux {}.{}", found.0, found.1)),
        Some(found) => Requirement::missing(
            NAME,
            format!("Linux {}.{} is too old: probes carry a cookie only from {major}.{minor} on", found.0, found.1),
            "",
        ),
        None => Requirement::missing(
            NAME,
            "/proc/sys/kernel/osrelease cannot be read: is /proc mounted?",
            "mount -t proc proc /proc",
        ),
    }
}

fn uprobes() -> Requirement {
    const NAME: &str = "uprobes";
    let path = Path::new("/sys/bus/event_source/devices/uprobe/type");
    match fs::read_to_string(path) {
        Ok(_) => Requirement::met(NAME, "the kernel has them"),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !Path::new("/sys/bus").exists() => {
            Requirement::missing(NAME, "/sys is not mounted here", "mount -t sysfs sysfs /sys")
        }
        Err(error) => Requirement::missing(
            NAME,
            format!("{}: {error}; the kernel needs CONFIG_UPROBE_EVENTS=y and CONFIG_PERF_EVENTS=y", path.display()),
            "",
        ),
    }
}

fn types() -> Requirement {
    const NAME: &str = "kernel types (BTF)";
    match fs::File::open(crate::btf::KERNEL_BTF) {
        Ok(_) => Requirement::met(NAME, crate::btf::KERNEL_BTF),
        Err(error) => Requirement::missing(
            NAME,
            format!(
                "{}: {error}; without it children are not followed, and exits and signals are not seen; the kernel needs \
                 CONFIG_DEBUG_INFO_BTF=y",
                crate::btf::KERNEL_BTF
            ),
            "",
        )
        .optional(),
    }
}

/// `mode`: the text of the kernel's lockdown file, in which the mode in force is in brackets.
fn lockdown(mode: Option<&str>) -> Requirement {
    const NAME: &str = "kernel lockdown";
    match mode {
        Some(mode) if mode.contains("[confidentiality]") => Requirement::missing(
            NAME,
            "confidentiality: the kernel lets no program read memory through eBPF; boot with lockdown=integrity",
            "",
        ),
        Some(mode) if mode.contains("[integrity]") => Requirement::met(NAME, "integrity, which allows recording"),
        _ => Requirement::met(NAME, "off"),
    }
}

fn admin(capabilities: &Capabilities, kernel: Option<(u32, u32)>) -> Requirement {
    const NAME: &str = "CAP_SYS_ADMIN";
    if capabilities.in_user_namespace {
        return Requirement::missing(
            NAME,
            "this process is in a user name space (a rootless container?), where it does not count",
            "run rankdiff on the host, or in a container started with --privileged --pid=host by the host's root",
        );
    }
    if capabilities.has(CAP_SYS_ADMIN) {
        return Requirement::met(NAME, "held");
    }
    let smaller = kernel.is_some_and(|found| found >= SMALLER_KERNEL);
    if smaller && capabilities.has(CAP_BPF) && capabilities.has(CAP_PERFMON) {
        return Requirement::met(NAME, "not held, but CAP_BPF and CAP_PERFMON are, which do on this kernel");
    }
    if capabilities.bounding & 1 << CAP_SYS_ADMIN == 0 {
        return Requirement::missing(
            NAME,
            "not held and not to be had here (a container without privileges)",
            "start the container with --cap-add SYS_ADMIN --cap-add SYS_PTRACE --pid=host, or run rankdiff on the host",
        );
    }
    let detail = if smaller {
        "not held, nor CAP_BPF with CAP_PERFMON; the kernel places probes for nobody else"
    } else {
        "not held; the kernel places probes for nobody else"
    };
    Requirement::missing(NAME, detail, with_sudo())
}

fn bpf() -> Requirement {
    const NAME: &str = "bpf system call";
    match try_bpf() {
        Ok(()) => Requirement::met(NAME, "allowed"),
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            Requirement::missing(NAME, "the kernel has none (CONFIG_BPF_SYSCALL)", "")
        }
        Err(error) => Requirement::missing(
            NAME,
            format!("{error}; without the capability, or by a seccomp filter or security module"),
            with_sudo(),
        ),
    }
}

fn other_processes(capabilities: &Capabilities) -> Requirement {
    const NAME: &str = "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";
    if capabilities.has(CAP_SYS_PTRACE) && capabilities.has(CAP_DAC_READ_SEARCH) {
        return Requirement::met(NAME, "held").optional();
    }
    Requirement::missing(
        NAME,
        "not both held: memory maps, environments and files of other users' processes may be unreadable, so their \
         libraries and ranks are not found",
        with_sudo(),
    )
    .optional()
}

fn descriptors(capabilities: &Capabilities) -> Requirement {
    const NAME: &str = "open files";
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if hard >= DESCRIPTORS || capabilities.has(CAP_SYS_RESOURCE) {
        return Requirement::met(NAME, format!("limit {hard}, raised where needed")).optional();
    }
    Requirement::missing(
        NAME,
        format!("limit {hard}; each probe takes one, so some functions of several libraries may stay without"),
        format!("ulimit -Hn {DESCRIPTORS}"),
    )
    .optional()
}

/// The command line that runs this program again as root.
fn with_sudo() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().map_or("rankdiff".into(), |path| path.to_string_lossy());
    format!("sudo {program} …")
}

/// Capabilities of this process.
#[derive(Debug, Clone, Copy, Default)]
struct Capabilities {
    effective: u64,
    bounding: u64,
    in_user_namespace: bool,
}

impl Capabilities {
    fn read() -> Capabilities {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        Capabilities::parse(&status, &map)
    }

    fn parse(status: &str, uid_map: &str) -> Capabilities {
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
                .unwrap_or(0)
        };
        // The first name space maps every user to itself.
        let initial = uid_map.is_empty() || uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
        Capabilities { effective: field("CapEff:"), bounding: field("CapBnd:"), in_user_namespace: !initial }
    }

    fn has(&self, capability: u32) -> bool {
        self.effective & 1 << capability != 0 && !self.in_user_namespace
    }
}

/// Makes and closes the smallest map.
fn try_bpf() -> io::Result<()> {
    const BPF_MAP_CREATE: libc::c_int = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    // map_type, key_size, value_size, max_entries; the rest of the attribute is zero.
    let attribute: [u32; 18] = {
        let mut words = [0; 18];
        words[0] = BPF_MAP_TYPE_ARRAY;
        words[1] = 4;
        words[2] = 4;
        words[3] = 1;
        words
    };
    // SAFETY: the attribute is readable for the length that is given; the call keeps no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, attribute.as_ptr(), size_of_val(&attribute)) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made and that nobody else knows.
    unsafe { libc::close(fd as libc::c_int) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CAP_SYS_ADMIN, Capabilities, admin, check, lockdown, parse_release};

    #[test]
    fn kernel_releases_are_read() {
        assert_eq!(parse_release("6.18.44-fc-v669\n"), Some((6, 18)));
        assert_eq!(parse_release("5.15.0-1052-aws"), Some((5, 15)));
        assert_eq!(parse_release("6.1-rc3"), Some((6, 1)));
        assert_eq!(parse_release("weird"), None);
        assert_eq!(parse_release("6"), None);
    }

    #[test]
    fn capabilities_count_only_in_the_first_user_name_space() {
        let status = "Name:\tx\nCapEff:\t0000000000200000\nCapBnd:\t000001ffffffffff\n";
        let first = Capabilities::parse(status, "         0          0 4294967295\n");
        assert!(first.has(CAP_SYS_ADMIN));
        let inner = Capabilities::parse(status, "         0       1000          1\n");
        assert!(!inner.has(CAP_SYS_ADMIN));
        assert!(!Capabilities::parse("", "").has(CAP_SYS_ADMIN));
    }

    #[test]
    fn two_smaller_capabilities_do_on_a_newer_kernel() {
        let held = Capabilities::parse("CapEff:\t000000c000000000\nCapBnd:\t000001ffffffffff\n", "0 0 4294967295");
        assert!(admin(&held, Some((6, 6))).ok);
        assert!(!admin(&held, Some((6, 5))).ok);
        let perfmon = Capabilities::parse("CapEff:\t0000004000000000\nCapBnd:\t000001ffffffffff\n", "");
        let missing = admin(&perfmon, Some((6, 6)));
        assert!(!missing.ok && missing.fix.contains("sudo "), "{missing}");
        let container = Capabilities::parse("CapEff:\t0000000000000000\nCapBnd:\t00000000a80425fb\n", "");
        assert!(admin(&container, Some((6, 6))).fix.contains("container"));
    }

    #[test]
    fn only_confidentiality_forbids_recording() {
        assert!(lockdown(None).ok);
        assert!(lockdown(Some("none [integrity] confidentiality")).ok);
        assert!(!lockdown(Some("none integrity [confidentiality]")).ok);
    }

    #[test]
    fn every_requirement_says_what_it_found() {
        for requirement in check() {
            assert!(!requirement.detail.is_empty(), "{requirement}");
            assert!(!requirement.ok || requirement.fix.is_empty(), "{requirement}");
        }
    }
}
