"""What a program in the sandbox can reach, found by trying; run by the engines' self-test.

Reads one JSON line (the canaries that the host planted), writes one JSON line per probe:
``{"id", "seen"}``, where ``seen`` is an error's name, a number or a short list. Decides
nothing: the host judges. Must be harmless where a try succeeds, so whatever could change
something is tried in a child with arguments that cannot take effect. Never run it outside
of a sandbox. Standard library only.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import resource
import signal
import socket
import stat
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
#: Number on x86_64, number on aarch64, arguments that reach nothing.
CALLS = {
    "sys.keyctl": (250, 219, (0, -3, 0)),
    "sys.add_key": (248, 217, (0, 0, 0, 0, -3)),
    "sys.request_key": (249, 218, (0, 0, 0, 0)),
    "sys.bpf": (321, 280, (0, 0, 0)),
    "sys.perf_event_open": (298, 241, (0, 0, -1, -1, 0)),
    "sys.userfaultfd": (323, 282, (0,)),
    "sys.io_uring_setup": (425, 425, (1, 0)),
    "sys.open_by_handle_at": (304, 265, (-1, 0, 0)),
    "sys.name_to_handle_at": (303, 264, (-1, 0, 0, 0, 0)),
    "sys.kexec_load": (246, 104, (0, 0, 0, 0)),
    "sys.init_module": (175, 105, (0, 0, 0)),
    "sys.reboot": (169, 142, (0, 0, 0, 0)),
    "sys.swapon": (167, 224, (0, 0)),
    "sys.acct": (163, 89, (0,)),
    "sys.clock_settime": (227, 112, (0, 0)),
    "sys.sethostname": (170, 161, (0, 1)),
    "sys.syslog": (103, 116, (3, 0, 0)),
    "sys.quotactl": (179, 60, (0, 0, 0, 0)),
    "sys.ptrace": (101, 117, (16, 1, 0, 0)),
    "sys.process_vm_readv": (310, 270, (1, 0, 0, 0, 0, 0)),
    "sys.pidfd_getfd": (438, 438, (-1, 0, 0)),
    "sys.setns": (308, 268, (-1, 0)),
    "sys.pivot_root": (155, 41, (0, 0)),
    "sys.chroot": (161, 51, (0,)),
    "sys.mount": (165, 40, (0, 0, 0, 0, 0)),
    "sys.umount": (166, 39, (0, 0)),
    "sys.fsopen": (430, 430, (0, 0)),
    "sys.open_tree": (428, 428, (-1, 0, 1)),
    "sys.move_mount": (429, 429, (-1, 0, -1, 0, 0)),
    "sys.mount_setattr": (442, 442, (-1, 0, 0, 0, 0)),
    "sys.clone3": (435, 435, (0, 0)),
    "sys.unshare_user": (272, 97, (CLONE_NEWUSER,)),
    "sys.unshare_mount": (272, 97, (CLONE_NEWNS,)),
    "sys.unshare_net": (272, 97, (CLONE_NEWNET,)),
    "sys.fanotify_init": (300, 262, (0, 0)),
}
#: Opened for writing, never written: what a root in disguise could change.
KERNEL_FILES = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/proc/kmsg",
    "/sys/kernel/uevent_helper",
)
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout"}
DEVICES |= {"stderr", "ptmx", "pts", "shm", "mqueue", "console", "core"}
ENGINE_SOCKETS = (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/user",
)


def name_of(number):
    return errno.errorcode.get(number, str(number))


def attempt(action):
    """The name of the error that ``action`` meets, or ``done``."""
    try:
        action()
    except OSError as error:
        return name_of(error.errno)
    return "done"


def in_child(action):
    """The same in a child process; the name of the signal if one ended it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(action()).encode())
        finally:
            os._exit(0)
    os.close(write)
    said = os.read(read, 200).decode()
    os.close(read)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return said


def call(number, arguments):
    ctypes.set_errno(0)
    result = LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return "done" if result >= 0 else name_of(ctypes.get_errno())


