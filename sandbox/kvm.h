/* Whether this machine's KVM can run our guests. That /dev/kvm is there, and that tiny programs run in it, says nothing
 * on nested hosts: so the kernel of the sandboxes itself is booted in it. Any thread; blocks for some seconds at most.
 */
#pragma once
#include <stdbool.h>

#include "backend/base/buf.h"
#include "backend/base/paths.h"

#define KVM_DEVICE "/dev/kvm"

/* Boots the kernel of the image in `dir` under KVM until its first program prints a number that was just drawn, and
 * ends. Known from then on for this boot of the machine, this QEMU, kernel, guest program and user (CACHE/kvm). why: a
 * word or two of how it went, for people. */
bool kvm_works(const struct paths *paths, const char *dir, struct buf *why);
/* It has passed, and does not run a VM all the same: until the machine starts again, or one of those is another, it
 * counts as one that does not work. why: one line. */
void kvm_deny(const struct paths *paths, const char *dir, const char *why);
/* One such boot, under any accelerator of QEMU's, for at most ms. */
bool kvm_probe(const char *accelerator, const char *dir, const char *initrd, int ms, struct buf *why);
