/* hostile SOCKET HOW: listens there in place of a tool daemon. HOW: silent, pongs, drip, running, exit, codes. */
#include <pthread.h>
#include <stdio.h>

#include "hostile.h"

static enum hostile how;

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	hostile_serve(fd, how);
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"not", "silent", "pongs", "drip", "running", "exit", "codes"};
	struct err err = ERR_INIT;
	while (argc == 3 && how < ARRAY_LEN(names) && strcmp(names[how], argv[2]))
		how++;
	int fd = argc == 3 && how < ARRAY_LEN(names) ? unix_listen(argv[1], 0600, &err) : -1;
	if (fd < 0) {
		fprintf(stderr, "hostile: %s\n", err.code ? err.text : "usage: hostile SOCKET HOW");
		return 1;
	}
	atomic_store(&hostile_code, ECANCELED);
	puts("ready");
	fflush(stdout);
	for (int c; (c = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
		pthread_t t;
		pthread_create(&t, NULL, serve, (void *)(intptr_t)c);
		pthread_detach(t);
	}
	return 0;
}
