#!/bin/sh
# time limit: 600 s
# VMs run on KVM where that works, and are emulated where it only seems to. In front of QEMU stands a program that takes
# `-accel kvm` and does what the file `mode` says; all else it leaves to QEMU itself.
. "$(dirname "$0")/../lib.sh"
if ! [ -r /dev/kvm ] || ! [ -w /dev/kvm ]; then
	skip "kvm" "there is no /dev/kvm for us"
	exit 0
fi
use_vm
mkdir -p "$T/cache/berthfs" "$T/front/bin"
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

echo works >"$T/front/mode"
sed -i '2s/.*/yes a guest booted/' "$NOTE"
run works
equal "works: it is not emulated" "$(cat "$S/works/sandbox")" "vm running"
knows "works: that is known" "yes a guest booted"
echo hibernate >"$S/works/ctl"
check "works: it hibernates" within 100 sandbox_is works "vm hibernated"
echo again >>"$S/works/input"
equal "works: it is woken" "$(timeout 200 cat "$S/works/wait/idle")" idle
contains "works: with its processes" "$(tail -n 12 "$S/works/transcript")" /sleep
equal "works: still not emulated" "$(cat "$S/works/sandbox")" "vm running"
echo "destroy force" >"$S/works/ctl"
