"""Every call that a program may make on a file, made on each file of the tree. Prints lines `ok NAME` and `not ok NAME`.

abuse.py MOUNT FOLDER: FOLDER is an ordinary one, for what is copied. Nothing of all that may change the tree, hang or
kill the daemon; what is refused is refused by an errno that says so."""
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import sys

mount, folder = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
bad = []


def name_of(e):
    return errno.errorcode.get(e.errno, str(e.errno))


def outcome(call):
    """What a call gives: its value, or the name of its errno."""
    try:
        return call()
    except OSError as e:
        return name_of(e)
    except ValueError as e:  # mmap of nothing
        return "empty"


def expect(what, path, got, *wanted):
    if got not in wanted:
        bad.append("%s of %s: %r, not %s" % (what, os.path.relpath(path, mount), got, " or ".join(map(repr, wanted))))


def on(path, flags, call):
    def run():
        fd = os.open(path, flags | os.O_CLOEXEC)
        try:
            return call(fd)
        finally:
            os.close(fd)

    return outcome(run)


def done(call):
    return lambda *a, **k: (call(*a, **k), "ok")[1]


def sys_call(f, *args):
    if f(*args) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "ok"


def renameat2(a, b, flags):
    return outcome(lambda: sys_call(libc.renameat2, -100, os.fsencode(a), -100, os.fsencode(b), flags))


def fallocate(fd, mode):
    return sys_call(libc.fallocate, fd, mode, ctypes.c_long(0), ctypes.c_long(4096))


def slurp(path):
    return on(path, os.O_RDONLY, lambda fd: b"".join(iter(lambda: os.read(fd, 1 << 16), b"")))


def copy_by(call):
    """Copies with call(from, to, count), which gives 0 at the end."""

    def run(fd):
        to = os.open(folder, os.O_RDWR | os.O_TMPFILE)
        try:
            while call(fd, to, 1 << 16):
                pass
            return os.pread(to, 1 << 26, 0)
        finally:
            os.close(to)

    return run


def spliced(fd):
    r, w = os.pipe()
    got = b""
    try:
        while n := os.splice(fd, w, 65536):
            got += os.read(r, n)
        return got
    finally:
        os.close(r)
        os.close(w)


def mapped(fd, kind):
    with mmap.mmap(fd, 0, kind, mmap.PROT_READ) as m:
        return m[:]


def get_flags(fd):
    return fcntl.ioctl(fd, 0x80086601, bytearray(8)) and "ok"  # FS_IOC_GETFLAGS


def attributes(path, st):
    """What changes how a file looks. Links, too."""
    not_so = ("EPERM", "EACCES")  # EACCES: the file cannot be written, for whose times are to be now
    if not stat.S_ISLNK(st.st_mode):
        expect("chmod", path, outcome(lambda: done(os.chmod)(path, (st.st_mode & 0o777) ^ 0o111)), *not_so)
        expect("chmod to setuid", path, outcome(lambda: done(os.chmod)(path, st.st_mode & 0o777 | 0o4000)), "ok", *not_so)
    expect("chown", path, outcome(lambda: done(os.lchown)(path, st.st_uid + 1, -1)), *not_so)
    expect("chgrp", path, outcome(lambda: done(os.lchown)(path, -1, st.st_gid + 1)), *not_so)
    no_xattr = ("ENOTSUP", "EOPNOTSUPP", "EPERM")  # EPERM: the kernel on links
    expect("setxattr", path, outcome(lambda: done(os.setxattr)(path, "user.x", b"1", follow_symlinks=False)), *no_xattr)
    expect("getxattr", path, outcome(lambda: os.getxattr(path, "user.x", follow_symlinks=False)), "ENODATA", *no_xattr)
    expect("listxattr", path, outcome(lambda: len(os.listxattr(path, follow_symlinks=False))), 0, *no_xattr)
    expect("removexattr", path, outcome(lambda: done(os.removexattr)(path, "user.x", follow_symlinks=False)), "ENODATA", *no_xattr)
    after = os.lstat(path)
    for field in ("st_mode", "st_uid", "st_gid", "st_ino"):
        if field == "st_ino" and stat.S_ISREG(st.st_mode):
            continue  # that of `input` is another's for each
        expect(field + " after that", path, getattr(after, field), getattr(st, field))


