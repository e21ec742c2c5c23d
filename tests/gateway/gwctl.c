/* gateway.h on the command line, for the tests of the gateway: one call a run, its result on standard output, its words
 * on standard error. The instance is that of the environment; BERTHFS names the program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "gateway/gateway.h"

static int out_of(int rc, const struct buf *out, const struct err *err)
{
	if (rc)
		fprintf(stderr, "%s\n", err->text);
	else
		fwrite(buf_str(out), 1, out->n, stdout);
	return rc ? 1 : 0;
}

static const char *arg(char **argv, int i)
{
	return argv[i] && *argv[i] ? argv[i] : NULL;
}

static int run(const struct paths *p, char **a, struct buf *out, struct err *err)
{
	const char *verb = a[0];
	char token[80];
	CLEAN_BUF struct buf in = BUF_INIT;
	if (!strcmp(verb, "start")) {
		struct gateway_options o = {.listen = arg(a, 1), .sync_each = getenv("SYNC_EACH") != NULL};
		return gateway_start(p, &o, err);
	}
	if (!strcmp(verb, "stop"))
		return gateway_stop(p, err);
	if (!strcmp(verb, "mint")) {
		int rc = gateway_token_mint(p, a[1], a[2], a[3], a[4], arg(a, 5), token, sizeof token, err);
		if (!rc)
			buf_adds(out, token);
		return rc;
	}
	if (!strcmp(verb, "revoke"))
		return gateway_token_revoke(p, a[1], a[2], err);
	if (!strcmp(verb, "network"))
		return gateway_network_set(p, a[1], a[2], err);
	if (!strcmp(verb, "key")) {
		fd_read_all(0, &in, 1 << 20);
		return gateway_key_set(p, a[1], buf_str(&in), in.n, err);
	}
	if (!strcmp(verb, "keys"))
		return gateway_key_list(p, out, err);
	if (!strcmp(verb, "policy-set")) {
		fd_read_all(0, &in, 1 << 20);
		return gateway_policy_set(p, buf_str(&in), in.n, err);
	}
	if (!strcmp(verb, "policy-get"))
		return gateway_policy_get(p, out, err);
	if (!strcmp(verb, "status"))
		return gateway_status(p, out, err);
	if (!strcmp(verb, "head"))
		return gateway_head(p, out, err);
	if (!strcmp(verb, "tokens"))
		return gateway_tokens(p, out, err);
	if (!strcmp(verb, "activity")) {
		int running;
		int64_t idle;
		int rc = gateway_activity(p, a[1], &running, &idle, err);
		buf_addf(out, "%d %lld\n", running, (long long)idle);
		return rc;
	}
	if (!strcmp(verb, "ledger")) {
		uint64_t size = 1, at = 0;
		int rc = 0;
		/* its end may lie in a line that came after the size was told */
		while (!rc && (at < size || (out->n && out->p[out->n - 1] != '\n'))) {
			size_t before = out->n;
			rc = gateway_ledger_read(p, at, 300000, out, &size, err);
			at += out->n - before;
			if (out->n == before)
				break;
		}
		return rc;
	}
	return err_set(err, EINVAL, "no such verb");
}

int main(int argc, char **argv)
{
	struct paths p;
	struct err err = ERR_INIT;
	CLEAN_BUF struct buf out = BUF_INIT;
	if (argc < 2 || paths_init(&p, &err))
		return 64;
	if (getenv("BERTHFS")) {
		free(p.self);
		p.self = xstrdup(getenv("BERTHFS"));
	}
	int rc = run(&p, argv + 1, &out, &err);
	rc = out_of(rc, &out, &err);
	paths_release(&p);
	return rc;
}