def status_field(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return line.split(":", 1)[1].strip()
    return "absent"


def joined(items):
    return " ".join(sorted(items)) or "none"


def open_socket(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()


def connect(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)


def probe_identity(emit, given):
    emit("id.uid", os.getuid())
    emit("id.gid", os.getgid())
    emit("id.groups", joined({str(group) for group in os.getgroups()} - {str(os.getgid())}))
    emit("id.setuid_0", in_child(lambda: attempt(lambda: os.setuid(0))))
    emit("id.setgid_0", in_child(lambda: attempt(lambda: os.setgid(0))))
    emit("id.setgroups", in_child(lambda: attempt(lambda: os.setgroups([0]))))
    sets = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    emit("id.capabilities", joined(name for name in sets if int(status_field(name), 16)))
    emit("id.no_new_privileges", status_field("NoNewPrivs"))
    emit("id.seccomp", status_field("Seccomp"))


def probe_network(emit, given):
    with open("/proc/net/dev") as file:
        emit("net.interfaces", joined(line.split(":")[0].strip() for line in list(file)[2:]))
    with open("/proc/net/route") as file:
        emit("net.routes", len(list(file)) - 1)
    inet, inet6, unix = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
    stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
    tries = {
        "net.udp4": (inet, datagram, ("192.0.2.1", 53)),
        "net.udp6": (inet6, datagram, ("2001:db8::1", 53)),
        "net.host_tcp": (inet, stream, ("127.0.0.1", given["port"])),
        "net.host_abstract": (unix, stream, "\0" + given["abstract"]),
        "net.host_socket": (unix, stream, given["socket"]),
    }
    for name, target in tries.items():
        emit(name, attempt(lambda target=target: connect(*target)))
    emit("net.vsock", attempt(lambda: open_socket(40, stream)))
    emit("net.packet", attempt(lambda: open_socket(17, socket.SOCK_RAW)))
    emit("net.raw", attempt(lambda: open_socket(inet, socket.SOCK_RAW, 1)))
    emit("net.netlink", attempt(lambda: open_socket(16, socket.SOCK_RAW)))
    emit("net.alg", attempt(lambda: open_socket(38, socket.SOCK_SEQPACKET)))
    emit("net.loopback", attempt(use_loopback))
    try:
        with open("/etc/resolv.conf") as file:
            emit("net.name_servers", sum(line.startswith("nameserver") for line in file))
    except OSError:
        emit("net.name_servers", 0)
    emit("net.engine_sockets", joined(path for path in ENGINE_SOCKETS if os.path.exists(path)))


def use_loopback():
    with socket.create_server(("localhost", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1])).close()


def probe_files(emit, given):
    emit("fs.host_canary", attempt(lambda: os.stat(given["file"])))
    with open("/proc/self/mountinfo") as file:
        mounts = file.read()
    emit("fs.host_paths", sum(path in mounts for path in given["hostPaths"]))
    emit("fs.writable", joined(writable_folders()))
    emit("fs.tmp_bytes", os.statvfs("/tmp").f_blocks * os.statvfs("/tmp").f_frsize)
    emit("fs.setuid_files", count_setuid())
    emit("fs.devices", joined(set(os.listdir("/dev")) - DEVICES))
    device = os.makedev(1, 1)
    emit("fs.mknod", attempt(lambda: os.mknod("/tmp/probe", 0o600 | stat.S_IFCHR, device)))
    opened = [path for path in KERNEL_FILES if attempt(lambda p=path: open_write(p)) == "done"]
    emit("fs.kernel_files", joined(opened))
    emit("fs.modes", attempt(lambda: os.chmod("/etc", 0o777)))


def open_write(path):
    os.close(os.open(path, os.O_WRONLY))


def writable_folders():
    """Folders in which a file can be made: the top two levels, and every mount point."""
    folders = {"/"}
    for top in os.scandir("/"):
        if top.is_dir(follow_symlinks=False) and top.name != "proc":
            folders.add(top.path)
            folders.update(
                entry.path for entry in scan(top.path) if entry.is_dir(follow_symlinks=False)
            )
    with open("/proc/self/mountinfo") as file:
        folders.update(line.split()[4] for line in file)
    return {folder for folder in folders if can_make_file(folder)}


def scan(path):
    try:
        return list(os.scandir(path))
    except OSError:
        return []


def can_make_file(folder):
    path = f"{folder}/.probe"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    if attempt(lambda: os.close(os.open(path, flags, 0o600))) != "done":
        return False
    os.unlink(path)
    return True


def count_setuid():
    """Files that would change who runs them, where the mount lets them."""
    count = 0
    for folder in ("/usr/bin", "/usr/sbin", "/usr/lib", "/bin", "/sbin"):
        if not os.path.isdir(folder) or os.statvfs(folder).f_flag & os.ST_NOSUID:
            continue
        for entry in scan(folder):
            mode = entry.stat(follow_symlinks=False).st_mode
            count += bool(stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID))
    return count