def names(path, st):
    """What changes where a file is. A draft that may be renamed stands beside it."""
    beside = os.path.join(mount, "sessions/new/.abuse")
    closed = ("EPERM",)
    expect("link", path, outcome(lambda: done(os.link)(path, path + "2", follow_symlinks=False)), "EPERM", "EEXIST")
    expect("link to the drop box", path, outcome(lambda: done(os.link)(path, beside + "2", follow_symlinks=False)), *closed)
    expect("exchange", path, renameat2(path, beside, 2), "EINVAL", "EPERM", "EBUSY")
    expect("whiteout", path, renameat2(path, path + "2", 4), "EINVAL", "EPERM", "EBUSY")
    if not stat.S_ISDIR(st.st_mode):
        if os.path.dirname(path) != os.path.join(mount, "sessions/new"):
            expect("rename to the drop box", path, outcome(lambda: done(os.rename)(path, beside)), "EPERM")
            expect("rename over it", path, outcome(lambda: done(os.rename)(beside, path)), "EPERM")
        expect("rename over a folder", path, outcome(lambda: done(os.rename)(path, mount + "/sessions")), "EISDIR", "EPERM", "ENOTEMPTY")
    else:
        expect("a file over it", path, outcome(lambda: done(os.rename)(beside, path)), "EISDIR", "EPERM", "EXDEV", "ENOTEMPTY")
    expect("mkdir over it", path, outcome(lambda: done(os.mkdir)(path)), "EEXIST")
    expect("mknod over it", path, outcome(lambda: done(os.mknod)(path, 0o644 | stat.S_IFIFO)), "EEXIST")
    expect("symlink over it", path, outcome(lambda: done(os.symlink)("/", path)), "EEXIST")
    expect("O_EXCL", path, on(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, lambda fd: "ok"), "EEXIST", "EISDIR")
    for kind in (stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK):
        expect("mknod", path + ".n", outcome(lambda: done(os.mknod)(path + ".n", 0o644 | kind, os.makedev(1, 3))), "EPERM")


