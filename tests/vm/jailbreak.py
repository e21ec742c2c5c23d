# Run inside a container (a file of the home): tries to get out, one line a try: NAME, tab, what came of it.
import ctypes, errno, glob, os, resource, socket, struct, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def say(name, got):
    print(name, got, sep="\t", flush=True)


def call(name, number, *args):
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    say(name, "DONE" if got >= 0 else errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno()))


def code(name, what):
    try:
        what()
        say(name, "DONE")
    except OSError as e:
        say(name, errno.errorcode.get(e.errno, str(e)))


# ---- system calls (x86-64 numbers)
NEWNS, NEWUSER, NEWPID, NEWNET, NEWCGROUP = 0x20000, 0x10000000, 0x20000000, 0x40000000, 0x02000000
call("mount", 165, b"x", b"/tmp", b"tmpfs", 0, None)
call("umount", 166, b"/proc", 2)
call("remount of /proc/sys", 165, b"", b"/proc/sys", None, 32 | 4096, None)
call("pivot_root", 155, b"/", b"/")
call("chroot", 161, b"/tmp")
call("fsopen", 430, b"tmpfs", 0)
call("open_tree", 428, -100, b"/", 1)
call("move_mount", 429, -100, b"/", -100, b"/tmp", 0)
call("mount_setattr", 442, -100, b"/proc/sys", 0, None, 0)
for name, flag in (("user", NEWUSER), ("mount", NEWNS), ("pid", NEWPID), ("net", NEWNET), ("cgroup", NEWCGROUP)):
    call("unshare " + name, 272, flag)
    call("clone " + name, 56, flag | 17, None, None, None, None)
call("clone3", 435, b"\0" * 88, 88)
call("setns", 308, os.open("/proc/self/ns/net", os.O_RDONLY), 0)
call("keyctl", 250, 0, -3, 1)
call("add_key", 248, b"user", b"x", b"y", 1, -3)
call("bpf", 321, 0, b"\0" * 64, 64)
call("perf_event_open", 298, b"\0" * 128, 0, -1, -1, 0)
call("userfaultfd", 323, 0)
call("userfaultfd for user mode", 323, 1)
call("kexec_load", 246, 0, 0, None, 0)
call("init_module", 175, b"x", 1, b"")
call("finit_module", 313, 0, b"", 0)
call("delete_module", 176, b"x", 0)
call("open_by_handle_at", 304, -100, b"\0" * 32, 0)
call("name_to_handle_at", 303, -100, b"/", b"\0" * 32, b"\0" * 8, 0)
call("io_uring_setup", 425, 1, b"\0" * 120)
call("pidfd_getfd", 438, 3, 0, 0)
call("reboot", 169, 0xfee1dead - (1 << 32), 672274793, 0, None)
call("settimeofday", 164, b"\0" * 16, None)
call("syslog", 103, 3, b"\0" * 100, 100)
call("iopl", 172, 3)
call("fanotify_init", 300, 0, 0)
call("swapon", 167, b"/x", 0)
call("ptrace of init", 101, 16, 1, 0, 0)
call("x32 call", 0x40000000 + 165, b"x", b"/tmp", b"tmpfs", 0, None)
call("mknod of a disk", 259, -100, b"/tmp/disk", 0o60600, os.makedev(254, 0))
call("mknod of memory", 259, -100, b"/tmp/mem", 0o20600, os.makedev(1, 1))
master, slave = os.openpty()
for name, number in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541c), ("TIOCSTI with a high half", 0x5412 | 1 << 32)):
    call(name, 16, slave, number, b"x")