def probe_processes(emit, given):
    visible = sum(name.isdecimal() for name in os.listdir("/proc"))
    emit("pid.visible", visible)
    emit("pid.host", attempt(lambda: os.kill(given["pid"], 0)))
    same = [
        kind
        for kind, inode in given["namespaces"].items()
        if os.stat(f"/proc/self/ns/{kind}").st_ino == inode
    ]
    emit("pid.shared_namespaces", joined(set(same) - {"user"}))
    emit("pid.shared_user_namespace", "yes" if "user" in same else "no")
    emit("pid.tty", attempt(lambda: os.close(os.open("/dev/tty", os.O_RDWR))))
    emit("pid.nice", in_child(lambda: attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))))
    emit("pid.oom_score", in_child(lambda: attempt(lower_oom_score)))


def lower_oom_score():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-500")


def probe_calls(emit, given):
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    for name, numbers in CALLS.items():
        emit(name, in_child(lambda numbers=numbers: call(numbers[column], numbers[2])))
    clone = (56, 220)[column]
    emit("sys.clone_user", in_child(lambda: call(clone, (CLONE_NEWUSER | 17, 0, 0, 0, 0))))
    if column == 0:
        emit("sys.x32", in_child(lambda: call(0x40000000 | 39, ())))
        emit("sys.i386", in_child(call_i386))


def call_i386():
    """getpid through the 32-bit entry: ``mov eax, 20; int 0x80; ret``."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return "done" if ctypes.CFUNCTYPE(ctypes.c_int)(entry)() > 0 else "refused"


def probe_surroundings(emit, given):
    allowed = set(given["environment"])
    emit("env.names", joined(set(os.environ) - allowed))
    with open("/proc/1/environ") as file:
        first = {entry.partition("=")[0] for entry in file.read().split("\0") if entry}
    emit("env.first_process", joined(first - allowed))
    with open("/proc/1/cmdline", "rb") as file:
        line = file.read().decode(errors="replace")
    emit("env.first_command", sum(path in line for path in given["hostPaths"]))
    inherited = [n for n in range(3, 256) if attempt(lambda n=n: os.fstat(n)) == "done"]
    emit("io.descriptors", joined(map(str, inherited)))
    kinds = [stat.S_ISFIFO(os.fstat(number).st_mode) for number in range(3)]
    emit("io.pipes", sum(kinds))
    for name in ("NOFILE", "NPROC", "CORE", "FSIZE"):
        hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
        emit(f"res.{name.lower()}", "unlimited" if hard == resource.RLIM_INFINITY else hard)
    with open("/proc/sys/kernel/core_pattern") as file:
        emit("res.core_pipe", "yes" if file.read().startswith("|") else "no")
    emit("leak.hostname", "seen" if os.uname().nodename == given["hostname"] else "none")


SECTIONS = (
    probe_identity,
    probe_network,
    probe_files,
    probe_processes,
    probe_calls,
    probe_surroundings,
)


def main():
    given = json.loads(sys.stdin.readline())

    def emit(name, seen):
        sys.stdout.write(json.dumps({"id": name, "seen": str(seen)}) + "\n")
        sys.stdout.flush()

    for section in SECTIONS:
        try:
            section(emit, given)
        except Exception as error:
            emit(f"broken.{section.__name__}", type(error).__name__)
    emit("end", "done")
    sys.stdin.read()


if __name__ == "__main__":
    main()
