/* Disks of VMs. For the driver of kind vm; worker threads; blocks. */
#pragma once
#include "sandbox.h"

/* The disk of a new sandbox, whole or not at all. Builds the base image first if there is none. -ENOSPC. */
int vm_disk_make(const struct sandbox_spec *spec, struct err *err);
/* An overlay at `disk` in which nothing is written yet; base is the file that it lies on. -ENOSPC. */
int vm_disk_empty(const char *base, const char *disk, struct err *err);
/* The image folder that the sandbox's disk was made from: its kernel and first program; malloc'd. -ENOENT: it is gone.
 */
int vm_disk_image(const struct sandbox_spec *spec, char **dir, struct err *err);
/* Whether the templates that it lies on are all there: they may be cleared from the cache. -ENOENT: one is gone. */
int vm_disk_bases(const struct sandbox_spec *spec, struct err *err);
/* Whether KVM runs what is on it: the kernel and first program of that folder (kvm.h). The first time takes seconds. */
bool vm_disk_kvm(const struct sandbox_spec *spec);
/* The folder with the disk that the sandbox's disk lies on: an image's or a template's; malloc'd. */
int vm_disk_base(const struct sandbox_spec *spec, char **dir, struct err *err);
