/* What `ssh -G` says of a host, and what of it is ours: addresses, keys, agents, the ways there. */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/remote_conf.h"

#define HOST "hostname 10.0.0.7\nuser me\nport 22\n"

static struct remote_conf parsed(const char *text, const char *file, int rc)
{
	CLEAN_FREE char *own = xstrdup(text);
	struct remote_conf c;
	struct err err = ERR_INIT;
	CHECK_INT(remote_conf_parse("box", own, "/home/me", file, &c, &err), rc);
	CHECK_INT(err.code, -rc);
	CHECK(!rc == !*err.text);
	return c;
}

TEST(plain)
{
	struct remote_conf c =
		parsed("host box\nport 2222\nuser me\nhostname box.lan\nidentitiesonly yes\n"
		       "identityfile ~/.ssh/id_a\nidentityfile none\nidentityfile %d/k/%r@%h-%n-%p-%%-%Z\n"
		       "userknownhostsfile ~/.ssh/known /b\nglobalknownhostsfile none\n"
		       "proxycommand none\nproxyjump none\n",
		       NULL, 0);
	CHECK_STR(c.host, "box");
	CHECK_STR(c.hostname, "box.lan");
	CHECK_STR(c.user, "me");
	CHECK_INT(c.port, 2222);
	CHECK_STR(c.known_as, "[box.lan]:2222");
	CHECK(c.identities_only && !c.proxy);
	CHECK_STR(c.keys[0], "/home/me/.ssh/id_a");
	CHECK_STR(c.keys[1], "/home/me/k/me@box.lan-box-2222-%-%Z");
	CHECK(!c.keys[2]);
	CHECK_STR(c.known[0], "/home/me/.ssh/known");
	CHECK_STR(c.known[1], "/b");
	CHECK(!c.known[2]);
	remote_conf_release(&c);
	CHECK(!c.host && !c.keys[0]);
	/* names are what they are, also this one */
	c = parsed("hostname none\nuser none\nport 22\nhostkeyalias other\nidentitiesonly no\n", NULL, 0);
	CHECK_STR(c.hostname, "none");
	CHECK_STR(c.user, "none");
	CHECK_STR(c.known_as, "other");
	CHECK(!c.identities_only && !c.keys[0] && !c.known[0]);
	remote_conf_release(&c);
}

/* More than we keep is left, and what is no answer is refused. */
TEST(odd)
{
	static const char *const bad[] = {"",
					  "\n\n \nhostname\n",
					  "hostname a\nuser b\n",
					  "hostname a\nuser b\nport 0\n",
					  "hostname a\nuser b\nport 65536\n",
					  "hostname a\nuser b\nport -1\n",
					  "hostname a\nuser b\nport x\n",
					  "hostname \nuser b\nport 22\n",
					  "user b\nport 22\n",
					  "hostname a\nport 22\n"};
	CLEAN_BUF struct buf b = BUF_INIT;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct remote_conf c = parsed(bad[i], NULL, -EINVAL);
		remote_conf_release(&c);
	}
	buf_adds(&b, HOST "userknownhostsfile");
	for (int i = 0; i < 100; i++)
		buf_addf(&b, " /known%d", i);
	for (int i = 0; i < 100; i++)
		buf_addf(&b, "\nidentityfile /key%d", i);
	struct remote_conf c = parsed(buf_str(&b), NULL, 0);
	CHECK_STR(c.keys[14], "/key14");
	CHECK(!c.keys[15]);
	CHECK_STR(c.known[6], "/known6");
	CHECK(!c.known[7]);
	remote_conf_release(&c);
}

static void agent_is(const char *line, const char *wanted)
{
	CLEAN_FREE char *text = xasprintf(HOST "%s", line);
	struct remote_conf c = parsed(text, NULL, 0);
	CHECK_STR(c.agent ? c.agent : "no agent", wanted);
	remote_conf_release(&c);
}

TEST(agents)
{
	setenv("SSH_AUTH_SOCK", "/run/agent", 1);
	setenv("OTHER_AGENT", "/run/other", 1);
	unsetenv("NO_AGENT");
	agent_is("", "/run/agent");
	agent_is("identityagent SSH_AUTH_SOCK\n", "/run/agent");
	agent_is("identityagent none\n", "no agent");
	agent_is("identityagent ~/agent\n", "/home/me/agent");
	agent_is("identityagent $OTHER_AGENT\n", "/run/other");
	agent_is("identityagent $NO_AGENT\n", "no agent");
	setenv("SSH_AUTH_SOCK", "", 1);
	agent_is("", "no agent");
	unsetenv("SSH_AUTH_SOCK");
	agent_is("identityagent SSH_AUTH_SOCK\n", "no agent");
}

