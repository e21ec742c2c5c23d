/* Parses `.agents/project.json`. The file comes from whoever wrote the commit: nothing in it is trusted. Any thread. */
#include "project.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"

static size_t characters(const char *s)
{
	size_t n = 0;
	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static int check_name(const struct project *p, size_t i, const char *name, struct err *err)
{
	if (!name || utf8_blank(name, strlen(name)))
		return err_set(err, EINVAL, "check %zu has no \"name\"", i + 1);
	if (characters(name) > PROJECT_CHECK_NAME)
		return err_set(err, EINVAL, "the name of check %zu is longer than %d characters", i + 1,
			       PROJECT_CHECK_NAME);
	for (const char *s = name; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return err_set(err, EINVAL, "the name of check %zu has a control character", i + 1);
	for (size_t j = 0; j < i; j++)
		if (!strcmp(p->checks[j].name, name))
			return err_set(err, EINVAL, "checks %zu and %zu are both called \"%s\"", j + 1, i + 1, name);
	return 0;
}

static int parse_timeout(const cJSON *item, size_t i, int *ms, struct err *err)
{
	int64_t seconds;
	*ms = 0;
	if (!json_get(item, "timeout"))
		return 0;
	if (!json_int(item, "timeout", &seconds) || seconds < 1 || seconds > PROJECT_TIMEOUT_MAX)
		return err_set(err, EINVAL,
			       "the \"timeout\" of check %zu is not a whole number of seconds from 1 to %d", i + 1,
			       PROJECT_TIMEOUT_MAX);
	*ms = (int)seconds * 1000;
	return 0;
}

static int parse_check(struct project *p, size_t i, const cJSON *item, struct err *err)
{
	if (!cJSON_IsObject(item))
		return err_set(err, EINVAL,
			       "check %zu is no object like {\"name\": \"test\", \"command\": \"make test\"}", i + 1);
	for (const cJSON *key = item->child; key; key = key->next)
		if (strcmp(key->string, "name") && strcmp(key->string, "command") && strcmp(key->string, "timeout"))
			return err_set(err, EINVAL,
				       "check %zu has the unknown key \"%.60s\"; known: name, command, timeout", i + 1,
				       key->string);
	const char *name = json_str(item, "name"), *command = json_str(item, "command");
	int timeout_ms, rc = check_name(p, i, name, err);
	if (rc)
		return rc;
	if (!command || utf8_blank(command, strlen(command)))
		return err_set(err, EINVAL, "check %zu (%s) has no \"command\"", i + 1, name);
	if (strlen(command) > PROJECT_COMMAND_MAX)
		return err_set(err, EINVAL,
			       "the command of check %zu (%s) is longer than %d bytes; put it into a script", i + 1,
			       name, PROJECT_COMMAND_MAX);
	rc = parse_timeout(item, i, &timeout_ms, err);
	if (!rc)
		p->checks[p->n_checks++] = (struct project_check){xstrdup(name), xstrdup(command), timeout_ms};
	return rc;
}

static int parse_checks(struct project *p, const cJSON *root, struct err *err)
{
	if (!cJSON_IsObject(root))
		return err_set(err, EINVAL, "it is no object like {\"checks\": [...]}");
	const cJSON *list = json_get(root, "checks");
	if (!list)
		return 0;
	if (!cJSON_IsArray(list))
		return err_set(err, EINVAL, "\"checks\" is no list");
	int n = cJSON_GetArraySize(list);
	if (n > PROJECT_CHECKS)
		return err_set(err, EINVAL, "it has %d checks; %d are the most", n, PROJECT_CHECKS);
	p->checks = xcalloc((size_t)n + 1, sizeof *p->checks);
	size_t i = 0;
	const cJSON *item;
	cJSON_ArrayForEach(item, list)
	{
		int rc = parse_check(p, i++, item, err);
		if (rc)
			return rc;
	}
	return 0;
}

int project_parse(const char *text, size_t n, struct project *out, struct err *err)
{
	struct err why = ERR_INIT;
	*out = (struct project){0};
	CLEAN_JSON cJSON *root = json_parse(text, n, &why);
	int rc = root ? parse_checks(out, root, &why) : -EINVAL;
	if (rc) {
		project_release(out);
		err_set(err, EINVAL, "%s: %s", PROJECT_FILE, why.text);
	}
	return rc;
}

void project_release(struct project *p)
{
	for (size_t i = 0; i < p->n_checks; i++) {
		free(p->checks[i].name);
		free(p->checks[i].command);
	}
	free(p->checks);
	*p = (struct project){0};
}
