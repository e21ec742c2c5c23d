/* Secrets in text: what is taken out, what stays, cuts, and that the time grows with the text alone. */
#include "backend/parse/redact.h"

#include <stdlib.h>
#include <time.h>

#include "backend/base/mem.h"
#include "check.h"

#define A10 "a1B2c3D4e5"
#define A20 A10 A10
#define A40 A20 A20
#define H32 "0123456789abcdef0123456789abcdef"

/* The bodies are made up; the heads are put together here so that no scanner takes this file for a leak. */
static const struct {
	const char *head, *body, *what;
} secrets[] = {
	{"sk-"
	 "ant-api03-",
	 A40 "-_x", "Anthropic key"},
	{"sk-"
	 "proj-",
	 A40, "OpenAI key"},
	{"sk-"
	 "or-v1-",
	 H32 H32, "OpenRouter key"},
	{"sk"
	 "-",
	 A40, "provider key"},
	{"gsk"
	 "_",
	 A40 A10, "Groq key"},
	{"hf"
	 "_",
	 A20 A10 "xyz", "Hugging Face token"},
	{"AI"
	 "za",
	 A20 A10 "-_x12", "Google key"},
	{"ya"
	 "29.",
	 A40, "Google token"},
	{"AK"
	 "IA",
	 "ABCDEFGH12345678", "AWS key id"},
	{"gh"
	 "p_",
	 A20 A10 "abcdef", "GitHub token"},
	{"gh"
	 "s_",
	 A20 A10 "abcdef", "GitHub token"},
	{"github"
	 "_pat_",
	 A20 "_" A40, "GitHub token"},
	{"gl"
	 "pat-",
	 A20, "GitLab token"},
	{"xox"
	 "b-",
	 "123456789012-" A20, "Slack token"},
	{"sk"
	 "_live_",
	 A20, "Stripe key"},
	{"np"
	 "m_",
	 A20 A10 "abcdef", "npm token"},
	{"dop"
	 "_v1_",
	 H32 H32, "DigitalOcean token"},
	{"SG"
	 ".",
	 A20 "." A40, "SendGrid key"},
	{"hv"
	 "s.",
	 A20 "abcdef", "Vault token"},
	{"ey"
	 "JhbGciOiJIUzI1NiJ9.ey"
	 "JzdWIiOiIxMjM0In0.",
	 A20 "-_", "JSON web token"},
};

static const char *of(const char *text)
{
	static struct buf b;
	buf_reset(&b);
	redact(&b, text, strlen(text), 0, strlen(text));
	return buf_str(&b);
}

TEST(each_shape_is_taken_out_wherever_it_stands)
{
	static const char *const around[][2] = {{"", ""},
						{"key=", "\n"},
						{"\"", "\","},
						{"x: '", "' # y"},
						{"https://u:", "@host/"},
						{"(", ")"},
						{"a\n", "\nb"},
						{"\033[1;31m", "\033[0m"},
						{"\\n ", "\\n"}};
	for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
		for (size_t k = 0; k < ARRAY_LEN(around); k++) {
			CLEAN_FREE char *text =
				xasprintf("%s%s%s%s", around[k][0], secrets[i].head, secrets[i].body, around[k][1]);
			CLEAN_FREE char *want =
				xasprintf("%s[redacted: %s]%s", around[k][0], secrets[i].what, around[k][1]);
			CHECK_STR(of(text), want);
			CHECK_STR(of(want), want); /* a second pass changes nothing */
		}
}

TEST(values_behind_names)
{
	CHECK_STR(of("AWS_SECRET_ACCESS_KEY=" A40 "\n"), "AWS_SECRET_ACCESS_KEY=[redacted: AWS secret key]\n");
	CHECK_STR(of("\"SecretAccessKey\": \"" A40 "\","), "\"SecretAccessKey\": \"[redacted: AWS secret key]\",");
	CHECK_STR(of("aws_secret_access_key = short"), "aws_secret_access_key = short");
	CHECK_STR(of("Authorization: Bearer " A20 "x.y"), "Authorization: Bearer [redacted: bearer token]");
	CHECK_STR(of("Authorization: Basic dXNlcjpwYXNz"), "Authorization: Basic [redacted: basic login]");
}

#define KEY_LINES "MIIEowIBAAKCAQEA" A40 "\n" A40 "+/" A20 "==\n"

TEST(private_key_blocks)
{
	static const char *const names[] = {"RSA PRIVATE KEY", "PRIVATE KEY",		"OPENSSH PRIVATE KEY",
					    "EC PRIVATE KEY",  "ENCRYPTED PRIVATE KEY", "PGP PRIVATE KEY BLOCK"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		CLEAN_FREE char *text =
			xasprintf("a\n-----BEGIN %s-----\n%s-----END %s-----\nb", names[i], KEY_LINES, names[i]);
		CHECK_STR(of(text), "a\n[redacted: private key]\nb");
		CLEAN_FREE char *open = xasprintf("a\n-----BEGIN %s-----\n%s", names[i], KEY_LINES);
		CHECK_STR(of(open), "a\n[redacted: private key]");
		CLEAN_FREE char *json =
			xasprintf("{\"k\":\"-----BEGIN %s-----\\nMII\\n-----END %s-----\\n\"}", names[i], names[i]);
		CHECK_STR(of(json), "{\"k\":\"[redacted: private key]\\n\"}");
	}
	const char *public_key = "-----BEGIN PUBLIC KEY-----\n" KEY_LINES "-----END PUBLIC KEY-----\n";
	CHECK_STR(of(public_key), public_key);
	const char *cert = "-----BEGIN CERTIFICATE-----\n" KEY_LINES "-----END CERTIFICATE-----\n";
	CHECK_STR(of(cert), cert);
}

