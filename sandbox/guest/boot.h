/* What a guest's PID 1 does before and after it serves: root, mounts, names, clock, power off. One thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUEST_UID  1000 /* the tools' user `agent`, as the image makes it */
#define GUEST_GID  1000
#define GUEST_HOME "/home/agent"
#define GUEST_PATH GUEST_HOME "/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* From the initrd to a complete root: modules, /dev/vda, mounts, console as descriptors 0-2, loopback, host name,
 * clock. Ends in boot_fail() where it cannot go on. */
void boot_up(void);
/* Value of a word KEY=VALUE of the kernel's command line in out; false if there is none. */
bool boot_option(const char *key, char *out, size_t n);
/* Says why on the console and powers off. */
__attribute__((format(printf, 1, 2), noreturn)) void boot_fail(const char *fmt, ...);
__attribute__((format(printf, 1, 2))) void boot_say(const char *fmt, ...);

/* A clock that is righter than this is left alone by a hello: jumps disturb make and git. */
#define CLOCK_OFF_MS 1000
void boot_set_clock(int64_t real_ms, int64_t off_ms); /* unless it is right within off_ms */
/* Host name and machine id; fresh: a new machine id also where there is one. */
void boot_identity(const char *host, bool fresh);
int64_t boot_cpu_ms(void); /* that the machine's processors have worked, all together; -1: cannot be told */
void boot_add_entropy(const void *p, size_t n);
/* SIGTERM to all, a little time, then nothing may be left but us: the caller ends that. */
void boot_terminate_all(void);
__attribute__((noreturn)) void boot_power_off(void); /* sync, root read-only, reset: the machine monitor then exits */
