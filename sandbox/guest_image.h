/* The static guest program (PID 1 of every VM), carried inside this one. Its own source is sandbox/guest/init.c.
 *
 * What it expects around itself:
 *	initrd   /init is this program. /modules/list names kernel modules, one file name a line, relative to /modules,
 *	         loaded in that order. Then /dev/vda (ext4) becomes the root and the program goes on as its PID 1.
 *	root     user `agent` 1000:1000 with /home/agent; folders proc sys dev run tmp var/lib. Nothing of ours need be
 *in it. port     a virtio-serial port named berthfs.mux cmdline  berthfs.host=NAME sets the host name;
 *berthfs.time=MILLISECONDS since 1970 sets the clock (hello sets it again); berthfs.probe=NONCE prints the nonce on the
 *console and powers off at once. ready    it prints "berthfs-guest: ready" on the console when the port is open. */
#pragma once
#include <stddef.h>

extern const unsigned char guest_image[];
extern const size_t guest_image_size;
