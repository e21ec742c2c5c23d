#!/bin/sh
# time limit: 600 s
# VMs run on KVM where that works, and are emulated where it only seems to. In front of QEMU stands a program that takes
# `-accel kvm` and does what the file `mode` says; all else it leaves to QEMU itself.
[ "${1:-}" = inside ] || ! unshare -m true 2>/dev/null || exec unshare -m --propagation private sh "$0" inside
. "$(dirname "$0")/../lib.sh"
if ! [ -r /dev/kvm ] || ! [ -w /dev/kvm ]; then
	skip "kvm" "there is no /dev/kvm for us"
	exit 0
fi
use_vm
mkdir -p "$T/cache/berthfs" "$T/front/bin"
[ "${1:-}" = inside ] && mount -t tmpfs -o size=2m,mode=700 none "$T/cache/berthfs" 2>/dev/null && small=1
trap 'stop >/dev/null 2>&1; for pid in $(sandbox_pids) $(gateway_pid); do kill -9 "$pid" 2>/dev/null; done
[ -z "${small:-}" ] || umount -l "$T/cache/berthfs"; finish' EXIT
ln -s "$IMAGES/berthfs/images" "$T/cache/berthfs/images"
XDG_CACHE_HOME=$T/cache # what is known of KVM is kept there
NOTE=$T/cache/berthfs/kvm
cat >"$T/front/bin/qemu-system-x86_64" <<'END2'
#!/usr/bin/python3
import json, os, re, socket, sys, time
a = sys.argv[1:]
real = "/usr/bin/qemu-system-x86_64"
at = a.index("-accel") + 1 if "-accel" in a else -1
if at < 0 or a[at] != "kvm":
    os.execv(real, [real] + a)
if not os.path.exists("/dev/kvm"):
    sys.exit("no /dev/kvm in here")
probe = re.search("berthfs.probe=([0-9a-f]+)", " ".join(a))
if probe:
    print(probe.group(1))
    sys.exit(0)
front = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
mode = open(front + "/mode").read().strip()
if mode == "works":
    a[at] = "tcg,thread=multi,tb-size=64"
    a[a.index("-cpu") + 1] = "max"
    a[a.index("-append") + 1] += " " + open(front + "/clock").read().strip() # an emulated guest needs to know
    os.execv(real, [real] + a)
if mode == "abort":
    os.abort()
if mode == "gate": # until somebody opens it
    while not os.path.exists(front + "/go"):
        time.sleep(0.05)
    os.abort()
if mode == "hang":
    while True:
        time.sleep(1000)