def readers(path, st):
    """Each way to read gives the same."""
    st = os.lstat(path)  # what was refused before has made `error` longer
    text = slurp(path)
    quiet = not path.endswith(("/status", "/index", "/events", "/error", "/head", "/ledger", "/tokens", "/log"))
    same = [text] if quiet else [text, slurp(path)]
    size = len(text)
    expect("size", path, st.st_size, *([size] if quiet else [len(t) for t in same]))
    expect("sendfile", path, on(path, os.O_RDONLY, copy_by(lambda a, b, n: os.sendfile(b, a, None, n))), *same)
    expect("splice", path, on(path, os.O_RDONLY, spliced), *same)
    expect("copy_file_range", path, on(path, os.O_RDONLY, copy_by(os.copy_file_range)), "EXDEV", "EINVAL", "ENOTSUP", *same)
    expect("mmap", path, on(path, os.O_RDONLY, lambda fd: mapped(fd, mmap.MAP_PRIVATE)), "empty", "ENODEV", *same)
    expect("shared mmap", path, on(path, os.O_RDONLY, lambda fd: mapped(fd, mmap.MAP_SHARED)), "empty", "ENODEV", *same)
    expect("O_DIRECT", path, on(path, os.O_RDONLY | os.O_DIRECT, lambda fd: os.read(fd, 1 << 26)), "EINVAL", *same)
    expect("readv", path, on(path, os.O_RDONLY, lambda fd: bytes(b"".join([b for b in [bytearray(size)] if size == 0 or os.readv(fd, [memoryview(b)[: size // 2], memoryview(b)[size // 2 :]]) == size]))), *same)
    expect("a read of nothing", path, on(path, os.O_RDONLY, lambda fd: os.read(fd, 0)), b"")
    expect("a read far behind the end", path, on(path, os.O_RDONLY, lambda fd: os.pread(fd, 10, 1 << 62)), b"")
    expect("a read before the begin", path, on(path, os.O_RDONLY, lambda fd: os.pread(fd, 10, -5)), "EINVAL")
    expect("seek behind the end", path, on(path, os.O_RDONLY, lambda fd: (os.lseek(fd, 1 << 40, 0), os.read(fd, 5))[1]), b"")
    expect("SEEK_END", path, on(path, os.O_RDONLY, lambda fd: os.lseek(fd, 0, os.SEEK_END)), *[len(t) for t in same])
    expect("SEEK_HOLE", path, on(path, os.O_RDONLY, lambda fd: os.lseek(fd, 0, os.SEEK_HOLE)), "ENXIO", *[len(t) for t in same])
    expect("flock", path, on(path, os.O_RDONLY, lambda fd: done(fcntl.flock)(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)), "ok")
    expect("a lease", path, on(path, os.O_RDONLY, lambda fd: done(fcntl.fcntl)(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)), "ok", "EAGAIN", "EINVAL", "EACCES")
    expect("fsync", path, on(path, os.O_RDONLY, done(os.fsync)), "ok")
    expect("syncfs", path, on(path, os.O_RDONLY, lambda fd: sys_call(libc.syncfs, fd)), "ok")
    expect("fadvise", path, on(path, os.O_RDONLY, lambda fd: done(os.posix_fadvise)(fd, 0, 0, os.POSIX_FADV_DONTNEED)), "ok")
    expect("an ioctl", path, on(path, os.O_RDONLY, get_flags), "ENOTTY", "ENOTSUP", "EPERM", "ENOSYS")
    expect("a write to what is open for reading", path, on(path, os.O_RDONLY, lambda fd: os.write(fd, b"x")), "EBADF")
    expect("O_PATH", path, on(path, os.O_PATH, lambda fd: "ok"), "ok")
    expect("O_NOATIME", path, on(path, os.O_RDONLY | os.O_NOATIME, lambda fd: "ok"), "ok", "EPERM")
    expect("O_DIRECTORY", path, on(path, os.O_RDONLY | os.O_DIRECTORY, lambda fd: "ok"), "ENOTDIR")
    expect("as a folder", path, outcome(lambda: os.listdir(path)), "ENOTDIR")
    expect("a name in it", path, outcome(lambda: os.stat(path + "/x")), "ENOTDIR")
    expect("running it", path, outcome(lambda: os.access(path, os.X_OK)), bool(st.st_mode & 0o111))


def writers(path, st):
    """What can only be read is refused at the open; where a write may be, none of these is one."""
    if not st.st_mode & 0o222:
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_TRUNC, os.O_RDWR | os.O_DIRECT):
            expect("open for writing", path, on(path, flags, lambda fd: "ok"), "EACCES")
        expect("truncate", path, outcome(lambda: done(os.truncate)(path, 0)), "EACCES")
        expect("times", path, outcome(lambda: done(os.utime)(path, (1, 1))), "EPERM", "EACCES")
        return
    for mode in (0, 1, 2, 3, 16, 8, 32):
        expect("fallocate %d" % mode, path, on(path, os.O_WRONLY, lambda fd: fallocate(fd, mode)), "ENOTSUP", "EINVAL", "EPERM")
    expect("a write of nothing", path, on(path, os.O_WRONLY, lambda fd: os.write(fd, b"")), 0)
    expect("one more by O_APPEND", path, on(path, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"")), 0)
    expect("a shared mmap to write", path, on(path, os.O_RDWR, lambda fd: mmap.mmap(fd, 0, mmap.MAP_SHARED).close()), None, "empty", "ENODEV")
    expect("a lock", path, on(path, os.O_RDWR, lambda fd: done(fcntl.lockf)(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)), "ok")
    expect("the time of now", path, outcome(lambda: done(os.utime)(path)), "ok")
    expect("a write to an address that is none", path,
           on(path, os.O_WRONLY, lambda fd: sys_call(libc.write, fd, ctypes.c_void_p(8), ctypes.c_size_t(10))), "EFAULT")


def folders(path):
    for make in (os.mkdir, lambda p: os.mknod(p, 0o644), lambda p: os.symlink("/nonexistent", p)):
        expect("making something", path, outcome(lambda: done(make)(path + "/abuse\nme")), "EPERM", "EINVAL")
    expect("O_TMPFILE", path, on(path, os.O_TMPFILE | os.O_RDWR, lambda fd: "ok"), "ENOTSUP", "EPERM", "EACCES", "EISDIR")
    expect("a name of 256", path, outcome(lambda: os.stat(path + "/" + "n" * 256)), "ENAMETOOLONG")
    expect("making one of 256", path, on(path + "/." + "n" * 255, os.O_CREAT | os.O_WRONLY, lambda fd: "ok"), "ENAMETOOLONG")
    expect("a name of 255", path, outcome(lambda: os.stat(path + "/" + "n" * 255)), "ENOENT")
    expect("a name that is no text", path, outcome(lambda: os.stat(os.fsencode(path) + b"/\xff\xfe")), "ENOENT")
    expect("reading it as a file", path, on(path, os.O_RDONLY, lambda fd: os.read(fd, 10)), "EISDIR")
    expect("opening it to write", path, on(path, os.O_WRONLY, lambda fd: "ok"), "EISDIR")
    expect("fsync", path, on(path, os.O_RDONLY, done(os.fsync)), "ok")
    expect("flock", path, on(path, os.O_RDONLY, lambda fd: done(fcntl.flock)(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)), "ok")
    expect("a seek in it", path, on(path, os.O_RDONLY, lambda fd: (os.lseek(fd, (1 << 62) + 12345, 0), os.listdir(fd))[0] > 0), True, "EINVAL")


def visit(path):
    st = os.lstat(path)
    before = len(bad)
    attributes(path, st)
    if path != mount:
        names(path, st)
    if stat.S_ISDIR(st.st_mode):
        folders(path)
    elif stat.S_ISREG(st.st_mode):
        had = len(bad)
        readers(path, st)
        if len(bad) > had:  # ages in minutes and the like may have changed in between
            del bad[had:]
            readers(path, st)
        writers(path, st)
    shown = os.path.relpath(path, mount)
    print(("ok " if len(bad) == before else "not ok ") + "every call on " + shown)
    for line in bad[before:]:
        print("# " + line)


open(os.path.join(mount, "sessions/new/.abuse"), "w").close()
paths = [mount]
for top, dirs, files in os.walk(mount):
    paths += [os.path.join(top, n) for n in sorted(dirs + files) if n != ".abuse"]
for path in paths:
    visit(path)
os.remove(os.path.join(mount, "sessions/new/.abuse"))
print("# %d files and folders" % len(paths))