#define SSH "exec ssh -o BatchMode=yes -o ServerAliveInterval=15"
#define TO  " -W '[10.0.0.7]:22' -- "

static void way_is(const char *line, const char *file, const char *wanted)
{
	CLEAN_FREE char *text = xasprintf(HOST "%s\n", line);
	struct remote_conf c = parsed(text, file, 0);
	CHECK_STR(c.proxy ? c.proxy : "none", wanted);
	remote_conf_release(&c);
}

TEST(ways)
{
	way_is("proxycommand nc -X 5 %h %p", NULL, "nc -X 5 10.0.0.7 22");
	way_is("proxycommand ~/go '%%' %r", NULL, "/home/me/go '%' me");
	way_is("proxyjump gate", NULL, SSH TO "'gate'");
	way_is("proxyjump gate", "/it's/ssh_config", SSH " -F '/it'\\''s/ssh_config'" TO "'gate'");
	way_is("proxyjump me@gate:2222", NULL, SSH " -l 'me' -p '2222'" TO "'gate'");
	way_is("proxyjump a,x@b:23,me@gate", NULL, SSH " -J 'a,x@b:23' -l 'me'" TO "'gate'");
	way_is("proxyjump me@[::1]:24", NULL, SSH " -l 'me' -p '24'" TO "'::1'");
	way_is("proxyjump [fe80::1]", NULL, SSH TO "'fe80::1'");
	way_is("proxyjump fe80::1", NULL, SSH TO "'fe80::1'");
	static const char *const bad[] = {"gate;touch", "g'ate", "$(gate)", "gate -o", "a,", "me@", "me@:22", "[]"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CLEAN_FREE char *text = xasprintf(HOST "proxyjump %s\n", bad[i]);
		struct remote_conf c = parsed(text, NULL, -EINVAL);
		CHECK(!c.proxy);
		remote_conf_release(&c);
	}
}

TEST(hosts)
{
	static const char *const good[] = {"box", "me@box.lan", "ssh://me@box:22", "[::1]", "fe80::1%eth0"};
	static const char *const bad[] = {"",
					  "-oProxyCommand=x",
					  "a b",
					  "a;b",
					  "a'b",
					  "a\nb",
					  "$x",
					  "\xc3\xa4",
					  "12345678901234567890123456789012345678901"};
	struct err err = ERR_INIT;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		CHECK_INT(remote_host_check(good[i], &err), 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		CHECK_INT(remote_host_check(bad[i], &err), -EINVAL);
}

static enum remote_trust judged(const char *known, const char *type, const char *key)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_adds(&b, known);
	return remote_judge(&b, type, key);
}

static void types_are(const char *known, const char *wanted)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_adds(&b, known);
	CLEAN_FREE char *types = remote_known_types(&b);
	CHECK_STR(types, wanted);
}

TEST(known)
{
	CHECK_INT(judged("", "ssh-ed25519", "AAA"), REMOTE_UNKNOWN);
	CHECK_INT(judged("ssh-ed25519 AAA\n", "ssh-ed25519", "AAA"), REMOTE_TRUSTED);
	CHECK_INT(judged("ssh-ed25519 AAA\n", "ssh-ed25519", "AA"), REMOTE_CHANGED);
	CHECK_INT(judged("ssh-ed25519 AAA\n", "ssh-ed25519", "AAAA"), REMOTE_CHANGED);
	CHECK_INT(judged("ssh-ed25519 BBB\nssh-ed25519 AAA\n", "ssh-ed25519", "AAA"), REMOTE_TRUSTED);
	CHECK_INT(judged("ssh-rsa AAA\n", "ssh-ed25519", "AAA"), REMOTE_OTHER_TYPE);
	CHECK_INT(judged("ssh-ed25519 AAA\n!ssh-ed25519 AAA\n", "ssh-ed25519", "AAA"), REMOTE_REVOKED);
	CHECK_INT(judged("!ssh-ed25519 BBB\n", "ssh-ed25519", "AAA"), REMOTE_UNKNOWN);
	types_are("", "");
	types_are("ssh-rsa AAA\n", "");
	types_are("ssh-rsa A\necdsa-sha2-nistp256 B\nssh-ed25519 C\n", "ssh-ed25519,ecdsa-sha2-nistp256");
	types_are("!ssh-ed25519 C\n", "");
}

CHECK_MAIN()
