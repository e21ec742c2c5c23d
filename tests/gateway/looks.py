# What the host sees of a guest: everything in its memory and on its disk.
import os


def processes(folder):
    """Those but this one that have the folder in their command line: pid and that line."""
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open("/proc/%s/cmdline" % p, "rb").read()
        except OSError:
            continue
        if int(p) != os.getpid() and folder.encode() in line:
            yield int(p), line.replace(b"\0", b" ").decode(errors="replace")


def pieces(path):
    """A file's bytes, in pieces that overlap."""
    with open(path, "rb") as f:
        last = b""
        while (piece := f.read(32 << 20)):
            yield last[-200:] + piece
            last = piece


def memory(pid):
    """Every readable byte of a process, in pieces that overlap."""
    with open("/proc/%d/maps" % pid) as maps, open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for line in maps.read().splitlines():
            span, mode = line.split()[:2]
            at, to = (int(x, 16) for x in span.split("-"))
            while mode[0] == "r" and "[v" not in line and at < to:
                try:
                    mem.seek(at)
                    piece = mem.read(min(to - at, 32 << 20))
                except (OSError, OverflowError, ValueError):
                    break
                if not piece:
                    break
                yield piece
                at += max(len(piece) - 100, 1) if at + len(piece) < to else len(piece)


def holders(folder, processes, words):
    """Of a sandbox's folder and of its VM's (pid, command line): how many were looked at, and which have the words."""
    found, looked = [], 0
    for p, line in processes:
        if "qemu-system" in line and folder in line:
            looked += 1
            found += [p for piece in memory(p) if words in piece]
    for base, _, files in os.walk(folder):
        for f in files:
            path = base + "/" + f
            if os.path.isfile(path):
                looked += 1
                found += [path for piece in pieces(path) if words in piece]
    return looked, found