TEST(what_only_looks_like_one_stays)
{
	static const char *const fine[] = {"commit 0123456789abcdef0123456789abcdef01234567",
					   "sha256:" H32 H32,
					   "npm_config_registry=x",
					   "sk-learn and sk-image",
					   "sk-this-is-a-css-class-name-that-goes-on-and-on",
					   "task-ant-colony",
					   "ghp_short",
					   "AKIA",
					   "AK"
					   "IAIOSFODNN7EXAMPLE",
					   "bearer of bad news",
					   "Bearer authentication-scheme-of-the-server",
					   "eyJhbGci",
					   "hf_hub_download(",
					   "risk-proj-x",
					   "Bearer $TOKEN",
					   "Authorization: Bearer ${process.env.API_KEY}",
					   "data:image/png;base64,iVBORw0KGgo" A40,
					   "integrity sha512-" A40 A40 "==",
					   "e3b0c442-98fc-1c14-9afb-f4c8996fb924",
					   "xoxb-",
					   "dapi",
					   "AIzaShort",
					   "-----BEGIN",
					   "----------",
					   "SG.x",
					   "pypi-publish",
					   "glpat-",
					   "https://user@host/path",
					   "\xc3\xa4\xff"
					   "sk-"};
	for (size_t i = 0; i < ARRAY_LEN(fine); i++)
		CHECK_STR(of(fine[i]), fine[i]);
}

TEST(the_machines_own_keys)
{
	setenv("SOME_PROVIDER_API_KEY", "plainly-a-word-of-mine", 1);
	setenv("SSH_KEY_FILE", "/etc/hosts/and/more", 1);
	setenv("SHORT_TOKEN", "abc", 1);
	CHECK_STR(of("x plainly-a-word-of-mine, abc /etc/hosts/and/more"),
		  "x [redacted: a key of this machine], abc /etc/hosts/and/more");
	CHECK_STR(of("plainly-a-word-of-mineplainly-a-word-of-mine"),
		  "[redacted: a key of this machine][redacted: a key of this machine]");
	unsetenv("SOME_PROVIDER_API_KEY");
}

/* Every cut through a secret: what is shown holds no piece of it. */
TEST(a_cut_leaves_no_piece)
{
	CLEAN_FREE char *block =
		xasprintf("before\n-----BEGIN PRIVATE KEY-----\n%s-----END PRIVATE KEY-----\nafter", KEY_LINES);
	CLEAN_FREE char *token = xasprintf("before %s%s after", secrets[0].head, secrets[0].body);
	const char *texts[] = {block, token};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		size_t n = strlen(texts[i]);
		for (size_t cut = 0; cut <= n; cut++) {
			CLEAN_BUF struct buf head = BUF_INIT;
			CLEAN_BUF struct buf tail = BUF_INIT;
			redact(&head, texts[i], n, 0, cut);
			redact(&tail, texts[i], n, cut, n);
			CHECK(!strstr(buf_str(&head), "a1B2") && !strstr(buf_str(&tail), "a1B2") &&
			      !strstr(buf_str(&tail), "D4e5"));
			CHECK(!strstr(buf_str(&head), "-----") && !strstr(buf_str(&tail), "---"));
		}
	}
}

/* Of the processor: a busy machine and a sanitizer count alike in both. */
static int64_t cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t time_of(const char *piece, size_t n)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf out = BUF_INIT;
	while (text.n < n)
		buf_adds(&text, piece);
	int64_t from = cpu_us();
	redact(&out, text.p, text.n, 0, text.n);
	return cpu_us() - from;
}

TEST(time_grows_with_the_text_alone)
{
	static const char *const pieces[] = {"sk-",
					     "eyJ",
					     "eyJaaaaaaaaaaaaaa.",
					     "-----BEGIN ",
					     "-----BEGIN PRIVATE KEY-----",
					     "Bearer ",
					     "aws_secret_access_key",
					     "a",
					     "-",
					     "ghp_a",
					     "sk-a ",
					     "\xff",
					     "Proc-Type",
					     "-----BEGIN PRIVATE KEY",
					     "SG.",
					     "sk-ant-",
					     "eyJ-",
					     "Bearer a/"};
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) { /* four times as much text: not sixteen times as long */
		int64_t one = time_of(pieces[i], 1 << 20), four = time_of(pieces[i], 4 << 20);
		if (four > 8 * one + 500000)
			printf("# %s: %lld us for 1 MiB, %lld us for 4 MiB\n", pieces[i], (long long)one,
			       (long long)four);
		CHECK(four <= 8 * one + 500000);
	}
}

CHECK_MAIN()