# ---- sockets
for name, family, kind, proto in (
    ("raw", socket.AF_INET, socket.SOCK_RAW, 1), ("raw IPv6", socket.AF_INET6, socket.SOCK_RAW, 58),
    ("packet", 17, socket.SOCK_RAW, 0), ("old packet", socket.AF_INET, 10, 3), ("vsock", 40, socket.SOCK_STREAM, 0),
    ("alg", 38, socket.SOCK_SEQPACKET, 0), ("bluetooth", 31, socket.SOCK_RAW, 1), ("can", 29, socket.SOCK_RAW, 1),
    ("netlink audit", 16, socket.SOCK_RAW, 9), ("netlink kobject", 16, socket.SOCK_RAW, 15), ("netlink netfilter", 16, socket.SOCK_RAW, 12),
    ("xdp", 44, socket.SOCK_RAW, 0), ("tipc", 30, socket.SOCK_RDM, 0), ("smc", 43, socket.SOCK_STREAM, 0)):
    call("socket " + name, 41, family, kind, proto)
call("socket family with a high half", 41, 17 | 1 << 32, socket.SOCK_RAW, 0)
call("netlink protocol with a high half", 41, 16, socket.SOCK_RAW, 9 | 1 << 32)
host_port = int(sys.argv[1])
code("host loopback", lambda: socket.create_connection(("127.0.0.1", host_port), 3))
code("host loopback IPv6", lambda: socket.create_connection(("::1", host_port), 3))
for name in (sys.argv[2], "/tmp/.X11-unix/X0", "/tmp/dbus-test"):
    def abstract():
        s = socket.socket(socket.AF_UNIX)
        s.connect("\0" + name)
    code("abstract socket " + name, abstract)
found = []
for root, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if (root + "/" + d).replace("//", "/") not in ("/proc", "/usr")]
    found += [root + "/" + f for f in files if os.path.exists(root + "/" + f) and (os.stat(root + "/" + f).st_mode & 0o170000) in (0o140000, 0o060000)]
say("sockets and disks by name", found or "none")

# ---- the machine's files
for path in sys.argv[3:]:
    say("sees " + path, os.path.lexists(path))
    say("sees it by /proc/1/root" + path, os.path.lexists("/proc/1/root" + path))
say("processes", " ".join(sorted(p for p in os.listdir("/proc") if p.isdigit() and open("/proc/%s/comm" % p).read() not in ("python3\n", "bash\n", "sh\n"))))
code("descriptors of init", lambda: [os.open("/proc/1/fd/%d" % n, os.O_RDONLY | os.O_NONBLOCK) for n in range(0, 3)])
code("memory of init", lambda: open("/proc/1/mem", "rb"))
code("environment of init", lambda: open("/proc/1/environ").read())
writable = []
for root, dirs, files in os.walk("/proc"):
    if root == "/proc":
        dirs[:] = [d for d in dirs if not d.isdigit() and d not in ("self", "thread-self", "net")]
    for f in files:
        path = root + "/" + f
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            if os.stat(path).st_rdev != os.stat("/dev/null").st_rdev:
                writable.append(path)
        except OSError:
            pass
say("writable in /proc", writable or "none")


def size(path):
    try:
        return len(open(path, "rb").read(64))
    except OSError:
        return 0
say("kernel's memory", sum(map(size, ("/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/timer_list", "/proc/kmsg"))))
say("devices", " ".join(sorted(os.listdir("/dev"))))
say("sysfs", os.listdir("/sys") or "empty")
status = dict(l.split(":\t", 1) for l in open("/proc/self/status").read().splitlines() if ":\t" in l)
say("rights", " ".join(status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")))

# ---- more rights
subprocess.run("cp /bin/bash /tmp/suid; chmod 6755 /tmp/suid", shell=True)
say("setuid", subprocess.run(["/tmp/suid", "-p", "-c", "id -u; grep CapEff /proc/self/status"], stdout=subprocess.PIPE, text=True).stdout.split())
say("sudo", subprocess.run("sudo -n id -u", shell=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout or "no")
say("ids", " ".join(map(str, os.getresuid() + os.getresgid())))
code("setuid(0)", lambda: os.setuid(0))
code("chown", lambda: os.chown("/tmp/suid", 0, 0))
say("core files", resource.getrlimit(resource.RLIMIT_CORE))


# ---- too much
def eat():
    try:
        x = bytearray(3 << 30)
        return "%d MiB" % (len(x) >> 20)
    except MemoryError:
        return "refused"
say("3 GiB of memory", eat())
