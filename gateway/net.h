/* Host names and addresses: how they are written, and which of them are public. Any thread; never resolves. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* "host", "host:port", "1.2.3.4:5", "[::1]:5" -> lower-case host (no brackets) and port (fallback if none). 0 or
 * -EINVAL. */
int net_host_port(const char *text, int fallback, char *host, size_t cap, int *port);
bool net_is_literal(const char *host); /* an address in any of the forms that a resolver takes, and not a name */
bool net_near(const char *host);       /* localhost, or a literal that is loopback or private */
/* An address of the public internet: not private, loopback, link-local, shared (CGN), multicast, reserved, nor an IPv4
 * address inside an IPv6 one that is not public itself, nor a cloud's metadata service. */
bool net_public(const struct sockaddr *sa);
bool net_own(const struct sockaddr *sa); /* an address of this machine's interfaces */
/* "1.2.3.4:5" or "[::1]:5" into an address; its length, or -EINVAL. */
int net_parse(const char *text, struct sockaddr_storage *out);
