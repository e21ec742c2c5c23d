/* What the tools must not show or touch. Any thread; must never look at a file. */
#include "gate.h"

#include <errno.h>

#include "backend/base/guard.h"

const char gate_protected[] =
	/* settings that hold secrets */
	".env .env.* .envrc !.env.example !.env.sample !.env.template !.env.dist "
	/* private keys */
	"id_rsa id_dsa id_ecdsa id_ed25519 id_ecdsa_sk id_ed25519_sk *.p12 *.pfx *.jks *.keystore *.kdbx *.ppk "
	"*.key.pem *-key.pem "
	"privkey*.pem .ssh/ !.ssh/*.pub !.ssh/known_hosts .gnupg/ .password-store/ "
	/* logins of tools */
	".netrc .npmrc .pypirc .pgpass .git-credentials .vault-token .docker/config.json .kube/config .aws/ .azure/ "
	".config/gcloud/ .config/gh/ .config/glab-cli/ .config/github-copilot/ .config/op/ .config/rclone/ "
	".cargo/credentials "
	".cargo/credentials.toml .gem/credentials .terraform.d/credentials.tfrc.json "
	/* logins of agents */
	".claude/.credentials.json .claude.json .codex/auth.json .gemini/oauth_creds.json .pi/agent/auth.json "
	".local/share/opencode/auth.json "
	/* what a process was given */
	"/proc/*/environ /proc/*/task/*/environ /proc/*/mem";

int gate_path(const char *list, const char *path, struct err *err)
{
	char pattern[GUARD_WORD_MAX + 1] = "";
	if (!guard_match(list, path, pattern, sizeof pattern))
		return 0;
	return err_set(err, EACCES, "it is protected (it matches %s); nothing of it is read or written by this tool",
		       pattern);
}

void gate_prompt(const char *list, struct buf *out)
{
	if (list && *list)
		buf_addf(out,
			 "\nSome files are protected; read, write and edit refuse them under every name: %s. Do not "
			 "get at them by bash "
			 "either, and do not look for credentials elsewhere: ask the user for what you need.\n",
			 list);
	buf_adds(out, "\nWhat looks like a secret in a tool's output is replaced by [redacted: ...]. The file still "
		      "holds the secret: do "
		      "not write such a mark back into it, and change only other lines of it.\n");
}