# an internal error: the guest stops, and QEMU stays
qmp = socket.socket(fileno=int(re.search("id=qmp,fd=([0-9]+)", " ".join(a)).group(1)))
say = lambda o: qmp.sendall(json.dumps(o).encode() + b"\r\n")
say({"QMP": {"version": {}, "capabilities": []}})
for line in qmp.makefile("r"):
    ask = json.loads(line)
    status = {"status": "internal-error", "running": False} if ask["execute"] == "query-status" else {}
    say({"return": status, "id": ask["id"]} if "id" in ask else {"return": status})
    if ask["execute"] == "qmp_capabilities":
        say({"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 1}})
END2
chmod 755 "$T/front/bin/qemu-system-x86_64"
PATH=$T/front/bin:$PATH
i=0
while [ $i -lt 8 ]; do
	echo '{"tools":[{"name":"bash","input":{"command":"[ -s ~/pid ] || (setsid sleep 100000 >/dev/null 2>&1 & echo $! >~/pid); sleep 0.2; readlink /proc/$(cat ~/pid)/exe"}}]}'
	echo '{"text":"done"}'
	i=$((i + 1))
done >"$T/script"
echo 'sandbox.boot-timeout = 40' >>"$T/config/berthfs/config" # what hangs is given up then
start || exit 1
sandbox_is() { [ "$(cat "$S/$1/sandbox")" = "$2" ]; }
knows() { contains "$1" "$(sed -n 2p "$NOTE")" "$2"; }
run() { # run NAME: a session whose first message is answered
	(cd "$P" && echo hello >"$S/new/$1")
	equal "$1: it answers" "$(timeout 200 cat "$S/$1/wait/idle")" idle || cat "$S/$1/log"
}

contains "doctor has tried it" "$("$BERTHFS" doctor)" "kvm          works here: a guest booted"
for mode in error abort hang; do
	echo $mode >"$T/front/mode"
	[ $mode = error ] || sed -i '2s/.*/yes it was tried/' "$NOTE"
	run $mode
	equal "$mode: it is emulated" "$(cat "$S/$mode/sandbox")" "vm running tcg"
	contains "$mode: log says why" "$(cat "$S/$mode/log")" "the VM is emulated"
	knows "$mode: KVM counts as broken" "no  "
	[ $mode != error ] || for pid in $(sandbox_pids); do
		tr '\0 ' '\n\n' <"/proc/$pid/cmdline" | grep '^tsc' >>"$T/front/clock"
	done
	sort -u "$T/front/clock" | tr '\n' ' ' >"$T/clock" && cp "$T/clock" "$T/front/clock"
	echo "destroy force" >"$S/$mode/ctl"
done
run later
equal "later ones do not try" "$(grep -c "the VM is emulated" "$S/later/log")" 0
contains "doctor says so" "$("$BERTHFS" doctor)" "kvm          does not work here: "

# ---- the daemon is killed while KVM has a VM that it will never run, and when that is being emulated
again() { # again NAME COMMAND...: once the command succeeds
	again_name=$1
	shift
	(cd "$P" && echo hello >"$S/new/$again_name")
	within 100 "$@" || not_ok "$again_name: it comes so far"
	kill -9 "$DAEMON"
	within 60 is_gone "$DAEMON"
	start || exit 1
	: >"$T/front/go"
	equal "$again_name: it answers" "$(timeout 300 cat "$S/$again_name/wait/idle")" idle || cat "$S/$again_name/log"
	equal "$again_name: it is emulated" "$(cat "$S/$again_name/sandbox")" "vm running tcg"
	knows "$again_name: KVM counts as broken" "no  "
	echo "destroy force" >"$S/$again_name/ctl"
}
on_kvm() { grep -qs kvm "$T/state/berthfs/sandboxes/$(cat "$S/killed-on-kvm/id")/accel"; }
emulated() { grep -qs "the VM is emulated" "$S/killed-then/log"; }
echo gate >"$T/front/mode"
sed -i '2s/.*/yes it was tried/' "$NOTE"
again killed-on-kvm on_kvm
sed -i '2s/.*/yes it was tried/' "$NOTE"
again killed-then emulated

# ---- what was found out cannot be kept
if [ -n "${small:-}" ]; then
	sed -i '2s/.*/yes it was tried/' "$NOTE"
	cat /dev/zero >"$T/cache/berthfs/filler" 2>/dev/null
	run full
	equal "full: it is emulated" "$(cat "$S/full/sandbox")" "vm running tcg"
	knows "full: nothing half stands there" "yes it was tried"
	equal "full: nor beside it" "$(find "$T/cache/berthfs" -maxdepth 1 -name 'kvm?*' ! -name kvm.lock)" ""
	rm "$T/cache/berthfs/filler"
	echo "destroy force" >"$S/full/ctl"
else
	skip "a full disk" "no tmpfs can be mounted here"
fi

echo works >"$T/front/mode"
sed -i '2s/.*/yes a guest booted/' "$NOTE"
run works
equal "works: it is not emulated" "$(cat "$S/works/sandbox")" "vm running"
knows "works: that is known" "yes a guest booted"
hibernates() { # refused while the guest has not closed its end of the last connection, so it is asked again
	echo hibernate >"$S/works/ctl"
	timeout 200 cat "$S/works/wait/idle" >/dev/null
	sandbox_is works "vm hibernated"
}
check "works: it hibernates" within 100 hibernates
echo again >>"$S/works/input"
equal "works: it is woken" "$(timeout 200 cat "$S/works/wait/idle")" idle
contains "works: with its processes" "$(tail -n 12 "$S/works/transcript")" /sleep
equal "works: still not emulated" "$(cat "$S/works/sandbox")" "vm running"
echo "destroy force" >"$S/works/ctl"
