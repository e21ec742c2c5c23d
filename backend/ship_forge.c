/* A pull request without `gh`: where a push goes says which forge and project it is, and the gateway, which has the
 * access token, does the rest. Worker threads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "gate_link.h"
#include "gateway/gateway.h"
#include "ship_pr.h"

#define TRIES  40 /* until another gateway is there */
#define TRY_MS 250

/* https://[USER@]HOST[:PORT]/PROJECT[.git], ssh:// and git:// alike, or USER@HOST:PROJECT as ssh's own tools have it.
 */
int ship_forge_parse(const char *url, char **host, char **project, struct err *err)
{
	const char *scheme = strstr(url, "://"), *at = scheme ? scheme + 3 : url;
	size_t end = strcspn(at, scheme ? "/" : ":/");
	bool place = at[end] == (scheme ? '/' : ':') && strncmp(url, "file:", 5);
	const char *user = place ? memrchr(at, '@', end) : NULL;
	const char *name = user ? user + 1 : at, *rest = at + end + strspn(at + end, ":/");
	size_t name_n = strcspn(name, scheme ? ":/" : ":"), n = strlen(rest);
	while (n && rest[n - 1] == '/')
		n--;
	if (n > 4 && !strncmp(rest + n - 4, ".git", 4))
		n -= 4;
	if (!place || !name_n || !n || !memchr(rest, '/', n))
		return err_set(err, ENOENT, "the remote is no project of a forge");
	*host = xstrndup(name, name_n);
	*project = xstrndup(rest, n);
	for (char *c = *host; *c; c++)
		*c |= *c >= 'A' && *c <= 'Z' ? 0x20 : 0;
	return 0;
}

int ship_forge_open(struct worker *w, const struct repo_pr *pr, char **link, struct err *err)
{
	CLEAN_BUF struct buf url = BUF_INIT;
	CLEAN_FREE char *host = NULL;
	CLEAN_FREE char *project = NULL;
	int rc = repo_pr_url(w->s->project, pr->remote, &url, err);
	rc = rc ? rc : ship_forge_parse(buf_str(&url), &host, &project, err);
	if (rc)
		return rc;
	struct gateway_pull pull = {host, project, pr->branch, pr->base, pr->title, pr->body};
	bool forgotten = false;
	for (int tries = 0;; tries++) {
		CLEAN_FREE char *socket = NULL;
		char token[GATE_TOKEN];
		rc = gate_token(w->b, w->s, &w->cancel, &socket, token, err);
		rc = rc ? rc : gateway_pull_request(socket, token, &pull, link, &w->cancel, err);
		explicit_bzero(token, sizeof token);
		if (rc == -EACCES && !forgotten) {
			gate_token_forget(w->b, w->id); /* it is of an earlier gateway */
			forgotten = true;
		} else if (rc == -EAGAIN && tries < TRIES && !atomic_load(&w->cancel)) {
			clock_sleep_ms(
				TRY_MS); /* it ended meanwhile; the next one looks for what this one has opened */
		} else {
			return rc;
		}
	}
}
