/* What system calls a container may make: all but those that reach for the kernel, other machines or more rights. No
 * capability is left to a container anyway; this takes away the code behind, where most escapes were found. Any thread.
 */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "box.h"

#define LOW 0xffffffffULL /* of an argument that the kernel takes as 32 bits */

/* "Operation not permitted", whatever the arguments. */
static const char *const refused[] = {
	/* file systems and roots */
	"mount",
	"umount",
	"umount2",
	"pivot_root",
	"chroot",
	"move_mount",
	"open_tree",
	"fsopen",
	"fsconfig",
	"fsmount",
	"fspick",
	"mount_setattr",
	"swapon",
	"swapoff",
	"quotactl",
	"quotactl_fd",
	"name_to_handle_at",
	"open_by_handle_at",
	"fanotify_init",
	"fanotify_mark",
	/* keys, programs in the kernel, its modules, its measuring */
	"add_key",
	"request_key",
	"keyctl",
	"bpf",
	"perf_event_open",
	"userfaultfd",
	"init_module",
	"finit_module",
	"delete_module",
	"create_module",
	"kexec_load",
	"kexec_file_load",
	"syslog",
	"lookup_dcookie",
	"nfsservctl",
	/* namespaces, other processes' descriptors */
	"setns",
	"pidfd_getfd",
	"kcmp",
	/* the machine */
	"reboot",
	"acct",
	"iopl",
	"ioperm",
	"vhangup",
	"settimeofday",
	"stime",
	"clock_settime",
	"clock_settime64",
	"clock_adjtime",
	"clock_adjtime64",
	"adjtimex",
	"sethostname",
	"setdomainname",
	"_sysctl",
	"uselib",
	"vm86",
	"vm86old",
	"move_pages",
	"mbind",
	"migrate_pages",
	"set_mempolicy",
	"set_mempolicy_home_node",
};
/* "Function not implemented": programs go on without. clone3 hides its flags from a filter; io_uring does work that no
 * filter sees. */
static const char *const absent[] = {"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"};

static const unsigned long namespaces[] = {CLONE_NEWNS,	 CLONE_NEWUSER, CLONE_NEWPID,	 CLONE_NEWNET,
					   CLONE_NEWIPC, CLONE_NEWUTS,	CLONE_NEWCGROUP, 0x80 /* time */};

static int refuse_names(scmp_filter_ctx ctx, const char *const *names, size_t n, int code)
{
	int rc = 0;
	for (size_t i = 0; i < n && !rc; i++) {
		int call = seccomp_syscall_resolve_name(names[i]);
		if (call != __NR_SCMP_ERROR) /* unknown to the library: an old one, for which there is none */
			rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((uint32_t)code), call, 0);
	}
	return rc == -EDOM || rc == -EOPNOTSUPP ? 0 : rc;
}

static int refuse_namespaces(scmp_filter_ctx ctx)
{
	int rc = 0;
	for (size_t i = 0; i < ARRAY_LEN(namespaces) && !rc; i++) {
		unsigned long bit = namespaces[i];
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit));
		/* in clone the lowest byte is the signal of its end */
		if (!rc && bit > 0xff)
			rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
					      SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit));
	}
	return rc;
}

/* Sockets: unix, IPv4 and IPv6 without raw ones, and netlink's routing family, which the C library asks for addresses.
 */
static int refuse_sockets(scmp_filter_ctx ctx)
{
	const uint32_t no = SCMP_ACT_ERRNO(EAFNOSUPPORT);
	int rc = seccomp_rule_add(ctx, no, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_GT, AF_NETLINK));
	for (unsigned family = 0; family < AF_NETLINK && !rc; family++)
		if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
			rc = seccomp_rule_add(ctx, no, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, family));
	if (!rc)
		rc = seccomp_rule_add(ctx, no, SCMP_SYS(socket), 2, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, AF_NETLINK),
				      SCMP_A2(SCMP_CMP_GT, 0 /* NETLINK_ROUTE */));
	static const unsigned types[] = {SOCK_RAW, SOCK_PACKET}, families[] = {AF_INET, AF_INET6};
	for (size_t i = 0; i < 4 && !rc; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 2,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, families[i / 2]),
				      SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, types[i % 2]));
	return rc;
}

/* Typing into the terminal of whoever looks. */
static int refuse_terminals(scmp_filter_ctx ctx)
{
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				  SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, TIOCSTI));
	return rc ? rc
		  : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, TIOCLINUX));
}

int box_filter(struct err *err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	CLEAN_FD int fd = memfd_create("filter", MFD_CLOEXEC);
	if (!ctx || fd < 0) {
		seccomp_release(ctx);
		return err_set(err, ENOMEM, "cannot make a filter of system calls");
	}
	/* system calls of another architecture (32 bits) have other numbers: none of them */
	int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	rc = rc ? rc : refuse_names(ctx, refused, ARRAY_LEN(refused), EPERM);
	rc = rc ? rc : refuse_names(ctx, absent, ARRAY_LEN(absent), ENOSYS);
	rc = rc ? rc : refuse_namespaces(ctx);
	rc = rc ? rc : refuse_sockets(ctx);
	rc = rc ? rc : refuse_terminals(ctx);
	rc = rc ? rc : seccomp_export_bpf(ctx, fd);
	seccomp_release(ctx);
	if (!rc && lseek(fd, 0, SEEK_SET))
		rc = -errno;
	return rc ? err_sys(err, -rc, "cannot make a filter of system calls") : take_fd(&fd);
}
