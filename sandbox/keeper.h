/* What the driver of kind vm and the keeper of one VM agree on. The keeper is a process of its own, parent of one QEMU.
 *
 * Files of one sandbox, in the folder STATE/sandboxes/ID (0700):
 *	disk.qcow2   the overlay; its backing file is in the image folder, or in that of a template
 *	bases        the folders of templates that the disk lies on, nearest first, one a line; none: only the image
 *	image        the image folder it was made from, one line
 *	lock         flock, held by the keeper and inherited by QEMU: whoever wants to run this disk needs it first
 *	socket       path of the socket that the keeper listens on, one line; SIGHUP makes it read this again
 *	net          the gateway's socket of this sandbox, one line (net.h); none: the guest's net streams are refused
 *	keeper.pid   "PID STARTTIME\n", the keeper (start time: field 22 of /proc/PID/stat)
 *	accel        what the last start ran on, one line: "kvm" or "tcg"
 *	keeper.log   what keeper and QEMU have to say about themselves; last start only
 *	console.log  the serial console, bounded, last start only
 *	fresh        there as long as the disk has the identity of the machine that it was copied from
 *	saves/       copies of the disk, NAME.qcow2
 *	ended        how the last run ended, one line
 *	memory       the VM's memory (ram.h) while it hibernates, gone before the guest goes on: while it is there the
 *	             disk is in step with it, and must not be run in any other way
 *
 *	warm         the VM has never run: its disk is a copy, in step with the file of memory that is named here. Gone
 *	             before the guest goes on
 *
 *	base         the file of memory that the VM began from, one line: a paused VM gives back what that holds as well
 *
 * The keeper listens on its socket, RUNTIME/ID.sock (0600, same user only). A client sends one line and gets "ok\n" or
 * "error WORDS\n" first:
 *	tool      then the connection is a stream to the tool daemon; waits while the VM boots, a paused one goes on
 *	ssh       the same to an ssh server in the guest (guest/ssh.h)
 *	wait      answered when the tool daemon can be reached
 *	status    then one line: booting|running|paused|saving|stopping|stalled, accelerator, "ssh" and how many of
 *	          people's connections there are. stalled: the host's disk is full
 *	pause     the guest is stopped as it is; "error busy: WORDS" while a stream to it is open
 *	hibernate the memory is saved, then QEMU ends; answered when it has ended; it goes on if that fails. "error
 *	          busy: WORDS" as with pause
 *	hold      the guest stands still, whoever is connected, as long as this client stays; for a copy of the disk
 *	poweroff  clean power-off; answered when QEMU has ended, then one line: how
 *	kill      QEMU is killed; answered when it has ended
 *	console   then the last 8 KiB of the serial console */
#pragma once
#define KEEPER_VERB	    "vm-keeper" /* the program's hidden verb */
#define KEEPER_BUSY	    "busy: "
#define KEEPER_CONSOLE_TAIL 8192
#define KEEPER_POWEROFF_MS  10000 /* a clean power-off takes 0.2 s; programs that ignore SIGTERM get this long */
#define KEEPER_MEMORY	    "memory"
/* How the words begin with which a VM ends that was to go on from saved memory and has not: it can be booted. */
#define KEEPER_NOT_RESTORED "its memory cannot be restored: "
/* And the same of one that KVM has never got to run: it can be emulated. */
#define KEEPER_NO_KVM "KVM does not run it: "
#define KEEPER_FRESH  "fresh"
#define KEEPER_ACCEL  "accel"
#define KEEPER_BASE   "base"
/* PROCESS_STATUS_FD: "ok" or "error WORDS" once QEMU runs; a keeper whose word nobody reads ends. */
