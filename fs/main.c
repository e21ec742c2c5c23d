/* The command line: a table of verbs. What each does is elsewhere; here are arguments, help and exit codes (sysexits).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/base/child.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "enter.h"
#include "gateway/gateway.h"
#include "mount.h"
#include "sandbox/sandbox.h"

struct verb {
	const char *name, *args;
	int (*run)(const struct verb *v, int argc, char **argv); /* argv[0] is the verb */
	const char *about;					 /* NULL: for our own processes, not told */
	const char *help;
};

static int usage(const struct verb *v)
{
	fprintf(stderr, "berthfs: usage: berthfs %s %s\n", v->name, v->args);
	return EX_USAGE;
}

static int say(int code, const struct err *err)
{
	fprintf(stderr, "berthfs: %s\n", err->text);
	return code;
}

static int paths_or_say(struct paths *paths)
{
	struct err err = ERR_INIT;
	return paths_init(paths, &err) ? say(EX_OSERR, &err) : 0;
}

/* ---- verbs ---- */

/* Both `mount [-f] [-o OPT,...] [DIR]` and what mount(8) calls: SOURCE DIR -o OPT,... */
static int run_mount(const struct verb *v, int argc, char **argv)
{
	struct mount_options opt = {0};
	int c, code = -1;
	optind = 1;
	while (code < 0 && (c = getopt(argc, argv, "fo:")) != -1) {
		if (c == 'f')
			opt.foreground = true;
		else if (c != 'o' || mount_option_list(&opt, optarg))
			code = usage(v);
	}
	if (code < 0 && argc - optind > 2)
		code = usage(v);
	if (code < 0) {
		if (argc - optind == 2)
			opt.source = argv[optind++];
		opt.dir = optind < argc ? argv[optind] : NULL;
		code = mount_main(&opt);
	}
	free(opt.fsname);
	return code;
}

static int run_umount(const struct verb *v, int argc, char **argv)
{
	return argc > 2 || (argc == 2 && argv[1][0] == '-') ? usage(v) : umount_main(argc == 2 ? argv[1] : NULL);
}

static int run_show(const struct verb *v, int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct paths paths;
	if (argc != 2)
		return usage(v);
	int code = paths_or_say(&paths);
	if (code)
		return code;
	int rc = backend_show(&paths, argv[1], STDOUT_FILENO, &err);
	paths_release(&paths);
	return rc ? say(rc == -ENOENT ? EX_NOINPUT : EX_IOERR, &err) : EX_OK;
}

static void print_finding(void *arg, bool ok, const char *name, const char *words)
{
	int *bad = arg;
	*bad += !ok;
	printf("%-5s %-12s %s\n", ok ? "ok" : "no", name, words);
}

static void doctor_fuse(int *bad)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		print_finding(bad, true, "fuse", "/dev/fuse can be opened");
	else
		print_finding(bad, false, "fuse",
			      errno == ENOENT
				      ? "no /dev/fuse: load the module with `modprobe fuse`"
				      : "/dev/fuse cannot be opened by you: its mode should be 0666, as udev sets it");
	if (fd >= 0)
		close(fd);
	bool helper = child_found("fusermount3");
	print_finding(bad, helper || !geteuid(), "fusermount3",
		      helper ? "found" : "not found: install the package fuse3");
}

static int run_doctor(const struct verb *v, int argc, char **argv)
{
	struct paths paths;
	int bad = 0;
	if (argc != 1)
		return usage(v);
	int code = paths_or_say(&paths);
	if (code)
		return code;
	doctor_fuse(&bad);
	sandbox_doctor(&paths, print_finding, &bad);
	backend_doctor(&paths, print_finding, &bad);
	gateway_doctor(&paths, print_finding, &bad);
	paths_release(&paths);
	return bad ? EX_UNAVAILABLE : EX_OK;
}

static void print_model(void *arg, bool ok, const char *name, const char *words)
{
	printf("%-3s %-28s %s\n", ok ? "ok" : "no", name, words);
}

static int run_models(const struct verb *v, int argc, char **argv)
{
	struct paths paths;
	struct err err = ERR_INIT;
	if (argc != 1)
		return usage(v);
	int code = paths_or_say(&paths);
	if (code)
		return code;
	int n = backend_models(&paths, print_model, NULL, &err);
	paths_release(&paths);
	return n < 0 ? say(n == -EINVAL ? EX_CONFIG : EX_IOERR, &err) : n ? EX_OK : EX_UNAVAILABLE;
}

