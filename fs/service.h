/* What a service manager is told (Type=notify of systemd). Main thread only. */
#pragma once

struct service {
	char *socket; /* address it listens at; NULL: nobody asked */
};

/* Takes the address out of the environment, so that no child speaks in our name. Call it before there are threads. */
void service_init(struct service *s);
void service_release(struct service *s);
/* Told when the tree can be used, with where it is mounted; and when the daemon has begun to finish. Neither fails: a
 * manager that does not listen is logged. */
void service_ready(const struct service *s, const char *dir);
void service_stopping(const struct service *s);