static void print_line(void *arg, const char *line)
{
	printf("%s\n", line);
	fflush(stdout);
}

static int image_verb(const struct paths *paths, int argc, char **argv, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	if (argc == 1 && !strcmp(argv[0], "build"))
		return image_build(paths, false, NULL, print_line, NULL, err);
	if (argc == 2 && !strcmp(argv[0], "build") && !strcmp(argv[1], "--force"))
		return image_build(paths, true, NULL, print_line, NULL, err);
	if (argc == 2 && !strcmp(argv[0], "rm"))
		return image_remove(paths, argv[1], err);
	if (argc != 1 || strcmp(argv[0], "list"))
		return 1;
	int rc = image_list(paths, &out, err);
	fputs(buf_str(&out), stdout);
	return rc;
}

static int run_image(const struct verb *v, int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct paths paths;
	if (argc < 2)
		return usage(v);
	int code = paths_or_say(&paths);
	if (code)
		return code;
	int rc = image_verb(&paths, argc - 1, argv + 1, &err);
	paths_release(&paths);
	if (rc > 0)
		return usage(v);
	return rc ? say(rc == -ENOENT ? EX_NOINPUT : EX_UNAVAILABLE, &err) : EX_OK;
}

static int run_with_paths(const struct verb *v, int argc, char **argv,
			  int (*run)(const struct paths *paths, int argc, char **argv))
{
	struct paths paths;
	int code = paths_or_say(&paths);
	if (code)
		return code;
	code = run(&paths, argc, argv);
	paths_release(&paths);
	return code == EX_USAGE ? usage(v) : code;
}

static int run_conformance(const struct verb *v, int argc, char **argv)
{
	return run_with_paths(v, argc, argv, sandbox_conformance_main);
}

static int run_ssh(const struct verb *v, int argc, char **argv)
{
	return argc < 2 || argv[1][0] == '-' ? usage(v) : ssh_main(argv[1], argv + 2);
}

static int run_connect(const struct verb *v, int argc, char **argv)
{
	return argc != 2 || argv[1][0] == '-' ? usage(v) : connect_main(argv[1]);
}

static int run_ssh_config(const struct verb *v, int argc, char **argv)
{
	return argc != 1 ? usage(v) : ssh_config_main();
}

static int run_keeper(const struct verb *v, int argc, char **argv)
{
	return sandbox_keeper_main(argc, argv);
}

static int run_box(const struct verb *v, int argc, char **argv)
{
	return sandbox_box_main(argc, argv);
}

static int run_bridge(const struct verb *v, int argc, char **argv)
{
	return sandbox_bridge_main(argc, argv);
}

static int run_tools(const struct verb *v, int argc, char **argv)
{
	return sandbox_tools_main(argc, argv);
}

static int run_claude(const struct verb *v, int argc, char **argv)
{
	return backend_claude_main(argc, argv);
}

static int run_gateway(const struct verb *v, int argc, char **argv)
{
	return gateway_main(argc, argv);
}

static int run_ledger(const struct verb *v, int argc, char **argv)
{
	return run_with_paths(v, argc, argv, gateway_ledger_main);
}

static const struct verb verbs[] = {
	{"mount", "[-f] [-o OPT,...] [DIR]", run_mount, "mount the tree of sessions at DIR (~/berth)",
	 "Returns when the tree can be used; the daemon goes on in the background and writes its log to the file `log` "
	 "of\n"
	 "the state folder. DIR is made if it is missing, and has to be empty.\n\n"
	 "  -f              stay in the foreground, log to standard error\n"
	 "  -o allow_other  let other users read the tree (needs user_allow_other in /etc/fuse.conf)\n"
	 "  -o nowatch      make no events for inotify of what the daemon changes\n"
	 "  -o fsname=NAME  shown as the device of the mount\n\n"
	 "`mount -t fuse.berthfs berthfs DIR` and lines of fstab do the same.\n"},
	{"umount", "[DIR]", run_umount, "finish what is being committed and unmount",
	 "The daemon ends as on SIGTERM. Commands in sandboxes go on; the next mount takes them over.\n"},
	{"show", "NAME", run_show, "print a session's transcript, also of one that has ended",
	 "NAME is the session's name or number.\n"},
	{"doctor", "", run_doctor, "tell what works on this machine, and what to do about the rest",
	 "One line a finding: ok or no, its name, words. Exit code 69 if something does not work.\n"},
	{"models", "", run_models, "list the models that can be used now, and why the rest cannot",
	 "One line each: ok or no, its name as `model` in config or front matter takes it (a * stands for any end), "
	 "words. "
	 "Servers on\n"
	 "this machine and its LAN are asked what they have. Exit code 69 if there is none but script:FILE.\n"},
	{"image", "build [--force] | list | rm NAME", run_image, "the base image of sandboxes",
	 "build makes it if there is none or its recipe has changed; a session does that by itself when it has to.\n"},
	{"ssh", "NAME [COMMAND...]", run_ssh, "a shell, or a command, in a session's sandbox",
	 "NAME is the session's name or number. Begins in the clone, as the tools do; starts the sandbox if it is "
	 "down. "
	 "The\n"
	 "exit code is that of the command, or 255 if ssh itself failed.\n"},
	{"connect", "NAME", run_connect, "the byte stream to a sandbox's ssh server, for ProxyCommand",
	 "On standard input and output. Makes the session's keys and starts the sandbox if it has to.\n"},
	{"ssh-config", "", run_ssh_config, "print lines for ~/.ssh/config: ssh, scp, rsync and sshfs to NAME.berth",
	 "Once: berthfs ssh-config >~/.ssh/berth, and `Include berth` as the first line of ~/.ssh/config.\n"},
	{"ledger", "verify [--expect-head H] [FILE]", run_ledger, "check the gateway's record of requests",
	 "FILE is a copy of gateway/ledger, or a rotated segment; without one the instance's own is checked. H is a "
	 "head (64 hex\n"
	 "digits, from gateway/head) that was noted earlier: it has to be found, so that a cut end shows. --key FILE "
	 "names the\n"
	 "public key to hold it against. Exit code 65 if it does not hold.\n"},
	{"conformance", "KIND", run_conformance, "check that sandboxes of a kind behave as they all have to",
	 "Makes a sandbox of that kind (vm, container, ssh:HOST, host, dir), runs one suite of cases on it and takes "
	 "it away.\nOne line a case: ok, not ok or skip, its words, its time; then the total. Exit code 70 if a case "
	 "fails, "
	 "69 if\nthere can be no such sandbox here.\n"},
	{"gateway", "...", run_gateway, NULL, NULL},
	{"claude-jail", "...", run_claude, NULL, NULL},
	{"vm-keeper", "...", run_keeper, NULL, NULL},
	{"box-keeper", "...", run_box, NULL, NULL},
	{"ssh-bridge", "...", run_bridge, NULL, NULL},
	{"tool-daemon", "...", run_tools, NULL, NULL},
};

/* ---- help ---- */

static int help(FILE *out)
{
	fputs("berthfs: every coding-agent session is a directory of plain files\n\n", out);
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (verbs[i].about)
			fprintf(out, "  berthfs %-11s %-33s %s\n", verbs[i].name, verbs[i].args, verbs[i].about);
	fputs("\n  berthfs VERB --help    more about one\n  berthfs --version\n\n"
	      "After mounting, read README in the mounted directory.\n",
	      out);
	return out == stdout ? EX_OK : EX_USAGE;
}

static int help_verb(const struct verb *v)
{
	printf("berthfs %s %s\n\n%s.\n%s", v->name, v->args, v->about ? v->about : "for berthfs itself",
	       v->help ? v->help : "");
	return EX_OK;
}

static const struct verb *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static bool is_help(const char *arg)
{
	return !strcmp(arg, "--help") || !strcmp(arg, "-h");
}

/* Descriptors 0 to 2 have to be open, or the next files opened would take their numbers. */
static void open_standard(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

int main(int argc, char **argv)
{
	open_standard();
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 0); /* mount units have none */
	if (getenv("BERTHFS_DEBUG"))
		log_set_level(LOG_DEBUG);
	if (argc < 2)
		return help(stderr);
	if (is_help(argv[1]) || !strcmp(argv[1], "help"))
		return help(stdout);
	if (!strcmp(argv[1], "--version")) {
		printf("berthfs %s\n", BERTHFS_VERSION);
		return EX_OK;
	}
	const struct verb *v = find(argv[1]);
	if (v)
		return argc == 3 && v->about && is_help(argv[2]) ? help_verb(v) : v->run(v, argc - 1, argv + 1);
	if (argc > 2 && argv[1][0] != '-' && argv[2][0] == '/') /* called by mount(8): SOURCE DIR [-o ...] */
		return run_mount(&verbs[0], argc, argv);
	fprintf(stderr, "berthfs: unknown verb %s; berthfs --help lists them\n", argv[1]);
	return EX_USAGE;
}
